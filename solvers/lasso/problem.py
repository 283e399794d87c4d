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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.base import refuse_nonfinite
from solvers.operators import Operator
from solvers.parallel import MEMORY_BOUND, blas_for

__all__ = [
    "Certificate",
    "LassoProblem",
    "Minimum",
    "alpha_from_noise",
    "alpha_of_the_paper",
    "certificate",
    "certify",
    "dual_norm",
    "feasible",
    "objective",
]

#: The smallest ||y||^2 whose gaps, down to rounding, are still normal numbers.
_LEAST_SQUARE = 1e-290

#: Probability with which the bound behind the paper's lambda fails.
_PAPER_FAILURE = 0.01


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


def dual_norm(correlations: NDArray[np.floating], positive: bool) -> float:
    """Return max |A^T r|, one-sided where x >= 0."""
    return float(max(correlations.max(), 0.0 if positive else -correlations.min()))


def feasible(x: NDArray[np.float64], positive: bool) -> NDArray[np.float64]:
    """Return x, or its positive part where x >= 0 is required."""
    return np.maximum(x, 0.0) if positive else x


# --- alpha ------------------------------------------------------------------------------


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


# --- the problem ------------------------------------------------------------------------


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

    def largest(self, correlations: NDArray[np.floating]) -> float:
        """Return the dual norm of one row of correlations."""
        return dual_norm(correlations, self.positive)

    def alpha_max(self) -> NDArray[np.float64]:
        """Return, for each right-hand side, the smallest alpha whose solution is zero."""
        return np.asarray(np.array([self.largest(row) for row in self.correlations]) / self.m)

    def allowed_gap(self, tol: float) -> NDArray[np.float64]:
        """Return the absolute gaps at which to stop, tol ||y||^2 / (2m)."""
        return np.asarray(tol * self.y_squares / (2 * self.m))

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
