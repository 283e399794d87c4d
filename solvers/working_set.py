"""The Lasso on a growing working set: few passes over A, coordinate descent on a Gram matrix.

Most coordinates of the solution are zero, and a pass A^T r over the whole matrix costs more
than solving on the columns that matter. So each outer iteration (1) solves on the
columns gathered so far, by coordinate descent through their Gram matrix and, once the
signs are stable, by solving the optimality system on the support outright; (2) makes
one pass A^T r, which gives the duality gap, the columns that can be excluded for good and the
ones to add next.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from solvers._blas import blas_for
from solvers.lasso import Certificate, LassoProblem, LassoSolver, Minimum, certificate
from solvers.operators import Operator

__all__ = ["WorkingSet"]

#: The inner problem is solved to this fraction of the allowed gap, so that the outer gap,
#: which sees the columns left out, can meet it in the same pass.
_INNER = 0.3

#: While columns are still missing, a large support (over a quarter of the measurements) is solved
#: to this fraction of the last gap only; a small one costs less than the pass it may save.
_EARLY = 1e-3

#: Columns this near to violating their condition are added with those that do: some of them
#: will, once x has moved, and each saves a pass.
_NEAR = 0.8

#: Calls of the descent (each up to sign stability or 50 rounds) per outer iteration.
_MAX_CALLS = 200
_MAX_ROUNDS = 50

#: Right-hand sides share one working set when the union of theirs is at most this many times
#: larger than one of them.
_SHARED_GROWTH = 2.0


class WorkingSet(LassoSolver):
    """Lasso by working sets, Gram coordinate descent and an active-set finish.

    Minimises 1/(2m) ||y - A x||^2 + alpha ||x||_1 and stops when the duality gap, evaluated in
    float64 over all columns, is at most tol ||y||^2 / (2m). Several right-hand sides share
    each pass over A. Where the operator offers sparse columns (a count sketch, a scipy sparse
    matrix) the descent runs on those and no Gram matrix is formed.

    Parameters
    ----------
    alpha, tol, positive, debias
        See :class:`~solvers.lasso.LassoSolver`.
    max_iter : int, default=100
        Passes over A.

    Attributes
    ----------
    n_iter_ : int
        Passes A^T r made, the first, A^T y, included.

    See Also
    --------
    solvers.fista.FISTA : for operators whose columns are expensive.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> A = np.random.default_rng(0).standard_normal((50, 200)) / np.sqrt(50)
    >>> x = np.zeros(200); x[:3] = 1
    >>> solver = solvers.get("working_set").fit(A, A @ x, noise_std=0.01)
    >>> np.flatnonzero(solver.coef_)[:3]
    array([0, 1, 2])
    """

    def __init__(
        self,
        alpha: float | str = "noise",
        tol: float = 1e-6,
        max_iter: int = 100,
        positive: bool = False,
        debias: bool = False,
    ) -> None:
        super().__init__(alpha, tol, max_iter, positive, debias)

    def _minimize(
        self, problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None
    ) -> Minimum:
        allowed = problem.allowed_gap(self.tol)
        states = _start(problem, alpha, X0)
        n_iter, todo = 1, list(range(len(states)))
        fraction = _INNER
        while todo and n_iter < self.max_iter:
            n_iter += 1
            for i in todo:
                with blas_for(np.count_nonzero(states[i].x) ** 3 / 6):  # its Cholesky factor
                    states[i].descend(fraction * allowed[i])
            fraction = max(0.5 * fraction, 1e-4)  # more care, the longer it takes
            _pass(problem, [states[i] for i in todo], allowed[todo])
            todo = [i for i in todo if states[i].gap > allowed[i]]
            for i in todo:
                states[i].grow()
        coef = np.zeros((len(states), problem.d))
        for x, state in zip(coef, states):
            x[state.pool.indices[: len(state.x)]] = state.x
        return Minimum(coef, np.array([state.gap for state in states]), n_iter)


class _State:
    """One right-hand side: its x on the columns of a pool, its gap and what to add next."""

    def __init__(
        self,
        problem: LassoProblem,
        i: int,
        alpha: float,
        pool: _GramPool | _SparsePool,
        x0: NDArray[np.float64] | None,
    ) -> None:
        self.problem, self.alpha, self.pool = problem, alpha, pool
        self.y = problem.Y[i]
        self.correlations = self.first = problem.correlations[i]
        self.x = np.zeros(pool.n) if x0 is None else x0[pool.indices].copy()
        self.gap = float(problem.y_squares[i]) / (2 * problem.m)
        self.dual = 0.0
        self.screened: NDArray[np.bool_] | None = None

    def descend(self, target: float) -> None:
        """Solve on the pool, up to ``target`` or what the missing columns make worthwhile."""
        self._follow_pool()
        m = self.problem.m
        if 4 * np.count_nonzero(self.x) > m:
            target = max(target, _EARLY * self.gap)
        self.pool.minimize(
            self.y,
            self.first,
            self.x,
            lam=m * self.alpha,
            target=m * target,
            positive=self.problem.positive,
        )

    def residual(self) -> NDArray[np.float64]:
        """Return y - A x."""
        return self.y - self.pool.product(self.x)

    def certify(self, residual: NDArray[np.float64], correlations: NDArray[np.float64]) -> None:
        """Take in one exact pass A^T r: the gap, with the best dual point so far, and screening."""
        found = self._certificate(residual, correlations)
        self.dual = max(self.dual, found.dual)
        self.gap = max(found.primal - self.dual, 0.0)
        self.correlations = correlations
        self._screen(found.scale, found.gap)

    def look(self, residual: NDArray[np.float64], correlations: NDArray[np.float64]) -> None:
        """Take in a pass in float32: enough to see what to add, too rough to certify."""
        self.gap = self._certificate(residual, correlations).gap
        self.correlations = correlations

    def _certificate(
        self, residual: NDArray[np.float64], correlations: NDArray[np.float64]
    ) -> Certificate:
        largest = self.problem.largest(correlations)
        l1_norm = float(np.abs(self.x).sum())
        return certificate(self.y, residual, largest, l1_norm, self.alpha)

    def _screen(self, scale: float, gap: float) -> None:
        """Exclude j for good where |A_j^T u| + ||A_j|| sqrt(2 m gap) < m alpha.

        u is the dual point and sqrt(2 m gap) its distance to the optimal one. Done where the
        column norms are at hand; computing them would cost a pass.
        """
        norms = self.problem.__dict__.get("column_norms")
        if norms is None:
            return
        m = self.problem.m
        u = scale * (self.correlations if self.problem.positive else np.abs(self.correlations))
        out = u + norms * np.sqrt(2 * m * gap) < m * self.alpha
        self.screened = out if self.screened is None else self.screened | out

    def grow(self) -> None:
        """Add the columns that violate the optimality condition most, and some near it."""
        score = _score(self.problem, self.correlations)
        score[self.pool.indices] = 0.0
        if self.screened is not None:
            score[self.screened] = 0.0
        lam = self.problem.m * self.alpha
        n_violated = int(np.count_nonzero(score > lam))
        n_near = int(np.count_nonzero(score > _NEAR * lam))
        most = max(int(np.count_nonzero(self.x)), _first_size(self.problem))
        chosen = _largest(score, min(max(int(1.5 * n_violated) + 10, n_near), most))
        chosen = chosen[score[chosen] > 0]
        if len(chosen):
            self.pool.extend(chosen)

    def _follow_pool(self) -> None:
        missing = self.pool.n - len(self.x)  # another right-hand side may have extended it
        if missing:
            self.x = np.concatenate([self.x, np.zeros(missing)])


def _start(problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None) -> list[_State]:
    """Give each right-hand side the columns of its top correlations, in one pool if they agree."""
    sets = []
    for i, correlations in enumerate(problem.correlations):
        score = _score(problem, correlations)
        n_violated = int(np.count_nonzero(score > problem.m * alpha))
        chosen = _largest(score, min(n_violated, _first_size(problem)))
        if X0 is not None:
            chosen = np.union1d(chosen, np.flatnonzero(X0[i]))
        sets.append(chosen)
    union = np.unique(np.concatenate(sets))
    if len(union) <= _SHARED_GROWTH * max(len(chosen) for chosen in sets):
        pools = [_new_pool(problem.A, union)] * len(sets)
    else:
        pools = [_new_pool(problem.A, chosen) for chosen in sets]
    return [
        _State(problem, i, alpha, pool, None if X0 is None else X0[i])
        for i, pool in enumerate(pools)
    ]


def _first_size(problem: LassoProblem) -> int:
    """Return how many columns to take at once: sqrt(d), fewer where passes are shared.

    The Gram matrix of n columns costs 2 m n^2 operations from cache and a pass 2 m d from
    memory, about eight times slower: sqrt(d) columns cost a small part of the pass that may be
    saved. Twice as many were slower in the benchmark.
    """
    return max(32, int(np.sqrt(problem.d / min(len(problem.Y), 4))))


def _pass(problem: LassoProblem, states: list[_State], allowed: NDArray[np.float64]) -> None:
    """Make one product A^T r for all states; the one that decides is in float64."""
    R = np.array([state.residual() for state in states])
    if problem.stores_float32:
        for state, residual, correlations in zip(states, R, problem.correlate(R, exact=False)):
            state.look(residual, correlations)
        near = [k for k, state in enumerate(states) if state.gap <= 2 * allowed[k]]
        states, R = [states[k] for k in near], R[near]
    if states:
        for state, residual, correlations in zip(states, R, problem.correlate(R)):
            state.certify(residual, correlations)


def _score(problem: LassoProblem, correlations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each column presses against its constraint."""
    return np.maximum(correlations, 0.0) if problem.positive else np.abs(correlations)


def _largest(score: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Return the indices of the n largest scores, sorted by index."""
    n = min(n, len(score))
    return np.sort(np.argpartition(score, len(score) - n)[len(score) - n :])


# --- pools of columns -------------------------------------------------------------------


def _new_pool(A: Operator, J: NDArray[np.int64]) -> _GramPool | _SparsePool:
    return _SparsePool(A, J) if A.has_sparse_columns else _GramPool(A, J)


class _GramPool:
    """Columns of A with their Gram matrix, extended by products with new columns only.

    Where the operator has a formula for its Gram matrix, no column is ever written out.
    """

    def __init__(self, A: Operator, J: NDArray[np.int64]) -> None:
        self.A = A
        self.has_formula = type(A).gram is not Operator.gram
        self.indices = np.empty(0, dtype=np.int64)
        self.blocks: list[NDArray[np.float64]] = []
        self.gram = np.empty((0, 0))
        self.extend(J)

    @property
    def n(self) -> int:
        return len(self.indices)

    def extend(self, J: NDArray[np.int64]) -> None:
        n, total = self.n, self.n + len(J)
        if total > len(self.gram):
            larger = np.empty((max(total, int(1.5 * n)),) * 2)
            larger[:n, :n] = self.gram[:n, :n]
            self.gram = larger
        with blas_for(self.A.shape[0] * len(J) * total):
            self._extend_gram(J, n, total)
        self.indices = np.concatenate([self.indices, J])

    def _extend_gram(self, J: NDArray[np.int64], n: int, total: int) -> None:
        if self.has_formula:
            cross = self.A.gram(J, self.indices)
            self.gram[n:total, :n] = cross
            self.gram[:n, n:total] = cross.T
            self.gram[n:total, n:total] = self.A.gram(J, J)
            return
        new = self.A.columns(J).astype(np.float64, copy=False)
        start = 0
        for block in self.blocks:
            stop = start + block.shape[1]
            cross = new.T @ block
            self.gram[n:total, start:stop] = cross
            self.gram[start:stop, n:total] = cross.T
            start = stop
        self.gram[n:total, n:total] = new.T @ new
        self.blocks.append(new)

    def product(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A x for x on the pool."""
        if self.has_formula:
            full = np.zeros(self.A.shape[1])
            full[self.indices[: len(x)]] = x
            return np.asarray(self.A.matvec(full), dtype=np.float64)
        out = np.zeros(self.A.shape[0])
        start = 0
        for block in self.blocks:
            out += block @ x[start : start + block.shape[1]]
            start += block.shape[1]
        return out

    def minimize(
        self,
        y: NDArray[np.float64],
        correlations: NDArray[np.float64],
        x: NDArray[np.float64],
        lam: float,
        target: float,
        positive: bool,
    ) -> None:
        from solvers._kernels import gram_descent, gram_gap

        n, yy = self.n, float(y @ y)
        if self.has_formula:
            c = correlations[self.indices]
        else:  # in float64, also where A^T y was not
            c = np.concatenate([block.T @ y for block in self.blocks])
        q = c - self._gram_times(x)
        for _ in range(_MAX_CALLS):
            gap, _rounds = gram_descent(
                self.gram, n, c, q, x, lam, yy, target, positive, _MAX_ROUNDS
            )
            if gap <= target:
                return
            self._solve_support(c, q, x, lam, positive)
            if gram_gap(q, c, x, n, lam, yy, positive) <= target:
                return

    def _gram_times(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        support = np.flatnonzero(x)
        return self.gram[support, : self.n].T @ x[support]

    def _solve_support(
        self,
        c: NDArray[np.float64],
        q: NDArray[np.float64],
        x: NDArray[np.float64],
        lam: float,
        positive: bool,
    ) -> None:
        """Solve G_SS z = c_S - lam sign(x_S) on the support S, dropping what changes sign.

        The new x is kept where it lowers the objective; otherwise x moves towards z until
        the first sign change, which always does.
        """
        before = x.copy()
        value = _objective(c, q, x, lam)
        support = np.flatnonzero(x)
        signs = np.sign(x[support])
        first: NDArray[np.float64] | None = None
        for _ in range(5):
            z = _cholesky_solve(self.gram[np.ix_(support, support)], c[support] - lam * signs)
            if z is None:
                break
            first = z if first is None else first
            keep = z * signs > 0
            if keep.all():
                x[:] = 0.0
                x[support] = z
                q[:] = c - self._gram_times(x)
                if _objective(c, q, x, lam) <= value:
                    return
                break
            support, signs = support[keep], signs[keep]
        x[:] = before
        if first is not None:
            support = np.flatnonzero(before)
            step = first - before[support]
            flips = first * before[support] < 0
            length = float((-before[support] / np.where(flips, step, 1.0))[flips].min(initial=1.0))
            moved = before[support] + length * step
            moved[moved * before[support] <= 1e-14 * before[support] ** 2] = 0.0
            x[support] = moved
        q[:] = c - self._gram_times(x)


def _objective(
    c: NDArray[np.float64], q: NDArray[np.float64], x: NDArray[np.float64], lam: float
) -> float:
    """Return the objective less 1/2 ||y||^2, from q = c - G x."""
    return float(-0.5 * x @ (c + q) + lam * np.abs(x).sum())


def _cholesky_solve(G: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64] | None:
    try:
        factor = scipy.linalg.cho_factor(G, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:  # collinear columns: coordinate descent copes
        return None
    return scipy.linalg.cho_solve(factor, b, check_finite=False)


class _SparsePool:
    """Columns of A in CSC form; the descent runs on the residual."""

    def __init__(self, A: Operator, J: NDArray[np.int64]) -> None:
        self.A = A
        self.indices = J
        self._store(A.sparse_columns(J))

    @property
    def n(self) -> int:
        return len(self.indices)

    def extend(self, J: NDArray[np.int64]) -> None:
        self._store(sp.hstack([self.matrix, self.A.sparse_columns(J)], format="csc"))
        self.indices = np.concatenate([self.indices, J])

    def _store(self, matrix: sp.csc_array) -> None:
        self.matrix = sp.csc_array(matrix, dtype=np.float64)
        self.squares = np.asarray(self.matrix.multiply(self.matrix).sum(axis=0)).ravel()

    def product(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.matrix @ x

    def minimize(
        self,
        y: NDArray[np.float64],
        correlations: NDArray[np.float64],
        x: NDArray[np.float64],
        lam: float,
        target: float,
        positive: bool,
    ) -> None:
        from solvers._kernels import sparse_descent

        sparse_descent(
            self.matrix.data,
            self.matrix.indices,
            self.matrix.indptr,
            self.squares,
            y,
            self.residual(y, x),
            x,
            lam,
            target,
            positive,
            _MAX_ROUNDS * _MAX_CALLS,
        )

    def residual(self, y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return y - A x, a fresh array."""
        return y - self.product(x)
