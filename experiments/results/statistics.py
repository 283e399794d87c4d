"""Means and paired comparisons: one statistic for every table, figure and sentence.

Errors span decades, so they are compared by their logarithms: means are geometric and differences
are ratios. Accuracies are compared as they are: means are arithmetic. Both decoders of a pair see
the same clients, sketch and noise, so the luck of a draw cancels. Draws of one recorded round form
a block; what blocks differ in does not widen an interval.

With two or three draws Student's t alone could call hardly anything certain. For logarithms of
errors it is then joined by a moderated t (Smyth, 2004), whose variance is a mean of the measured
one and of a prior, :data:`PRIOR_STD`, that weighs as much as :data:`PRIOR_DRAWS` draws. Half of the
error rate goes to each; the narrower interval holds. Rates are for all pairs of the decoders
compared together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
#: Ratios of errors below this are no reason to prefer a decoder, however certain they are.
RELEVANT = 1.01
#: Standard deviation of the logarithm of an error, or of a ratio, over draws; and its weight.
PRIOR_STD, PRIOR_DRAWS = 0.5, 4

#: Values by draw: (block, seed).
Samples = Mapping[tuple[Any, int], float]


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; infinite, or (0, ∞), from a single draw."""

    #: Geometric for errors, arithmetic for accuracies.
    mean: float
    low: float
    high: float
    n: int
    geometric: bool = False

    @property
    def is_known(self) -> bool:
        """Whether there were draws enough for an interval."""
        return math.isfinite(self.high) and self.high > 0

    def __str__(self) -> str:
        if not self.is_known or not self.mean:
            return f"{self.mean:.3g}"
        if self.geometric:
            return f"{self.mean:.3g} ×/÷ {_two(self.high / self.mean)}"
        half = float(f"{(self.high - self.low) / 2:.1g}")
        return f"{self.mean:.3g} ± {half:g}"


def _two(factor: float) -> str:
    """Return a factor with two digits beyond the one: 1.03, 1.4, 12."""
    return f"{factor:.3g}" if factor < 1.1 else f"{factor:.2g}"


@dataclass(frozen=True)
class Gap:
    """How two differ on the same draws: a ratio of errors, or a difference of accuracies."""

    #: Estimate and interval.
    value: float
    low: float
    high: float
    n: int
    is_ratio: bool  # which of the two; equal is 1 or 0

    @property
    def neutral(self) -> float:
        """The value that means equal."""
        return 1.0 if self.is_ratio else 0.0

    @property
    def is_certain(self) -> bool:
        """Whether the interval lies on one side of equal: the difference is not chance."""
        return self.low > self.neutral or self.high < self.neutral

    @property
    def matters(self) -> bool:
        """Whether it is certain, and more than one per cent where it is a ratio."""
        if self.is_ratio:
            return self.low > RELEVANT or self.high < 1 / RELEVANT
        return self.is_certain

    def __str__(self) -> str:
        if not (math.isfinite(self.high) and math.isfinite(self.low)):
            return f"{self.value:.3g} times" if self.is_ratio else f"{self.value:+.3g}"
        if self.is_ratio:
            return f"{self.value:.3g} times ({self.low:.3g} to {self.high:.3g})"
        return f"{self.value:+.3g} ({self.low:+.3g} to {self.high:+.3g})"


def mean_of(samples: Samples, *, geometric: bool) -> Interval:
    """Return the mean over draws and its interval."""
    values = np.array(list(samples.values()), dtype=float)
    groups = [block for block, _ in samples]
    if not geometric:
        mean, half = _interval(values, groups, 1, moderated=False)
        return Interval(mean, mean - half, mean + half, len(values))
    mean, half = _interval(_logarithms(values), groups, 1, moderated=True)
    return Interval(_exp(mean), _exp(mean - half), _exp(mean + half), len(values), True)


def compare(a: Samples, b: Samples, *, ratio: bool, comparisons: int = 1) -> Gap:
    """Compare a with b on the draws that both have.

    Parameters
    ----------
    a, b : mapping of (block, seed) to float
        Measurements.
    ratio : bool
        Errors: a/b. Otherwise a − b.
    comparisons : int
        How many are made together, all to be right with 95 %.
    """
    draws = [draw for draw in a if draw in b]
    if not draws:
        raise ValueError("the two have no draw in common; run both on the same seeds.")
    first, second = (np.array([side[draw] for draw in draws], dtype=float) for side in (a, b))
    groups = [block for block, _ in draws]
    if not ratio:
        mean, half = _interval(first - second, groups, comparisons, moderated=False)
        return Gap(mean, mean - half, mean + half, len(draws), False)
    logs = _logarithms(first) - _logarithms(second)
    mean, half = _interval(logs, groups, comparisons, moderated=True)
    return Gap(_exp(mean), _exp(mean - half), _exp(mean + half), len(draws), True)


def _logarithms(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(values, np.finfo(np.float64).tiny)))  # errors of zero


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _interval(
    values: NDArray[np.float64], groups: list[Hashable], comparisons: int, *, moderated: bool
) -> tuple[float, float]:
    """Return the mean and half the width of its interval, from the scatter within groups."""
    n = len(values)
    mean = float(np.mean(values))
    members = {group: [k for k in range(n) if groups[k] == group] for group in set(groups)}
    freedom = n - len(members)
    if freedom == 0:
        return mean, math.inf
    squares = sum(
        float(np.sum((values[own] - values[own].mean()) ** 2)) for own in members.values()
    )
    moderated = moderated and freedom < PRIOR_DRAWS  # more draws speak for themselves
    rate = (1 - LEVEL) / comparisons / (2 if moderated else 1)
    half = _half(squares / freedom, freedom, n, rate)
    if moderated:
        total = freedom + PRIOR_DRAWS
        variance = (squares + PRIOR_DRAWS * PRIOR_STD**2) / total
        half = min(half, _half(variance, total, n, rate))
    return mean, half


def _half(variance: float, freedom: int, n: int, rate: float) -> float:
    return float(stats.t.isf(rate / 2, freedom)) * math.sqrt(variance / n)


@dataclass(frozen=True)
class Winner:
    """Who did best in one setting."""

    best: str  # the decoder with the best mean
    mean: Interval  # that mean
    gaps: dict[str, Gap]  # the others against it, on the same draws; from the nearest

    @property
    def tied(self) -> tuple[str, ...]:
        """Others that are within chance, or one per cent, of the best."""
        return tuple(name for name, gap in self.gaps.items() if not gap.matters)

    def __str__(self) -> str:
        if len(self.tied) < 2:
            return " ≈ ".join((self.best, *self.tied))
        return f"{self.best} ≈ {len(self.tied)} others"

    def sentence(self, purpose: str, *, shrinks: bool = True) -> str:
        """Return the winner in words, with its margin.

        ``shrinks`` says whether answering zero, an error of 1, would be allowed for the purpose.
        """
        error = f"{'error' if self.mean.geometric else 'accuracy'} {self.mean.mean:.3g}"
        in_vain = shrinks and self.mean.geometric and self.mean.mean >= 1
        useless = "; answering zero would do as well" if in_vain else ""
        if not self.gaps:
            return f"For {purpose} only {self.best} was tried ({error}){useless}."
        nearest, gap = next(iter(self.gaps.items()))
        margin = f"{nearest} has {gap} its error" if gap.is_ratio else f"{nearest} differs by {gap}"
        margin += f", {gap.n} draws"
        if not self.tied:
            return f"For {purpose} use {self.best} ({error}): {margin}{useless}."
        if not math.isfinite(gap.high):
            return (
                f"For {purpose} no clear winner from one draw: {self.best} has the best mean "
                f"({error}), {margin}{useless}; raise the number of draws."
            )
        names = ", ".join([self.best, *self.tied[:-1]]) + f" and {self.tied[-1]}"
        return (
            f"For {purpose} no clear winner: {names} are within chance or 1 % of each other "
            f"({error}){useless}."
        )


def find_winner(samples: Mapping[str, Samples], *, lower_is_better: bool) -> Winner:
    """Compare decoders on the same draws, right about all pairs together with 95 %.

    Errors (lower is better) are compared by ratios, accuracies by differences.
    """
    sign = 1.0 if lower_is_better else -1.0
    means = {name: mean_of(found, geometric=lower_is_better) for name, found in samples.items()}
    best = min(means, key=lambda name: sign * means[name].mean)
    pairs = max(len(samples) * (len(samples) - 1) // 2, 1)
    gaps = {
        name: compare(found, samples[best], ratio=lower_is_better, comparisons=pairs)
        for name, found in samples.items()
        if name != best
    }
    near = sorted(gaps, key=lambda name: (gaps[name].matters, sign * gaps[name].value))
    return Winner(best, means[best], {name: gaps[name] for name in near})
