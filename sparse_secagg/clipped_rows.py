"""Rows within a clip, without a copy of them: clipped row i is ``factors[i] · rows[i]``.

One pass over the data measures the norms. What clipping and weights do to a row is a number, and a
linear encoder can apply it to the short sketch in place of the long row. Only a batch in which a
row is not finite, or so long or short that its squares leave the range of doubles, is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each
from sparse_secagg import kernels
from sparse_secagg.containers import is_sparse

__all__ = ["ClippedRows", "as_rows", "as_vector", "clip_factors"]

#: Squared norms that doubles hold without losing digits.
_SMALLEST, _LARGEST = 1e-280, 1e300
#: Values that keep one thread busy for a moment.
_VALUES = 1 << 16


@dataclass(frozen=True)
class ClippedRows:
    """Rows of a batch and what clipping makes of them.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, d)
        The rows. Those with NaN or Inf are zero.
    weights : ndarray of shape (n,)
        What a row is multiplied with before it is clipped.
    factors : ndarray of shape (n,)
        The same, and its clipping: ``factors[:, None] * rows`` is within the clip.
    norms : ndarray of shape (n,)
        Norms of the weighted rows before clipping.
    nonfinite, clipped : ndarray of bool, shape (n,)
        Rows with NaN or Inf, and rows that were too long.
    """

    rows: Any
    weights: NDArray[np.float64]
    factors: NDArray[np.float64]
    norms: NDArray[np.float64]
    nonfinite: NDArray[np.bool_]
    clipped: NDArray[np.bool_]

    def without(self, excluded: NDArray[np.bool_]) -> ClippedRows:
        """Return the same with further rows counted as zero."""
        kept = ~excluded
        return replace(
            self,
            weights=self.weights * kept,
            factors=self.factors * kept,
            norms=self.norms * kept,
            clipped=self.clipped & kept,
        )

    def add_to(self, total: NDArray[np.float64], clipped_total: NDArray[np.float64]) -> None:
        """Add the sums of the rows before and after clipping to two totals of length d."""
        X, before, after = self.rows, self.weights, self.factors
        if is_sparse(X):
            kernels.rows.add_sparse_rows(
                X.data, X.indices, X.indptr, before, after, total, clipped_total
            )
            return
        d, step = X.shape[1], max(1, _VALUES // len(X))
        for_each(
            lambda k: kernels.rows.add_rows(
                X, before, after, k * step, min((k + 1) * step, d), total, clipped_total
            ),
            -(-d // step),
        )


def as_vector(x: Any) -> NDArray[np.floating]:
    """Return one client's vector in a form that kernels read; floats of 4 or 8 bytes as they are.

    Memory-mapped arrays are read where they lie, tensors on a CPU too; half precision is widened to
    single, and everything else to double.
    """
    if hasattr(x, "detach"):  # a tensor of PyTorch
        x = x.detach().cpu()
        x = x.float() if x.is_floating_point() and x.itemsize < 4 else x
    x = np.asarray(x)
    if x.dtype == np.float16:
        return np.asarray(x, dtype=np.float32)
    return np.asarray(x, dtype=np.float32 if x.dtype == np.float32 else np.float64)


def as_rows(X: Any) -> Any:
    """Return X in one of the forms that kernels read: C-ordered floats, or canonical CSR."""
    if not is_sparse(X):
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        return np.ascontiguousarray(X, dtype=dtype)
    import scipy.sparse as sp

    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()  # the caller's matrix stays as it is
        X.sum_duplicates()
    values = X.data.astype(np.float64, copy=False)
    return sp.csr_array((values, X.indices, X.indptr), shape=X.shape, copy=False)


def clip_factors(
    rows: Any, clip_norm: float, weights: NDArray[np.float64] | None = None
) -> ClippedRows:
    """Measure rows, as :func:`as_rows` returns them, against ``clip_norm``.

    Parameters
    ----------
    rows : ndarray or csr_array of shape (n, d)
        The rows.
    clip_norm : float
        The largest norm of a weighted row.
    weights : ndarray of shape (n,), optional
        Factors at least 0 that come before the clip.
    """
    n = rows.shape[0]
    weights = np.ones(n) if weights is None else weights
    squares = _square_sums(rows)
    usual = (squares == 0) | ((squares > _SMALLEST) & (squares < _LARGEST))
    nonfinite = np.zeros(n, dtype=bool)
    if not usual.all():
        rows, scales, nonfinite = _tamed(rows, ~usual)
        squares, weights = _square_sums(rows), weights * scales
    lengths = np.sqrt(squares)
    with np.errstate(over="ignore"):
        norms = weights * lengths
    clipped = norms > clip_norm
    factors = np.where(clipped, clip_norm / np.where(clipped, lengths, 1.0), weights)
    return ClippedRows(rows, weights, factors, norms, nonfinite, clipped)


def _square_sums(rows: Any) -> NDArray[np.float64]:
    n, d = rows.shape
    out = np.empty(n)
    if is_sparse(rows):
        kernels.rows.sparse_square_sums(rows.data, rows.indptr, out)
    else:
        step = max(1, _VALUES // d)
        for_each(
            lambda k: kernels.rows.square_sums(rows, k * step, min((k + 1) * step, n), out),
            -(-n // step),
        )
    return out


def _tamed(
    rows: Any, unusual: NDArray[np.bool_]
) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_]]:
    """Return a copy with bad rows zeroed and rows out of range divided by their largest entry.

    Returns
    -------
    rows, the divisors, and which rows had NaN or Inf
    """
    rows = rows.copy()
    scales, nonfinite = np.ones(rows.shape[0]), np.zeros(rows.shape[0], dtype=bool)
    for i in np.flatnonzero(unusual):
        row = rows.data[rows.indptr[i] : rows.indptr[i + 1]] if is_sparse(rows) else rows[i]
        largest = np.abs(row).max()
        if np.isfinite(largest):
            row /= largest
            scales[i] = largest
        else:
            row[:] = 0
            nonfinite[i] = True
    return rows, scales, nonfinite
