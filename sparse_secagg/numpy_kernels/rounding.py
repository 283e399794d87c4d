"""Stochastic rounding and the exact integer norm check in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = ["norm_within", "round_stochastically", "round_toward_zero"]

#: Larger floats are not integers' business; conversion to int64 would be undefined.
_LARGEST = 2.0**62
#: A sum of squares of so many smaller integers, a piece, is at most 2**62.
_SMALL = 1 << 23
#: Bits of the lower two of three digits of a 64-bit integer.
_DIGIT = 22


def round_stochastically(
    x: NDArray[Any], words: NDArray[np.uint64], out: NDArray[np.int64]
) -> None:
    """Write floor(x) or floor(x) + 1, with expectation x, using 53 bits of each word."""
    for piece in pieces(0, len(x)):
        values = _within_range(x[piece])
        floors = np.floor(values)
        up = (words[piece] >> np.uint64(11)) * 2.0**-53 < values - floors
        out[piece] = floors.astype(np.int64) + up


def round_toward_zero(x: NDArray[Any], out: NDArray[np.int64]) -> None:
    """Write x without its fraction: no coordinate, hence no norm, grows."""
    for piece in pieces(0, len(x)):
        out[piece] = _within_range(x[piece]).astype(np.int64)


def _within_range(x: NDArray[Any]) -> NDArray[Any]:
    """Return x with zeros in place of what is not finite or too large."""
    return np.where(np.abs(x) < _LARGEST, x, x.dtype.type(0))


def norm_within(x: NDArray[np.int64], limit_high: np.uint64, limit_low: np.uint64) -> bool:
    """Return whether Σ x² ≤ limit, a 128-bit integer below 2**127, for any 64-bit integers."""
    limit = int(limit_high) << 64 | int(limit_low)
    total = 0
    for piece in pieces(0, len(x)):
        total += _square_sum(x[piece])
        if total > limit:
            return False
    return True


def _square_sum(x: NDArray[np.int64]) -> int:
    """Return Σ x² of one piece: at once, or digit by digit where it could leave 64 bits."""
    if max(-int(x.min()), int(x.max())) <= _SMALL:
        return int(np.dot(x, x))
    mask = (1 << _DIGIT) - 1
    digits = [x & mask, x >> _DIGIT & mask, x >> 2 * _DIGIT]  # the highest has the sign
    return sum(
        int(np.dot(a, b)) << _DIGIT * (i + j)
        for i, a in enumerate(digits)
        for j, b in enumerate(digits)
    )
