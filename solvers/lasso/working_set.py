"""The Lasso on a growing working set: few passes over A, coordinate descent on few columns.

Most coordinates of the solution are zero, and a pass A^T r over the whole matrix costs more
than solving on the columns that matter. So each outer iteration (1) solves on the
columns gathered so far, by coordinate descent from cache and, where that slows down with stable
signs, by solving the optimality system on the support outright; (2) makes one pass A^T r, over the
columns that can have come to matter, which gives the duality gap and the ones to add next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.lasso.family import LassoSolver
from solvers.lasso.pools import Pass, Pool, new_pool
from solvers.lasso.problem import LassoProblem, Minimum, certificate

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

#: A pass is saved where at most this share of the columns can matter: it then costs far less, even
#: for columns that must be gathered from the rows of A.
_FEW = 1 / 16

#: Right-hand sides share one working set when the union of theirs is at most this many times
#: larger than one of them.
_SHARED_GROWTH = 2.0


class WorkingSet(LassoSolver):
    """Lasso by working sets, coordinate descent and an active-set finish.

    Minimises 1/(2m) ||y - A x||^2 + alpha ||x||_1 and stops when the duality gap, evaluated in
    float64 over all columns, is at most tol ||y||^2 / (2m). Several right-hand sides share
    each pass over A. The descent runs on columns, dense or sparse, or on the Gram matrix where the
    operator has a formula for it (a subsampled Hadamard matrix).

    Parameters
    ----------
    alpha : float, "noise", "cv" or "paper", default="noise"
        Penalty, or the rule that sets it; see :class:`~solvers.lasso.LassoSolver`.
    tol : float, default=1e-6
        Relative tolerance of the duality gap.
    positive : bool, default=False
        Constrain x >= 0.
    debias : bool, default=False
        Return the debiased estimate; ``dual_gap_`` is still the Lasso's.
    max_iter : int, default=100
        Passes A^T r at most, but always one for the certificate.

    Attributes
    ----------
    n_iter_ : int
        Passes A^T r made, those over few columns and the first, A^T y, included.

    See Also
    --------
    solvers.lasso.FISTA : For operators whose columns are expensive.

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
        while todo and n_iter < max(self.max_iter, 2):
            n_iter += 1
            for i in todo:
                states[i].descend(fraction * allowed[i])
            fraction = max(0.5 * fraction, 1e-4)  # more care, the longer it takes
            _pass(problem, [states[i] for i in todo])
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
        pool: Pool,
        x0: NDArray[np.float64] | None,
    ) -> None:
        self.problem, self.alpha, self.pool = problem, alpha, pool
        self.y = problem.Y[i]
        self.first = self.last = Pass(self.y, problem.correlations[i])  # last: over all columns
        self.correlations = self.first.correlations
        self.x = np.zeros(len(pool.indices)) if x0 is None else x0[pool.indices].copy()
        self.gap = float(problem.y_squares[i]) / (2 * problem.m)
        self.residual = self.y
        self.dual = 0.0

    def descend(self, target: float) -> None:
        """Solve on the pool, up to ``target`` or what the missing columns make worthwhile."""
        self._follow_pool()
        m = self.problem.m
        if 4 * np.count_nonzero(self.x) > m:
            target = max(target, _EARLY * self.gap)
        self.residual = self.pool.minimize(
            self.first,
            self.last,
            self.x,
            lam=m * self.alpha,
            target=m * target,
            positive=self.problem.positive,
        )

    def certify(self, correlations: NDArray[np.float64], largest: float) -> None:
        """Take in A^T r: the gap, with the best dual point so far, and what to add next."""
        l1_norm = float(np.abs(self.x).sum())
        found = certificate(self.y, self.residual, largest, l1_norm, self.alpha)
        self.dual = max(self.dual, found.dual)
        self.gap = max(found.primal - self.dual, 0.0)
        self.correlations = correlations

    def certify_by_bounds(self) -> bool:
        """Certify without a pass, if few columns can matter; say whether that was so.

        |A_j^T r| <= |A_j^T r0| + ||A_j|| ||r - r0||, r0 the residual of the last full pass. Where
        this is below m alpha, the dual constraint holds and the column stays out; m alpha then
        serves as the largest correlation of the rest, as it does in the descent. Done where the
        norms are known: to compute them would cost a pass.
        """
        norms = self.problem.known_norms
        if norms is None or not self.problem.A.has_columns_at_hand:
            return False
        moved = float(np.linalg.norm(self.residual - self.last.r))
        lam = self.problem.m * self.alpha
        may_matter = _score(self.problem, self.last.correlations) + norms * moved >= lam
        may_matter[self.pool.indices] = True
        J = np.flatnonzero(may_matter)
        if len(J) > _FEW * self.problem.d:
            return False
        correlations = np.zeros(self.problem.d)
        correlations[J] = self.problem.A.rmatvec_with(J, self.residual)
        self.certify(correlations, max(self.problem.largest(correlations), lam))
        return True

    def grow(self) -> None:
        """Add the columns that violate their condition, or nearly do, the most pressing first."""
        score = _score(self.problem, self.correlations)
        score[self.pool.indices] = 0.0
        near = np.flatnonzero(score > _NEAR * self.problem.m * self.alpha)
        most = max(int(np.count_nonzero(self.x)), 2 * _first_size(self.problem))
        if len(near):
            self.pool.extend(near[_largest(score[near], most)])

    def _follow_pool(self) -> None:
        missing = len(self.pool.indices) - len(self.x)  # another right-hand side extended it
        if missing:
            self.x = np.concatenate([self.x, np.zeros(missing)])


def _start(problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None) -> list[_State]:
    """Give each right-hand side the columns of its top correlations, in one pool if they agree."""
    sets = []
    for i, correlations in enumerate(problem.correlations):
        score = _score(problem, correlations)
        n_violated = int(np.count_nonzero(score > problem.m * alpha))
        # where alpha is alpha_max but for rounding, none is violated
        chosen = _largest(score, min(max(n_violated, 1), _first_size(problem)))
        if X0 is not None:
            chosen = np.union1d(chosen, np.flatnonzero(X0[i]))
        sets.append(chosen)
    union = sets[0] if len(sets) == 1 else np.unique(np.concatenate(sets))
    if len(union) <= _SHARED_GROWTH * max(len(chosen) for chosen in sets):
        pools = [new_pool(problem.A, union)] * len(sets)
    else:
        pools = [new_pool(problem.A, chosen) for chosen in sets]
    return [
        _State(problem, i, alpha, pool, None if X0 is None else X0[i])
        for i, pool in enumerate(pools)
    ]


def _first_size(problem: LassoProblem) -> int:
    """Return how many columns to take at first: sqrt(d), fewer where passes are shared.

    Descending on n columns costs 2 m n operations a sweep, from cache, and a pass 2 m d, from
    memory: sqrt(d) columns cost a small part of the pass that may be saved. Up to twice as many are
    added later, when they are better chosen; more were slower in the benchmark.
    """
    return max(32, int(np.sqrt(problem.d / min(len(problem.Y), 4))))


def _pass(problem: LassoProblem, states: list[_State]) -> None:
    """Certify all states; those that need all of A share one product A^T r."""
    states = [state for state in states if not state.certify_by_bounds()]
    if not states:
        return
    R = np.array([state.residual for state in states])
    for state, correlations in zip(states, problem.correlate(R)):
        state.certify(correlations, problem.largest(correlations))
        state.last = Pass(state.residual, correlations)


def _score(problem: LassoProblem, correlations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each column presses against its constraint."""
    return np.maximum(correlations, 0.0) if problem.positive else np.abs(correlations)


def _largest(score: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Return the indices of the n largest scores, sorted by index."""
    if n >= len(score):
        return np.arange(len(score))
    return np.sort(np.argpartition(score, len(score) - n)[len(score) - n :])
