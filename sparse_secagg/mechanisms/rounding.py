"""Conditional stochastic rounding, and the integer check on which privacy rests.

Algorithm "detailed": round x stochastically to integers x̃ until ‖x̃‖₂ ≤ B. Rounding alone is
unbiased; conditioning adds a bias of at most β/(1−β)·√D grid units in norm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_secagg import kernels
from sparse_secagg.mechanisms.randomness import Randomness

__all__ = ["conditional_rounding", "within_bound"]

#: After as many failures the vector is rounded toward zero, which never grows a norm.
_TRIES = 100
_WORD = 1 << 64
#: Coordinates rounded at a time, while their random words are in cache.
_PIECE = 1 << 14


def conditional_rounding(
    x: NDArray[np.float64],
    squared_bound: int,
    rng: Randomness,
    out: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Round one vector stochastically until Σ x̃² ≤ ``squared_bound``, 100 times at most.

    The result is written to ``out`` where that is given.
    """
    out = np.empty(len(x), dtype=np.int64) if out is None else out
    words = np.empty(min(len(x), _PIECE), dtype=np.uint64)
    for _ in range(_TRIES):
        for start in range(0, len(x), _PIECE):
            piece = slice(start, min(start + _PIECE, len(x)))
            random = words[: piece.stop - start]
            rng.fill(random)
            kernels.rounding.round_stochastically(x[piece], random, out[piece])
        if within_bound(out, squared_bound):
            return out
    kernels.rounding.round_toward_zero(x, out)
    return out


def within_bound(x: NDArray[np.int64], squared_bound: int) -> bool:
    """Return whether Σ x² ≤ ``squared_bound``, exactly, for any int64 values."""
    high, low = divmod(squared_bound, _WORD)
    return bool(kernels.rounding.norm_within(x, np.uint64(high), np.uint64(low)))
