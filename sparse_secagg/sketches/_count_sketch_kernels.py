"""Numba kernels of the count sketch. Hashes are computed on the fly, one word for two rows.

Sketch rows come in pairs: word j of a pair's stream gives its first row the high 32 bits and its
second row the low ones. Of each half, 31 bits choose the bucket and one the sign, so the two are
independent, and a bucket's probability is within 2**-31 of 1/width.

All kernels add in the order of the index j, so a client's sketch is the same bit for bit whether
it is computed alone, in a batch, from a sparse row or with another number of threads.
"""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import numba
from sparse_secagg._hash_kernels import word

_ONE = np.uint64(1)
_31 = np.uint64(31)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SIGNS = np.array([1.0, -1.0])  # a look-up is a tenth faster than arithmetic on the bit


@numba.njit(cache=True, nogil=True, inline="always")
def bucket_of(half, width):
    """Return the bucket in [0, width) chosen by the upper 31 bits of a 32-bit half word."""
    return ((half >> _ONE) * width) >> _31


@numba.njit(cache=True, nogil=True, inline="always")
def sign_of(half):
    """Return the sign ±1.0 chosen by the lowest bit of a half word."""
    return _SIGNS[half & _ONE]


@numba.njit(cache=True, nogil=True)
def hash_columns(keys, width, J, buckets, signs):
    """Write buckets and signs (rows, len(J)) of the columns J."""
    for p in range(keys.shape[0]):
        for k in range(J.shape[0]):
            w = word(keys[p], np.uint64(J[k]))
            for half in range(2):
                row = 2 * p + half
                if row < buckets.shape[0]:
                    h = (w >> _32) if half == 0 else (w & _LOW)
                    buckets[row, k] = np.int64(bucket_of(h, width))
                    signs[row, k] = sign_of(h)


@numba.njit(cache=True, nogil=True)
def scatter_one(x, start, key, width, first, second):
    """Add the entries start, start+1, … of one vector to the two rows of a pair."""
    for j in range(x.shape[0]):
        w = word(key, np.uint64(start + j))
        high, low = w >> _32, w & _LOW
        first[bucket_of(high, width)] += sign_of(high) * x[j]
        second[bucket_of(low, width)] += sign_of(low) * x[j]


@numba.njit(cache=True, nogil=True)
def scatter_many(X, start, key, width, first, second):
    """Do :func:`scatter_one` for many vectors at once: X (entries, vectors), rows (width, vectors).

    The vectors are the inner axis, so one hash serves all of them and the additions vectorise.
    """
    n = X.shape[1]
    for j in range(X.shape[0]):
        w = word(key, np.uint64(start + j))
        high, low = w >> _32, w & _LOW
        b, s = bucket_of(high, width), sign_of(high)
        for k in range(n):
            first[b, k] += s * X[j, k]
        b, s = bucket_of(low, width), sign_of(low)
        for k in range(n):
            second[b, k] += s * X[j, k]


@numba.njit(cache=True, nogil=True)
def interleave(X, start, stop, out):
    """Write the entries ``start`` to ``stop - 1`` of the rows of X to the rows of ``out``.

    A few entries at a time, so that what is read and what is written stay in cache.
    """
    for lo in range(start, stop, 16):
        hi = min(lo + 16, stop)
        for k in range(X.shape[0]):
            for j in range(lo, hi):
                out[j - start, k] = X[k, j]


@numba.njit(cache=True, nogil=True)
def scatter_sparse(values, indices, ends, keys, width, scale, start, stop, out):
    """Write the scaled sketches of the sparse rows ``start`` to ``stop - 1`` to rows of ``out``.

    Indices ascend within a row; a sketch is its rows of ``width`` buckets, one after the other.
    """
    m = out.shape[1]
    for i in range(start, stop):
        sketch = out[i]
        sketch[:] = 0.0
        for k in range(ends[i], ends[i + 1]):
            for p in range(keys.shape[0]):
                w = word(keys[p], np.uint64(indices[k]))
                high, low = w >> _32, w & _LOW
                first = np.uint64(2 * p) * width
                sketch[first + bucket_of(high, width)] += sign_of(high) * values[k]
                if first + width < m:
                    sketch[first + width + bucket_of(low, width)] += sign_of(low) * values[k]
        for j in range(m):
            sketch[j] *= scale


_BLOCK = 2**14  # outputs kept in cache while all rows pass over them, one pair at a time


@numba.njit(cache=True, nogil=True)
def gather_one(table, keys, width, start, out):
    """Write Σ_rows sign·table[row, bucket] for the entries start, start+1, … to ``out``."""
    n = out.shape[0]
    out[:] = 0.0
    for lo in range(0, n, _BLOCK):
        hi = min(lo + _BLOCK, n)
        for p in range(keys.shape[0]):
            key, first, second = keys[p], table[2 * p], table[2 * p + 1]
            for j in range(lo, hi):
                w = word(key, np.uint64(start + j))
                high, low = w >> _32, w & _LOW
                out[j] += (
                    sign_of(high) * first[bucket_of(high, width)]
                    + sign_of(low) * second[bucket_of(low, width)]
                )


@numba.njit(cache=True, nogil=True)
def gather_many(tables, keys, width, start, out):
    """Do :func:`gather_one` for many tables at once: tables (rows, width, n), out (entries, n)."""
    n = out.shape[1]
    out[:] = 0.0
    block = max(_BLOCK // n, 1)
    for lo in range(0, out.shape[0], block):
        hi = min(lo + block, out.shape[0])
        for p in range(keys.shape[0]):
            key, first, second = keys[p], tables[2 * p], tables[2 * p + 1]
            for j in range(lo, hi):
                w = word(key, np.uint64(start + j))
                high, low = w >> _32, w & _LOW
                b, s = bucket_of(high, width), sign_of(high)
                c, t = bucket_of(low, width), sign_of(low)
                for k in range(n):
                    out[j, k] += s * first[b, k] + t * second[c, k]
