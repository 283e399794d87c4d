"""The square-root Lasso: the paper's objective read literally, with the norm not squared.

    minimise over x    1/m ||y - A x||_2 + alpha ||x||_1

Its solution is that of the Lasso at alpha ||y - A x||_2, so the penalty needs no noise level.
While the support stays the same, the Lasso's ||y - A x||^2 is linear in the square of its
penalty: a secant in these two finds the fixed point in a few Lasso problems.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.base import Solver, check_positive
from solvers.lasso.debiasing import Debiased, debias
from solvers.lasso.family import LassoSolution
from solvers.lasso.problem import LassoProblem, alpha_from_noise, dual_norm, feasible
from solvers.lasso.working_set import WorkingSet
from solvers.operators import Operator

__all__ = ["SqrtLasso", "sqrt_lasso_gap"]

_MAX_PROBLEMS = 100


class SqrtLasso(Solver):
    """Minimise 1/m ||y - A x||_2 + alpha ||x||_1.

    Parameters
    ----------
    alpha : float or "noise", default="noise"
        A number in the objective, or sqrt(2 ln d) max_j ||A_j|| / m^(3/2), the value that
        corresponds to the Lasso's ``"noise"`` rule at every noise level.
    tol : float, default=1e-6
        Relative tolerance: stop when the duality gap is at most tol ||y|| / m.
    max_iter : int, default=100
        Passes over A for each of the Lasso problems solved on the way.
    positive : bool, default=False
        Constrain x >= 0.
    debias : bool, default=False
        Return the debiased estimate, see :func:`~solvers.lasso.debiased`.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    alpha_ : float
    dual_gap_ : float
        Absolute gap of this objective, in float64.
    noise_std_ : float
        ||y - A x|| / sqrt(m), the noise level that the solution implies.
    n_iter_ : int
        Lasso problems solved.

    See Also
    --------
    solvers.lasso.WorkingSet : The Lasso, whose penalty follows the noise level.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> solver = solvers.get("sqrt_lasso").fit(A, y)  # no noise level is needed
    >>> solver.coef_.argmax() in range(4)
    True
    """

    _checks_finite = False

    def __init__(
        self,
        alpha: float | str = "noise",
        tol: float = 1e-6,
        max_iter: int = 100,
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
        """The square-root Lasso shrinks; ``debias=True`` takes that back."""
        return not self.debias

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> LassoSolution:
        check_positive("tol", self.tol)
        problem = LassoProblem(A, y[None], self.positive, with_norms=self.alpha == "noise")
        alpha = self._choose_alpha(problem)
        allowed = self.tol * float(np.linalg.norm(y)) / problem.m
        inner = WorkingSet(max_iter=self.max_iter, positive=self.positive)
        x = np.zeros(problem.d) if x0 is None else feasible(x0, self.positive)
        smallest = 1e-9 * float(problem.alpha_max()[0]) / alpha if alpha else 0.0  # A = 0
        norm, last, n_iter = float(np.linalg.norm(y)), None, 0
        while True:
            residual = y - A.image(x)
            gap = sqrt_lasso_gap(A, y, x, alpha, self.positive)
            if gap <= allowed or n_iter >= _MAX_PROBLEMS:
                break
            n_iter += 1
            # This gap is of first order in the error of ||r||, the Lasso's of second order, so
            # that one must become much smaller; tightened as the fixed point comes near.
            inner.tol = max(0.1**n_iter * self.tol, 1e-14)
            x = inner.minimum(problem, alpha * max(norm, smallest), x[None]).coef[0]
            point = norm**2, float(np.sum((y - A.image(x)) ** 2))
            norm = np.sqrt(_fixed_point(last, point))
            last = point
        estimate = Debiased(x, None, "")
        if self.debias:
            estimate = debias(A, y, x, problem.column_norms, noise_std)
        return LassoSolution(
            coef=estimate.coef,
            std_err=estimate.std_err,
            std_err_note=estimate.note,
            n_iter=n_iter,
            noise_std=float(np.linalg.norm(residual)) / np.sqrt(problem.m),
            alpha=alpha,
            dual_gap=gap,
            converged=gap <= allowed,
            message=(
                f"stopped after {n_iter} Lasso problems at duality gap {gap:.1e} > "
                f"{allowed:.1e}; the residual may be tending to zero, raise alpha or tol."
            ),
        )

    def _choose_alpha(self, problem: LassoProblem) -> float:
        if self.alpha == "noise":
            return float(
                alpha_from_noise(1.0, problem.column_norms, problem.m) / np.sqrt(problem.m)
            )
        return check_positive("alpha", self.alpha)


def sqrt_lasso_gap(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    alpha: float,
    positive: bool = False,
) -> float:
    """Return the duality gap of 1/m ||y - A x|| + alpha ||x||_1 at x.

    The dual is max u.y / m over ||u|| <= 1 and ||A^T u||_inf <= m alpha; u is the residual,
    normalised and shrunk until feasible.
    """
    m = len(y)
    residual = y - A.image(x)
    norm = float(np.linalg.norm(residual))
    correlations = np.asarray(A.rmatvec(residual), dtype=np.float64)
    largest = dual_norm(correlations, positive)
    bound = max(norm, largest / (m * alpha)) if largest > 0 else norm
    dual = float(residual @ y) / (m * bound) if bound > 0 else 0.0
    return max(norm / m + alpha * float(np.abs(x).sum()) - dual, 0.0)


def _fixed_point(last: tuple[float, float] | None, point: tuple[float, float]) -> float:
    """Return where the line through two points (t, f) meets f = t, or else the last f.

    f - t changes sign between zero and any t above the fixed point, so a crossing beyond the
    last t, which two supports can pretend, is not used.
    """
    t, f = point
    if last is None or last[0] == t:
        return f
    slope = (last[1] - f) / (last[0] - t)
    crossing = (f - slope * t) / (1 - slope) if slope < 1 else -1.0
    return crossing if 0 < crossing <= max(t, f) else f
