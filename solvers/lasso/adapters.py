"""scikit-learn's coordinate descent, and celer's and skglm's, behind the same contract."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from solvers.lasso.family import LassoSolver
from solvers.lasso.problem import LassoProblem, Minimum, certify
from solvers.operators import DenseOperator, Operator, SparseOperator

__all__ = ["CelerLasso", "SkglmLasso", "SklearnLasso"]


#: These packages judge by their own dual point; ask for a little more than needed, so that our
#: certificate agrees.
_MARGIN = 0.4


class SklearnLasso(LassoSolver):
    """Cyclic coordinate descent by scikit-learn's ``Lasso``, on a stored matrix.

    The stopping rule is scikit-learn's own. Operators that offer products only are first written
    out as an array, so this solver is for sizes that fit in memory.

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
    max_iter : int, default=1000
        Iterations of that solver at most.

    See Also
    --------
    solvers.lasso.WorkingSet : Ours, of the same objective.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> solver = solvers.get("sklearn_lasso").fit(A, y, noise_std=0.01)
    >>> solver.coef_.argmax() in range(4)
    True
    """

    def _minimize(
        self, problem: LassoProblem, alpha: float, X0: NDArray[np.float64] | None
    ) -> Minimum:
        A = _stored(problem.A)
        coefs, gaps, n_iter = [], [], 0
        for k, y in enumerate(problem.Y):
            x0 = None if X0 is None else X0[k]
            x, iterations = self._run(A, y, alpha, x0)
            coefs.append(np.asarray(x, dtype=np.float64))
            gaps.append(certify(problem.A, y, coefs[-1], alpha, problem.positive).gap)
            n_iter = max(n_iter, iterations)
        return Minimum(np.array(coefs), np.array(gaps), n_iter)

    def _run(
        self, A: Any, y: NDArray[np.floating], alpha: float, x0: NDArray[np.floating] | None
    ) -> tuple[NDArray[np.floating], int]:
        from sklearn.linear_model import Lasso

        return self._fitted(
            Lasso(alpha, tol=_MARGIN * self.tol, warm_start=True, **self._common()), A, y, x0
        )

    def _common(self) -> dict[str, Any]:
        return {"fit_intercept": False, "max_iter": self.max_iter, "positive": self.positive}

    @staticmethod
    def _fitted(
        model: Any, A: Any, y: NDArray[np.floating], x0: NDArray[np.floating] | None
    ) -> tuple[NDArray[np.floating], int]:
        if x0 is not None:
            model.coef_ = np.array(x0, dtype=A.dtype)  # a copy: the solution is written there
        with warnings.catch_warnings():
            # Our own certificate warns, with the gap that was reached.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(A, y.astype(A.dtype, copy=False))
        return model.coef_, int(np.max(model.n_iter_))


class CelerLasso(SklearnLasso):
    """``celer.Lasso``, where that package is installed.

    Operators that offer products only are first written out as an array.

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
    max_iter : int, default=1000
        Iterations of that solver at most.

    See Also
    --------
    solvers.lasso.WorkingSet : Ours, of the same objective.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> if "celer" in solvers.names():
    ...     assert solvers.get("celer").fit(A, y, noise_std=0.01).coef_.argmax() in range(4)
    """

    def _run(
        self, A: Any, y: NDArray[np.floating], alpha: float, x0: NDArray[np.floating] | None
    ) -> tuple[NDArray[np.floating], int]:
        from celer import Lasso

        return self._fitted(
            Lasso(alpha, tol=_MARGIN * self.tol, warm_start=True, **self._common()), A, y, x0
        )


class SkglmLasso(SklearnLasso):
    """``skglm.Lasso``, where that package is installed.

    It stops on the absolute violation of the optimality condition, tol * alpha here: its gap
    is then about tol relative to alpha ||x||_1, and the certificate says what it really is.

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
    max_iter : int, default=1000
        Iterations of that solver at most.

    See Also
    --------
    solvers.lasso.WorkingSet : Ours, of the same objective.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A, x = rng.standard_normal((100, 400)) / 10, np.zeros(400)
    >>> x[:4] = 1.0
    >>> y = A @ x + 0.01 * rng.standard_normal(100)
    >>> if "skglm" in solvers.names():
    ...     assert solvers.get("skglm").fit(A, y, noise_std=0.01).coef_.argmax() in range(4)
    """

    def _run(
        self, A: Any, y: NDArray[np.floating], alpha: float, x0: NDArray[np.floating] | None
    ) -> tuple[NDArray[np.floating], int]:
        from skglm import Lasso

        model = Lasso(alpha, tol=self.tol * alpha, warm_start=x0 is not None, **self._common())
        if x0 is not None:
            model.coef_ = np.array(x0, dtype=A.dtype)
            model.intercept_ = 0.0
        return self._fitted(model, A, y, None)


def _stored(A: Operator) -> Any:
    """Return A as an array or as a CSC array with the 32-bit indices these packages expect."""
    if isinstance(A, DenseOperator):
        return A.A
    if not A.has_sparse_columns:
        return A.toarray()
    columns = A.A if isinstance(A, SparseOperator) else A.sparse_columns(np.arange(A.shape[1]))
    if columns.nnz < np.iinfo(np.int32).max:
        columns = columns.copy() if columns.indices.dtype != np.int32 else columns
        columns.indices = columns.indices.astype(np.int32, copy=False)
        columns.indptr = columns.indptr.astype(np.int32, copy=False)
    return columns
