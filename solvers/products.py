"""Products A^T y with a stored matrix, where BLAS does not serve: one pass over memory.

BLAS needs A and y in the same precision, which for float32 storage and a float64 vector means a
copy of A, and gives no column norms on the way. Here threads take block after block, whoever is
free, and the result does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each

__all__ = ["is_contiguous", "products", "products_and_squares", "products_with"]

#: Entries of A from which a pass takes longer than waking a thread.
_THREADED_FROM = 1 << 20

#: A pass of several threads is cut in about this many blocks of columns. Where rows are
#: contiguous, blocks are wide enough to read long stretches.
_BLOCKS = 64
_WIDE = 256


def is_contiguous(A: NDArray[np.floating]) -> bool:
    """Whether the entries of A follow each other, by rows or by columns."""
    return A.flags.f_contiguous or A.flags.c_contiguous


def products(A: NDArray[np.floating], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return A^T y, summed in float64; A is contiguous."""
    from solvers.product_kernels import columns_times, rows_times

    out = np.empty(A.shape[1])
    if A.flags.f_contiguous:
        _by_blocks(A, lambda start, stop: rows_times(A.T, y, start, stop, out))
    else:
        _by_blocks(A, lambda start, stop: columns_times(A, y, start, stop, out))
    return out


def products_and_squares(
    A: NDArray[np.floating], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A^T y and the squared norms of the columns of A, which is contiguous."""
    from solvers.product_kernels import columns_times_and_squares, rows_times_and_squares

    out, squares = np.empty(A.shape[1]), np.empty(A.shape[1])
    if A.flags.f_contiguous:
        _by_blocks(A, lambda i, j: rows_times_and_squares(A.T, y, i, j, out, squares))
    else:
        _by_blocks(A, lambda i, j: columns_times_and_squares(A, y, i, j, out, squares))
    return out, squares


def products_with(
    A: NDArray[np.floating], J: NDArray[np.int64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return A_J^T y for the columns J of a matrix whose columns are contiguous."""
    from solvers.product_kernels import some_rows_times

    out = np.empty(len(J))
    some_rows_times(A.T, J, y, out)
    return out


def _by_blocks(A: NDArray[np.floating], task: Callable[[int, int], object]) -> None:
    """Call task(start, stop) for blocks of columns, whose bounds depend on the shape alone."""
    d = A.shape[1]
    if A.size < _THREADED_FROM:
        task(0, d)
        return
    width = max(4 if A.flags.f_contiguous else _WIDE, -(-d // (4 * _BLOCKS)) * 4)
    for_each(lambda i: task(i * width, min(d, (i + 1) * width)), -(-d // width))
