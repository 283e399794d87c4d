"""Numba kernels of stochastic rounding and of the exact integer norm check."""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import numba
from sparse_secagg.mechanisms._sampling_kernels import multiply

#: Larger floats are not integers' business; conversion to int64 would be undefined.
_LARGEST = 2.0**62
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_63 = np.int64(63)
#: A sum of this many squares of integers below ``_SMALL`` is at most 2**62.
_PIECE = 1024
_SMALL = np.int64(1 << 26)


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
    """Return whether Σ x² ≤ limit, a 128-bit integer below 2**127, without any overflow.

    Pieces of small integers are added in one word, at which a compiler can use vectors.
    """
    high, low = _ZERO, _ZERO
    for start in range(0, x.shape[0], _PIECE):
        stop = min(start + _PIECE, x.shape[0])
        bits, total = np.int64(0), np.int64(0)
        for i in range(start, stop):
            bits |= x[i] ^ (x[i] >> _63)  # x, or -x - 1: no bit beyond those of the magnitude
            short = np.int64(np.int32(x[i]))
            total += short * short
        if bits < _SMALL:
            low = low + np.uint64(total)
            high = high + (_ONE if low < np.uint64(total) else _ZERO)
            if high > limit_high or (high == limit_high and low > limit_low):
                return False
            continue
        for i in range(start, stop):
            magnitude = np.uint64(x[i]) if x[i] >= 0 else _ZERO - np.uint64(x[i])
            square_high, square_low = multiply(magnitude, magnitude)
            low = low + square_low
            high = high + square_high + (_ONE if low < square_low else _ZERO)
            # Stop at once: the next square could carry the sum out of 128 bits.
            if high > limit_high or (high == limit_high and low > limit_low):
                return False
    return True
