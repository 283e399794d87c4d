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
        groups = {
            getattr(group[0].cell, axis): table.samples(group, table.metric)
            for group in table.groups("decoder").values()
            if group[0].cell.spec.encoder == encoder
        }
        lines.append(f"{encoder}: {_crossing_of(axis, groups, table.lower_is_better)}")
    return Conclusion(tuple(lines))


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


def slack_gap(
    values: Samples, reference: Samples, slack: float, lower: bool, *, comparisons: int = 1
) -> Gap:
    """Return by how much values exceed what the slack allows, paired over draws.

    Errors may be 1 + slack times the reference's, accuracies slack below it. Ratios below 1 and
    differences below 0 are within.
    """
    if lower:
        allowed = {draw: (1 + slack) * value for draw, value in reference.items()}
        return compare(values, allowed, ratio=True, comparisons=comparisons)
    least = {draw: value - slack for draw, value in reference.items()}
    return compare(least, values, ratio=False, comparisons=comparisons)


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
    compression: float  # every smaller one is within the slack, too
    decided: bool  # whether that, and that the next is not, are beyond chance
    gaps: dict[float, Gap]


def largest_within_slack(
    table: SweepTable, other: str, slack: float, **fixed: Any
) -> list[Allowed]:
    """Return, for every value of the other axis, the r up to which all means are within the slack.

    ``fixed`` are values of further parameters.
    """
    found = []
    for value in sorted({getattr(result.cell, other) for result in table.results}):
        curve = samples_by(table, "compression", **{other: value}, **fixed)
        reference = curve.get(min(curve)) if curve else None
        if not reference:
            continue
        gaps = {
            r: slack_gap(curve[r], reference, slack, table.lower_is_better)
            for r in sorted(curve)
            if curve[r]
        }
        outside = [r for r, gap in gaps.items() if not is_within(gap)]
        inside = [r for r in gaps if not outside or r < outside[0]] or [min(gaps)]
        best = inside[-1]
        border = [*inside, *outside[:1]]
        decided = all(gaps[r].is_certain for r in border)
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


# --- differences ---------------------------------------------------------------------------------


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


def _best_setting(table: SweepTable, slack: float) -> Conclusion:
    rows = [row for row in table.summary() if row.interval is not None]
    if not rows:
        return Conclusion(("No cell gave a value.",))
    pick = min if table.lower_is_better else max
    best = pick(rows, key=lambda row: row.interval.mean if row.interval else math.nan)
    where = ", ".join(f"{name} = {value}" for name, value in best.setting.items())
    metric = table.metric.replace("_", " ")
    return Conclusion((f"Best {metric}: {best.interval} at {where}.",))


CONCLUSIONS: dict[str, Callable[[SweepTable, float], Conclusion]] = {
    "sparsity": crossing,
    "training": decoders_against_linear,
}
