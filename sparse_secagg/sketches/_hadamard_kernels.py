"""Numba kernels of the subsampled randomised Hadamard transform."""

from __future__ import annotations

from solvers.compiling_kernels import numba
from sparse_secagg._walsh_hadamard_kernels import (
    combine,
    last_stages,
    transform_block,
    transform_rows,
)

#: Shorter vectors have no parts worth transforming as soon as they are filled.
_SHORT = 2**10


@numba.njit(cache=True, nogil=True)
def fill_signed(x, signs, start, stop, padded):
    """Write ±x, zeros after its end, to the places ``start`` to ``stop - 1``."""
    end = min(max(x.shape[0], start), stop)
    for j in range(start, end):
        padded[j] = x[j] * signs[j]
    for j in range(end, stop):
        padded[j] = 0.0


@numba.njit(cache=True, nogil=True)
def gather(padded, rows, scale, out):
    """Write the kept rows, scaled."""
    for k in range(rows.shape[0]):
        out[k] = padded[rows[k]] * scale


@numba.njit(cache=True, nogil=True)
def gather_part(part, b, rows, start, stop, out):
    """Add what the transform of part ``b`` of a vector gives to the kept rows start … stop-1."""
    n = part.shape[0]
    for k in range(start, stop):
        i, j = rows[k] // n, rows[k] & (n - 1)
        parity = i & b  # of at most 8 parts: three bits
        parity ^= parity >> 2
        parity ^= parity >> 1
        out[k] += -part[j] if parity & 1 else part[j]


@numba.njit(cache=True, nogil=True)
def sketch_row(x, signs, rows, norm, scale, padded, out):
    """Write scale·R·H·E x for one vector; ``padded`` is workspace, ``norm`` makes H orthonormal.

    Every part of the vector is transformed right after it was filled, while it is in cache.
    """
    D = padded.shape[0]
    if D < _SHORT:
        fill_signed(x, signs, 0, D, padded)
        transform_rows(padded.reshape((1, D)), norm)
    else:
        n_stages = last_stages(D, padded.itemsize)
        n = D >> n_stages
        for start in range(0, D, n):
            fill_signed(x, signs, start, start + n, padded)
            transform_block(padded, start, n)
        combine(padded, 0, n, n, n_stages, norm)
    gather(padded, rows, scale, out)
