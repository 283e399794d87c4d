"""Columns of A gathered for the Lasso, and coordinate descent on them.

A pool holds n columns, ``indices`` in A, and minimises over x on those alone; lam = m alpha. There
is one for columns written out, one for sparse columns and one for operators that have a formula
for the entries of A^T A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from solvers.operators import DenseOperator, Operator
from solvers.parallel import blas_for

__all__ = ["Pass", "Pool", "new_pool"]

#: Calls of the descent (each up to sign stability or 50 rounds) per outer iteration.
_MAX_CALLS = 200
_MAX_ROUNDS = 50

#: Nonzeros up to which the optimality system is solved outright (128 MB).
_MAX_SYSTEM = 4000

#: A column depends on others where this share at most of its squared norm is outside their span.
_DEPENDENT = 1e-12

#: Operations to spend on dropping entries one by one, each for a factor of the Gram matrix.
_WALK = 1e9

#: Room made for further columns, in units of those there are; memory not written to is not taken.
_ROOM = 4


@dataclass(frozen=True)
class Pass:
    """What one pass over A gives: for a vector r of measurements, A^T r on all columns."""

    r: NDArray[np.float64]
    correlations: NDArray[np.float64]


class Pool(Protocol):
    """Some columns of A."""

    indices: NDArray[np.int64]

    def extend(self, J: NDArray[np.int64]) -> None:
        """Add columns of A."""

    def minimize(
        self,
        first: Pass,
        last: Pass,
        x: NDArray[np.float64],
        lam: float,
        target: float,
        positive: bool,
    ) -> NDArray[np.float64]:
        """Change x until its gap on the pool, in units of m, is at most ``target``.

        ``first`` is the pass over y, ``last`` one over a later residual. Returns y - A x.
        """
        ...


def new_pool(A: Operator, J: NDArray[np.int64]) -> Pool:
    """Return the columns J of A in the form that suits A."""
    if A.has_sparse_columns:
        return SparsePool(A, J)
    if A.has_gram_formula:
        return GramPool(A, J)
    return ColumnPool(A, J)


class ResidualPool:
    """Columns written out; the descent runs on the residual.

    Where it slows down with stable signs, the optimality system is solved on the support.
    """

    indices: NDArray[np.int64]

    def minimize(
        self,
        first: Pass,
        last: Pass,
        x: NDArray[np.float64],
        lam: float,
        target: float,
        positive: bool,
    ) -> NDArray[np.float64]:
        r = np.empty_like(first.r)
        known = Pass(last.r.copy(), last.correlations[self.indices])
        for _ in range(_MAX_CALLS):
            gap = self._descend(first.r, r, x, known, lam, target, positive)
            if gap <= target:
                break
            support = np.flatnonzero(x)
            if len(support) > _MAX_SYSTEM:
                continue
            G, c = self._system(support, first.r)
            with blas_for(len(support) ** 3 / 6):  # a Cholesky factor
                x[support] = solve_on_support(G, c, x[support], lam)
        else:
            self._descend(first.r, r, x, known, lam, np.inf, positive)  # for r
        return r

    def _descend(
        self,
        y: NDArray[np.float64],
        r: NDArray[np.float64],
        x: NDArray[np.float64],
        known: Pass,
        lam: float,
        target: float,
        positive: bool,
    ) -> float:
        """Descend until the gap is at most ``target``, or signs are stable; write r = y - A x.

        ``known`` holds a residual and the pool's correlations with it, and may be renewed.
        """
        raise NotImplementedError

    def _system(
        self, support: NDArray[np.int64], y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return A_S^T A_S and A_S^T y for places S of the pool."""
        raise NotImplementedError


class ColumnPool(ResidualPool):
    """Dense columns, few enough to stay in cache; their Gram matrix grows with the support."""

    def __init__(self, A: Operator, J: NDArray[np.int64]) -> None:
        self.A = A
        self.indices = np.empty(0, dtype=np.int64)
        self.squares = np.empty(0)
        # The k-th column is row rows[k] of matrix: of A^T itself, if its rows are contiguous.
        self.copies = not (
            isinstance(A, DenseOperator) and A.dtype == np.float64 and A.A.flags.f_contiguous
        )
        self.matrix = np.empty((0, A.shape[0])) if self.copies else A.A.T
        self.in_gram = np.empty(0, dtype=np.int64)  # positions in indices
        self.gram = np.empty((0, 0))
        self.extend(J)

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.arange(len(self.indices)) if self.copies else self.indices

    def extend(self, J: NDArray[np.int64]) -> None:
        from solvers.lasso._kernels import squared_norms

        n, total = len(self.indices), len(self.indices) + len(J)
        self.indices = np.concatenate([self.indices, J])
        if self.copies:
            if total > len(self.matrix):
                before, self.matrix = self.matrix, np.empty((_ROOM * total, self.A.shape[0]))
                self.matrix[:n] = before[:n]
            self.matrix[n:total] = self.A.columns(J).T
        self.squares = np.concatenate([self.squares, squared_norms(self.matrix, self.rows[n:])])

    def _descend(
        self,
        y: NDArray[np.float64],
        r: NDArray[np.float64],
        x: NDArray[np.float64],
        known: Pass,
        lam: float,
        target: float,
        positive: bool,
    ) -> float:
        from solvers.lasso._kernels import dense_descent

        return float(
            dense_descent(
                self.matrix,
                self.rows,
                self.squares,
                y,
                r,
                x,
                known.r,
                known.correlations,
                lam,
                target,
                positive,
                _MAX_ROUNDS,
            )
        )

    def _system(
        self, support: NDArray[np.int64], y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        places = self._gram_of(support)
        return self.gram[np.ix_(places, places)], self.matrix[self.rows[support]] @ y

    def _gram_of(self, support: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the support is in the Gram matrix, to which what is missing is added."""
        new = np.setdiff1d(support, self.in_gram)
        k, total = len(self.in_gram), len(self.in_gram) + len(new)
        self.gram = _with_room(self.gram, k, total)
        with blas_for(self.A.shape[0] * len(new) * total):
            columns = self.matrix[self.rows[new]]
            self.gram[k:total, :k] = columns @ self.matrix[self.rows[self.in_gram]].T
            self.gram[k:total, k:total] = columns @ columns.T
        self.gram[:k, k:total] = self.gram[k:total, :k].T
        self.in_gram = np.concatenate([self.in_gram, new])
        places = np.empty(len(self.indices), dtype=np.int64)
        places[self.in_gram] = np.arange(total)
        return places[support]


class GramPool:
    """Columns never written out: the descent runs on a formula for their Gram matrix."""

    def __init__(self, A: Operator, J: NDArray[np.int64]) -> None:
        self.A = A
        self.indices = np.empty(0, dtype=np.int64)
        self.gram = np.empty((0, 0))
        self.extend(J)

    def extend(self, J: NDArray[np.int64]) -> None:
        n, total = len(self.indices), len(self.indices) + len(J)
        self.gram = _with_room(self.gram, n, total)
        self.gram[n:total, :n] = self.A.gram(J, self.indices)
        self.gram[n:total, n:total] = self.A.gram(J, J)
        self.gram[:n, n:total] = self.gram[n:total, :n].T
        self.indices = np.concatenate([self.indices, J])

    def minimize(
        self,
        first: Pass,
        last: Pass,
        x: NDArray[np.float64],
        lam: float,
        target: float,
        positive: bool,
    ) -> NDArray[np.float64]:
        y = first.r
        self._descend(first.correlations[self.indices], float(y @ y), x, lam, target, positive)
        full = np.zeros(self.A.shape[1])
        full[self.indices] = x
        return y - np.asarray(self.A.matvec(full), dtype=np.float64)

    def _descend(
        self,
        c: NDArray[np.float64],
        yy: float,
        x: NDArray[np.float64],
        lam: float,
        target: float,
        positive: bool,
    ) -> None:
        from solvers.lasso._kernels import gram_descent, gram_gap

        n = len(x)
        q = c - self._gram_times(x)
        for _ in range(_MAX_CALLS):
            gap, _rounds = gram_descent(
                self.gram, n, c, q, x, lam, yy, target, positive, _MAX_ROUNDS
            )
            if gap <= target:
                return
            support = np.flatnonzero(x)
            with blas_for(len(support) ** 3 / 6):  # a Cholesky factor
                x[support] = solve_on_support(
                    self.gram[np.ix_(support, support)], c[support], x[support], lam
                )
            q[:] = c - self._gram_times(x)
            if gram_gap(q, c, x, n, lam, yy, positive) <= target:
                return

    def _gram_times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        support = np.flatnonzero(x)
        return self.gram[support, : len(x)].T @ x[support]


def _with_room(gram: NDArray[np.float64], n: int, total: int) -> NDArray[np.float64]:
    """Return a matrix for ``total`` rows and columns that begins with the first n of ``gram``."""
    if total <= len(gram):
        return gram
    larger = np.empty((_ROOM * total,) * 2)
    larger[:n, :n] = gram[:n, :n]
    return larger


class SparsePool(ResidualPool):
    """Columns of A in CSC form."""

    def __init__(self, A: Operator, J: NDArray[np.int64]) -> None:
        self.A = A
        self.indices = J
        self._store(A.sparse_columns(J))

    def extend(self, J: NDArray[np.int64]) -> None:
        self._store(sp.hstack([self.matrix, self.A.sparse_columns(J)], format="csc"))
        self.indices = np.concatenate([self.indices, J])

    def _store(self, matrix: sp.csc_array) -> None:
        self.matrix = sp.csc_array(matrix, dtype=np.float64)
        self.squares = np.asarray(self.matrix.multiply(self.matrix).sum(axis=0)).ravel()

    def _descend(
        self,
        y: NDArray[np.float64],
        r: NDArray[np.float64],
        x: NDArray[np.float64],
        known: Pass,
        lam: float,
        target: float,
        positive: bool,
    ) -> float:
        from solvers.lasso._kernels import sparse_descent

        return float(
            sparse_descent(
                self.matrix.data,
                self.matrix.indices,
                self.matrix.indptr,
                self.squares,
                y,
                r,
                x,
                lam,
                target,
                positive,
                _MAX_ROUNDS,
            )
        )

    def _system(
        self, support: NDArray[np.int64], y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        columns = self.matrix[:, support]
        return (columns.T @ columns).toarray(), columns.T @ y


# --- the active-set finish --------------------------------------------------------------


def solve_on_support(
    G: NDArray[np.float64], c: NDArray[np.float64], x: NDArray[np.float64], lam: float
) -> NDArray[np.float64]:
    """Return a better x with the signs of x: of G z = c - lam sign(x), dropping what flips.

    All of x is nonzero. Dropping all that flips at once is quick but not always an improvement;
    where it is none, entries are dropped one by one.
    """
    signs = np.sign(x)
    kept = np.ones(len(x), dtype=bool)
    for _ in range(5):
        part = G if kept.all() else G[np.ix_(kept, kept)]
        solution = _cholesky_solve(part, (c - lam * signs)[kept])
        if solution is None:
            break
        stays = solution * signs[kept] > 0
        if stays.all():
            z = np.zeros(len(x))
            z[kept] = solution
            if _objective(G, c, z, lam) <= _objective(G, c, x, lam):
                return z
            break
        kept[kept] = stays
    return _walk(G, c, x, lam)


def _walk(
    G: NDArray[np.float64], c: NDArray[np.float64], x: NDArray[np.float64], lam: float
) -> NDArray[np.float64]:
    """Return x moved downhill with its signs, dropping what becomes zero on the way."""
    x = x.copy()
    left = np.arange(len(x))
    for _ in range(int(np.clip(_WALK / len(x) ** 3, 1, len(x)))):
        z = x[left]
        step, whole = _downhill(G[np.ix_(left, left)], c[left], z, lam)
        shrinks = step * z < 0
        lengths = np.full(len(z), np.inf)
        lengths[shrinks] = -z[shrinks] / step[shrinks]
        first = int(lengths.argmin())
        if lengths[first] >= whole:
            x[left] = z + step if np.isfinite(whole) else z
            break
        x[left] = z + lengths[first] * step
        x[left[first]] = 0.0
        left = np.delete(left, first)
        if len(left) == 0:
            break
    return x


def _downhill(
    G: NDArray[np.float64], c: NDArray[np.float64], x: NDArray[np.float64], lam: float
) -> tuple[NDArray[np.float64], float]:
    """Return a step and how much of it to take: to the minimum for these signs, 1.

    Or, where columns depend on each other, along the dependence, on which the fit stays as it is
    and ||x||_1 shrinks: all the way, inf. Coordinate descent would exchange such columns in ever
    smaller steps.
    """
    scale = np.sqrt(np.diagonal(G))
    factor, order, rank, _ = scipy.linalg.lapack.dpstrf(G / np.outer(scale, scale), tol=_DEPENDENT)
    order = order - 1
    inside = order[:rank]
    square = np.triu(factor[:rank, :rank]), False
    step = np.zeros(len(x))
    if rank == len(x):
        right = (c - lam * np.sign(x)) / scale
        step[inside] = scipy.linalg.cho_solve(square, right[inside], check_finite=False)
        return step / scale - x, 1.0
    outside = order[rank]
    step[inside] = -scipy.linalg.solve_triangular(
        square[0], factor[:rank, rank], check_finite=False
    )
    step[outside] = 1.0
    step /= scale
    slope = float(np.sign(x) @ step)
    # where the slope is only rounding, the dependent column goes
    uphill = slope > 0 if abs(slope) > 1e-9 * np.abs(step).sum() else step[outside] * x[outside] > 0
    return (-step if uphill else step), np.inf


def _objective(
    G: NDArray[np.float64], c: NDArray[np.float64], x: NDArray[np.float64], lam: float
) -> float:
    """Return the objective less 1/2 ||y||^2."""
    return float(x @ (0.5 * (G @ x) - c) + lam * np.abs(x).sum())


def _cholesky_solve(G: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return G^-1 b, or None where the columns are dependent but for rounding."""
    try:
        factor = scipy.linalg.cho_factor(G, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    pivots = np.diagonal(factor[0]) ** 2 / np.diagonal(G)
    if pivots.min(initial=1.0) < _DEPENDENT:
        return None
    return np.asarray(scipy.linalg.cho_solve(factor, b, check_finite=False))
