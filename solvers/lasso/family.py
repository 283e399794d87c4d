"""What the solvers of the Lasso share: the choice of alpha, paths, batches and the warning.

A solver of the family subclasses :class:`LassoSolver` and implements ``_minimize`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.base import Solution, Solver, check_measurements, check_positive
from solvers.lasso.debiasing import Debiased, debias, debiased
from solvers.lasso.problem import (
    LassoProblem,
    Minimum,
    alpha_from_noise,
    alpha_of_the_paper,
    feasible,
)
from solvers.operators import Operator, RowSubset
from solvers.parallel import MEMORY_BOUND, blas_for

__all__ = ["LassoPath", "LassoSolution", "LassoSolver"]

#: The smallest alpha that ``alpha="noise"`` asks for, in units of alpha_max: with noise_std=0
#: the Lasso tends to basis pursuit, which has no finite certificate in this form.
_ALPHA_FLOOR = 1e-6

#: Rules for alpha that follow from the noise level.
_NOISE_RULES = ("noise", "paper")


@dataclass(frozen=True, kw_only=True)
class LassoSolution(Solution):
    """A :class:`Solution` with the alpha used and the certified gap of the Lasso."""

    alpha: float
    dual_gap: float


@dataclass(frozen=True)
class LassoPath:
    """Solutions along decreasing alphas.

    Attributes
    ----------
    alphas : ndarray of shape (n,)
    coefs : ndarray of shape (n, d)
    dual_gaps : ndarray of shape (n,)
        Absolute gaps, as ``dual_gap_``.
    """

    alphas: NDArray[np.float64]
    coefs: NDArray[np.float64]
    dual_gaps: NDArray[np.float64]


class LassoSolver(Solver):
    """Base of the solvers of 1/(2m) ||y - A x||^2 + alpha ||x||_1.

    Subclasses implement ``_minimize(problem, alpha, X0) -> Minimum`` for k right-hand sides
    with alpha below every alpha_max, and stop when gap <= tol ||y||^2 / (2m).

    Parameters
    ----------
    alpha : float, "noise", "cv" or "paper", default="noise"
        A number in the objective; or noise_std sqrt(2 ln d) max_j ||A_j|| / m, where a
        noise level that is not given is estimated by the scaled Lasso and kept in
        ``noise_std_``; or the one with the least error on held-out measurements (5 folds);
        or the paper's, :func:`alpha_of_the_paper`, which is about sqrt(m) times too large.
    tol : float, default=1e-6
        Relative tolerance: stop when gap <= tol ||y||^2 / (2m).
    max_iter : int
        Iterations of the solver's own kind.
    positive : bool, default=False
        Constrain x >= 0.
    debias : bool, default=False
        Return the debiased estimate, see :func:`debiased`; ``dual_gap_`` is still the Lasso's.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    alpha_ : float
    dual_gap_ : float
        Absolute duality gap of the Lasso solution, in float64.
    noise_std_ : float or None
    n_iter_ : int
    """

    _checks_finite = False

    def __init__(
        self,
        alpha: float | str = "noise",
        tol: float = 1e-6,
        max_iter: int = 1000,
        positive: bool = False,
        debias: bool = False,
    ) -> None:
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.positive = positive
        self.debias = debias

    @property
    def biased(self) -> bool:  # type: ignore[override]
        """The Lasso shrinks; ``debias=True`` takes that back."""
        return not self.debias

    def path(
        self,
        A: Operator | NDArray[np.floating],
        y: ArrayLike,
        alphas: ArrayLike | None = None,
        n_alphas: int = 30,
        eps: float = 1e-3,
    ) -> LassoPath:
        """Solve for decreasing alphas, each started from the one before.

        Parameters
        ----------
        A, y
            As in ``fit``.
        alphas : array-like, optional
            Default: ``n_alphas`` values from alpha_max down to eps * alpha_max, in
            geometric progression.
        """
        operator = self._check_operator(A, y, reset=True)
        y = check_measurements(y, operator.shape[0])
        if alphas is None:
            problem = self._new_problem(operator, y[None])
            return self._path(problem, problem.alpha_max()[0] * np.geomspace(1, eps, n_alphas))
        grid = np.sort(np.asarray(alphas, dtype=np.float64))[::-1]
        if grid.ndim != 1 or not (np.isfinite(grid).all() and (grid > 0).all()):
            raise ValueError(f"alphas={alphas!r} must be a list of finite numbers > 0.")
        return self._path(self._new_problem(operator, y[None]), grid)

    # --- for subclasses

    def _minimize(
        self, problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None
    ) -> Minimum:
        raise NotImplementedError(f"{type(self).__name__} must implement _minimize")

    # --- the family's common part

    def _new_problem(self, A: Operator, Y: NDArray[np.float64]) -> LassoProblem:
        check_positive("tol", self.tol)
        if not (isinstance(self.max_iter, int | np.integer) and self.max_iter > 0):
            raise ValueError(f"max_iter={self.max_iter!r} must be an integer > 0.")
        if isinstance(self.alpha, str):
            if self.alpha not in (*_NOISE_RULES, "cv"):
                raise ValueError(
                    f'alpha={self.alpha!r} must be a number, "noise", "cv" or "paper".'
                )
        else:
            check_positive("alpha", self.alpha)
        with_norms = self.alpha in _NOISE_RULES or self.debias
        return LassoProblem(A, Y, self.positive, with_norms)

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> LassoSolution:
        problem = self._new_problem(A, y[None])
        X0 = None if x0 is None else feasible(x0, self.positive)[None]
        n_iter = 0
        if self.alpha in _NOISE_RULES and noise_std is None:
            noise_std, X0, n_iter = self._scaled_lasso(problem, X0)
        alpha = self._choose_alpha(problem, noise_std)
        found = self.minimum(problem, alpha, X0)
        gap = float(found.dual_gap[0])
        converged = gap <= float(problem.allowed_gap(self.tol)[0])
        estimate = self._estimate(problem, y, found.coef[0], noise_std)
        return LassoSolution(
            coef=estimate.coef,
            std_err=estimate.std_err,
            std_err_note=estimate.note,
            n_iter=n_iter + found.n_iter,
            noise_std=noise_std,
            alpha=alpha,
            dual_gap=gap,
            converged=converged,
            message="" if converged else self._late(problem, found),
        )

    def _decode(self, A: Operator, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solve for all rows of Y at the alpha of ``fit``."""
        problem = self._new_problem(A, Y)
        # alpha_ is zero where fit saw y = 0 and no noise
        alpha = self.alpha_ or _ALPHA_FLOOR * float(problem.alpha_max().max())
        found = self.minimum(problem, alpha, None)
        if (found.dual_gap > problem.allowed_gap(self.tol)).any():
            self._warn(self._late(problem, found))
        return self._estimates(problem, found)

    def minimum(
        self, problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None
    ) -> Minimum:
        """Minimise, answering at once for the right-hand sides whose solution is zero."""
        k = len(problem.Y)
        X0 = None if X0 is None else problem.starts(X0, alpha)
        todo = np.flatnonzero(alpha < problem.alpha_max())
        if len(todo) == k:
            with blas_for(k * problem.m * problem.d * MEMORY_BOUND):
                return self._minimize(problem, alpha, X0)
        coef, gap = np.zeros((k, problem.d)), np.zeros(k)
        if len(todo) == 0:
            return Minimum(coef, gap, 0)
        found = self._minimize(problem.only(todo), alpha, None if X0 is None else X0[todo])
        coef[todo], gap[todo] = found.coef, found.dual_gap
        return Minimum(coef, gap, found.n_iter)

    def _choose_alpha(self, problem: LassoProblem, noise_std: float | None) -> float:
        if self.alpha == "cv":
            return self._held_out_alpha(problem)
        if self.alpha in _NOISE_RULES:
            assert noise_std is not None
            rule = alpha_from_noise if self.alpha == "noise" else alpha_of_the_paper
            alpha = rule(noise_std, problem.column_norms, problem.m)
            return max(alpha, _ALPHA_FLOOR * float(problem.alpha_max()[0]))
        return float(self.alpha)

    def _scaled_lasso(
        self, problem: LassoProblem, X0: NDArray[np.float64] | None
    ) -> tuple[float, NDArray[np.float64] | None, int]:
        """Estimate the noise: alternate noise_std = ||y - A x|| / sqrt(m) and the Lasso in x.

        Both steps descend on ||y - A x||^2 / (2 m s) + s / 2 + a ||x||_1, convex in (x, s).
        """
        y, m = problem.Y[0], problem.m
        unit = alpha_from_noise(1.0, problem.column_norms, m)
        floor = _ALPHA_FLOOR * float(problem.alpha_max()[0])
        noise_std = float(np.linalg.norm(y) / np.sqrt(m))
        n_iter = 0
        for _ in range(50):
            found = self.minimum(problem, max(noise_std * unit, floor), X0)
            X0, n_iter = found.coef, n_iter + found.n_iter
            last = noise_std
            noise_std = float(np.linalg.norm(y - problem.A.image(X0[0])) / np.sqrt(m))
            if abs(last - noise_std) <= 1e-3 * last:
                break
        return noise_std, X0, n_iter

    def _held_out_alpha(self, problem: LassoProblem, n_folds: int = 5) -> float:
        """Return the alpha whose solutions predict held-out measurements best."""
        y, m = problem.Y[0], problem.m
        if m < 2 * n_folds:
            raise ValueError(
                f'alpha="cv" splits {m} measurements in {n_folds} folds, which needs at least '
                f'{2 * n_folds}; pass a number or "noise".'
            )
        # m P(x) grows with the measurements; the same alpha means the same penalty per row.
        alphas = float(problem.alpha_max()[0]) * np.geomspace(1, 1e-3, 20)
        order = np.random.default_rng(0).permutation(m)
        error = np.zeros(len(alphas))
        for test in np.array_split(order, n_folds):
            train = np.setdiff1d(order, test)
            fold = LassoProblem(RowSubset(problem.A, train), y[None, train], self.positive)
            coefs = self._path(fold, alphas).coefs
            error += ((problem.A.matmat(coefs.T)[test] - y[test, None]) ** 2).sum(axis=0)
        return float(alphas[error.argmin()])

    def _path(self, problem: LassoProblem, alphas: NDArray[np.float64]) -> LassoPath:
        coefs, gaps = [], []
        X0: NDArray[np.float64] | None = None
        for alpha in alphas:
            found = self.minimum(problem, float(alpha), X0)
            X0 = found.coef
            coefs.append(found.coef[0])
            gaps.append(found.dual_gap[0])
        return LassoPath(alphas, np.array(coefs), np.array(gaps))

    def _estimate(
        self,
        problem: LassoProblem,
        y: NDArray[np.float64],
        x: NDArray[np.float64],
        noise_std: float | None,
    ) -> Debiased:
        if not self.debias:
            return Debiased(x, None, "")
        return debias(problem.A, y, x, problem.column_norms, noise_std)

    def _estimates(self, problem: LassoProblem, found: Minimum) -> NDArray[np.float64]:
        if not self.debias:
            return found.coef
        return np.array(
            [debiased(problem.A, y, x, problem.column_norms) for y, x in zip(problem.Y, found.coef)]
        )

    def _late(self, problem: LassoProblem, found: Minimum) -> str:
        relative = found.dual_gap / np.maximum(problem.allowed_gap(1.0), np.finfo(float).tiny)
        return (
            f"stopped after {found.n_iter} iterations at relative duality gap "
            f"{relative.max():.1e} > tol={self.tol:.1e}; raise max_iter or tol."
        )
