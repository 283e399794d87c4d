"""Greedy recovery: orthogonal matching pursuit, iterative hard thresholding, CoSaMP.

All stop by the known noise: when ||y - A x||^2 <= noise_std^2 (m + 2 sqrt(m ln m)), which the
true x satisfies with probability about 1 - 1/m, there is nothing left to explain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import lsqr

from solvers.base import Solution, Solver
from solvers.operators import DenseOperator, Operator, SparseOperator

__all__ = ["IHT", "OMP", "CoSaMP"]


def noise_bound(noise_std: float, m: int) -> float:
    """Return the norm that m noise entries exceed with probability about 1/m."""
    return float(noise_std * np.sqrt(m + 2 * np.sqrt(m * np.log(max(m, 2)))))


class _Greedy(Solver):
    """What greedy solvers share: how many nonzeros, and when to stop."""

    def __init__(self, n_nonzero: int | None = None) -> None:
        self.n_nonzero = n_nonzero

    def _limits(
        self, A: Operator, y: NDArray[np.float64], noise_std: float | None
    ) -> tuple[int, float]:
        """Return the largest number of nonzeros and the residual norm at which to stop."""
        m, d = A.shape
        if self.n_nonzero is not None and not 1 <= self.n_nonzero <= min(m, d):
            raise ValueError(
                f"n_nonzero={self.n_nonzero!r} must be an integer from 1 to min(m, d)="
                f"{min(m, d)}, or None to stop by the noise level."
            )
        rounding = 1e-10 * float(np.linalg.norm(y))
        if self.n_nonzero is not None:
            return int(self.n_nonzero), rounding
        if noise_std is None:
            return max(1, min(m, d) // 10), rounding
        return max(1, min(m // 2, d)), max(noise_bound(noise_std, m), rounding)


class OMP(_Greedy):
    """Orthogonal matching pursuit: add the best column, refit all, repeat.

    Each pass A^T r picks the ``per_pass`` columns of largest ``|A_j^T r| / ||A_j||``; the
    coefficients are then the least-squares fit on all columns picked. Stops at the noise
    level (module docstring), when ``max_j |A_j^T r| / ||A_j|| <= noise_std sqrt(2 ln d)``, the
    level that noise alone reaches, or at ``n_nonzero``.

    Parameters
    ----------
    n_nonzero : int, optional
        Stop at this many nonzeros instead of by the noise. With neither, min(m, d) / 10.
    per_pass : int, default=1
        Columns added per pass; more is faster and less exact.

    See Also
    --------
    IHT, CoSaMP : Choose several columns at a time, and drop some again.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> np.flatnonzero(solvers.get("omp").fit(A, y, noise_std=0.01).coef_).tolist()
    [0, 1, 2, 3]
    """

    def __init__(self, n_nonzero: int | None = None, per_pass: int = 1) -> None:
        super().__init__(n_nonzero)
        self.per_pass = per_pass

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> Solution:
        d = A.shape[1]
        most, enough = self._limits(A, y, noise_std)
        if not self.per_pass >= 1:
            raise ValueError(f"per_pass={self.per_pass!r} must be an integer >= 1.")
        by_noise = self.n_nonzero is None and noise_std is not None
        level = (noise_std or 0.0) * np.sqrt(2 * np.log(max(d, 2))) if by_noise else 0.0
        norms = A.column_norms()
        usable = norms > 0
        fit = _LeastSquares(A, y)
        n_iter = 0
        while np.linalg.norm(fit.residual) > enough and len(fit.support) < most:
            n_iter += 1
            score = np.abs(np.asarray(A.rmatvec(fit.residual), dtype=np.float64))
            np.divide(score, norms, out=score, where=usable)
            score[~usable] = 0.0
            score[fit.support] = 0.0
            n_new = min(self.per_pass, most - len(fit.support), d - len(fit.support))
            new = np.argpartition(score, d - n_new)[d - n_new :]
            new = new[score[new] > level]
            if len(new) == 0 or not fit.add(new):
                break
        return Solution(coef=fit.coef(d), n_iter=n_iter, noise_std=noise_std)


class _LeastSquares:
    """A least-squares fit whose columns come one group at a time, by a growing Cholesky factor."""

    def __init__(self, A: Operator, y: NDArray[np.float64]) -> None:
        self.A, self.y = A, y
        self.support = np.empty(0, dtype=np.int64)
        self.chosen: Any = self._columns(self.support)
        self.buffer = np.empty((len(y), 0), order="F")
        self.factor = np.zeros((0, 0))
        self.right = np.empty(0)
        self.values = np.empty(0)
        self.residual = y.copy()

    def add(self, J: NDArray[np.int64]) -> bool:
        """Add the columns J and refit; return False, unchanged, where they are dependent."""
        n, total = len(self.support), len(self.support) + len(J)
        old, new = self.chosen, self._columns(J)
        cross = old.T @ new
        square = new.T @ new
        if sp.issparse(square):
            square, cross = square.toarray(), cross.toarray()
        below = (
            scipy.linalg.solve_triangular(self.factor[:n, :n], cross, lower=True) if n else cross
        )
        rest = square - below.T @ below
        try:
            corner = np.linalg.cholesky(rest)
        except np.linalg.LinAlgError:
            return False
        if corner.diagonal().min() ** 2 <= 1e-12 * square.diagonal().max():
            return False
        if total > len(self.factor):
            larger = np.zeros((2 * total, 2 * total))
            larger[:n, :n] = self.factor[:n, :n]
            self.factor = larger
        self.factor[n:total, :n] = below.T
        self.factor[n:total, n:total] = corner
        self.support = np.concatenate([self.support, J])
        self.right = np.concatenate([self.right, new.T @ self.y])
        self.values = scipy.linalg.cho_solve((self.factor[:total, :total], True), self.right)
        self.chosen = self._append(old, new)
        self.residual = self.y - self.chosen @ self.values
        return True

    def _columns(self, J: NDArray[np.int64]) -> Any:
        return self.A.sparse_columns(J) if self.A.has_sparse_columns else self.A.columns(J)

    def _append(self, old: Any, new: Any) -> Any:
        if sp.issparse(old):
            return sp.hstack([old, new], format="csc")
        n, total = old.shape[1], old.shape[1] + new.shape[1]
        if total > self.buffer.shape[1]:
            larger = np.empty((len(self.y), 2 * total), order="F")
            larger[:, :n] = old
            self.buffer = larger
        self.buffer[:, n:total] = new
        return self.buffer[:, :total]

    def coef(self, d: int) -> NDArray[np.float64]:
        """Return the coefficients among d."""
        x = np.zeros(d)
        x[self.support] = self.values
        return x


class IHT(_Greedy):
    """Normalised iterative hard thresholding: x <- H_s(x + step A^T (y - A x)).

    H_s keeps the s largest entries; the step is the exact line search on the support. s is
    ``n_nonzero``, or, by the noise, the first of 1, 2, 4, ... that reaches the noise level
    (module docstring), each started from the one before.

    Parameters
    ----------
    n_nonzero : int, optional
        Number of nonzeros. Default: by the noise; without a noise level, min(m, d) / 10.
    tol : float, default=1e-6
        A level ends when an iteration changes x by less than tol ||x||.
    max_iter : int, default=200
        Iterations per level.

    See Also
    --------
    CoSaMP : Refits on the entries that are kept.
    OMP : One column at a time.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> np.flatnonzero(solvers.get("iht").fit(A, y, noise_std=0.01).coef_).tolist()
    [0, 1, 2, 3]
    """

    def __init__(
        self, n_nonzero: int | None = None, tol: float = 1e-6, max_iter: int = 200
    ) -> None:
        super().__init__(n_nonzero)
        self.tol = tol
        self.max_iter = max_iter

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> Solution:
        most, enough = self._limits(A, y, noise_std)
        by_noise = self.n_nonzero is None and noise_std is not None
        x = np.zeros(A.shape[1]) if x0 is None else x0
        best, best_norm = np.zeros(A.shape[1]), float(np.linalg.norm(y))
        n_iter, s = 0, 1 if by_noise else most
        while best_norm > enough:
            x, norm, steps = self._level(A, y, x, s, enough)
            n_iter += steps
            if norm < best_norm:
                best, best_norm = x, norm
            if s >= most:
                break
            s = min(2 * s, most)
        return Solution(
            coef=best,
            n_iter=n_iter,
            noise_std=noise_std,
            converged=not by_noise or best_norm <= enough,
            message=(
                f"no x with up to {most} nonzeros reached the noise level: residual norm "
                f"{best_norm:.2e} > {enough:.2e}; the signal may not be sparse."
            ),
        )

    def _level(
        self, A: Operator, y: NDArray[np.float64], x: NDArray[np.float64], s: int, enough: float
    ) -> tuple[NDArray[np.float64], float, int]:
        """Iterate at sparsity s; return x, the norm of its residual and the iterations."""
        x = _keep_largest(x, s)
        residual = y - _image(A, x)
        norm = float(np.linalg.norm(residual))
        for step in range(1, self.max_iter + 1):
            new = self._update(A, y, x, residual, s)
            new_residual = y - _image(A, new)
            new_norm = float(np.linalg.norm(new_residual))
            if not new_norm < norm:
                return x, norm, step
            change = float(np.linalg.norm(new - x))
            x, residual, norm = new, new_residual, new_norm
            if norm <= enough or change <= self.tol * float(np.linalg.norm(x)):
                return x, norm, step
        return x, norm, self.max_iter

    def _update(
        self,
        A: Operator,
        y: NDArray[np.float64],
        x: NDArray[np.float64],
        residual: NDArray[np.float64],
        s: int,
    ) -> NDArray[np.float64]:
        slope = np.asarray(A.rmatvec(residual), dtype=np.float64)
        support = np.flatnonzero(x if x.any() else _keep_largest(slope, s))
        part = np.zeros_like(slope)
        part[support] = slope[support]
        image = _image(A, part)
        curvature = float(image @ image)
        step = float(part @ part) / curvature if curvature > 0 else 0.0
        norm = float(np.linalg.norm(residual))
        for _ in range(20):  # a change of support may need a shorter step
            new = _keep_largest(x + step * slope, s)
            if np.linalg.norm(y - _image(A, new)) < norm:
                break
            step *= 0.5
        return new


class CoSaMP(IHT):
    """Compressive sampling matching pursuit: merge 2 s new candidates, fit, keep s.

    The levels of s and the stopping rule are those of :class:`IHT`.

    Parameters
    ----------
    n_nonzero : int, optional
        Number of nonzeros. Default: by the noise; without a noise level, min(m, d) / 10.
    tol : float, default=1e-6
        A level ends when an iteration changes x by less than tol ||x||.
    max_iter : int, default=200
        Iterations per level.

    See Also
    --------
    IHT : A gradient step in place of the fit.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> np.flatnonzero(solvers.get("cosamp").fit(A, y, noise_std=0.01).coef_).tolist()
    [0, 1, 2, 3]
    """

    def _update(
        self,
        A: Operator,
        y: NDArray[np.float64],
        x: NDArray[np.float64],
        residual: NDArray[np.float64],
        s: int,
    ) -> NDArray[np.float64]:
        slope = np.abs(np.asarray(A.rmatvec(residual), dtype=np.float64))
        n_new = min(2 * s, len(slope), max(A.shape[0] - s, 1))
        candidates = np.union1d(
            np.flatnonzero(x), np.argpartition(slope, len(slope) - n_new)[len(slope) - n_new :]
        )
        new = np.zeros_like(x)
        new[candidates] = _fit(A.submatrix(candidates), y)
        new = _keep_largest(new, s)
        support = np.flatnonzero(new)
        if len(support):
            new[support] = _fit(A.submatrix(support), y)
        return new


def _fit(A: DenseOperator | SparseOperator, y: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(lsqr(A.A.astype(np.float64, copy=False), y, atol=1e-10, btol=1e-10)[0])


def _image(A: Operator, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(A.matvec(x), dtype=np.float64)


def _keep_largest(x: NDArray[np.float64], s: int) -> NDArray[np.float64]:
    """Return x with all but its s largest entries set to zero."""
    if s >= len(x):
        return x.copy()
    out = np.zeros_like(x)
    keep = np.argpartition(np.abs(x), len(x) - s)[len(x) - s :]
    out[keep] = x[keep]
    return out
