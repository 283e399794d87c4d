"""Claims put to the test by paired 95 % intervals: they hold, do not hold, or stay undecided.

A claim holds where the intervals of all that it says lie on its side; it does not hold where an
interval lies surely on the other; else nothing was decided, and the evidence says by how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.results.conclusions import (
    Allowed,
    is_within,
    largest_within_slack,
    samples_by,
    slack_gap,
)
from experiments.results.statistics import Gap, Interval, Samples
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim, and the numbers."""

    claim: str
    outcome: str  # "holds", "does not hold" or "not decided"
    evidence: tuple[str, ...]  # what was measured


#: From a finished sweep and a slack to a verdict.
Judge = Callable[[SweepTable, float], Verdict]


def decide(gaps: Iterable[Gap]) -> str:
    """Return the outcome of a claim that every one of :func:`slack_gap`'s is within."""
    found = list(gaps)
    if any(gap.is_certain and not is_within(gap) for gap in found):
        return FAILS
    return HOLDS if found and all(gap.is_certain for gap in found) else OPEN


def _allowance(gap: Gap) -> str:
    """Return in words how a value lies to what the slack allows."""
    if gap.is_ratio:
        return f"{gap} the error that is allowed"
    points = (
        f"{100 * abs(gap.value):.2g} points {'beyond' if gap.value > 0 else 'inside'} the slack"
    )
    return f"{points} ({-100 * gap.high:+.2g} to {-100 * gap.low:+.2g})"


# --- how far messages can be compressed ----------------------------------------------------------


def allowed_rises(claim: str, axis: str, *, rises: bool = True, **fixed: Any) -> Judge:
    """Judge whether the largest r within the slack rises, or falls, along an axis.

    It does if it never moves the other way and some r is surely too much at one end and surely
    not at the other; the opposite, or two ends whose limits are certain and equal, refute it.
    """

    def judge(table: SweepTable, slack: float) -> Verdict:
        found = largest_within_slack(table, axis, slack, **fixed)
        evidence = [_limit(axis, row) for row in found]
        if len(found) < 2:
            return Verdict(claim, OPEN, (*evidence, "fewer than two values have results"))
        strict, loose = (found[0], found[-1]) if rises else (found[-1], found[0])
        rates = [row.compression for row in found]
        witness, counter = _witness(strict, loose), _witness(loose, strict)
        if witness is not None:
            evidence.append(
                f"r = {witness:g}: {_allowance(strict.gaps[witness])} at {strict.value:g}, "
                f"{_allowance(loose.gaps[witness])} at {loose.value:g}"
            )
        else:
            evidence.append("no r is surely beyond the slack at one end and within it at the other")
        if all(row.compression == max(row.gaps) for row in found):
            evidence.append("every r that was tried is within the slack: larger ones are needed")
        limited = strict.compression < max(strict.gaps)
        settled = strict.decided and loose.decided and limited
        if counter is not None or (settled and loose.compression <= strict.compression):
            return Verdict(claim, FAILS, tuple(evidence))
        ordered = rates == sorted(rates, reverse=not rises)
        return Verdict(claim, HOLDS if witness and ordered else OPEN, tuple(evidence))

    return judge


def _limit(axis: str, row: Allowed) -> str:
    sure = "" if row.decided else " (the limit itself is within chance)"
    return f"{AXES[axis].label} = {row.value:g}: r = {row.compression:g}{sure}"


def _witness(strict: Allowed, loose: Allowed) -> float | None:
    """Return an r that is surely too much at one end and surely not at the other."""
    for r in sorted(strict.gaps):
        surely_out = strict.gaps[r].is_certain and not is_within(strict.gaps[r])
        if surely_out and r in loose.gaps and loose.gaps[r].is_certain and is_within(loose.gaps[r]):
            return r
    return None


def coordinates_beat_bits(claim: str, **fixed: Any) -> Judge:
    """Judge whether fewer coordinates make a cheaper message within the slack than fewer bits.

    By each way there is a message that surely is within the slack and, maybe below it, the
    cheapest that is not surely beyond.
    """

    def judge(table: SweepTable, slack: float) -> Verdict:
        ways, (bits, rate) = shortest_messages(table, slack, **fixed)
        by_rate, by_bits = ways["fewer coordinates"], ways["fewer bits"]
        evidence = tuple(
            f"by {name}: {found[0]}; nothing below {found[1]:.3g} bits per parameter can be"
            for name, found in ways.items()
        )
        evidence = (*evidence, f"within the slack of b = {bits:g} and r = {rate:g}")
        if by_rate[0].cost < by_bits[1]:
            return Verdict(claim, HOLDS, evidence)
        return Verdict(claim, FAILS if by_bits[0].cost <= by_rate[1] else OPEN, evidence)

    return judge


@dataclass(frozen=True)
class Message:
    """A setting and its length."""

    cost: float  # bits per parameter
    bits: int
    compression: float

    def __str__(self) -> str:
        return f"{self.cost:.3g} bits per parameter (b = {self.bits}, r = {self.compression:g})"


def shortest_messages(
    table: SweepTable, slack: float, **fixed: Any
) -> tuple[dict[str, tuple[Message, float]], tuple[int, float]]:
    """Return the shortest message surely within the slack by each way of shortening it.

    With each, the cost of the shortest that may be within; and the bits and the compression of
    the longest message, to which all are compared.
    """
    cost = {
        (int(row.cell.spec.n_bits or 0), float(row.cell.spec.compression or 1)): float(
            row.metrics["bits_per_parameter"] or 0
        )
        for row in table.results
        if row.metrics.get(table.metric) is not None
        and all(getattr(row.cell, name) == value for name, value in fixed.items())
    }
    most, least = max(b for b, _ in cost), min(r for _, r in cost)
    by_bits = {
        rate: samples_by(table, "n_bits", compression=rate, **fixed)
        for rate in {r for _, r in cost}
    }
    reference = by_bits[least][most]
    sure: list[Message] = []
    possible: list[Message] = []
    for (bits, rate), price in cost.items():
        gap = slack_gap(by_bits[rate][bits], reference, slack, table.lower_is_better)
        message = Message(price, bits, rate)
        if (bits, rate) == (most, least) or (gap.is_certain and is_within(gap)):
            sure.append(message)
        if is_within(gap) or not gap.is_certain:
            possible.append(message)

    def shortest(kept: Callable[[Message], bool]) -> tuple[Message, float]:
        best = min(filter(kept, sure), key=lambda message: message.cost)
        return best, min(m.cost for m in [*filter(kept, possible), best])

    ways = {
        "fewer bits": shortest(lambda m: m.compression == least),
        "fewer coordinates": shortest(lambda m: m.bits == most),
        "both": shortest(lambda m: True),
    }
    return ways, (most, least)


# --- one setting against another -----------------------------------------------------------------

#: What is compared: a name, the values, and those that they may not fall behind.
Pair = tuple[str, Samples, Samples]


def never_behind(
    claim: str, pairs: Callable[[SweepTable], Sequence[Pair]], *, slack: float | None = None
) -> Judge:
    """Judge whether the first of every pair is at most the slack behind the second.

    A slack of zero here asks the first to be better, whatever the slack of the sweep.
    """

    def judge(table: SweepTable, usual: float) -> Verdict:
        allowed = usual if slack is None else slack
        found = [(name, a, b) for name, a, b in pairs(table) if a and b]
        gaps = [
            slack_gap(a, b, allowed, table.lower_is_better, comparisons=len(found))
            for _, a, b in found
        ]
        evidence = tuple(f"{name}: {_allowance(gap)}" for (name, _, _), gap in zip(found, gaps))
        return Verdict(claim, decide(gaps), evidence)

    return judge


# --- numbers that theory foretells ---------------------------------------------------------------


@dataclass(frozen=True)
class Law:
    """A quantity measured, and what theory says of it."""

    quantity: str
    measured: Interval
    low: float  # the least and the most that theory allows
    high: float

    @property
    def outcome(self) -> str:
        """Whether the whole interval is where theory wants it, none of it, or some."""
        if self.low <= self.measured.low and self.measured.high <= self.high:
            return HOLDS
        return FAILS if self.measured.high < self.low or self.measured.low > self.high else OPEN

    @property
    def wanted(self) -> str:
        """What theory allows, in words."""
        if math.isinf(self.low) or math.isinf(self.high):
            word, limit = ("at most", self.high) if math.isinf(self.low) else ("at least", self.low)
            return f"{word} {limit:.4g}"
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def found(self) -> str:
        """What was measured, in words."""
        it = self.measured
        return f"{it.mean:.4g} ({it.low:.4g} to {it.high:.4g})"


def judge_laws(claim: str, laws: Sequence[Law]) -> Verdict:
    """Return the verdict on a theorem: all of its laws hold."""
    outcomes = {law.outcome for law in laws}
    outcome = FAILS if FAILS in outcomes else HOLDS if outcomes == {HOLDS} else OPEN
    evidence = (f"{law.quantity}: {law.found}, wanted {law.wanted}" for law in laws)
    return Verdict(claim, outcome, tuple(evidence))
