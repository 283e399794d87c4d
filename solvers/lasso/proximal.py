"""Proximal gradient for the Lasso, plain (ISTA) and accelerated (FISTA).

    x+ = S(z - A^T (A z - y) / L, m alpha / L),    S the soft threshold,

needs only products with A. A step is accepted when ||A (x+ - z)||^2 <= L ||x+ - z||^2, the
inequality that the convergence proofs use, which costs nothing because A x+ and A z are at
hand; otherwise L grows. So each step taken is certified, and L follows the norm of A on sparse
vectors, which is far below ||A||^2 when d > m.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.lasso.family import LassoSolver
from solvers.lasso.problem import (
    Certificate,
    LassoProblem,
    Minimum,
    certificate,
    certify,
    dual_norm,
)
from solvers.operators import Operator

__all__ = ["FISTA", "ISTA"]

#: Iterations between two evaluations of the gap, which costs one more product.
_CHECK_EVERY = 10

#: Continuation: alpha is halved from alpha_max down, each stage solved to this relative gap.
_STAGE_FACTOR = 0.5
_STAGE_TOL = 1e-2

#: Largest array of surviving columns worth storing after screening, in entries (256 MB).
_MAX_STORED = 1 << 25


class FISTA(LassoSolver):
    """Accelerated proximal gradient with adaptive restart, continuation and screening.

    Minimises 1/(2m) ||y - A x||^2 + alpha ||x||_1 and stops when the duality gap, evaluated in
    float64 over all columns, is at most tol ||y||^2 / (2m). The momentum restarts when it
    points uphill (gradient scheme of O'Donoghue and Candes); alpha is lowered by halves
    from alpha_max; columns that the gap proves to be zero are removed where A offers its
    columns cheaply.

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
    max_iter : int, default=10000
        Proximal gradient steps, over all stages.

    See Also
    --------
    solvers.lasso.WorkingSet : Faster where columns are at hand.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> solver = solvers.get("fista", tol=1e-8).fit(A, y, noise_std=0.01)
    >>> bool(solver.dual_gap_ <= 1e-8 * np.sum(y**2) / 200)
    True
    """

    _accelerated = True

    def __init__(
        self,
        alpha: float | str = "noise",
        tol: float = 1e-6,
        max_iter: int = 10_000,
        positive: bool = False,
        debias: bool = False,
    ) -> None:
        super().__init__(alpha, tol, max_iter, positive, debias)

    def _minimize(
        self, problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None
    ) -> Minimum:
        coef = np.zeros((len(problem.Y), problem.d))
        gaps = np.zeros(len(problem.Y))
        n_iter = 0
        for i in range(len(problem.Y)):
            x0 = None if X0 is None else X0[i]
            coef[i], gaps[i], steps = self._minimize_one(problem, i, alpha, x0)
            n_iter = max(n_iter, steps)
        return Minimum(coef, gaps, n_iter)

    def _minimize_one(
        self, problem: LassoProblem, i: int, alpha: float, x0: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], float, int]:
        y = problem.Y[i]
        allowed = float(problem.allowed_gap(self.tol)[i])
        descent = _Descent(problem.A, y, x0, problem.positive, self._accelerated)
        n_iter = 0
        if x0 is None:
            stage = float(problem.alpha_max()[i]) * _STAGE_FACTOR
            while stage > alpha:
                rough = max(allowed, float(problem.allowed_gap(_STAGE_TOL)[i]))
                n_iter += descent.run(stage, rough, self.max_iter - n_iter)
                stage *= _STAGE_FACTOR
        target = allowed
        while True:
            n_iter += descent.run(alpha, target, self.max_iter - n_iter, problem)
            # The descent sees the columns that are left; the certificate sees all of them.
            x = descent.full_x(problem.d)
            gap = certify(problem.A, y, x, alpha, problem.positive).gap
            if gap <= allowed or n_iter >= self.max_iter or target < 1e-6 * allowed:
                return x, gap, n_iter
            target *= 0.1


class ISTA(FISTA):
    """Proximal gradient x+ = S(x + A^T (y - A x) / L, m alpha / L), monotone and slow.

    Objective, certified step, continuation, screening and stopping rule are those of
    :class:`FISTA`; only the momentum is missing.

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
    max_iter : int, default=10000
        Proximal gradient steps, over all stages.

    See Also
    --------
    FISTA : The same with momentum.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> solver = solvers.get("ista").fit(A, y, noise_std=0.01)
    >>> solver.coef_.argmax() in range(4)
    True
    """

    _accelerated = False


class _Descent:
    """Iterates of one right-hand side, on the columns that screening has left."""

    def __init__(
        self,
        A: Operator,
        y: NDArray[np.float64],
        x0: NDArray[np.float64] | None,
        positive: bool,
        accelerated: bool,
    ) -> None:
        self.y, self.positive, self.accelerated = y, positive, accelerated
        self.kept = np.arange(A.shape[1])
        self.lipschitz = 0.0
        self._use(A, np.zeros(A.shape[1]) if x0 is None else x0.copy())

    def _use(self, A: Operator, x: NDArray[np.float64]) -> None:
        self.A, self.x = A, x
        self.image = A.image(x)
        self._restart()

    def _restart(self) -> None:
        self.momentum = 1.0
        self.z, self.image_z = self.x.copy(), self.image

    def full_x(self, d: int) -> NDArray[np.float64]:
        """Return x with zeros for the columns removed."""
        x = np.zeros(d)
        x[self.kept] = self.x
        return x

    def run(
        self, alpha: float, target: float, max_iter: int, screening: LassoProblem | None = None
    ) -> int:
        """Descend until the gap on the columns left is at most ``target``; return the steps."""
        self.lipschitz *= 0.5  # let it adapt to the new stage
        self._restart()
        steps = 0
        while True:
            residual = self.y - self.image
            correlations = np.asarray(self.A.rmatvec(residual), dtype=np.float64)
            largest = dual_norm(correlations, self.positive)
            found = certificate(self.y, residual, largest, float(np.abs(self.x).sum()), alpha)
            if found.gap <= target or steps >= max_iter:
                return steps
            if screening is not None:
                self._screen(screening, alpha, found, correlations)
            for _ in range(min(_CHECK_EVERY, max_iter - steps)):
                self._step(len(self.y) * alpha)
                steps += 1

    def _step(self, lam: float) -> None:
        """One proximal gradient step from z, with the smallest L that certifies it."""
        from solvers.lasso._kernels import extrapolate, proximal_step

        slope = np.asarray(self.A.rmatvec(self.y - self.image_z), dtype=np.float64)
        if self.lipschitz == 0.0:
            self.lipschitz = self._first_lipschitz(slope)
        new = np.empty_like(self.x)
        while True:
            moved, uphill = proximal_step(
                self.z, slope, self.x, 1 / self.lipschitz, lam / self.lipschitz, self.positive, new
            )
            image = self.A.image(new)
            change = image - self.image_z
            # Below rounding nothing can be certified, nor does it matter.
            if moved == 0 or change @ change <= self.lipschitz * moved * (1 + 1e-9) + 1e-30 * (
                image @ image
            ):
                break
            self.lipschitz = max(1.2 * self.lipschitz, float(change @ change) / moved)
        if self.accelerated and uphill > 0:
            self.x, self.image = new, image
            self._restart()
            return
        following = 0.5 * (1 + np.sqrt(1 + 4 * self.momentum**2)) if self.accelerated else 1.0
        beta = (self.momentum - 1) / following
        extrapolate(new, self.x, beta, self.z)
        self.image_z = image + beta * (image - self.image)
        self.x, self.image, self.momentum = new, image, following

    def _first_lipschitz(self, slope: NDArray[np.float64]) -> float:
        """Start from ||A u||^2 / ||u||^2 for u the largest slope's coordinate: never too large."""
        unit = np.zeros(len(slope))
        unit[np.abs(slope).argmax()] = 1.0
        image = self.A.image(unit)
        return float(image @ image) or 1.0

    def _screen(
        self,
        problem: LassoProblem,
        alpha: float,
        found: Certificate,
        correlations: NDArray[np.float64],
    ) -> None:
        """Remove the columns with |A_j^T u| + ||A_j|| sqrt(2 m gap) < m alpha, once many go.

        u = scale (y - A x) is the dual point, and sqrt(2 m gap) bounds its distance to
        the optimal one, so x_j = 0 at the optimum.
        """
        m, n = self.A.shape
        u = found.scale * (correlations if self.positive else np.abs(correlations))
        reach = problem.column_norms[self.kept] * np.sqrt(2 * m * found.gap)
        keep = u + reach >= m * alpha
        n_kept = int(np.count_nonzero(keep))
        if 2 * n_kept > n or n_kept == 0:
            return
        if not self.A.has_sparse_columns and m * n_kept > _MAX_STORED:
            return
        self.kept = self.kept[keep]
        self._use(self.A.submatrix(np.flatnonzero(keep)), self.x[keep])
