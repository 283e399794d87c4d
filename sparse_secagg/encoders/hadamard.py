"""Subsampled randomised Hadamard transform: S = √(D/m)·R H E, O(d log d) and matrix-free.

E puts random signs on the d coordinates and pads with zeros to D, the next power of two; H is the
orthonormal Walsh–Hadamard matrix; R keeps m of its D rows, drawn without replacement. Entries are
±1/√m, columns have norm 1, and E SᵀS = I whatever the padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.operators import Operator
from sparse_secagg.encoders.base import LinearEncoder, dense_rows
from sparse_secagg.sketches.hadamard import SubsampledHadamard
from sparse_secagg.sketches.lengths import resolve_n_components
from sparse_secagg.walsh_hadamard import fwht, next_power_of_two

#: Vectors transformed back at once: padded copies of a whole batch could be large.
_BATCH = 4


class HadamardOperator(Operator, SubsampledHadamard):
    """The m×d subsampled randomised Hadamard matrix of a seed; stores O(d) signs and m rows."""

    has_gram_formula = True
    has_column_norms = True

    def __init__(self, d: int, m: int, seed: int) -> None:
        # type checkers do not see SciPy's constructor
        super().__init__(dtype=np.dtype(np.float64), shape=(m, d))  # type: ignore[call-arg]
        SubsampledHadamard.__init__(self, d, m, seed)
        self.orthogonal_dimension = self.padded

    def _matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._matmat(x.reshape(-1, 1)).ravel()

    def _rmatvec(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return self._rmatmat(y.reshape(-1, 1)).ravel()

    def _matmat(self, X: Any) -> NDArray[np.float64]:
        if isinstance(X, np.ndarray):
            return self.sketch(X.T).T
        out = np.empty((X.shape[1], self.shape[0]))
        for i in range(len(out)):  # one dense vector at a time
            out[i] = self.sketch(dense_rows(X[:, [i]]).T)[0]
        return out.T

    def _rmatmat(self, Y: NDArray[Any]) -> NDArray[np.float64]:
        m, d = self.shape
        out = np.empty((Y.shape[1], d))
        for start in range(0, len(out), _BATCH):
            batch = slice(start, start + _BATCH)
            sketches = Y[:, batch].T
            padded = np.zeros((len(sketches), self.padded))
            padded[:, self.rows] = sketches
            np.multiply(fwht(padded)[:, :d], self.signs, out=out[batch])
        out *= np.sqrt(self.padded / m)
        return out.T

    def columns(self, J: ArrayLike) -> NDArray[np.float64]:
        J = self._check_columns(J)
        parity = np.bitwise_count(self.rows[:, None] & J[None, :]) & 1
        return np.asfortranarray((1.0 - 2.0 * parity) * (self.signs[J] / np.sqrt(self.shape[0])))

    def column_norms(self) -> NDArray[np.float64]:
        return np.ones(self.shape[1])

    def gram(self, J: ArrayLike, K: ArrayLike) -> NDArray[np.float64]:
        """Return (SᵀS)[J, K], each entry a look-up: ε_j ε_k (H·1_R)[j ⊕ k]/m, unnormalised H."""
        J, K = self._check_columns(J), self._check_columns(K)
        kept = np.zeros(self.padded)
        kept[self.rows] = 1.0
        spectrum = fwht(kept) * (np.sqrt(self.padded) / self.shape[0])
        signs = self.signs.astype(np.float64)
        return np.asarray(signs[J][:, None] * signs[K] * spectrum[J[:, None] ^ K])


class HadamardEncoder(LinearEncoder):
    """Encode vectors by a subsampled randomised Hadamard transform, in O(d log d).

    Parameters
    ----------
    n_components : int, optional
        Length m of a sketch, at most d.
    compression : float, optional
        d/m, in place of ``n_components``. With neither given, 10.
    random_state : int, RandomState, Generator or None, default=None
        The public seed; None draws a fresh one, kept in ``seed_``.

    See Also
    --------
    CountSketchEncoder : Sparse columns, for very large d.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import HadamardEncoder
    >>> encoder = HadamardEncoder(compression=4, random_state=0).fit(np.zeros((1, 1000)))
    >>> encoder.transform(np.eye(3, 1000)).shape
    (3, 250)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        compression: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.compression = compression
        self.random_state = random_state

    def _make_operator(self, d: int, seed: int) -> HadamardOperator:
        return HadamardOperator(
            d, resolve_n_components(d, self.n_components, self.compression), seed
        )

    def unsketch_error_at(self, d: int, m: int) -> float:
        D = next_power_of_two(d)  # rows are drawn without replacement, so m = D is exact
        return (d - 1) / m * (D - m) / max(D - 1, 1)
