"""The Lasso: its objective, its duality-gap certificate and the choice of alpha.

    minimise over x    P(x) = 1/(2m) ||y - A x||^2 + alpha ||x||_1
    maximise over u    D(u) = 1/(2m) (||y||^2 - ||y - u||^2)   subject to ||A^T u||_inf <= m alpha

Every solver of the family stops on the same certificate, P(x) - D(s r) <= tol ||y||^2 / (2m),
with r = y - A x and s the best scale that makes s r feasible, evaluated in float64.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.base import (
    Solution,
    Solver,
    check_measurements,
    check_positive,
    refuse_nonfinite,
)
from solvers.operators import Operator, RowSubset
from solvers.parallel import MEMORY_BOUND, blas_for
from solvers.standard_errors import (
    effective_noise,
    few_rows_factor,
    measured_spread,
    over_norms,
    row_share,
)

__all__ = [
    "Certificate",
    "Debiased",
    "LassoPath",
    "LassoProblem",
    "LassoSolution",
    "LassoSolver",
    "Minimum",
    "alpha_from_noise",
    "alpha_of_the_paper",
    "certificate",
    "certify",
    "debias",
    "debiased",
    "dual_norm",
    "feasible",
    "objective",
]

#: The smallest ||y||^2 whose gaps, down to rounding, are still normal numbers.
_LEAST_SQUARE = 1e-290

#: The smallest alpha that ``alpha="noise"`` asks for, in units of alpha_max: with noise_std=0
#: the Lasso tends to basis pursuit, which has no finite certificate in this form.
_ALPHA_FLOOR = 1e-6

#: Probability with which the bound behind the paper's lambda fails.
_PAPER_FAILURE = 0.01

#: Rules for alpha that follow from the noise level.
_NOISE_RULES = ("noise", "paper")


# --- certificate ------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """A primal value, a dual value below the optimum and their difference.

    ``scale`` turns the residual into the dual point, u = scale * (y - A x).
    """

    primal: float
    dual: float
    scale: float

    @property
    def gap(self) -> float:
        """How far the objective can at most be from its minimum."""
        return max(self.primal - self.dual, 0.0)


def certificate(
    y: NDArray[np.float64],
    residual: NDArray[np.float64],
    correlation: float,
    l1_norm: float,
    alpha: float,
) -> Certificate:
    """Return the certificate of x from r = y - A x, max |A^T r| and ||x||_1.

    With ``positive=True`` the correlation is max(A^T r) instead: the dual constraint is then
    one-sided.
    """
    m = len(y)
    rr, ry = float(residual @ residual), float(residual @ y)
    limit = m * alpha / correlation if correlation > 0 else np.inf
    scale = min(max(ry / rr, 0.0), limit) if rr > 0 else 0.0
    # ||y||^2 - ||y - s r||^2 without the cancellation.
    dual = scale * (2 * ry - scale * rr) / (2 * m)
    return Certificate(rr / (2 * m) + alpha * l1_norm, dual, scale)


def certify(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    alpha: float,
    positive: bool = False,
) -> Certificate:
    """Return the certificate of x in float64, at the price of two products with A."""
    x = np.asarray(x, dtype=np.float64)
    residual = y - A.image(x)
    correlations = A.rmatvec(residual)
    return certificate(
        y, residual, dual_norm(correlations, positive), float(np.abs(x).sum()), alpha
    )


def objective(A: Operator, y: ArrayLike, x: ArrayLike, alpha: float) -> float:
    """Return P(x) = 1/(2m) ||y - A x||^2 + alpha ||x||_1."""
    x = np.asarray(x, dtype=np.float64)
    residual = np.asarray(y, dtype=np.float64) - A.image(x)
    return float(residual @ residual / (2 * len(residual)) + alpha * np.abs(x).sum())


def dual_norm(correlations: NDArray, positive: bool) -> float:
    """Return max |A^T r|, one-sided where x >= 0."""
    return float(max(correlations.max(), 0.0 if positive else -correlations.min()))


def feasible(x: NDArray[np.float64], positive: bool) -> NDArray[np.float64]:
    """Return x, or its positive part where x >= 0 is required."""
    return np.maximum(x, 0.0) if positive else x


# --- alpha and bias ---------------------------------------------------------------------


def alpha_from_noise(noise_std: float, column_norms: NDArray[np.float64], m: int) -> float:
    """Return noise_std sqrt(2 ln d) max_j ||A_j|| / m.

    It bounds ||A^T noise||_inf / m with high probability: the noise alone selects nothing.
    """
    d = len(column_norms)
    return float(noise_std * np.sqrt(2 * np.log(max(d, 2))) * column_norms.max() / m)


def alpha_of_the_paper(noise_std: float, column_norms: NDArray[np.float64], m: int) -> float:
    """Return the regularisation of the paper's corollary on sparse means, in this objective.

    There lambda = sqrt(1/n (log(d / (1-beta)^n) + log(2/delta)) (gamma^2 + 4 sigma^2)/8
    max_j ||A_j||^2 / m). The variance of a measurement is (gamma^2 + 4 sigma^2)/(4n) at most, and
    the paper's beta <= 1/n makes (1-beta)^-n about e, so it is

        noise_std sqrt((ln d + 1 + ln(2/delta)) / 2) max_j ||A_j|| / sqrt(m),

    with delta = 0.01, the probability that its bound fails. Scaling A and y alike scales it like
    the objective. The bound it rests on has m where m^2 would do, so it is larger than
    :func:`alpha_from_noise` by a factor of the order of sqrt(m): for comparison, not for use.
    """
    d = len(column_norms)
    log_terms = np.log(max(d, 2)) + 1.0 + np.log(2.0 / _PAPER_FAILURE)
    return float(noise_std * np.sqrt(log_terms / 2.0) * column_norms.max() / np.sqrt(m))


@dataclass(frozen=True)
class Debiased:
    """An unbiased estimate made of a Lasso solution, and its standard error."""

    coef: NDArray[np.float64]
    std_err: Any
    note: str


def debias(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    column_norms: NDArray[np.float64],
    noise_std: float | None = None,
) -> Debiased:
    """Return x + D^-1 A^T z (1 - ||x||_0 / N), z = (y - A x) / (1 - ||x||_0 / m).

    D = diag ||A_j||^2, and N the number of columns of the orthogonal matrix that the rows of A
    are taken from, infinite for independent entries. Unbiased over fresh draws of A and the
    noise. The denominator is the share of degrees of freedom that the fit left in the
    residual; without it the estimate still leans to zero. Where x has as many nonzeros as there
    are measurements nothing is left, and one degree of freedom is taken.
    """
    m = len(y)
    n_nonzero = int(np.count_nonzero(x))
    left = max(m - n_nonzero, 1) / m
    z = (y - A.image(x)) / left
    correlations = np.asarray(A.rmatvec(z), dtype=np.float64)
    share = row_share(A)
    kept = 1.0 - share * n_nonzero / m
    squares = column_norms**2
    step = np.divide(correlations, squares, out=np.zeros(len(x)), where=squares > 0)
    scaled = np.divide(correlations, column_norms, out=np.zeros(len(x)), where=squares > 0)
    spread = 1.0 if share else measured_spread(scaled, z, z, 1.0 - left, noise_std)
    tau = effective_noise(spread * float(z @ z) / m, 1.0 - left, share, noise_std)
    factor, note = few_rows_factor(A)
    return Debiased(x + kept * step, over_norms(factor * tau, column_norms), note)


def debiased(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    column_norms: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the estimate of :func:`debias`."""
    return debias(A, y, x, column_norms).coef


# --- solvers ----------------------------------------------------------------------------


class LassoProblem:
    """A, k right-hand sides and what several solves of them share.

    Parameters
    ----------
    A : Operator of shape (m, d)
    Y : ndarray of shape (k, m)
        One right-hand side a row.
    positive : bool
        Constrain x >= 0.
    with_norms : bool
        Find the column norms along with the first pass. For one right-hand side, where that costs
        less than finding them later.
    """

    def __init__(
        self,
        A: Operator,
        Y: NDArray[np.float64],
        positive: bool = False,
        with_norms: bool = False,
    ) -> None:
        self.A = A = A.as_stored()
        self.Y = np.ascontiguousarray(Y)
        self.positive = positive
        self.m, self.d = A.shape
        self.y_squares = np.einsum("ij,ij->i", self.Y, self.Y)
        if with_norms and len(Y) == 1 and A.has_columns_at_hand:
            with blas_for(self.m * self.d * MEMORY_BOUND):
                correlations, norms = A.rmatvec_and_norms(self.Y[0])
            self.correlations, self.column_norms = correlations[None], _finite(norms, A)
        else:
            self.correlations = self.correlate(self.Y)
        # A product with a zero may be skipped, and hide a NaN of A.
        finite = bool(np.isfinite(self.correlations).all())
        if not finite or not self.Y.all():
            refuse_nonfinite(A)
        if not finite:
            raise OverflowError("A^T y is not finite: A or y is too large, or A^T gives NaN.")
        _check_squares(self.y_squares, self.Y)

    def correlate(self, R: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A^T r for each row r of R, as an array (k, d)."""
        with blas_for(len(R) * self.m * self.d * MEMORY_BOUND):
            if len(R) == 1:
                return np.asarray(self.A.rmatvec(R[0]), dtype=np.float64)[None]
            return np.ascontiguousarray(self.A.rmatmat(R.T).T, dtype=np.float64)

    @cached_property
    def column_norms(self) -> NDArray[np.float64]:
        """Euclidean norms of the columns of A."""
        return _finite(self.A.column_norms(), self.A)

    @property
    def known_norms(self) -> NDArray[np.float64] | None:
        """The column norms, where somebody has asked for them already."""
        return self.__dict__.get("column_norms")

    def largest(self, correlations: NDArray) -> float:
        """Return the dual norm of one row of correlations."""
        return dual_norm(correlations, self.positive)

    def alpha_max(self) -> NDArray[np.float64]:
        """Return, for each right-hand side, the smallest alpha whose solution is zero."""
        return np.array([self.largest(row) for row in self.correlations]) / self.m

    def allowed_gap(self, tol: float) -> NDArray[np.float64]:
        """Return the absolute gaps at which to stop, tol ||y||^2 / (2m)."""
        return tol * self.y_squares / (2 * self.m)

    def starts(self, X0: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
        """Return X0 with zero in place of starts whose objective is above that of zero."""
        values = [objective(self.A, y, x, alpha) for y, x in zip(self.Y, X0)]
        better = np.array(values) <= self.y_squares / (2 * self.m)  # false for NaN
        return np.where(better[:, None], X0, 0.0)

    def only(self, rows: NDArray[np.int64]) -> LassoProblem:
        """Return the problem of some of the right-hand sides."""
        part = copy.copy(self)
        part.Y, part.y_squares = self.Y[rows], self.y_squares[rows]
        part.correlations = self.correlations[rows]
        return part


def _check_squares(squares: NDArray[np.float64], Y: NDArray[np.float64]) -> None:
    """Raise where ||y||^2, the unit of the gap, is beyond the range of floating point."""
    vanished = (squares < _LEAST_SQUARE) & Y.any(axis=1)
    if vanished.any() or not np.isfinite(squares).all():
        raise OverflowError(
            f"entries of y up to {np.abs(Y).max():.1e} have squares beyond the range of floating "
            "point; rescale y."
        )


def _finite(norms: NDArray[np.float64], A: Operator) -> NDArray[np.float64]:
    """Return the column norms; raise where their squares overflow."""
    if not np.isfinite(norms).all():
        refuse_nonfinite(A)
        raise OverflowError(
            "the column norms of A overflow; rescale A, for example to unit column norms."
        )
    return norms


@dataclass(frozen=True)
class Minimum:
    """Minimisers for k right-hand sides, with their absolute duality gaps."""

    coef: NDArray[np.float64]  # (k, d)
    dual_gap: NDArray[np.float64]  # (k,)
    n_iter: int


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
        A: Operator | NDArray,
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
        found = self._minimum(problem, alpha, X0)
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
        found = self._minimum(problem, alpha, None)
        if (found.dual_gap > problem.allowed_gap(self.tol)).any():
            self._warn(self._late(problem, found))
        return self._estimates(problem, found)

    def _minimum(
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
            found = self._minimum(problem, max(noise_std * unit, floor), X0)
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
            found = self._minimum(problem, float(alpha), X0)
            X0 = found.coef
            coefs.append(found.coef[0])
            gaps.append(found.dual_gap[0])
        return LassoPath(alphas, np.array(coefs), np.array(gaps))

    def _estimate(
        self, problem: LassoProblem, y: NDArray[np.float64], x: NDArray, noise_std: float | None
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
