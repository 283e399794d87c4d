"""Means over seeds, their 95 % intervals, and paired comparisons on the same draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["LEVEL", "Interval", "Winner", "find_winner", "mean_interval", "paired_difference"]

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and Student's 95 % interval; infinite from a single value."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        if not math.isfinite(self.low):
            return f"{self.mean:.3g}"
        half = float(f"{(self.high - self.low) / 2:.1g}")
        return f"{self.mean:.3g} ± {half:g}"

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float]) -> Interval:
    """Return mean and Student's t interval of independent values."""
    x = np.asarray(values, dtype=float)
    n, mean = len(x), float(np.mean(x))
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    half = float(stats.t.ppf(0.5 + LEVEL / 2, n - 1) * np.std(x, ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half, n)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Interval:
    """Return the interval of the mean of a − b over the seeds that both have."""
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        raise ValueError("the two have no seed in common; run both on the same seeds.")
    return mean_interval([a[seed] - b[seed] for seed in seeds])


@dataclass(frozen=True)
class Winner:
    """Who did best in one setting.

    Attributes
    ----------
    best : str
        The decoder with the best mean.
    tied : tuple of str
        Others whose paired difference from it could be chance: its interval covers zero. Those
        that gave the very same numbers are tied, too.
    lead : Interval or None
        Paired difference from the best of those not tied; None where there is none.
    """

    best: str
    tied: tuple[str, ...]
    lead: Interval | None

    def __str__(self) -> str:
        if len(self.tied) < 2:
            return " ≈ ".join((self.best, *self.tied))
        return f"{self.best} ≈ {len(self.tied)} others"


def find_winner(samples: Mapping[str, Mapping[int, float]], *, lower_is_better: bool) -> Winner:
    """Compare decoders on the same draws.

    Parameters
    ----------
    samples : mapping of decoder to (mapping of seed to value)
        The measurements.
    lower_is_better : bool
        True for errors, False for accuracies.
    """
    sign = 1.0 if lower_is_better else -1.0
    order = sorted(samples, key=lambda name: sign * float(np.mean(list(samples[name].values()))))
    best, others = order[0], order[1:]
    differences = {name: paired_difference(samples[best], samples[name]) for name in others}
    tied = tuple(name for name in others if not differences[name].excludes_zero)
    beaten = [name for name in others if name not in tied]
    return Winner(best, tied, differences[beaten[0]] if beaten else None)
