"""Which decoder is better, from errors on the same sketches with the same noise.

Decoders are compared in pairs: the ratio of two errors on one draw does not carry the luck of the
draw. Intervals are Student's on the logarithms of the ratios, at 95 % for all pairs together. They
are about draws of sketch and noise, for the rounds and settings at hand, so what rounds and
settings differ in does not widen them: values come as arrays (rounds and settings, draws).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

CONFIDENCE = 0.95

#: Ratios below this are no reason to prefer a decoder, however certain they are.
RELEVANT = 1.01


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval; NaN limits where one draw allows none."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Rival:
    """Another decoder's error over the best one's, on the same draws."""

    decoder: str
    ratio: Interval

    @property
    def is_clearly_worse(self) -> bool:
        """Whether its error is larger beyond chance, and by enough to matter."""
        return self.ratio.low > RELEVANT


@dataclass(frozen=True)
class Verdict:
    """Which decoder to use, and how sure that is.

    Attributes
    ----------
    purpose : str
        What for.
    best : str
        The decoder of least error, in the geometric mean over draws.
    error : float
        That error.
    rivals : tuple of Rival
        The others, from the nearest.
    n_draws : int
        Draws compared.
    shrinks : bool
        Whether decoders may shrink, so that an error of 1 is had for nothing, by answering zero.
    """

    purpose: str
    best: str
    error: float
    rivals: tuple[Rival, ...]
    n_draws: int
    shrinks: bool = True

    @property
    def equals(self) -> list[str]:
        """Decoders that are not clearly worse than the best."""
        return [rival.decoder for rival in self.rivals if not rival.is_clearly_worse]

    @property
    def is_clear(self) -> bool:
        """Whether all others are clearly worse."""
        return not self.equals

    @property
    def sentence(self) -> str:
        """The verdict in words, with its margin."""
        start = f"For {self.purpose}"
        in_vain = self.shrinks and self.error >= 1
        useless = "; answering zero would do as well" if in_vain else ""
        if not self.rivals:
            return f"{start} only {self.best} was tried (error {self.error:.3g}){useless}."
        nearest = self.rivals[0]
        ratio = nearest.ratio
        margin = f"the error of {nearest.decoder} is {ratio.mean:.3g} times as large"
        if math.isfinite(ratio.low):
            margin += f" ({ratio.low:.3g} to {ratio.high:.3g}, {self.n_draws} draws)"
        if self.is_clear:
            return f"{start} use {self.best} (error {self.error:.3g}): {margin}{useless}."
        if not math.isfinite(ratio.low):
            return (
                f"{start} no clear winner from one draw: {self.best} has the least error "
                f"({self.error:.3g}), {margin}{useless}; raise the number of draws."
            )
        names = ", ".join([self.best, *self.equals[:-1]]) + f" and {self.equals[-1]}"
        return (
            f"{start} no clear winner: {names} are within chance or 1 % of each other "
            f"(error {self.error:.3g}){useless}."
        )


def interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of values (groups, draws) and Student's interval, from within the groups."""
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    mean = float(values.mean())
    freedom = values.size - len(values)
    if freedom == 0:
        return Interval(mean, math.nan, math.nan)
    variance = float(np.sum((values - values.mean(axis=1, keepdims=True)) ** 2)) / freedom
    quantile = float(stats.t.isf((1 - confidence) / 2, freedom))
    half = quantile * math.sqrt(variance / values.size)
    return Interval(mean, mean - half, mean + half)


def ratio_interval(
    numerators: ArrayLike, denominators: ArrayLike, confidence: float = CONFIDENCE
) -> Interval:
    """Return the geometric mean of paired ratios and its interval."""
    tiny = np.finfo(np.float64).tiny  # an error of exactly zero
    logs = np.log(np.maximum(numerators, tiny)) - np.log(np.maximum(denominators, tiny))
    found = interval(logs, confidence)
    with np.errstate(over="ignore"):
        return Interval(*(float(np.exp(x)) for x in (found.mean, found.low, found.high)))


def judge(purpose: str, errors: Mapping[str, ArrayLike], *, shrinks: bool = True) -> Verdict:
    """Name the decoder of least error.

    Parameters
    ----------
    purpose : str
        For the sentence.
    errors : mapping of str to array of shape (groups, draws)
        Errors of each decoder, on the same draws in the same order.
    shrinks : bool
        See :class:`Verdict`.
    """
    tiny = np.finfo(np.float64).tiny
    means = {name: float(np.log(np.maximum(e, tiny)).mean()) for name, e in errors.items()}
    best = min(means, key=lambda name: means[name])
    others = [name for name in errors if name != best]
    # all pairs together at the confidence of one
    confidence = 1 - (1 - CONFIDENCE) / max(len(others), 1)
    rivals = [
        Rival(name, ratio_interval(errors[name], errors[best], confidence)) for name in others
    ]
    rivals.sort(
        key=lambda rival: rival.ratio.low if math.isfinite(rival.ratio.low) else rival.ratio.mean
    )
    return Verdict(
        purpose, best, math.exp(means[best]), tuple(rivals), np.size(errors[best]), shrinks
    )
