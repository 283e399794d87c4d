"""t stacked count sketches: S = t^(−1/2) [S_1; …; S_t], with hashes computed on the fly.

(S_i)_{k,j} = σ_i(j)·1{h_i(j) = k} for hashes h_i into w buckets and signs σ_i, independent of each
other, so each column of S (m×d, m = t·w) holds exactly t entries ±1/√t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each, n_threads
from sparse_secagg import kernels
from sparse_secagg.public_randomness import stream_key

__all__ = ["THREADED_FROM", "CountSketch"]

#: Vectors that share the hashing and fill the vector registers.
_BATCH = 16
#: Entries of a batch kept in the last-level cache while all sketch rows pass over them.
_BATCH_ENTRIES = 2**17
#: Below this many hashes starting threads costs more than it saves.
THREADED_FROM = 2**18


class CountSketch:
    """The count sketch of a seed; stores t/2 keys and nothing else.

    Parameters
    ----------
    n_rows : int
        Number t of stacked count sketches.
    width : int
        Number w of buckets in each.
    seed : int
        Public seed.
    """

    def __init__(self, n_rows: int, width: int, seed: int) -> None:
        self.n_rows = n_rows
        self.width = width
        self.seed = seed
        n_pairs = (n_rows + 1) // 2
        self.keys = np.array([stream_key(seed, "count-sketch", p) for p in range(n_pairs)])

    @property
    def length(self) -> int:
        """The length m = t·w of a sketch."""
        return self.n_rows * self.width

    def sketch(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sketches (n, m) of the rows of X (n, d)."""
        out = np.empty((X.shape[0], self.length))
        for start in range(0, len(out), _BATCH):
            rows = slice(start, start + _BATCH)
            self._encode_batch(X[rows], out[rows])
        return out

    def _encode_batch(self, X: NDArray[Any], out: NDArray[np.float64]) -> None:
        n, d = X.shape
        width = np.uint64(self.width)
        tables = np.zeros((2 * len(self.keys), self.width, n))
        block = min(d, _BATCH_ENTRIES)
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        buffer = np.empty((block, n), dtype=dtype)
        for start in range(0, d, block):
            entries = buffer[: min(block, d - start)]
            _interleave(X, start, entries)

            def add_to_pair(p: int, entries: NDArray[Any] = entries, start: int = start) -> None:
                first, second = tables[2 * p], tables[2 * p + 1]
                if n > 1:
                    kernels.count_sketch.scatter_many(
                        entries, start, self.keys[p], width, first, second
                    )
                else:
                    kernels.count_sketch.scatter_one(
                        entries[:, 0], start, self.keys[p], width, first[:, 0], second[:, 0]
                    )

            for_each(add_to_pair, len(self.keys), threaded=self.pays(entries.size))
        np.multiply(tables[: self.n_rows].reshape(-1, n).T, self.n_rows**-0.5, out=out)

    def pays(self, entries: int) -> bool:
        """Return whether threads pay for so many entries."""
        return entries * len(self.keys) >= THREADED_FROM


def _interleave(X: NDArray[Any], start: int, entries: NDArray[Any]) -> None:
    """Bring entries from ``start`` on into the kernels' layout: vectors innermost."""
    n, size = X.shape[0], len(entries)
    if n == 1 or X.dtype != entries.dtype or X.strides[1] != X.itemsize:
        entries[:] = X[:, start : start + size].T
        return
    step = -(-size // n_threads() // 16) * 16
    for_each(
        lambda i: kernels.count_sketch.interleave(
            X,
            start + i * step,
            start + min((i + 1) * step, size),
            entries[i * step : (i + 1) * step],
        ),
        -(-size // step),
        threaded=entries.size >= THREADED_FROM,
    )
