"""Skellam noise: the difference of two Poisson variables, by inversion of an exact table.

The cumulative probabilities of Poisson(λ), λ rational, are computed in integers and kept to 128
bits; a draw compares 128 random bits with them. What is lost are the tails below 2^-130 and the
rounding of each entry, a total variation of at most 2^-108 for one Skellam draw
(:func:`skellam_total_variation`), charged to δ by whoever accounts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.randomness import Randomness

__all__ = ["skellam", "skellam_total_variation"]

#: Larger means are sums of independent parts: Poisson(λ) = Σ Poisson(λ/k).
_LARGEST_MEAN = 10**7
_FRACTION_BITS = 192  # of the weights, relative to the mode
_TAIL_BITS = 130


@dataclass(frozen=True)
class Table:
    """P(X ≤ offset + k) = (high[k]·2^64 + low[k] + 1)/2^128, and where to begin the search."""

    offset: int
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    guide: NDArray[np.int64]

    @property
    def total_variation(self) -> float:
        """Bound on the distance to Poisson: 2^-128 for each entry and 2^-128 for the tails."""
        return (len(self.high) + 1) * 2.0**-128


@lru_cache(maxsize=32)
def poisson_table(mean: Fraction) -> Table:
    """Tabulate Poisson(``mean``), from weights W[k+1] = W[k]·λ/(k+1) around the mode."""
    p, q = mean.numerator, mean.denominator
    mode = p // q
    smallest = 1 << (_FRACTION_BITS - _TAIL_BITS)
    weights = [1 << _FRACTION_BITS]
    k = mode
    while weights[-1] >= smallest:
        k += 1
        weights.append(weights[-1] * p // (q * k))
    below: list[int] = []
    weight, k = weights[0], mode
    while k > 0 and weight >= smallest:
        weight = weight * k * q // p
        below.append(weight)
        k -= 1
    weights = below[::-1] + weights
    total, running, thresholds, offset = sum(weights), 0, [], k
    for weight in weights:
        running += weight
        threshold = (running << 128) // total - 1
        if threshold < 0:
            offset += 1  # probability below 2^-128
        else:
            thresholds.append(threshold)
    high = np.array([t >> 64 for t in thresholds], dtype=np.uint64)
    low = np.array([t & (2**64 - 1) for t in thresholds], dtype=np.uint64)
    bits = max(4, len(thresholds).bit_length())
    starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    return Table(offset, high, low, np.searchsorted(high, starts).astype(np.int64))


def skellam(variance: Fraction, size: int, rng: Randomness) -> NDArray[np.int64]:
    """Draw ``size`` Skellam variables of mean 0 and the given variance: X − Y, X, Y ~ Poisson."""
    parts = _parts(variance)
    table = poisson_table(variance / 2 / parts)
    out = np.zeros(size, dtype=np.int64)
    for _ in range(parts):
        out += _draw(table, size, rng)
        out -= _draw(table, size, rng)
    return out


def skellam_total_variation(variance: Fraction) -> float:
    """Return a bound on the total variation between one draw and the Skellam distribution."""
    if variance == 0:
        return 0.0
    parts = _parts(variance)
    # A table has fewer than 28·√λ + 400 entries: 14 standard deviations each side, and small λ.
    entries = 28.0 * math.sqrt(variance / 2 / parts) + 400.0
    return 2 * parts * (entries + 1) * 2.0**-128


def _parts(variance: Fraction) -> int:
    return math.ceil(variance / 2 / _LARGEST_MEAN)


def _draw(table: Table, size: int, rng: Randomness) -> NDArray[np.int64]:
    from sparse_secagg.mechanisms._sampling_kernels import fill_table

    out = np.empty(size, dtype=np.int64)
    words = rng.words(2 * size)
    fill_table(out, 0, words, table.guide, table.high, table.low, table.offset)
    return out
