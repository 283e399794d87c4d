"""The one statistic: paired, on logarithms, right about all comparisons together."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.results.statistics import LEVEL, compare, find_winner, mean_of


def draws(*values, block=0):
    return {(block, seed): value for seed, value in enumerate(values)}


def test_with_two_seeds_an_error_of_15_against_055_is_not_chance():
    samples = {"amp": draws(0.08, 1.02), "linear": draws(12.6, 17.4), "ridge": draws(0.95, 0.96)}
    winner = find_winner(samples, lower_is_better=True)
    assert winner.best == "amp"
    assert "linear" not in winner.tied


def test_the_table_of_the_complaint_reads_as_it_should():
    samples = {"amp": draws(0.5, 0.6), "linear": draws(14.0, 16.0)}
    winner = find_winner(samples, lower_is_better=True)
    assert winner.tied == ()
    assert "use amp (error 0.548): linear has 27.3 times" in winner.sentence("one estimate")


def null_tables(rng, n_decoders, n_draws, std):
    """Decoders that are equally good: a luck of the draw that all share, and one of their own."""
    luck = rng.normal(0, 1.0, n_draws)
    own = rng.normal(0, std / math.sqrt(2), (n_decoders, n_draws))
    return {f"d{k}": draws(*np.exp(luck + row)) for k, row in enumerate(own)}


@pytest.mark.parametrize(("n_draws", "std"), [(2, 0.05), (2, 0.5), (3, 0.3), (5, 0.5), (10, 2.0)])
def test_false_alarms_over_2000_null_comparisons_come_at_the_nominal_rate(n_draws, std):
    rng = np.random.default_rng([n_draws, int(100 * std)])
    tables = 2000
    alarms = 0
    for _ in range(tables):
        winner = find_winner(null_tables(rng, 5, n_draws, std), lower_is_better=True)
        alarms += any(gap.is_certain for gap in winner.gaps.values())
    most = stats.binom.isf(1e-6, tables, 1 - LEVEL)
    assert alarms <= most


def test_the_interval_of_one_comparison_covers_as_often_as_it_says():
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(2000):
        logs = rng.normal(math.log(2), 0.5, 4)
        gap = compare(draws(*np.exp(logs)), draws(1, 1, 1, 1), ratio=True)
        covered += gap.low <= 2 <= gap.high
    assert stats.binom.isf(1 - 1e-6, 2000, LEVEL) <= covered
    assert covered < 2000 * 0.995  # and is not as wide as one likes


def test_many_draws_find_a_small_difference():
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 1.0, 20)
    a, b = np.exp(luck), np.exp(luck + math.log(1.1) + rng.normal(0, 0.02, 20))
    gap = compare(draws(*b), draws(*a), ratio=True, comparisons=10)
    assert gap.matters
    assert gap.value == pytest.approx(1.1, rel=0.02)


def test_the_plain_interval_is_students():
    values = np.array([0.81, 0.84, 0.79, 0.88])
    found = mean_of(draws(*values), geometric=False)
    low, high = stats.t.interval(LEVEL, 3, values.mean(), stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert not found.geometric
    assert str(found) == "0.83 ± 0.06"


def test_means_of_errors_are_geometric_and_say_so():
    found = mean_of(draws(0.1, 10.0), geometric=True)
    assert found.mean == pytest.approx(1.0)
    assert found.geometric
    assert "×/÷" in str(found)


def test_one_draw_gives_a_mean_and_no_interval():
    found = mean_of(draws(0.5), geometric=True)
    assert (found.mean, found.is_known, str(found)) == (pytest.approx(0.5), False, "0.5")
    winner = find_winner({"a": draws(0.5), "b": draws(50.0)}, lower_is_better=True)
    assert winner.tied == ("b",)
    assert "no clear winner from one draw" in winner.sentence("one estimate")


def test_what_rounds_differ_in_does_not_widen_an_interval():
    near = draws(1.0, 1.1, block=2) | draws(100.0, 110.0, block=7)
    alone = draws(1.0, 1.1, 100.0, 110.0)
    assert mean_of(near, geometric=True).high < mean_of(alone, geometric=True).high / 2


def test_the_mean_of_every_round_costs_a_degree_of_freedom():
    values = {(2, 0): 0.80, (2, 1): 0.84, (7, 0): 0.60, (7, 1): 0.68}
    squares = 2 * 0.02**2 + 2 * 0.04**2  # about the means 0.82 and 0.64
    half = stats.t.isf(0.025, 4 - 2) * math.sqrt(squares / (4 - 2) / 4)
    found = mean_of(values, geometric=False)
    assert (found.low, found.high) == pytest.approx((0.73 - half, 0.73 + half))


def test_only_draws_that_both_have_are_compared():
    gap = compare({(0, 0): 2.0, (0, 1): 4.0, (0, 9): 1e9}, draws(1.0, 2.0), ratio=True)
    assert (gap.value, gap.n) == (pytest.approx(2.0), 2)
    with pytest.raises(ValueError, match="no draw in common"):
        compare(draws(1.0), {(0, 5): 1.0}, ratio=True)


def test_accuracies_are_compared_by_differences_and_the_higher_wins():
    samples = {
        "a": draws(0.80, 0.81, 0.82),
        "b": draws(0.90, 0.91, 0.92),
        "c": draws(0.9, 0.9, 0.93),
    }
    winner = find_winner(samples, lower_is_better=False)
    assert winner.best in ("b", "c")
    assert "a" not in winner.tied
    gap = winner.gaps["a"]
    assert not gap.is_ratio
    assert gap.value == pytest.approx(-0.1, abs=0.01)


def test_others_stand_by_their_distance_those_within_chance_first():
    accuracies = {"far": draws(0.7, 0.71), "best": draws(0.9, 0.91), "near": draws(0.8, 0.81)}
    assert list(find_winner(accuracies, lower_is_better=False).gaps) == ["near", "far"]
    errors = {
        "far": draws(1.2, 1.2, 1.2),
        "near": draws(1.1, 1.1, 1.1),
        "best": draws(1.0, 1.0, 1.0),
        "uncertain": draws(0.4, 2.0, 4.0),
    }
    assert list(find_winner(errors, lower_is_better=True).gaps) == ["uncertain", "near", "far"]


def test_a_difference_below_one_per_cent_does_not_matter():
    gap = compare(draws(1.005, 1.005, 1.005), draws(1.0, 1.0, 1.0), ratio=True)
    assert gap.is_certain
    assert not gap.matters


def test_equal_numbers_are_tied_and_errors_of_zero_are_numbers():
    winner = find_winner({"a": draws(1.0, 2.0), "b": draws(1.0, 2.0)}, lower_is_better=True)
    assert winner.tied == ("b",)
    assert str(winner) == "a ≈ b"
    zero = find_winner({"a": draws(0.0, 0.0), "b": draws(1.0, 2.0)}, lower_is_better=True)
    assert zero.best == "a"
    assert zero.gaps["b"].low > 1


def test_a_decoder_that_shrinks_in_vain_is_told():
    winner = find_winner({"a": draws(3.0, 3.1), "b": draws(9.0, 9.1)}, lower_is_better=True)
    assert "answering zero would do as well" in winner.sentence("one estimate")
    assert "answering zero" not in winner.sentence("training", shrinks=False)
    only = find_winner({"a": draws(0.5, 0.5)}, lower_is_better=True)
    assert only.sentence("one estimate") == "For one estimate only a was tried (error 0.5)."


def test_without_the_correction_false_alarms_exceed_the_rate(monkeypatch):
    """What the correction is for: this is the negative control of the test above."""
    import experiments.results.statistics as module

    true = module.compare
    monkeypatch.setattr(
        module, "compare", lambda a, b, *, ratio, comparisons: true(a, b, ratio=ratio)
    )
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(2000):
        winner = module.find_winner(null_tables(rng, 5, 5, 0.5), lower_is_better=True)
        alarms += any(gap.is_certain for gap in winner.gaps.values())
    assert alarms > stats.binom.isf(1e-6, 2000, 1 - LEVEL)


@pytest.mark.parametrize(
    "values", [(0.4, 0.9), (0.5, 0.5001), (0.2, 0.3, 0.9), (1, 1, 1, 1, 2), (1, 2, 3, 4, 5, 6)]
)
def test_the_interval_of_errors_is_the_narrower_of_two_students_intervals(values):
    logs = np.log(values)
    n = len(logs)
    found = mean_of(draws(*values), geometric=True)
    halves = [stats.t.isf(0.025, n - 1) * logs.std(ddof=1) / math.sqrt(n)]
    if n - 1 < 4:  # half of the rate for each: measured alone, and with a prior of four draws
        pooled = (np.sum((logs - logs.mean()) ** 2) + 4 * 0.25) / (n - 1 + 4)
        halves = [stats.t.isf(0.0125, n - 1) * logs.std(ddof=1) / math.sqrt(n)]
        halves += [stats.t.isf(0.0125, n + 3) * math.sqrt(pooled / n)]
    half = min(halves)
    expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    assert (found.mean, found.low, found.high) == pytest.approx(tuple(expected))
