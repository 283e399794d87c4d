"""Operators: the meeting point of encoders and solvers.

A solver sees a matrix A (m, d) only through products and columns. Everything a user may
hold (an array, a scipy sparse matrix, a ``LinearOperator``) becomes an :class:`Operator`
through :func:`as_operator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

from solvers.products import is_contiguous, products, products_and_squares, products_with

__all__ = [
    "DenseOperator",
    "DiagonalBlock",
    "Operator",
    "RowSubset",
    "SparseOperator",
    "as_operator",
    "blocks_of",
]

#: Columns materialised at once when an operator offers products only.
_BLOCK = 256

#: Entries of A converted at once when float32 storage meets a float64 matrix (8 MB).
_CONVERTED = 1 << 20

#: Entries of A below which NumPy's way to the column norms is as good as any.
_SMALL = 1 << 16


#: What an operator declares by overriding a method.
_CAPABILITIES = {
    "sparse_columns": "has_sparse_columns",
    "gram": "has_gram_formula",
    "column_norms": "has_column_norms",
}


class DiagonalBlock(NamedTuple):
    """One of the matrices that a block-diagonal operator is made of, and where it stands."""

    features: slice
    components: slice
    operator: Operator


class Operator(LinearOperator):
    """A ``LinearOperator`` of shape (m, d) that also offers its columns.

    Subclasses implement ``_matvec`` and ``_rmatvec`` (or ``_matmat`` and ``_rmatmat``), and
    override :meth:`columns`, :meth:`sparse_columns`, :meth:`gram` and :meth:`column_norms` where
    the structure makes them cheap. Solvers go by what an operator declares in the attributes
    below; a class that overrides a method without the declaration that belongs to it is refused.

    Parameters
    ----------
    *args, **kwargs : dtype and shape
        As of scipy's ``LinearOperator``: the type of products, and (m, d).

    Attributes
    ----------
    has_sparse_columns : bool
        Whether :meth:`sparse_columns` is the natural form of a column.
    has_columns_at_hand : bool
        Whether some columns take no more than their share of a pass over A.
    has_gram_formula : bool
        Whether :meth:`gram` needs no columns.
    has_column_norms : bool
        Whether :meth:`column_norms` needs no columns.
    orthogonal_dimension : int or None
        D, where the rows are taken from a random orthogonal matrix of D ≥ d columns, up to a
        common factor. None where the entries are independent, or nothing is known.
    diagonal_blocks : sequence of DiagonalBlock
        Where the operator is block-diagonal (layers that are sketched one by one), its blocks,
        which cover rows and columns in order; else empty.

    See Also
    --------
    as_operator : Makes one of an array or a sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers import as_operator
    >>> A = as_operator(np.eye(3))
    >>> A.columns(np.array([1])).ravel().tolist()
    [0.0, 1.0, 0.0]
    """

    has_sparse_columns: bool = False
    has_columns_at_hand: bool = False
    has_gram_formula: bool = False
    has_column_norms: bool = False
    orthogonal_dimension: int | None = None
    diagonal_blocks: Sequence[DiagonalBlock] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for method, capability in _CAPABILITIES.items():
            declared = any(capability in vars(base) for base in cls.__mro__ if base is not Operator)
            if method in vars(cls) and not declared:
                raise TypeError(
                    f"{cls.__name__} overrides {method} but does not declare {capability}; "
                    f"add {capability} = True to the class, or False where it costs as much as "
                    "the columns."
                )

    def columns(self, J: ArrayLike) -> NDArray[np.floating]:
        """Return the columns A[:, J] as a dense (m, len(J)) array in Fortran order."""
        J = self._check_columns(J)
        units = np.zeros((self.shape[1], len(J)), dtype=self.dtype)
        units[J, np.arange(len(J))] = 1
        return np.asfortranarray(self.matmat(units))

    def sparse_columns(self, J: ArrayLike) -> sp.csc_array:
        """Return the columns A[:, J] as a CSC array of shape (m, len(J))."""
        return sp.csc_array(self.columns(J))

    def submatrix(self, J: ArrayLike) -> DenseOperator | SparseOperator:
        """Return the columns A[:, J] as an operator of their own, dense or sparse like A."""
        if self.has_sparse_columns:
            return SparseOperator(self.sparse_columns(J))
        return DenseOperator(self.columns(J))

    def gram(self, J: ArrayLike, K: ArrayLike) -> NDArray[np.float64]:
        """Return A[:, J].T @ A[:, K] as a dense (len(J), len(K)) array."""
        if self.has_sparse_columns:
            return np.asarray((self.sparse_columns(J).T @ self.sparse_columns(K)).toarray())
        return self.columns(J).T @ self.columns(K)

    def column_norms(self) -> NDArray[np.float64]:
        """Return the Euclidean norms of all d columns."""
        d = self.shape[1]
        norms = np.empty(d)
        for start in range(0, d, _BLOCK):
            J = np.arange(start, min(start + _BLOCK, d))
            norms[J] = np.linalg.norm(self.columns(J).astype(np.float64, copy=False), axis=0)
        return norms

    def rmatvec_and_norms(
        self, y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return A^T y and the norms of the columns, in one pass where A is stored."""
        return np.asarray(self.rmatvec(y), dtype=np.float64), self.column_norms()

    def rmatvec_with(self, J: NDArray[np.int64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A[:, J]^T y."""
        if self.has_sparse_columns:
            return np.asarray(self.sparse_columns(J).T @ y)
        return self.columns(J).T @ y

    def image(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A x, through the columns of the support where these are at hand and few."""
        support = np.flatnonzero(x)
        if 10 * len(support) > len(x) or not self.has_columns_at_hand:
            return np.asarray(self.matvec(x), dtype=np.float64)
        if len(support) == 0:
            return np.zeros(self.shape[0])
        return np.asarray(self.submatrix(support).matvec(x[support]), dtype=np.float64)

    def as_stored(self) -> Operator:
        """Return the operator as a plain array or sparse matrix where it is held as one."""
        return self

    def toarray(self) -> NDArray[np.floating]:
        """Return A as a dense (m, d) array."""
        return self.columns(np.arange(self.shape[1]))

    def _check_columns(self, J: ArrayLike) -> NDArray[np.int64]:
        J = np.atleast_1d(np.asarray(J))
        if J.size == 0:
            return np.empty(0, dtype=np.int64)
        if J.ndim != 1 or not np.issubdtype(J.dtype, np.integer):
            raise ValueError(
                f"J must be a list of integer column indices, got an array of dtype {J.dtype} "
                f"and shape {J.shape}; for a mask pass np.flatnonzero(mask)."
            )
        d = self.shape[1]
        if J.min() < 0 or J.max() >= d:
            raise IndexError(
                f"J holds column {J.min() if J.min() < 0 else J.max()}, "
                f"but the operator has columns 0 to {d - 1}."
            )
        return J.astype(np.int64, copy=False)


def blocks_of(A: Operator) -> Sequence[DiagonalBlock]:
    """Return the diagonal blocks of A; where it has none, A itself as the only one."""
    m, d = A.shape
    return A.diagonal_blocks or [DiagonalBlock(slice(0, d), slice(0, m), A)]


class DenseOperator(Operator):
    """An array (m, d) as an operator. The array is not copied.

    Products are computed in the wider type of A and the vector: a float32 array gives fast
    products with float32 vectors and exact ones with float64 vectors.
    """

    has_columns_at_hand = True
    has_column_norms = True

    def __init__(self, A: NDArray[np.floating]) -> None:
        super().__init__(dtype=A.dtype, shape=A.shape)
        self.A = A

    def _matvec(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        return _product(self.A, x)

    def _rmatvec(self, y: NDArray[np.floating]) -> NDArray[np.floating]:
        return _product(self.A.T, y)

    _matmat = _matvec
    _rmatmat = _rmatvec

    def rmatvec_and_norms(
        self, y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.A.size < _SMALL or not is_contiguous(self.A):
            return super().rmatvec_and_norms(y)
        self._check_measurements(y)
        correlations, squares = products_and_squares(self.A, y)
        return correlations, np.sqrt(squares)

    def rmatvec_with(self, J: NDArray[np.int64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.A.flags.f_contiguous:
            return super().rmatvec_with(J, y)
        self._check_measurements(y)
        return products_with(self.A, self._check_columns(J), y)

    def _check_measurements(self, y: NDArray[np.floating]) -> None:
        if y.shape != (self.shape[0],):  # the kernels would read past its end
            raise ValueError(f"y has shape {y.shape}, expected ({self.shape[0]},).")

    def columns(self, J: ArrayLike) -> NDArray[np.floating]:
        """Return A[:, J] as a dense array in Fortran order."""
        J = self._check_columns(J)
        if self.A.flags.f_contiguous:
            return self.A.T[J].T  # whole columns are copied at once
        return np.asfortranarray(self.A[:, J])

    def column_norms(self) -> NDArray[np.float64]:
        """Return the Euclidean norms of the columns, in float64."""
        if self.A.size < _SMALL or not is_contiguous(self.A):
            return np.asarray(np.sqrt(np.einsum("ij,ij->j", self.A, self.A, dtype=np.float64)))
        return self.rmatvec_and_norms(np.zeros(self.shape[0]))[1]

    def toarray(self) -> NDArray[np.floating]:
        """Return the array itself."""
        return self.A


def _product(A: NDArray[np.floating], x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return A @ x; where that needs A in a wider type, without a copy of all of A."""
    dtype = np.result_type(A, x)
    if A.dtype == dtype:
        return np.asarray(A @ x.astype(dtype, copy=False))
    if x.ndim == 1 and dtype == np.float64 and is_contiguous(A):
        return products(A.T, x.astype(np.float64, copy=False))
    out = np.empty((A.shape[0], *x.shape[1:]), dtype=dtype)
    step = max(1, _CONVERTED // A.shape[1])
    for start in range(0, A.shape[0], step):
        rows = slice(start, start + step)
        np.matmul(A[rows].astype(dtype), x, out=out[rows])
    return out


class SparseOperator(Operator):
    """A scipy sparse matrix (m, d) as an operator, kept in CSC form."""

    has_sparse_columns = True
    has_columns_at_hand = True
    has_column_norms = True

    def __init__(self, A: Any) -> None:
        self.A = sp.csc_array(A)
        if not self.A.has_canonical_format:  # norms need one number an entry
            self.A = self.A.copy()
            self.A.sum_duplicates()
        super().__init__(dtype=self.A.dtype, shape=self.A.shape)

    def _matvec(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(self.A @ x)

    def _rmatvec(self, y: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(self.A.T @ y)

    _matmat = _matvec
    _rmatmat = _rmatvec

    def columns(self, J: ArrayLike) -> NDArray[np.floating]:
        """Return A[:, J] as a dense array in Fortran order."""
        return np.asfortranarray(self.A[:, self._check_columns(J)].toarray())

    def sparse_columns(self, J: ArrayLike) -> sp.csc_array:
        """Return A[:, J] as a CSC array."""
        return self.A[:, self._check_columns(J)]

    def column_norms(self) -> NDArray[np.float64]:
        """Return the Euclidean norms of the columns, in float64."""
        squares = np.zeros(self.shape[1])
        filled = np.diff(self.A.indptr) > 0
        values = self.A.data.astype(np.float64) ** 2
        squares[filled] = np.add.reduceat(values, self.A.indptr[:-1][filled])
        return np.sqrt(squares)


class _Products(Operator):
    """A foreign ``LinearOperator``, which offers products only."""

    def __init__(self, A: LinearOperator) -> None:
        super().__init__(dtype=np.dtype(A.dtype), shape=A.shape)
        self.A = A

    def _matvec(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(self.A.matvec(x))

    def _rmatvec(self, y: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(self.A.rmatvec(y))

    def _matmat(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(self.A.matmat(X))

    def _rmatmat(self, Y: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(self.A.rmatmat(Y))


class RowSubset(Operator):
    """Some rows of an operator: a part of the measurements, for held-out validation."""

    has_sparse_columns = False  # or True, as the whole operator has

    def __init__(self, A: Operator, rows: NDArray[np.integer]) -> None:
        super().__init__(dtype=A.dtype, shape=(len(rows), A.shape[1]))
        self.A = A
        self.rows = rows
        self.orthogonal_dimension = A.orthogonal_dimension
        self.has_sparse_columns = self.has_columns_at_hand = A.has_sparse_columns

    def _matvec(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(
            self.A.matmat(x)[self.rows] if x.ndim == 2 else self.A.matvec(x)[self.rows]
        )

    def _rmatvec(self, y: NDArray[np.floating]) -> NDArray[np.floating]:
        full = np.zeros((self.A.shape[0], *y.shape[1:]), dtype=y.dtype)
        full[self.rows] = y
        return np.asarray(self.A.rmatmat(full) if y.ndim == 2 else self.A.rmatvec(full))

    _matmat = _matvec
    _rmatmat = _rmatvec

    def columns(self, J: ArrayLike) -> NDArray[np.floating]:
        """Return A[:, J] as a dense array in Fortran order."""
        return np.asfortranarray(self.A.columns(J)[self.rows])

    def sparse_columns(self, J: ArrayLike) -> sp.csc_array:
        """Return A[:, J] as a CSC array."""
        return self.A.sparse_columns(J)[self.rows].tocsc()


def as_operator(A: Any, check_finite: bool = True) -> Operator:
    """Return A as an :class:`Operator`.

    Parameters
    ----------
    A : ndarray, scipy sparse matrix or array, or LinearOperator, of shape (m, d)
        Real floating point; integer arrays are converted to float64. An array that holds
        NaN or infinity is refused.
    check_finite : bool, default=True
        Look for NaN and infinity, which costs one pass over A.

    Returns
    -------
    Operator
        A itself where it already is one; a view, not a copy, for floating-point arrays.

    Raises
    ------
    ValueError
        If A is not a matrix, is empty, or holds NaN or Inf.

    See Also
    --------
    Operator : What it returns.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers import as_operator
    >>> as_operator(np.ones((2, 3))).shape
    (2, 3)
    """
    if isinstance(A, Operator):
        return A
    if isinstance(A, LinearOperator):
        if np.issubdtype(A.dtype, np.complexfloating):
            raise ValueError(f"A must be real, got a LinearOperator of dtype {A.dtype}.")
        return _Products(A)
    if sp.issparse(A):
        A = sp.csc_array(A)
        values = A.data
    else:
        A = values = np.asarray(A)
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"A must be a matrix with at least one row and column, got {A.shape}.")
    if values.dtype not in (np.float32, np.float64):
        if not (np.issubdtype(values.dtype, np.integer) or values.dtype == bool):
            raise ValueError(
                f"A must be real floating point, got dtype {values.dtype}; "
                "convert it with A.astype(float)."
            )
        A = A.astype(np.float64)
        values = A.data if sp.issparse(A) else A
    if check_finite and not _all_finite(values):
        raise ValueError("A contains NaN or infinity; remove or impute those entries first.")
    return SparseOperator(A) if sp.issparse(A) else DenseOperator(A)


def _all_finite(values: NDArray[np.floating]) -> bool:
    """Whether all entries are finite; the sum of finite numbers rarely overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())
