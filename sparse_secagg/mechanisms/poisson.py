"""Skellam noise: the difference of two Poisson variables, each by exact inversion of a table."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.inversion import draw, table_of
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.mechanisms.tail_sums import Poisson

__all__ = ["skellam"]

#: Larger means are sums of independent parts: Poisson(λ) = Σ Poisson(λ/k).
_LARGEST_MEAN = 10**7


def skellam(variance: Fraction, size: int, rng: Randomness) -> NDArray[np.int64]:
    """Draw ``size`` Skellam variables of mean 0 and the given variance: X − Y, X, Y ~ Poisson."""
    parts = math.ceil(variance / 2 / _LARGEST_MEAN)
    table = table_of(Poisson(variance / 2 / parts))
    out = np.zeros(size, dtype=np.int64)
    for _ in range(parts):
        out += draw(table, size, rng)
        out -= draw(table, size, rng)
    return out
