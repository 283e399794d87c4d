"""Linear and median decoders: one product with the transpose, or a few.

``linear`` is the paper's unsketch, x = A^T y: unbiased where E A^T A = I, with error
(d - 1)/m ||x||^2 + d noise_std^2 on the count sketch. ``median`` replaces the mean over the
rows of a count sketch by the median. ``ridge`` is the linear estimate of least mean
squared error (LMMSE) for the known noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.base import Solution, Solver, check_positive
from solvers.operators import Operator
from solvers.standard_errors import linear_std_err, median_std_err

__all__ = ["LinearUnsketch", "MedianUnsketch", "Ridge"]

#: Coordinates decoded at once by the median, so that memory stays far below t * d.
_MEDIAN_BLOCK = 1 << 16


class LinearUnsketch(Solver):
    """The linear unsketch x = A^T y (count-mean on a count sketch).

    Unbiased over draws of A with E A^T A = I, as all encoders here are normalised. No
    parameters, no iterations.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    std_err_ : float or ndarray of shape (d,)
        Standard error of each entry, from the sketch alone: the noise, and what other entries
        leave in the same measurements. One for each entry on a count sketch, computed when first
        asked for; widened where it has fewer than 15 rows, as ``std_err_note_`` says.

    See Also
    --------
    Ridge : The linear estimate of least squared error.
    MedianUnsketch : Count sketches with a few heavy collisions.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> A = np.random.default_rng(0).standard_normal((400, 100)) / 20
    >>> solver = solvers.get("linear").fit(A, A @ np.ones(100), noise_std=0.1)
    >>> bool(abs(solver.coef_.mean() - 1.0) < 0.1)
    True
    """

    biased = False
    _checks_finite = False  # A^T y shows it

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> Solution:
        std_err, note = linear_std_err(A, y, noise_std)
        return Solution(
            coef=np.asarray(A.rmatvec(y), dtype=np.float64),
            noise_std=noise_std,
            std_err=std_err,
            std_err_note=note,
        )

    def _decode(self, A: Operator, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ascontiguousarray(A.rmatmat(Y.T).T, dtype=np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it estimates x, it does not fit y
        return tags


class MedianUnsketch(Solver):
    """Count-median: the median over the t rows of sign * sqrt(t) * y[bucket].

    Needs a count-sketch operator, which offers ``row_estimates(y, start, stop)``. Robust to
    a few heavy collisions; the median of symmetric row estimates is unbiased.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    std_err_ : ndarray of shape (d,)
        Standard error of each entry, from the sketch alone, computed when first asked for; wide
        rather than narrow, as ``std_err_note_`` says.

    See Also
    --------
    LinearUnsketch : The mean over the rows, for every matrix.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> from sparse_secagg import CountSketchEncoder
    >>> A = CountSketchEncoder(n_components=150, random_state=0).fit_dimension(1000).operator_
    >>> x = np.zeros(1000)
    >>> x[7] = 5.0
    >>> int(np.argmax(solvers.get("median").fit(A, A @ x).coef_))
    7
    """

    biased = False

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> Solution:
        if not hasattr(A, "row_estimates"):
            raise ValueError(
                f"A={type(A).__name__} has no row_estimates(y, start, stop): the median "
                'decoder needs a count sketch; use "linear" for other matrices.'
            )
        d = A.shape[1]
        coef = np.empty(d)
        for start in range(0, d, _MEDIAN_BLOCK):
            stop = min(start + _MEDIAN_BLOCK, d)
            coef[start:stop] = np.median(A.row_estimates(y, start, stop), axis=0)
        std_err, note = median_std_err(A, y)
        return Solution(coef=coef, noise_std=noise_std, std_err=std_err, std_err_note=note)


@dataclass(frozen=True, kw_only=True)
class _RidgeSolution(Solution):
    """A :class:`Solution` with the ridge penalty used."""

    penalty: float


class Ridge(Solver):
    """Ridge regression, min ||y - A x||^2 + penalty ||x||^2, by conjugate gradients (CGLS).

    Parameters
    ----------
    penalty : float or "noise", default="noise"
        With "noise", noise_std^2 / v, where v = max(||y||^2 - m noise_std^2, 0) / ||A||_F^2
        estimates the mean square of x: the linear estimate of least mean squared error
        (LMMSE) for the known noise. Without a noise level the penalty is 0, and the
        estimate the least-squares solution of minimum norm.
    tol : float, default=1e-6
        Stop when ||A^T (y - A x) - penalty x|| <= tol ||A^T y||.
    max_iter : int, default=1000
        Iterations of conjugate gradients at most.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    penalty_ : float
    n_iter_ : int
        Products with A and with its transpose.

    See Also
    --------
    LinearUnsketch : Unbiased, and one product.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> errors = {
    ...     name: np.sum((solvers.get(name).fit(A, y, noise_std=0.01).coef_ - x) ** 2)
    ...     for name in ("linear", "ridge")
    ... }
    >>> bool(errors["ridge"] < errors["linear"])
    True
    """

    def __init__(
        self, penalty: float | str = "noise", tol: float = 1e-6, max_iter: int = 1000
    ) -> None:
        self.penalty = penalty
        self.tol = tol
        self.max_iter = max_iter

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> _RidgeSolution:
        check_positive("tol", self.tol)
        penalties = self._penalties(A, y[None], noise_std)
        X, n_iter, reached = self._conjugate_gradients(A, y[None], penalties)
        return _RidgeSolution(
            coef=X[0],
            n_iter=n_iter,
            noise_std=noise_std,
            penalty=float(penalties[0]),
            converged=reached <= self.tol,
            message=self._late(n_iter, reached),
        )

    def _decode(self, A: Operator, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        penalties = self._penalties(A, Y, self.noise_std_)
        X, n_iter, reached = self._conjugate_gradients(A, Y, penalties)
        if reached > self.tol:
            self._warn(self._late(n_iter, reached))
        return X

    def _penalties(
        self, A: Operator, Y: NDArray[np.float64], noise_std: float | None
    ) -> NDArray[np.float64]:
        if self.penalty != "noise":
            if isinstance(self.penalty, str) or not 0 <= self.penalty < np.inf:
                raise ValueError(f'penalty={self.penalty!r} must be a number >= 0 or "noise".')
            return np.full(len(Y), float(self.penalty))
        if not noise_std:
            return np.zeros(len(Y))
        size = float((A.column_norms() ** 2).sum())
        signal = (Y * Y).sum(axis=1) - A.shape[0] * noise_std**2
        # Where noise explains all of y, the estimate must be (nearly) zero, not 0/0.
        signal = np.maximum(signal, 1e-12 * (A.shape[0] * noise_std**2))
        return np.asarray(noise_std**2 * size / signal)

    def _conjugate_gradients(
        self, A: Operator, Y: NDArray[np.float64], penalties: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], int, float]:
        """CGLS on all right-hand sides at once; return X, iterations, worst relative residual."""
        residual = Y.T.copy()
        X = np.zeros((A.shape[1], len(Y)))
        gradient = np.asarray(A.rmatmat(residual), dtype=np.float64)
        direction = gradient.copy()
        square = (gradient**2).sum(axis=0)
        scale = np.where(square > 0, square, 1.0)
        allowed = self.tol**2 * scale
        n_iter = 0
        while n_iter < self.max_iter and (square > allowed).any():
            n_iter += 1
            image = A.matmat(direction)
            curvature = (image**2).sum(axis=0) + penalties * (direction**2).sum(axis=0)
            going = (square > allowed) & (curvature > 0)
            if not going.any():
                break
            step = np.divide(square, curvature, out=np.zeros_like(square), where=going)
            X += step * direction
            residual -= step * image
            gradient = np.asarray(A.rmatmat(residual), dtype=np.float64) - penalties * X
            new = (gradient**2).sum(axis=0)
            # Finished columns have step 0: they stay where they are.
            direction = gradient + np.where(going, new / np.where(going, square, 1), 0) * direction
            square = np.where(going, new, square)
        return np.ascontiguousarray(X.T), n_iter, float(np.sqrt((square / scale).max()))

    def _late(self, n_iter: int, reached: float) -> str:
        return (
            f"stopped after {n_iter} iterations at relative residual {reached:.1e} > "
            f"tol={self.tol:.1e}; raise max_iter or tol."
        )
