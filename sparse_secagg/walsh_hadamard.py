"""The orthonormal Walsh–Hadamard transform, x ← H x with H_jk = (−1)^⟨j, k⟩ / √D.

Long vectors are seen as a matrix: H_{RC} = H_R ⊗ H_C transforms its rows, then its columns in
strips that fit the cache, so each element travels through memory twice and not log₂ D times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers._threads import for_each, n_threads

#: Below this length a vector stays in cache and is transformed by one thread.
_BLOCKED_FROM = 2**14
#: Elements of a strip of columns (1 MB of float64, about the size of an L2 cache).
_STRIP_ELEMENTS = 2**17


def next_power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def fwht(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Transform the last axis of x in place and return x.

    Parameters
    ----------
    x : ndarray of shape (..., D)
        C-contiguous float32 or float64, D a power of two. Overwritten. The transform is its own
        inverse and keeps Euclidean norms.
    """
    D = x.shape[-1]
    if D < 1 or D & (D - 1):
        raise ValueError(
            f"x has length {D}, which is not a power of two; "
            f"pad it with zeros to {next_power_of_two(D)}."
        )
    if x.dtype not in (np.float32, np.float64) or not x.flags.c_contiguous:
        raise ValueError(
            f"x must be C-contiguous float32 or float64, got dtype {x.dtype}; "
            "convert it with np.ascontiguousarray(x, dtype=float)."
        )
    vectors = x.reshape(-1, D)
    if D >= _BLOCKED_FROM:
        for vector in vectors:
            _transform_long(vector)
    else:
        _transform_rows(vectors, scale=D**-0.5)
    return x


def _transform_rows(X: NDArray[np.floating], scale: float) -> None:
    from sparse_secagg._walsh_hadamard_kernels import transform_rows

    chunks = np.array_split(X, max(min(n_threads(), len(X)), 1))
    for_each(
        lambda i: transform_rows(chunks[i], X.dtype.type(scale)),
        len(chunks),
        threaded=X.size >= _BLOCKED_FROM,
    )


def _transform_long(vector: NDArray[np.floating]) -> None:
    from sparse_secagg._walsh_hadamard_kernels import transform_strip

    D = len(vector)
    n_columns = 1 << (D.bit_length() // 2)
    X = vector.reshape(-1, n_columns)
    _transform_rows(X, scale=1.0)

    width = int(np.clip(_STRIP_ELEMENTS // len(X), 8, 64))
    scale = X.dtype.type(D**-0.5)
    n_tasks = min(n_threads(), n_columns // width)

    def transform_strips(task: int) -> None:
        buffer = np.empty(len(X) * width, dtype=X.dtype)
        for start in range(task * width, n_columns, n_tasks * width):
            transform_strip(X, start, width, scale, buffer)

    for_each(transform_strips, n_tasks)
