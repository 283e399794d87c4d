"""Numba kernels over the rows of a batch of vectors, dense or in compressed sparse rows."""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import numba

# Sums may be taken in any order, but a NaN must survive in them.
_SUMS = {"reassoc", "contract", "nsz"}


@numba.njit(cache=True, nogil=True, fastmath=_SUMS)
def square_sum(x):
    """Return Σ x² in double precision, whatever the precision of x."""
    total = 0.0
    for j in range(x.shape[0]):
        value = np.float64(x[j])
        total += value * value
    return total


@numba.njit(cache=True, nogil=True)
def square_sums(X, start, stop, out):
    """Write Σ x² of the rows ``start`` to ``stop - 1`` of X."""
    for i in range(start, stop):
        out[i] = square_sum(X[i])


@numba.njit(cache=True, nogil=True)
def sparse_square_sums(values, ends, out):
    """Write Σ x² of each row of a sparse matrix."""
    for i in range(out.shape[0]):
        out[i] = square_sum(values[ends[i] : ends[i + 1]])


@numba.njit(cache=True, nogil=True)
def add_rows(X, before, after, start, stop, total, clipped_total):
    """Add Σ before_i·x_i and Σ after_i·x_i to two totals, in columns ``start`` to ``stop - 1``."""
    for i in range(X.shape[0]):
        a, b = before[i], after[i]
        for j in range(start, stop):
            total[j] += a * X[i, j]
            clipped_total[j] += b * X[i, j]


@numba.njit(cache=True, nogil=True)
def add_sparse_rows(values, indices, ends, before, after, total, clipped_total):
    """Do the same for a sparse matrix."""
    for i in range(before.shape[0]):
        for k in range(ends[i], ends[i + 1]):
            total[indices[k]] += before[i] * values[k]
            clipped_total[indices[k]] += after[i] * values[k]
