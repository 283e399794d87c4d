"""The contract of a solver: a scikit-learn regressor without intercept.

A new one subclasses :class:`Solver`, implements :meth:`Solver._solve` for one right-hand side and
is known everywhere by its name once it is passed to :func:`solvers.register` (or announced in the
entry-point group ``sparse_secagg.solvers``).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from solvers.operators import Operator, as_operator

__all__ = [
    "Solution",
    "Solver",
    "check_measurements",
    "check_noise_std",
    "check_positive",
    "refuse_nonfinite",
]

_ZERO = "A is zero everywhere, so y says nothing about x; check A."


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What a solver found for one right-hand side.

    ``fit`` stores every field ``name`` as the fitted attribute ``name_``; subclasses add the
    fields of their family.

    Parameters
    ----------
    coef : ndarray of shape (d,)
        The estimate.
    n_iter : int
        Iterations made, in the solver's own unit.
    noise_std : float or None
        The noise level used: the given one, or the estimated one.
    converged : bool
        Whether the stopping rule was met; if not, ``fit`` warns with ``message``.
    message : str
        What was reached and what to change, for the warning.
    std_err : float, ndarray of shape (d,), callable or None
        Standard error of each entry of an unbiased estimate, over draws of A and the noise; None
        of a biased one. A function without arguments is called when it is first asked for. See
        :mod:`solvers.inference` for what to do with it.
    std_err_note : str
        What to know of it: that it was widened, and why.

    See Also
    --------
    Solver : Returns one for each right-hand side.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers import Solution
    >>> Solution(coef=np.zeros(3)).converged
    True
    """

    coef: NDArray[np.float64]
    n_iter: int = 1
    noise_std: float | None = None
    converged: bool = True
    message: str = ""
    std_err: Any = None
    std_err_note: str = ""


class Solver(RegressorMixin, BaseEstimator):
    """Base of all solvers of y = A x + noise.

    Subclasses implement ``_solve(A, y, noise_std, x0) -> Solution`` on validated input: A is
    an :class:`~solvers.operators.Operator`, y a float64 vector. Where several right-hand sides
    can share work they also override ``_decode(A, Y) -> X``.

    Attributes
    ----------
    biased : bool
        Whether the estimate is biased over fresh draws of A and the noise.

    See Also
    --------
    get : Makes a solver by its name.
    register : Makes one of your own available by name.

    Examples
    --------
    >>> import numpy as np
    >>> import solvers
    >>> solver = solvers.get("linear").fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> solver.coef_.tolist()
    [1.0, 2.0, 3.0]
    """

    biased: bool = True

    # Solvers whose first product is A^T y see NaN in A there, and save this pass over A.
    _checks_finite = True

    def fit(
        self,
        A: Any,
        y: ArrayLike,
        noise_std: float | None = None,
        x0: ArrayLike | None = None,
    ) -> Self:
        """Estimate x from y = A x + noise.

        Parameters
        ----------
        A : ndarray, scipy sparse matrix or LinearOperator, of shape (m, d)
            The measurement matrix. Arrays are not copied.
        y : array-like of shape (m,)
            The measurements.
        noise_std : float, optional
            Standard deviation of the noise in each measurement, where known.
        x0 : array-like of shape (d,), optional
            Where to start. Changes the time, not the result, of convex solvers.

        Returns
        -------
        self
        """
        operator = self._check_operator(A, y, reset=True)
        m, d = operator.shape
        y = check_measurements(y, m)
        noise_std = check_noise_std(noise_std)
        if x0 is not None:
            x0 = _check_vector("x0", x0, d, "one entry per column of A")
        with np.errstate(invalid="ignore", over="ignore"):  # looked for below, and explained
            solution = self._solve(operator, y, noise_std, x0)
        _check_coefficients(solution.coef, operator)
        if not solution.coef.any() and y.any():
            _refuse_zero(operator)
        for field in fields(solution):
            if field.name not in ("converged", "message", "std_err"):
                setattr(self, f"{field.name}_", getattr(solution, field.name))
        self._std_err = solution.std_err
        self.operator_ = operator
        if not solution.converged:
            self._warn(solution.message)
        return self

    @property
    def std_err_(self) -> Any:
        """Standard error of each entry of ``coef_``, a number or an array; None if biased."""
        check_is_fitted(self)
        if callable(self._std_err):
            self._std_err = self._std_err()
        return self._std_err

    def decode(self, Y: ArrayLike) -> NDArray[np.float64]:
        """Estimate one x for each row of Y, with the A and the noise level of ``fit``.

        Parameters
        ----------
        Y : array-like of shape (k, m) or (m,)
            One measurement vector a row.

        Returns
        -------
        ndarray of shape (k, d) or (d,)
        """
        check_is_fitted(self)
        m = self.operator_.shape[0]
        Y = np.asarray(Y, dtype=np.float64)
        rows = np.atleast_2d(Y)
        if rows.ndim != 2 or rows.shape[1] != m:
            raise ValueError(
                f"Y has shape {Y.shape}, but the solver was fitted on {m} measurements; "
                f"pass an array of shape (k, {m}), one measurement vector a row."
            )
        if not np.isfinite(rows).all():
            raise ValueError("Y contains NaN or infinity; leave those measurements out.")
        if len(rows) == 0:
            return np.empty((0, self.operator_.shape[1]))
        with np.errstate(invalid="ignore", over="ignore"):
            X = self._decode(self.operator_, rows)
        _check_coefficients(X, self.operator_)
        return X.reshape(*Y.shape[:-1], X.shape[1])

    def predict(self, A: Any) -> NDArray[np.float64]:
        """Return ``A @ coef_``."""
        check_is_fitted(self)
        return np.asarray(self._check_operator(A, "no_validation", reset=False).matvec(self.coef_))

    def solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None = None,
        x0: NDArray[np.float64] | None = None,
    ) -> Solution:
        """Solve on input that is known to be valid: no checks, no warning, nothing is stored."""
        return self._solve(A, y, noise_std, x0)

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> Solution:
        raise NotImplementedError(f"{type(self).__name__} must implement _solve")

    def _decode(self, A: Operator, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solve for each row of Y; the default solves one after the other."""
        solutions = [self._solve(A, y, self.noise_std_, None) for y in Y]
        late = [solution for solution in solutions if not solution.converged]
        if late:
            self._warn(f"{len(late)} of {len(Y)} right-hand sides: {late[0].message}")
        return np.array([solution.coef for solution in solutions]).reshape(-1, A.shape[1])

    def _check_operator(self, A: Any, y: Any, reset: bool) -> Operator:
        if isinstance(A, LinearOperator):
            operator = as_operator(A)
        else:
            A = self._check_array(A, reset)
            operator = as_operator(A, check_finite=self._checks_finite or not reset)
            values = A.data if sp.issparse(A) else A
            # Looking at a few entries first makes the usual case free.
            if reset and not values.flat[:10].any() and not values.any():
                raise ValueError(_ZERO)
        if reset:
            self.n_features_in_ = operator.shape[1]
        elif operator.shape[1] != self.n_features_in_:
            raise ValueError(
                f"A has {operator.shape[1]} columns, but {type(self).__name__} was fitted on "
                f"{self.n_features_in_}; pass a matrix with as many columns."
            )
        return operator

    def _check_array(self, A: Any, reset: bool) -> Any:
        plain = type(A) is np.ndarray and A.dtype in (np.float64, np.float32)
        if reset and plain and A.ndim == 2 and A.size:
            # scikit-learn would say the same after a tenth of a millisecond.
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return A
        return validate_data(
            self,
            A,
            y="no_validation",
            reset=reset,
            accept_sparse="csc",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
        )

    def _warn(self, message: str) -> None:
        warnings.warn(f"{type(self).__name__}: {message}", ConvergenceWarning, stacklevel=3)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_noise_std(noise_std: float | None) -> float | None:
    """Return the noise level as a float, or None; raise ValueError if it is neither."""
    if noise_std is None:
        return None
    value = float(noise_std)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(
            f"noise_std={noise_std} is not a standard deviation; pass a finite number >= 0, "
            "or None where it is unknown."
        )
    return value


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` as a float; raise ValueError unless it is finite and positive."""
    if isinstance(value, str) or not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name}={value!r} must be a finite number > 0.")
    return float(value)


def check_measurements(y: ArrayLike | None, m: int) -> NDArray[np.float64]:
    """Return y as a vector of m float64 numbers; raise ValueError if it is none."""
    if y is None:
        raise ValueError("y=None: requires y to be passed, but the target y is None.")
    if not (type(y) is np.ndarray and y.ndim == 1):
        y = column_or_1d(y, warn=True)
    return _check_vector("y", y, m, "one entry per row of A")


def _check_vector(name: str, v: ArrayLike, size: int, meaning: str) -> NDArray[np.float64]:
    v = np.asarray(v)
    if np.iscomplexobj(v):
        raise ValueError(f"Complex data not supported: {name} must be real.")
    v = v.astype(np.float64)
    if v.shape != (size,):
        raise ValueError(f"{name} has shape {v.shape}, expected ({size},): {meaning}.")
    if not np.isfinite(v).all():
        raise ValueError(f"{name} contains NaN or infinity; leave those entries out.")
    return v


def _check_coefficients(coef: NDArray[np.float64], A: Operator) -> None:
    """Never return NaN: say where it came from."""
    if np.isfinite(coef).all():
        return
    refuse_nonfinite(A)
    raise OverflowError(
        "the estimate overflowed: the entries of A or y are too large; rescale them, "
        "for example to unit column norms."
    )


def _refuse_zero(A: Operator) -> None:
    """Raise ValueError where A maps a random vector to zero."""
    probe = np.random.default_rng(0).standard_normal(A.shape[1])
    if not np.asarray(A.matvec(probe)).any():
        raise ValueError(_ZERO)


def refuse_nonfinite(A: Operator) -> None:
    """Raise ValueError where the stored values of A hold NaN or infinity."""
    stored = getattr(A, "A", None)
    if isinstance(stored, np.ndarray) or sp.issparse(stored):
        as_operator(stored)
