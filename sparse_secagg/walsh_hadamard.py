"""The orthonormal Walsh–Hadamard transform, x ← H x with H_jk = (−1)^⟨j, k⟩ / √D.

Stages run in ascending order of their stride, several at a time in registers, and depth first, so
that parts of a long vector are finished while they are in cache. The array is its own workspace.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each, n_threads
from sparse_secagg import kernels

_DTYPES = (np.dtype(np.float64), np.dtype(np.float32))
#: Fewer bytes than this are transformed by one thread: two would wait longer than they work.
_THREADED_FROM = 2**23
#: The last pass over a long vector combines this many blocks.
_BLOCKS = 8


def next_power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def fwht(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Transform the last axis of x in place and return x.

    Parameters
    ----------
    x : ndarray of shape (..., D)
        C-contiguous float32 or float64, D a power of two. Overwritten. The transform is its own
        inverse and keeps Euclidean norms. Sums are scaled once, at the end: where they are
        integers that the type holds and D is a power of four, the result is exact.
    """
    D = x.shape[-1]
    if D < 1 or D & (D - 1):
        raise ValueError(
            f"x has length {D}, which is not a power of two; "
            f"pad it with zeros to {next_power_of_two(D)}."
        )
    if x.dtype not in _DTYPES or not x.flags.c_contiguous:
        raise ValueError(
            f"x must be C-contiguous float32 or float64, got dtype {x.dtype}; "
            "convert it with np.ascontiguousarray(x, dtype=float)."
        )
    if not x.flags.writeable:
        raise ValueError("x is read-only and would be overwritten; pass x.copy().")
    vectors = x.reshape(-1, D)
    scale = x.dtype.type(D**-0.5)
    threads = n_threads() if x.nbytes >= _THREADED_FROM else 1
    if threads == 1:
        kernels.walsh_hadamard.transform_rows(vectors, scale)
    elif len(vectors) >= threads or D * x.itemsize < _THREADED_FROM:
        chunks = np.array_split(vectors, threads)
        for_each(lambda i: kernels.walsh_hadamard.transform_rows(chunks[i], scale), threads)
    else:
        for vector in vectors:
            _transform_long(vector, scale, threads)
    return x


def _transform_long(vector: NDArray[np.floating], scale: np.floating, threads: int) -> None:
    """Transform one vector by several threads: blocks, then columns of the last pass."""
    n = len(vector) // _BLOCKS
    step = n // (2 * threads) // 64 * 64 or n

    def task(i: int) -> None:
        if i < _BLOCKS:
            kernels.walsh_hadamard.transform_block(vector, i * n, n)
            return
        start = (i - _BLOCKS) * step
        kernels.walsh_hadamard.combine(vector, start, min(start + step, n), n, 3, scale)

    for_each(task, _BLOCKS - (-n // step), first=_BLOCKS)
