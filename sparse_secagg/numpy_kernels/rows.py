"""Norms and weighted sums of rows in NumPy.

Square sums may differ in the last bits from those of the compiled kernels, which are taken in
whatever order suits the processor; all else is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = ["add_rows", "add_sparse_rows", "sparse_square_sums", "square_sums"]


def square_sums(X: NDArray[Any], start: int, stop: int, out: NDArray[np.float64]) -> None:
    """Write Σ x² of the rows ``start`` to ``stop - 1`` of X."""
    for i in range(start, stop):
        out[i] = _square_sum(X[i])


def sparse_square_sums(values: NDArray[Any], ends: NDArray[Any], out: NDArray[np.float64]) -> None:
    """Write Σ x² of each row of a sparse matrix."""
    for i in range(len(out)):
        out[i] = _square_sum(values[ends[i] : ends[i + 1]])


def _square_sum(x: NDArray[Any]) -> float:
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces(0, len(x)):
            values = x[piece].astype(np.float64, copy=False)
            total += float(np.dot(values, values))
    return total


def add_rows(
    X: NDArray[Any],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    start: int,
    stop: int,
    total: NDArray[np.float64],
    clipped_total: NDArray[np.float64],
) -> None:
    """Add Σ before_i·x_i and Σ after_i·x_i to two totals, in columns ``start`` to ``stop - 1``."""
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces(start, stop):
            for x, a, b in zip(X[:, piece], before, after):
                total[piece] += a * x
                clipped_total[piece] += b * x


def add_sparse_rows(
    values: NDArray[Any],
    indices: NDArray[Any],
    ends: NDArray[Any],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    total: NDArray[np.float64],
    clipped_total: NDArray[np.float64],
) -> None:
    """Do the same for a sparse matrix."""
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(len(before)):
            for piece in pieces(int(ends[i]), int(ends[i + 1])):
                np.add.at(total, indices[piece], before[i] * values[piece])
                np.add.at(clipped_total, indices[piece], after[i] * values[piece])
