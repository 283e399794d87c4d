"""The paper's headline claims, put to the test on synthetic means, with intervals.

A claim passes only where 95 % intervals of paired differences decide it; otherwise it fails, and
its evidence says by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.results.conclusions import (
    Allowed,
    cheapest_messages,
    is_within,
    largest_within_slack,
    samples_by,
    slack_gap,
)
from experiments.results.table import SweepTable


@dataclass(frozen=True)
class Verdict:
    """Whether a claim held, and the numbers."""

    claim: str
    passed: bool  # whether the intervals decide for it
    evidence: tuple[str, ...]  # what was measured


@dataclass(frozen=True)
class Claim:
    """A statement and the sweep that tests it."""

    statement: str
    preset: str
    axis: str  # what is compared beside the compression
    axes: dict[str, tuple[float, ...]]  # values, where they differ from the preset's
    rises: bool = True  # whether the allowed compression should rise or fall along the axis

    def judge(self, table: SweepTable, slack: float) -> Verdict:
        """Return the verdict on a finished sweep."""
        if self.axis == "n_bits":
            return _judge_bits(self.statement, table, slack)
        return _judge_trend(self, table, slack)


def _judge_trend(claim: Claim, table: SweepTable, slack: float) -> Verdict:
    """Pass if r never moves the wrong way and its ends differ beyond chance."""
    found = largest_within_slack(table, claim.axis, slack)
    rates = [row.compression for row in found]
    ordered = rates == sorted(rates, reverse=not claim.rises)
    strict, loose = (found[0], found[-1]) if claim.rises else (found[-1], found[0])
    witness = _witness(strict, loose)
    evidence = [
        f"{claim.axis.replace('_', ' ')} {row.value:g}: r = {row.compression:g}"
        + ("" if row.decided else " (the limit itself is within chance)")
        for row in found
    ]
    if witness is None:
        evidence.append("no r is beyond the slack at one end and within it at the other")
    else:
        evidence.append(
            f"r = {witness:g}: {strict.gaps[witness]} what the slack allows at {strict.value:g}, "
            f"{loose.gaps[witness]} at {loose.value:g}"
        )
    return Verdict(claim.statement, ordered and witness is not None, tuple(evidence))


def _witness(strict: Allowed, loose: Allowed) -> float | None:
    """Return an r that is surely too much at one end and surely not at the other."""
    for r in sorted(strict.gaps):
        surely_out = strict.gaps[r].is_certain and not is_within(strict.gaps[r])
        if surely_out and r in loose.gaps and loose.gaps[r].is_certain and is_within(loose.gaps[r]):
            return r
    return None


def _judge_bits(statement: str, table: SweepTable, slack: float) -> Verdict:
    """Pass if fewer coordinates alone make a cheaper message than fewer bits alone, surely."""
    found = cheapest_messages(table, slack)
    bits, rate = found["fewer bits"], found["fewer coordinates"]
    reference_rate = bits.compression
    reference = samples_by(table, "n_bits", compression=reference_rate)[rate.bits]
    values = samples_by(table, "n_bits", compression=rate.compression)[rate.bits]
    gap = slack_gap(values, reference, slack, table.lower_is_better)
    below = [
        row.setting["n_bits"]
        for row in table.summary()
        if row.setting["compression"] == reference_rate and row.setting["n_bits"] < bits.bits
    ]
    evidence = [
        f"by {name}: {best.bits_per_parameter:.3g} bits per parameter (b = {best.bits}, "
        f"r = {best.compression:g})"
        for name, best in found.items()
    ]
    evidence.append(f"r = {rate.compression:g} has {gap} what the slack allows")
    if below:
        worst = samples_by(table, "n_bits", compression=reference_rate)[max(below)]
        if worst:
            over = slack_gap(worst, reference, slack, table.lower_is_better)
            evidence.append(f"b = {max(below)} alone has {over} what it allows")
        else:
            evidence.append(f"b = {max(below)} alone cannot hold the sum")
    cheaper = rate.bits_per_parameter < bits.bits_per_parameter
    passed = cheaper and gap.is_certain and is_within(gap)
    return Verdict(statement, passed, tuple(evidence))


_RATES = (1, 2, 5, 10, 20, 50, 100)

#: In the order in which they are printed.
CLAIMS = (
    Claim(
        "Higher noise allows higher compression.",
        "privacy-utility-communication",
        "noise_multiplier",
        {"noise_multiplier": (0.3, 0.5, 1, 2, 4), "compression": _RATES},
    ),
    Claim(
        "Fewer coordinates beat fewer bits.",
        "quantise-or-reduce",
        "n_bits",
        {"n_bits": (8, 9, 10, 12, 14, 16, 18), "compression": _RATES},
    ),
    Claim(
        "Larger cohorts need more communication.",
        "privacy-utility-communication",
        "clients",
        {"clients": (25, 50, 100, 200), "compression": _RATES},
        rises=False,
    ),
)
