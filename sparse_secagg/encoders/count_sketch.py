"""Sparse random projection by t stacked count sketches: S = t^(−1/2) [S_1; …; S_t].

(S_i)_{k,j} = σ_i(j)·1{h_i(j) = k} for hashes h_i into w buckets and signs σ_i, independent of each
other, so each column of S (m×d, m = t·w) holds exactly t entries ±1/√t. Sᵀ is the count-mean
decoder of the paper's appendix; the median over the t rows is the count-median decoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from solvers.operators import Operator
from solvers.parallel import for_each, n_threads
from sparse_secagg import kernels
from sparse_secagg.encoders.base import LinearEncoder
from sparse_secagg.sketches.count_sketch import THREADED_FROM, CountSketch
from sparse_secagg.sketches.lengths import count_sketch_shape

#: Vectors that are decoded together.
_BATCH = 16


class CountSketchOperator(Operator, CountSketch):
    """The m×d count-sketch matrix of a seed; stores t/2 keys and nothing else.

    Parameters
    ----------
    d : int
        Length of the vectors.
    n_rows : int
        Number t of stacked count sketches.
    width : int
        Number w of buckets in each.
    seed : int
        Public seed.
    """

    has_sparse_columns = True
    has_columns_at_hand = True
    has_column_norms = True

    def __init__(self, d: int, n_rows: int, width: int, seed: int) -> None:
        # type checkers do not see SciPy's constructor
        super().__init__(dtype=np.dtype(np.float64), shape=(n_rows * width, d))  # type: ignore[call-arg]
        CountSketch.__init__(self, n_rows, width, seed)

    def _matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._matmat(x.reshape(-1, 1)).ravel()

    def _rmatvec(self, y: NDArray[Any]) -> NDArray[np.float64]:
        return self._rmatmat(y.reshape(-1, 1)).ravel()

    def _matmat(self, X: Any) -> NDArray[np.float64]:
        if not sp.issparse(X):
            return self.sketch(X.T).T
        out = np.empty((X.shape[1], self.shape[0]))
        self._encode_sparse(sp.csr_array(X.T), out)
        return out.T

    def _encode_sparse(self, X: sp.csr_array, out: NDArray[np.float64]) -> None:
        if not X.has_sorted_indices:
            X = X.sorted_indices()
        values = np.require(X.data, np.float64, ["C", "W", "A"])
        indices, ends = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        n = len(out)
        step = max(1, -(-n // (4 * n_threads())))
        width, scale = np.uint64(self.width), self.n_rows**-0.5

        def encode(i: int) -> None:
            stop = min((i + 1) * step, n)
            kernels.count_sketch.scatter_sparse(
                values, indices, ends, self.keys, width, scale, i * step, stop, out
            )

        for_each(encode, -(-n // step), threaded=out.size >= THREADED_FROM)

    def _rmatmat(self, Y: NDArray[Any]) -> NDArray[np.float64]:
        out = np.empty((self.shape[1], Y.shape[1]), order="F" if Y.shape[1] == 1 else "C")
        for start in range(0, Y.shape[1], _BATCH):
            columns = slice(start, start + _BATCH)
            self._decode_batch(Y[:, columns], out[:, columns])
        return out

    def _decode_batch(self, Y: NDArray[Any], out: NDArray[np.float64]) -> None:
        n, d = Y.shape[1], len(out)
        tables = np.zeros((2 * len(self.keys), self.width, n))
        tables[: self.n_rows] = Y.reshape(self.n_rows, self.width, n) / np.sqrt(self.n_rows)
        n_blocks = n_threads() if self.pays(d * n) else 1

        def estimate(i: int) -> None:
            lo, hi = i * d // n_blocks, (i + 1) * d // n_blocks
            width = np.uint64(self.width)
            if n == 1:
                kernels.count_sketch.gather_one(
                    tables[:, :, 0], self.keys, width, lo, out[lo:hi, 0]
                )
                return
            entries = np.empty((hi - lo, n))
            kernels.count_sketch.gather_many(tables, self.keys, width, lo, entries)
            out[lo:hi] = entries

        for_each(estimate, n_blocks)

    def hashes(self, J: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return buckets in [0, w) and signs ±1 of the columns J, both of shape (t, len(J))."""
        J = np.ascontiguousarray(self._check_columns(J))
        buckets = np.empty((self.n_rows, len(J)), dtype=np.int64)
        signs = np.empty((self.n_rows, len(J)))
        kernels.count_sketch.hash_columns(self.keys, np.uint64(self.width), J, buckets, signs)
        return buckets, signs

    def sparse_columns(self, J: ArrayLike) -> sp.csc_array:
        buckets, signs = self.hashes(J)
        rows = buckets + self.width * np.arange(self.n_rows)[:, None]
        n = rows.shape[1]
        return sp.csc_array(
            (
                signs.T.ravel() / np.sqrt(self.n_rows),
                rows.T.ravel(),
                self.n_rows * np.arange(n + 1),
            ),
            shape=(self.shape[0], n),
        )

    def columns(self, J: ArrayLike) -> NDArray[np.float64]:
        return np.asfortranarray(self.sparse_columns(J).toarray())

    def column_norms(self) -> NDArray[np.float64]:
        return np.ones(self.shape[1])

    def row_estimates(
        self, y: ArrayLike, start: int = 0, stop: int | None = None
    ) -> NDArray[np.float64]:
        """Return each sketch row's own estimates √t·σ_i(j)·y[i, h_i(j)] of the entries j.

        Their mean over the rows is Sᵀ y; their median is the count-median decoder.

        Parameters
        ----------
        y : array of shape (m,)
            One sketch.
        start, stop : int
            Range of the entries; all of them by default.

        Returns
        -------
        ndarray of shape (t, stop - start)
        """
        buckets, signs = self.hashes(np.arange(start, self.shape[1] if stop is None else stop))
        table = np.reshape(y, (self.n_rows, self.width)) * np.sqrt(self.n_rows)
        return np.asarray(signs * np.take_along_axis(table, buckets, axis=1))


class CountSketchEncoder(LinearEncoder):
    """Encode vectors by t stacked count sketches scaled by 1/√t.

    E SᵀS = I and E‖SᵀSx − x‖² = (d − 1)/m·‖x‖², over the draw of the seed. Hashes are computed
    on the fly from (seed, row, index): nothing of size d is stored, and encoding one vector needs
    O(m) memory beyond its input.

    Parameters
    ----------
    n_components : int, optional
        Length m of a sketch, at most d. The length made is ``n_rows_ * (m // n_rows_)``.
    compression : float, optional
        d/m, in place of ``n_components``. With neither given, 10.
    n_rows : int, default=15
        Number t of stacked sketches; at most m are used.
    random_state : int, RandomState, Generator or None, default=None
        The public seed; None draws a fresh one, kept in ``seed_``.

    Attributes
    ----------
    n_rows_, width_ : int
        The t and w used; ``n_components_ = n_rows_ * width_``.

    See Also
    --------
    GaussianEncoder : Dense ensemble, the paper's choice for sparse means.
    HadamardEncoder : Dense, matrix-free, O(d log d).

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import CountSketchEncoder
    >>> X = np.eye(4, 1000)
    >>> encoder = CountSketchEncoder(n_components=200, random_state=0).fit(X)
    >>> encoder.n_components_, encoder.n_rows_, encoder.width_
    (195, 15, 13)
    >>> encoder.inverse_transform(encoder.transform(X)).diagonal().round(12).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    n_rows_: int
    width_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        compression: float | None = None,
        n_rows: int = 15,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.compression = compression
        self.n_rows = n_rows
        self.random_state = random_state

    def _make_operator(self, d: int, seed: int) -> CountSketchOperator:
        shape = count_sketch_shape(d, self.n_components, self.compression, self.n_rows)
        self.n_rows_, self.width_ = shape
        return CountSketchOperator(d, self.n_rows_, self.width_, seed)

    def unsketch_error_at(self, d: int, m: int) -> float:
        return (d - 1) / m
