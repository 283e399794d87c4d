"""The subsampled randomised Hadamard transform in NumPy, the same bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces
from sparse_secagg.numpy_kernels.walsh_hadamard import transform_rows

__all__ = ["fill_signed", "gather", "gather_part", "sketch_row"]


def fill_signed(
    x: NDArray[Any], signs: NDArray[np.int8], start: int, stop: int, padded: NDArray[Any]
) -> None:
    """Write ±x, zeros after its end, to the places ``start`` to ``stop - 1``."""
    end = min(max(len(x), start), stop)
    np.multiply(x[start:end], signs[start:end], out=padded[start:end])
    padded[end:stop] = 0.0


def gather(
    padded: NDArray[Any], rows: NDArray[np.int64], scale: float, out: NDArray[np.float64]
) -> None:
    """Write the kept rows, scaled."""
    np.multiply(padded[rows], scale, out=out)


def gather_part(
    part: NDArray[Any],
    b: int,
    rows: NDArray[np.int64],
    start: int,
    stop: int,
    out: NDArray[np.float64],
) -> None:
    """Add what the transform of part ``b`` of a vector gives to the kept rows start … stop-1."""
    n = len(part)
    for piece in pieces(start, stop):
        odd = np.bitwise_count(rows[piece] // n & b) & 1
        entries = part[rows[piece] & (n - 1)]
        out[piece] += np.where(odd, -entries, entries)


def sketch_row(
    x: NDArray[Any],
    signs: NDArray[np.int8],
    rows: NDArray[np.int64],
    norm: float,
    scale: float,
    padded: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write scale·R·H·E x for one vector; ``padded`` is workspace, ``norm`` makes H orthonormal."""
    fill_signed(x, signs, 0, len(padded), padded)
    transform_rows(padded.reshape(1, -1), norm)
    gather(padded, rows, scale, out)
