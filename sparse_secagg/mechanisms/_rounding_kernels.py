"""Numba kernels of stochastic rounding and of the exact integer norm check."""

from __future__ import annotations

import numba
import numpy as np

from sparse_secagg.mechanisms._sampling_kernels import multiply

#: Larger floats are not integers' business; conversion to int64 would be undefined.
_LARGEST = 2.0**62
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@numba.njit(cache=True, nogil=True)
def round_stochastically(x, words, out):
    """Write floor(x) or floor(x) + 1, with expectation x, using 53 bits of each word."""
    for i in range(x.shape[0]):
        value = x[i]
        if not abs(value) < _LARGEST:
            out[i] = 0
            continue
        floor = np.floor(value)
        up = (words[i] >> np.uint64(11)) * 2.0**-53 < value - floor
        out[i] = np.int64(floor) + (1 if up else 0)


@numba.njit(cache=True, nogil=True)
def round_toward_zero(x, out):
    """Write x without its fraction: no coordinate, hence no norm, grows."""
    for i in range(x.shape[0]):
        value = x[i]
        out[i] = np.int64(value) if abs(value) < _LARGEST else 0


@numba.njit(cache=True, nogil=True)
def norm_within(x, limit_high, limit_low):
    """Return whether Σ x² ≤ limit, a 128-bit integer below 2**127, without any overflow."""
    high, low = _ZERO, _ZERO
    for i in range(x.shape[0]):
        magnitude = np.uint64(x[i]) if x[i] >= 0 else _ZERO - np.uint64(x[i])
        square_high, square_low = multiply(magnitude, magnitude)
        low = low + square_low
        high = high + square_high + (_ONE if low < square_low else _ZERO)
        # Stop at once: the next square could carry the sum out of 128 bits.
        if high > limit_high or (high == limit_high and low > limit_low):
            return False
    return True
