"""Subsampled randomised Hadamard transform: S = √(D/m)·R H E, O(d log d) and matrix-free.

E puts random signs on the d coordinates and pads with zeros to D, the next power of two; H is the
orthonormal Walsh–Hadamard matrix; R keeps m of its D rows, drawn without replacement. Entries are
±1/√m, columns have norm 1, and E SᵀS = I whatever the padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each, n_threads
from sparse_secagg import kernels
from sparse_secagg.public_randomness import random_signs, smallest_words, stream_key
from sparse_secagg.walsh_hadamard import fwht, next_power_of_two

__all__ = ["SubsampledHadamard"]

#: Fewer entries than this are left to one thread.
_THREADED_FROM = 2**16
#: Vectors of this padded length and longer are transformed part by part.
_LONG = 2**22
_PARTS = 8


class SubsampledHadamard:
    """The transform of a seed, for vectors of length d; stores O(d) signs and m rows."""

    def __init__(self, d: int, m: int, seed: int) -> None:
        self.seed = seed
        self.padded = next_power_of_two(d)
        self.signs = random_signs(stream_key(seed, "hadamard-signs"), d, np.int8)
        self.rows = smallest_words(stream_key(seed, "hadamard-rows"), self.padded, m)

    @property
    def length(self) -> int:
        """The length m of a sketch."""
        return len(self.rows)

    def sketch(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sketches (n, m) of the rows of X (n, d)."""
        out = np.empty((X.shape[0], self.length))
        if self._in_parts or len(out) == 1 or not _is_readable(X):
            sketch = self._sketch_in_parts if self._in_parts else self._sketch_one
            for i in range(len(out)):
                sketch(X[i], out[i])
        else:
            self._sketch_rows(X, out)
        return out

    def _sketch_rows(self, X: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Sketch rows in threads, each with a workspace of its own."""
        sketch_row = kernels.hadamard.sketch_row
        n, n_tasks = len(out), min(len(out), n_threads())

        def sketch_share(k: int) -> None:
            padded = np.empty(self.padded)
            for i in range(k * n // n_tasks, (k + 1) * n // n_tasks):
                sketch_row(X[i], self.signs, self.rows, *self._scales, padded, out[i])

        for_each(sketch_share, n_tasks, threaded=n * self.padded >= _THREADED_FROM)

    def _sketch_one(self, x: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Sketch one vector, all threads together; the same bit for bit."""
        padded = np.zeros(self.padded)
        np.multiply(x, self.signs, out=padded[: len(x)])
        kernels.hadamard.gather(fwht(padded), self.rows, self._scales[1], out)

    @property
    def _in_parts(self) -> bool:
        """Whether a padded copy would be long, and the sketch is short beside it."""
        return self.padded >= _LONG and _PARTS * self.length <= self.padded

    def _sketch_in_parts(self, x: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Sketch a long vector with a workspace of D/8: H_D is H_8 ⊗ H_{D/8}.

        Row i·D/8 + j of H takes entry j of the transform of part b with the sign of H_8 at (i, b).
        """
        gather_part = kernels.hadamard.gather_part
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
        return self.padded**-0.5, float(np.sqrt(self.padded / self.length))


def _is_readable(X: Any) -> bool:
    """Return whether kernels can read the rows of X in place."""
    return (
        isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32) and X.flags.c_contiguous
    )
