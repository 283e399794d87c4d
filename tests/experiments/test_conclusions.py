"""Conclusions and claims, from results made up so that the answer is known."""

import dataclasses
import math

import pytest

from experiments.results.conclusions import (
    conclude,
    crossing,
    is_within,
    largest_within_slack,
    slack_gap,
)
from experiments.results.statistics import Interval
from experiments.results.table import SweepTable
from experiments.results.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    Law,
    allowed_rises,
    coordinates_beat_bits,
    judge_laws,
    never_behind,
    shortest_messages,
)
from experiments.sweeps.cells import MeanCell, TaskCell
from experiments.sweeps.presets import PRESETS
from experiments.sweeps.store import Result

BASE = MeanCell(mean="dense")


def made_up(axes, cells, value, n_seeds=4, spread=0.01):
    """A table whose cells have the given mean and a spread that pairs over seeds."""
    results = []
    for seed in range(n_seeds):
        for cell in cells:
            mean = value(cell)
            noise = spread * (-1) ** seed * (1 + 0.1 * seed)
            status = "infeasible" if mean is None else "done"
            metrics = {}
            if mean is not None:
                bits = (cell.spec.n_bits or 16) / (cell.spec.compression or 1)
                metrics = {cell.metric: mean * (1 + noise), "bits_per_parameter": bits}
            results.append(Result(cell.with_values(seed=seed), status, metrics, ""))
    return SweepTable(results, axes)


def curve(decoder, errors):
    return {(decoder, s): e for s, e in errors.items()}


def sparsity_table(errors):
    cells = [MeanCell(decoder=decoder, sparsity=s, dim=9999) for decoder, s in errors]
    return made_up(("sparsity",), cells, lambda cell: errors[cell.decoder, cell.sparsity])


def test_the_crossing_point_is_found_between_the_values_around_it():
    plain = curve("ridge", {10: 1.0, 100: 1.0, 1000: 1.0}) | curve(
        "linear", dict.fromkeys((10, 100, 1000), 9.0)
    )
    sparse = curve("amp", {10: 0.1, 100: 0.5, 1000: 2.0})
    (line,) = crossing(sparsity_table(plain | sparse), 0.0).lines
    assert "pay up to nonzero entries s = 100 (amp 0.5, ridge 0.999)" in line
    assert "from 1000 on they do not (amp 2, ridge 0.999: worse)" in line
    # log(0.5) to log(2) crosses zero half way, in logarithms, between 100 and 1000
    assert "cross at about 320" in line


def test_decoders_that_always_or_never_pay_are_said_to():
    always = curve("ridge", {10: 1.0, 100: 1.0}) | curve("amp", {10: 0.1, 100: 0.2})
    assert "the last value tried" in crossing(sparsity_table(always), 0.0).lines[0]
    never = curve("ridge", {10: 1.0, 100: 1.0}) | curve("amp", {10: 1.1, 100: 1.2})
    assert "no sparse decoder beats" in crossing(sparsity_table(never), 0.0).lines[0]
    alone = curve("amp", {10: 1.1, 100: 1.2})
    assert "needs a plain decoder" in crossing(sparsity_table(alone), 0.0).lines[0]


def test_the_first_value_at_which_sparse_decoders_do_not_pay_is_named():
    plain = curve("ridge", dict.fromkeys((10, 100, 1000, 3000), 1.0))
    sparse = curve("amp", {10: 0.1, 100: 0.5, 1000: 2.0, 3000: 8.0})
    (line,) = crossing(sparsity_table(plain | sparse), 0.0).lines
    assert "from 1000 on they do not" in line


def test_each_encoder_has_a_crossing_of_its_own():
    errors = {"count_sketch": 0.5, "gaussian": 2.0}
    cells = [
        MeanCell(decoder=decoder, encoder=encoder, sparsity=s)
        for encoder in errors
        for decoder in ("ridge", "amp")
        for s in (10, 100)
    ]
    table = made_up(
        ("sparsity",), cells, lambda c: 1.0 if c.decoder == "ridge" else errors[c.spec.encoder]
    )
    first, second = crossing(table, 0.0).lines
    assert first.startswith("count_sketch: sparse decoders pay up to")
    assert second.startswith("gaussian: no sparse decoder beats")


def scattered(table, center, width, where):
    """The table with another error in some cells: a mean, and a scatter that does not pair."""
    found = []
    for result in table.results:
        value = center * math.exp(width * (-1) ** result.cell.seed)
        metrics = result.metrics | ({table.metric: value} if where(result.cell) else {})
        found.append(dataclasses.replace(result, metrics=metrics))
    return SweepTable(found, table.axes)


def test_what_one_comparison_would_call_certain_is_chance_among_several():
    def better_amp(errors):
        cells = [MeanCell(decoder=d, sparsity=s) for d in errors for s in (10, 20)]
        made = made_up(("sparsity",), cells, lambda c: errors[c.decoder], spread=0.0)
        return scattered(made, math.exp(-0.16), 0.05, lambda cell: cell.decoder == "amp")

    two, four = {"linear": 1.0, "amp": 1.0}, {"linear": 1.0, "amp": 1.0, "ridge": 9.0, "omp": 9.0}
    assert "sparse decoders pay" in crossing(better_amp(two), 0.0).lines[0]
    assert "no sparse decoder beats" in crossing(better_amp(four), 0.0).lines[0]
    words = "amp against linear: better in {} settings, worse in 0, within chance in {}."
    assert words.format(2, 0) in conclude(better_amp(two), "training").lines
    assert words.format(0, 2) in conclude(better_amp(four), "training").lines


def test_the_best_setting_is_that_of_least_error_or_most_accuracy():
    errors = {"linear": 0.9, "amp": 0.5}
    cells = [MeanCell(decoder=name, compression=5.0) for name in errors]
    table = made_up(("compression",), cells, lambda cell: errors[cell.decoder])
    assert "Best relative error: 0.5" in conclude(table, None).lines[0]
    cells = [TaskCell.of("digits", decoder=name, compression=5.0) for name in errors]
    table = made_up(("compression",), cells, lambda cell: errors[cell.spec.decoder])
    assert "Best accuracy: 0.9" in conclude(table, None).lines[0]


def test_slack_is_a_factor_of_errors_and_a_difference_of_accuracies():
    three, two = ({(0, seed): value for seed in (0, 1)} for value in (3.0, 2.0))
    gap = slack_gap(three, two, 1.0, lower=True)
    assert gap.value == pytest.approx(3 / (2 * 2))
    assert is_within(gap)
    low, high = ({(0, seed): value for seed in (0, 1)} for value in (0.90, 0.95))
    gap = slack_gap(low, high, 0.01, lower=False)
    assert gap.value == pytest.approx(0.04)
    assert not is_within(gap)


def slack_table(allowed, axis="noise_multiplier"):
    """Errors double at r = allowed[value] and stay below before."""
    rates = (1.0, 2.0, 5.0, 10.0)
    cells = [BASE.with_values(**{axis: v}, compression=r) for v in allowed for r in rates]

    def error(cell):
        return 1.5 if cell.compression <= allowed[getattr(cell, axis)] else 5.0

    def value(cell):
        return 1.0 if cell.compression == 1 else error(cell)

    return made_up((axis, "compression"), cells, value)


def test_the_largest_compression_within_the_slack_is_found_for_each_noise():
    table = slack_table({0.3: 1, 1.0: 2, 3.0: 10})
    found = largest_within_slack(table, "noise_multiplier", 1.0)
    assert [(row.value, row.compression, row.decided) for row in found] == [
        (0.3, 1, True),
        (1.0, 2, True),
        (3.0, 10, True),
    ]


def test_a_rate_counts_as_within_only_if_every_smaller_one_is():
    table = slack_table({1.0: 10})
    worse = [
        dataclasses.replace(r, metrics={**r.metrics, "relative_error": 9.0})
        if r.cell.compression == 2
        else r
        for r in table.results
    ]
    (found,) = largest_within_slack(SweepTable(worse, table.axes), "noise_multiplier", 1.0)
    assert found.compression == 1


NOISE = allowed_rises("more noise, more compression", "noise_multiplier")
COHORT = allowed_rises("more clients, less compression", "clients", rises=False)


def test_claims_hold_on_the_papers_shapes_and_not_on_the_opposite():
    def noise(allowed):
        return NOISE(slack_table(allowed), 1.0).outcome

    assert noise({0.3: 1, 1.0: 2, 3.0: 10}) == HOLDS
    assert noise({0.3: 10, 1.0: 2, 3.0: 1}) == FAILS
    assert noise({0.3: 2, 1.0: 2, 3.0: 2}) == FAILS
    assert noise({0.3: 1, 1.0: 10, 3.0: 5}) == OPEN  # not in order
    assert noise({0.3: 10, 1.0: 10, 3.0: 10}) == OPEN  # nothing tried was too much
    assert COHORT(slack_table({25: 10, 50: 5, 100: 1}, "clients"), 1.0).outcome == HOLDS
    assert COHORT(slack_table({25: 1, 50: 5, 100: 10}, "clients"), 1.0).outcome == FAILS


def test_coordinates_beat_bits_where_their_message_is_shorter():
    judge = coordinates_beat_bits("fewer coordinates")
    assert judge(bits_table(fewest_bits=12, most_compression=10), 1.0).outcome == HOLDS
    assert judge(bits_table(fewest_bits=4, most_compression=1), 1.0).outcome == FAILS


def test_a_way_that_may_be_as_cheap_leaves_the_claim_open():
    judge = coordinates_beat_bits("fewer coordinates")
    table = scattered(  # four bits are beyond the slack, and chance could explain that
        bits_table(fewest_bits=12, most_compression=2), 2.2, 0.5, lambda cell: cell.n_bits == 4
    )
    assert judge(table, 1.0).outcome == OPEN


def test_a_limit_by_chance_is_no_witness():
    table = slack_table({0.3: 1, 3.0: 10})
    assert NOISE(table, 1.0).outcome == HOLDS
    loose = scattered(  # within the slack of 2, maybe
        table, 1.5, 0.5, lambda c: c.noise_multiplier == 3.0 and c.compression > 1
    )
    assert NOISE(loose, 1.0).outcome == OPEN


def test_pairs_are_held_together():
    reference = {(0, k): 0.9 for k in range(4)}
    values = {(0, k): 0.89242 + 0.001 * (-1) ** k for k in range(4)}  # t = 4.2, three degrees
    table = made_up(("compression",), [TaskCell.of("digits", compression=2.0)], lambda cell: 0.5)
    for pairs, outcome in (1, HOLDS), (4, OPEN):
        told = [(f"pair {k}", values, reference) for k in range(pairs)]
        assert never_behind("as good", lambda _: told)(table, 0.01).outcome == outcome  # noqa: B023


@pytest.mark.parametrize(
    ("first", "outcome"), [(0.90, HOLDS), (0.88, FAILS), (0.8901, OPEN), (0.8899, OPEN)]
)
def test_who_may_not_fall_behind_by_more_than_the_slack(first, outcome):
    def accuracies(mean, spread=0.0):
        return {(0, k): mean + spread * (-1) ** k for k in range(4)}

    pairs = [("a against b", accuracies(first, 0.001), accuracies(0.90))]
    table = made_up(("compression",), [TaskCell.of("digits", compression=2.0)], lambda cell: 0.5)
    assert never_behind("a is as good as b", lambda _: pairs)(table, 0.01).outcome == outcome


def test_a_claim_that_chance_could_explain_fails():
    table = slack_table({0.3: 1, 1.0: 2, 3.0: 10})
    wide = [
        dataclasses.replace(
            result, metrics={**result.metrics, "relative_error": 5.0 * 10**result.cell.seed}
        )
        for result in table.results
    ]
    assert NOISE(SweepTable(wide, table.axes), 1.0).outcome == OPEN


def bits_table(fewest_bits, most_compression):
    cells = [BASE.with_values(n_bits=b, compression=r) for b in (4, 8, 12, 16) for r in (1, 2, 10)]

    def value(cell):
        if cell.n_bits == 8 and cell.compression == 10:
            return None
        return 1.0 if cell.n_bits >= fewest_bits and cell.compression <= most_compression else 9.0

    return made_up(("n_bits", "compression"), cells, value)


def test_the_shortest_message_is_found_by_each_way():
    ways, longest = shortest_messages(bits_table(12, 10), 1.0)
    assert longest == (16, 1)
    assert {name: found.cost for name, (found, _) in ways.items()} == {
        "fewer bits": 12,
        "fewer coordinates": 1.6,
        "both": 1.2,
    }


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["mean", "task"])
def test_every_preset_has_something_to_say(preset, kind):
    wanted = PRESETS[preset]
    axes = dict(wanted.axes_for(kind))
    base = (
        wanted.mean if kind == "mean" else TaskCell.of("digits", compression=1, noise_multiplier=1)
    )
    cells = [base]
    for name, values in axes.items():
        cells = [cell.with_values(**{name: value}) for cell in cells for value in values]
    decoders = wanted.decoders if kind == "mean" else wanted.task_decoders
    if kind not in ("mean", "task") or not axes:
        pytest.skip("the preset is about means")
    cells = [cell.with_values(decoder=d) for cell in cells for d in decoders]
    table = made_up(tuple(axes), cells, lambda cell: 0.5 + len(cell.spec.decoder) / 100)
    conclusion = conclude(table, preset)
    assert conclusion.lines
    assert all(set(place) == set(axes) for place in conclusion.marked)


def test_a_table_of_one_result_has_fixed_parameters():
    only = SweepTable([Result(MeanCell(dim=77), "done", {"relative_error": 1.0})], ("compression",))
    assert only.fixed["dim"] == 77


def test_means_are_geometric_for_errors_and_arithmetic_for_accuracies():
    for cell, values, mean in (
        (MeanCell(), (1.0, 4.0), 2.0),
        (TaskCell.of("digits"), (0.2, 0.8), 0.5),
    ):
        results = [
            Result(cell.with_values(seed=k), "done", {cell.metric: value, "both": k})
            for k, value in enumerate(values)
        ]
        unknown = Result(cell.with_values(seed=2), "failed", {}, "why")
        (row,) = SweepTable([*results, unknown], ("compression",)).summary()
        assert row.interval.mean == pytest.approx(mean)
        assert row.interval.geometric == (cell.metric == "relative_error")
        assert (row.extra, row.status, row.message) == ({"both": 0.5}, "done, failed", "why")


def test_a_limit_is_decided_only_where_both_sides_of_it_are():
    cells = [BASE.with_values(noise_multiplier=1.0, compression=r) for r in (1, 10, 100)]
    errors = {1: 1.0, 10: 1.5, 100: 2.001}  # twice the error is allowed: 100 is a hair beyond
    made = made_up(
        ("noise_multiplier", "compression"),
        cells,
        lambda cell: errors[cell.spec.compression],
        spread=0.0,
    )
    for k, result in enumerate(made.results):  # a scatter that does not pair over seeds
        if result.cell.spec.compression == 100:
            result.metrics["relative_error"] *= 1.2 if k % 2 else 1 / 1.2
    (row,) = largest_within_slack(made, "noise_multiplier", 1.0)
    assert (row.compression, row.decided) == (10, False)


def test_better_worse_and_within_chance_are_counted():
    errors = {"linear": 1.0, "amp": 0.5, "ridge": 3.0, "median": 1.0}
    cells = [MeanCell(mean="power_law", decoder=name, compression=5.0) for name in errors]
    made = made_up(("compression",), cells, lambda cell: errors[cell.decoder])
    lines = conclude(made, "training").lines
    assert "amp against linear: better in 1 settings, worse in 0, within chance in 0." in lines
    assert "ridge against linear: better in 0 settings, worse in 1, within chance in 0." in lines
    assert "median against linear: better in 0 settings, worse in 0, within chance in 1." in lines


def test_a_theorem_holds_only_if_all_its_laws_do():
    sure, open_, wrong = (
        Law("error", Interval(1.0, low, high, 3), 0.0, 2.0)
        for low, high in ((0.9, 1.1), (0.5, 3.0), (2.5, 3.0))
    )
    assert judge_laws("theorem", [sure]).outcome == HOLDS
    assert judge_laws("theorem", [sure, open_]).outcome == OPEN
    assert judge_laws("theorem", [sure, open_, wrong]).outcome == FAILS
