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
from solvers.parallel import for_each, n_threads
from sparse_secagg.encoders.base import LinearEncoder, dense_rows, resolve_n_components
from sparse_secagg.public_randomness import random_signs, smallest_words, stream_key
from sparse_secagg.walsh_hadamard import fwht, next_power_of_two

#: Vectors transformed back at once: padded copies of a whole batch could be large.
_BATCH = 4
#: Fewer entries than this are left to one thread.
_THREADED_FROM = 2**16
#: Vectors of this padded length and longer are transformed part by part.
_LONG = 2**22
_PARTS = 8


class HadamardOperator(Operator):
    """The m×d subsampled randomised Hadamard matrix of a seed; stores O(d) signs and m rows."""

    has_gram_formula = True
    has_column_norms = True

    def __init__(self, d: int, m: int, seed: int) -> None:
        super().__init__(dtype=np.dtype(np.float64), shape=(m, d))
        self.seed = seed
        self.padded = self.orthogonal_dimension = next_power_of_two(d)
        self.signs = random_signs(stream_key(seed, "hadamard-signs"), d, np.int8)
        self.rows = smallest_words(stream_key(seed, "hadamard-rows"), self.padded, m)

    def _matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._matmat(x.reshape(-1, 1)).ravel()

    def _rmatvec(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return self._rmatmat(y.reshape(-1, 1)).ravel()

    def _matmat(self, X: Any) -> NDArray[np.float64]:
        out = np.empty((X.shape[1], self.shape[0]))
        if self._in_parts or len(out) == 1 or not _is_readable(X):
            sketch = self._sketch_in_parts if self._in_parts else self._sketch_one
            for i in range(len(out)):
                sketch(
                    X[:, i] if isinstance(X, np.ndarray) else dense_rows(X[:, [i]])[:, 0], out[i]
                )
        else:
            self._sketch_rows(X.T, out)
        return out.T

    def _sketch_rows(self, X: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Sketch rows in threads, each with a workspace of its own."""
        from sparse_secagg.encoders._hadamard_kernels import sketch_row

        n, n_tasks = len(out), min(len(out), n_threads())

        def sketch_share(k: int) -> None:
            padded = np.empty(self.padded)
            for i in range(k * n // n_tasks, (k + 1) * n // n_tasks):
                sketch_row(X[i], self.signs, self.rows, *self._scales, padded, out[i])

        for_each(sketch_share, n_tasks, threaded=n * self.padded >= _THREADED_FROM)

    def _sketch_one(self, x: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Sketch one vector, all threads together; the same bit for bit."""
        from sparse_secagg.encoders._hadamard_kernels import gather

        padded = np.zeros(self.padded)
        np.multiply(x, self.signs, out=padded[: len(x)])
        gather(fwht(padded), self.rows, self._scales[1], out)

    @property
    def _in_parts(self) -> bool:
        """Whether a padded copy would be long, and the sketch is short beside it."""
        return self.padded >= _LONG and _PARTS * self.shape[0] <= self.padded

    def _sketch_in_parts(self, x: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Sketch a long vector with a workspace of D/8: H_D is H_8 ⊗ H_{D/8}.

        Row i·D/8 + j of H takes entry j of the transform of part b with the sign of H_8 at (i, b).
        """
        from sparse_secagg.encoders._hadamard_kernels import gather_part

        n, m = self.padded // _PARTS, len(out)
        part = np.empty(n)
        step = -(-m // n_threads())
        out[:] = 0.0
        for b in range(-(-len(x) // n)):
            entries = x[b * n : (b + 1) * n]
            filled = part[: len(entries)]
            np.multiply(entries, self.signs[b * n : b * n + len(entries)], out=filled)
            part[len(entries) :] = 0.0
            fwht(part)

            def add(k: int, b: int = b) -> None:
                gather_part(part, b, self.rows, k * step, min((k + 1) * step, m), out)

            for_each(add, -(-m // step), threaded=m >= _THREADED_FROM)
        out *= _PARTS**-0.5 * self._scales[1]

    @property
    def _scales(self) -> tuple[float, float]:
        """What makes H orthonormal, and √(D/m)."""
        return self.padded**-0.5, float(np.sqrt(self.padded / self.shape[0]))

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


def _is_readable(X: Any) -> bool:
    """Return whether kernels can read the columns of X in place."""
    return (
        isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32) and X.T.flags.c_contiguous
    )


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
