"""Conditional stochastic rounding, and the integer check on which privacy rests.

Algorithm "detailed": round x stochastically to integers x̃ until ‖x̃‖₂ ≤ B. Rounding alone is
unbiased; conditioning adds a bias of at most β/(1−β)·√D grid units in norm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.randomness import Randomness

__all__ = ["clip_rows", "conditional_rounding", "within_bound"]

#: After as many failures the vector is rounded toward zero, which never grows a norm.
_TRIES = 100
_WORD = 1 << 64


def clip_rows(Y: NDArray[np.float64], clip_norm: float) -> int:
    """Scale every row with ‖y‖ > c to ‖y‖ = c, in place; return how many there were.

    The norm is that of y/max|y|, so that neither 1e200 nor 1e-320 overflows or vanishes.
    """
    largest = np.abs(Y).max(axis=1, initial=0.0)
    largest[largest == 0] = 1.0
    relative = Y / largest[:, None]
    norms = np.sqrt((relative * relative).sum(axis=1))
    with np.errstate(over="ignore"):
        clipped = norms > clip_norm / largest
    Y[clipped] = relative[clipped] * (clip_norm / norms[clipped])[:, None]
    return int(clipped.sum())


def conditional_rounding(
    x: NDArray[np.float64], squared_bound: int, rng: Randomness
) -> NDArray[np.int64]:
    """Round one vector stochastically until Σ x̃² ≤ ``squared_bound``, 100 times at most."""
    from sparse_secagg.mechanisms import _rounding_kernels as kernels

    out = np.empty(len(x), dtype=np.int64)
    words = np.empty(len(x), dtype=np.uint64)
    for _ in range(_TRIES):
        rng.fill(words)
        kernels.round_stochastically(x, words, out)
        if within_bound(out, squared_bound):
            return out
    kernels.round_toward_zero(x, out)
    return out


def within_bound(x: NDArray[np.int64], squared_bound: int) -> bool:
    """Return whether Σ x² ≤ ``squared_bound``, exactly, for any int64 values."""
    from sparse_secagg.mechanisms import _rounding_kernels as kernels

    high, low = divmod(squared_bound, _WORD)
    return bool(kernels.norm_within(x, np.uint64(high), np.uint64(low)))
