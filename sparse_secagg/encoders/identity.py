"""No compression: S = I, for the plain distributed discrete Gaussian mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.operators import Operator
from sparse_secagg.encoders.base import LinearEncoder, dense_rows


class IdentityOperator(Operator):
    """The d×d identity."""

    has_column_norms = True

    def __init__(self, d: int) -> None:
        super().__init__(dtype=np.dtype(np.float64), shape=(d, d))
        self.orthogonal_dimension = d

    def _matvec(self, x: NDArray[Any]) -> NDArray[np.floating]:
        return np.array(x).ravel()

    def _matmat(self, X: Any) -> NDArray[np.floating]:
        return np.array(dense_rows(X))  # in the order of X: rows of its transpose stay together

    _rmatvec = _matvec
    _rmatmat = _matmat

    def columns(self, J: ArrayLike) -> NDArray[np.float64]:
        J = self._check_columns(J)
        out = np.zeros((self.shape[0], len(J)), order="F")
        out[J, np.arange(len(J))] = 1.0
        return out

    def column_norms(self) -> NDArray[np.float64]:
        return np.ones(self.shape[1])


class IdentityEncoder(LinearEncoder):
    """Leave vectors as they are (r = 1).

    See Also
    --------
    CountSketchEncoder, HadamardEncoder, GaussianEncoder : Shorter messages.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdentityEncoder
    >>> IdentityEncoder().fit_transform(np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def _make_operator(self, d: int, seed: int) -> IdentityOperator:
        return IdentityOperator(d)

    def unsketch_error_at(self, d: int, m: int) -> float:
        return 0.0
