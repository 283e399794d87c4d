"""What a sweep shows, in words: crossing points, slack, and differences beyond chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from experiments.results.statistics import Gap, Samples, compare, find_winner, mean_of
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES

#: Decoders that make no use of sparsity or of any other structure.
PLAIN = ("linear", "median", "ridge")
#: Errors may double; accuracies may fall by one point.
SLACK = {"relative_error": 1.0, "accuracy": 0.01}


@dataclass(frozen=True)
class Conclusion:
    """Sentences about a sweep, and the settings to mark in its picture."""

    lines: tuple[str, ...]  # one statement each
    marked: tuple[dict[str, Any], ...] = field(default=())  # settings, by the names of the axes


def conclude(table: SweepTable, preset: str | None, slack: float | None = None) -> Conclusion:
    """Return what a sweep shows; presets know what to look for."""
    rule = CONCLUSIONS.get(preset or "", _best_setting)
    used = SLACK.get(table.metric, 1.0) if slack is None else slack
    return rule(table, used)


# --- where sparse decoders stop paying -----------------------------------------------------------


def crossing(table: SweepTable, slack: float) -> Conclusion:
    """State up to which value of the axis a sparse decoder beats the plain ones."""
    (axis,) = table.axes
    lines = []
    encoders = list(dict.fromkeys(result.cell.spec.encoder for result in table.results))
    for encoder in encoders:
        groups, central = {}, {}
        for group in table.groups("decoder").values():
            cell = group[0].cell
            if cell.spec.encoder == encoder:
                value = getattr(cell, axis)
                groups[value] = table.samples(group, table.metric)
                central[value] = group[0].metrics.get("theory_central")
        lines.append(f"{encoder}: {_crossing_of(axis, groups, table.lower_is_better)}")
        below = _below_central(groups, central)
        if below is not None:
            lines.append(
                f"{encoder}: up to {AXES[axis].label} = {below:g} the best of them errs less than "
                "a trusted server would without any compression."
            )
    return Conclusion(tuple(lines))


def _below_central(
    groups: dict[Any, dict[str, Samples]], central: dict[Any, float | None]
) -> float | None:
    """Return the last value, from the smallest on, at which a decoder beats central noise."""
    last = None
    for value in sorted(groups):
        bound = central[value]
        if bound is None or min(map(_error, groups[value].values())) >= bound:
            break
        last = value
    return last


def _crossing_of(axis: str, groups: dict[Any, dict[str, Samples]], lower: bool) -> str:
    leads: dict[Any, tuple[str, str, Gap, float, float]] = {}
    for value in sorted(groups):
        samples = groups[value]
        plain = {name: s for name, s in samples.items() if name.partition(":")[0] in PLAIN}
        sparse = {name: s for name, s in samples.items() if name not in plain}
        if not plain or not sparse:
            return "needs a plain decoder (linear, median, ridge) and a sparse one to compare."
        best = find_winner(sparse, lower_is_better=lower).best
        rival = find_winner(plain, lower_is_better=lower).best
        # every pair of a sparse and a plain decoder might have been the one
        pairs = len(sparse) * len(plain)
        gap = compare(sparse[best], plain[rival], ratio=lower, comparisons=pairs)
        error, other = (mean_of(s, geometric=lower).mean for s in (sparse[best], plain[rival]))
        leads[value] = (best, rival, gap, error, other)
    label = AXES[axis].label
    pays = [v for v, lead in leads.items() if _is_better(lead[2], lower)]
    if not pays:
        return f"no sparse decoder beats the plain ones at any {label}."
    last = max(pays)
    best, rival, _, error, other = leads[last]
    text = f"sparse decoders pay up to {label} = {last:g} ({best} {error:.3g}, {rival} {other:.3g})"
    beyond = [value for value in leads if value > last]
    if not beyond:
        return f"{text}, the last value tried; they cross beyond it."
    after = min(beyond)
    best, rival, gap, error, other = leads[after]
    how = "worse" if gap.is_certain else "a tie"
    place = _interpolate(last, leads[last], after, leads[after])
    where = f"; the curves cross at about {float(f'{place:.2g}'):g}" if place is not None else ""
    against = f"{best} {error:.3g}, {rival} {other:.3g}: {how}"
    return f"{text}; from {after:g} on they do not ({against}){where}."


def _interpolate(a: float, lead: Any, b: float, next_lead: Any) -> float | None:
    """Return where two curves meet, straight lines in logarithms; None if they do not before b."""
    first, second = math.log(lead[3] / lead[4]), math.log(next_lead[3] / next_lead[4])
    if first * second >= 0 or a <= 0:
        return None
    share = first / (first - second)
    return math.exp(math.log(a) + share * (math.log(b) - math.log(a)))


# --- slack ---------------------------------------------------------------------------------------


def slack_gap(values: Samples, reference: Samples, slack: float, lower: bool) -> Gap:
    """Return by how much values exceed what the slack allows, paired over draws.

    Errors may be 1 + slack times the reference's, accuracies slack below it. Ratios below 1 and
    differences below 0 are within.
    """
    if lower:
        allowed = {draw: (1 + slack) * value for draw, value in reference.items()}
        return compare(values, allowed, ratio=True)
    return compare({d: v - slack for d, v in reference.items()}, values, ratio=False)


def is_within(gap: Gap) -> bool:
    """Return whether the estimate of a :func:`slack_gap` is within the slack."""
    return gap.value <= gap.neutral


def _is_better(gap: Gap, lower: bool) -> bool:
    """Return whether the first of a comparison is surely better."""
    return gap.is_certain and (gap.value < gap.neutral) == lower


@dataclass(frozen=True)
class Allowed:
    """The largest compression within the slack, at one value of the other axis."""

    value: float
    compression: float
    decided: bool
    gaps: dict[float, Gap]


def largest_within_slack(table: SweepTable, other: str, slack: float) -> list[Allowed]:
    """Return, for every value of the other axis, the largest r whose mean is within the slack."""
    found = []
    for value in sorted({getattr(result.cell, other) for result in table.results}):
        curve = samples_by(table, "compression", **{other: value})
        reference = curve.get(min(curve))
        if not reference:
            continue
        gaps = {
            r: slack_gap(curve[r], reference, slack, table.lower_is_better)
            for r in sorted(curve)
            if curve[r]
        }
        best = max([r for r in gaps if is_within(gaps[r])] or [min(gaps)])
        outside = [r for r in gaps if r > best]
        decided = gaps[best].is_certain and (not outside or gaps[min(outside)].is_certain)
        found.append(Allowed(value, best, decided, gaps))
    return found


def samples_by(table: SweepTable, name: str, **fixed: Any) -> dict[Any, Samples]:
    """Return the metric by one parameter and draw, where the others have the given values."""
    found: dict[Any, dict[tuple[Any, int], float]] = {}
    for result in table.results:
        cell, value = result.cell, result.metrics.get(table.metric)
        if all(getattr(cell, key) == wanted for key, wanted in fixed.items()):
            place = found.setdefault(getattr(cell, name), {})
            if value is not None:
                place[cell.block, cell.seed] = value
    return dict(found)


def _slack_words(table: SweepTable, slack: float) -> str:
    if table.lower_is_better:
        return f"{1 + slack:g} times the error without compression"
    return f"{100 * slack:g} points of the accuracy without compression"


def allowed_compression(table: SweepTable, slack: float) -> Conclusion:
    """State the largest r within the slack for every value of the other axis."""
    (other,) = [name for name in table.axes if name != "compression"]
    lines = [f"Largest compression within {_slack_words(table, slack)}:"]
    marked = []
    for row in largest_within_slack(table, other, slack):
        sure = "" if row.decided else " (the limit itself is within chance)"
        lines.append(f"{AXES[other].label} = {row.value:g}: r = {row.compression:g}{sure}")
        marked.append({other: row.value, "compression": row.compression})
    return Conclusion(tuple(lines), tuple(marked))


@dataclass(frozen=True)
class Cheapest:
    """The setting of fewest bits per parameter within the slack."""

    bits: int
    compression: float
    bits_per_parameter: float


def cheapest_messages(table: SweepTable, slack: float) -> dict[str, Cheapest]:
    """Return the cheapest setting by fewer bits alone, fewer coordinates alone, and both."""
    cells = {}
    for row in table.summary():
        key = row.setting["n_bits"], row.setting["compression"]
        if row.interval is not None:
            cells[key] = row.extra["bits_per_parameter"]
    most, least = max(b for b, _ in cells), min(r for _, r in cells)
    reference = samples_by(table, "n_bits", compression=least)[most]
    affordable = []
    for (bits, rate), cost in cells.items():
        values = samples_by(table, "n_bits", compression=rate)[bits]
        if is_within(slack_gap(values, reference, slack, table.lower_is_better)):
            affordable.append(Cheapest(bits, rate, cost))
    ways = {
        "fewer bits": [c for c in affordable if c.compression == least],
        "fewer coordinates": [c for c in affordable if c.bits == most],
        "both": affordable,
    }
    return {
        name: min(choices, key=lambda c: c.bits_per_parameter) for name, choices in ways.items()
    }


def quantise_or_reduce(table: SweepTable, slack: float) -> Conclusion:
    """State the cheapest message by each way of shortening it."""
    found = cheapest_messages(table, slack)
    lines = [f"Cheapest message within {_slack_words(table, slack)}:"]
    for name, best in found.items():
        lines.append(
            f"by {name}: {best.bits_per_parameter:.3g} bits per parameter "
            f"(b = {best.bits}, r = {best.compression:g})"
        )
    both = found["both"]
    return Conclusion(tuple(lines), ({"n_bits": both.bits, "compression": both.compression},))


# --- differences ---------------------------------------------------------------------------------


def against_reference(name: str, reference: Any, what: str) -> Callable[..., Conclusion]:
    """Return a rule that compares every value of a parameter with one of them, paired."""

    def rule(table: SweepTable, slack: float) -> Conclusion:
        lines = []
        wanted = reference
        for decoder in table.decoders:
            groups = [
                samples_by(table, name, decoder=decoder, **dict(zip(others, values)))
                for others, values in _other_values(table, name)
            ]
            better, worse, ties = 0, 0, 0
            for samples in groups:
                present = {value: s for value, s in samples.items() if s}
                if wanted not in present:
                    continue
                for value, found in present.items():
                    if value == wanted:
                        continue
                    lower = table.lower_is_better
                    others = len(present) - 1
                    gap = compare(found, present[wanted], ratio=lower, comparisons=others)
                    gain = _is_better(gap, lower)
                    ties += not gap.is_certain
                    better += gain
                    worse += gap.is_certain and not gain
            lines.append(
                f"{decoder}: {what} is better than without in {better} comparison(s), worse in "
                f"{worse}, within chance in {ties}."
            )
        return Conclusion(tuple(lines))

    return rule


def _other_values(table: SweepTable, name: str) -> list[tuple[list[str], tuple[Any, ...]]]:
    others = [v for v in table.varying if v not in (name, "decoder")]
    seen = dict.fromkeys(tuple(getattr(result.cell, v) for v in others) for result in table.results)
    return [(others, values) for values in seen]


def along_axis(table: SweepTable, slack: float) -> Conclusion:
    """State the best value of the axis for every decoder, and what it beats."""
    (axis,) = table.axes[:1]
    lines = []
    for decoder in table.decoders:
        samples = {
            f"{value:g}": s for value, s in samples_by(table, axis, decoder=decoder).items() if s
        }
        if samples:
            winner = find_winner(samples, lower_is_better=table.lower_is_better)
            tied = f", within chance of {', '.join(winner.tied)}" if winner.tied else ""
            lines.append(
                f"{decoder}: best at {AXES[axis].label} = {winner.best} "
                f"({winner.mean.mean:.3g}){tied}"
            )
    return Conclusion(tuple(lines))


def decoders_against_linear(table: SweepTable, slack: float) -> Conclusion:
    """Count the settings in which each decoder beats the linear one."""
    counts: dict[str, list[int]] = {}
    for group in table.groups("decoder").values():
        samples = table.samples(group, table.metric)
        for name, found in samples.items():
            if name == "linear" or "linear" not in samples:
                continue
            lower, others = table.lower_is_better, len(samples) - 1
            gap = compare(found, samples["linear"], ratio=lower, comparisons=others)
            place = 2 if not gap.is_certain else (0 if _is_better(gap, lower) else 1)
            counts.setdefault(name, [0, 0, 0])[place] += 1
    lines = [
        f"{name} against linear: better in {better} settings, worse in {worse}, within chance in "
        f"{tied}."
        for name, (better, worse, tied) in counts.items()
    ]
    return Conclusion((*lines, *_best_setting(table, slack).lines))


def models_of_equal_message(table: SweepTable, slack: float) -> Conclusion:
    """Compare tasks whose messages are equally long."""
    tasks = list(dict.fromkeys(getattr(result.cell, "task", "") for result in table.results))
    if len(tasks) < 2:
        return along_axis(table, slack)
    large, small = tasks
    lines = []
    for decoder in table.decoders:
        of_large = samples_by(table, "compression", task=large, decoder=decoder)
        of_small = samples_by(table, "compression", task=small, decoder=decoder)
        for (r, a), (s, b) in zip(sorted(of_large.items()), sorted(of_small.items())):
            if not (a and b):
                continue
            gap = compare(a, b, ratio=table.lower_is_better)
            sure = "" if gap.is_certain else ", within chance"
            means = [mean_of(each, geometric=table.lower_is_better).mean for each in (a, b)]
            lines.append(
                f"{decoder}: {large} at r = {r:g} {means[0]:.3f}, {small} at r = {s:g} "
                f"{means[1]:.3f}: {gap}{sure}."
            )
    return Conclusion(tuple(lines))


def _best_setting(table: SweepTable, slack: float) -> Conclusion:
    rows = [row for row in table.summary() if row.interval is not None]
    if not rows:
        return Conclusion(("No cell gave a value.",))
    pick = min if table.lower_is_better else max
    best = pick(rows, key=lambda row: row.interval.mean if row.interval else math.nan)
    where = ", ".join(f"{name} = {value}" for name, value in best.setting.items())
    metric = table.metric.replace("_", " ")
    return Conclusion((f"Best {metric}: {best.interval} at {where}.",))


def _error(samples: Samples) -> float:
    return mean_of(samples, geometric=True).mean


CONCLUSIONS: dict[str, Callable[[SweepTable, float], Conclusion]] = {
    "sparsity": crossing,
    "privacy-utility-communication": allowed_compression,
    "quantise-or-reduce": quantise_or_reduce,
    "cohort": along_axis,
    "sketch-length": along_axis,
    "thresholding": against_reference("threshold", 0.0, "a threshold"),
    "per-layer": against_reference("per_layer", False, "sketching each layer"),
    "model-size": models_of_equal_message,
    "training": decoders_against_linear,
}
