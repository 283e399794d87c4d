"""Compiled products of a stored matrix with a vector, for a range of the results.

Each entry is read once and summed in float64, whatever the storage. Several rows go together:
a pass waits for memory, which delivers more when several streams are read at a time. A factor
1.0 makes float64 of what is stored.
"""

from __future__ import annotations

from solvers.compiling_kernels import njit

# Sums may be reordered, and NaN must survive.
_FAST = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)
def dot(a, b):
    """Return a . b."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)
def rows_times(A, x, start, stop, out):
    """Write A[i] . x to out[i] for start <= i < stop."""
    whole = start + (stop - start) // 4 * 4
    for i in range(start, whole, 4):
        a, b, c, d = A[i], A[i + 1], A[i + 2], A[i + 3]
        s, t, u, v = 0.0, 0.0, 0.0, 0.0
        for k in range(len(x)):
            s += a[k] * x[k]
            t += b[k] * x[k]
            u += c[k] * x[k]
            v += d[k] * x[k]
        out[i], out[i + 1], out[i + 2], out[i + 3] = s, t, u, v
    for i in range(whole, stop):
        out[i] = dot(A[i], x)


@njit(cache=True, nogil=True, fastmath=_FAST)
def rows_times_and_squares(A, x, start, stop, out, squares):
    """Write A[i] . x to out[i] and A[i] . A[i] to squares[i] for start <= i < stop."""
    whole = start + (stop - start) // 2 * 2
    for i in range(start, whole, 2):
        a, b = A[i], A[i + 1]
        s, t, u, v = 0.0, 0.0, 0.0, 0.0
        for k in range(len(x)):
            p, q = 1.0 * a[k], 1.0 * b[k]
            s += p * x[k]
            t += q * x[k]
            u += p * p
            v += q * q
        out[i], out[i + 1], squares[i], squares[i + 1] = s, t, u, v
    for i in range(whole, stop):
        a = A[i]
        s, u = 0.0, 0.0
        for k in range(len(x)):
            p = 1.0 * a[k]
            s += p * x[k]
            u += p * p
        out[i], squares[i] = s, u


@njit(cache=True, nogil=True, fastmath=_FAST)
def columns_times(A, x, start, stop, out):
    """Write A[:, j] . x to out[j] for start <= j < stop, row after row of A."""
    sums = out[start:stop]
    sums[:] = 0.0
    whole = len(x) // 4 * 4
    for i in range(0, whole, 4):
        a, b = A[i, start:stop], A[i + 1, start:stop]
        c, d = A[i + 2, start:stop], A[i + 3, start:stop]
        s, t, u, v = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(len(sums)):
            sums[j] += s * a[j] + t * b[j] + u * c[j] + v * d[j]
    for i in range(whole, len(x)):
        a = A[i, start:stop]
        for j in range(len(sums)):
            sums[j] += x[i] * a[j]


@njit(cache=True, nogil=True, fastmath=_FAST)
def columns_times_and_squares(A, x, start, stop, out, squares):
    """Write A[:, j] . x to out[j] and A[:, j] . A[:, j] to squares[j] for start <= j < stop."""
    sums, square_sums = out[start:stop], squares[start:stop]
    sums[:] = 0.0
    square_sums[:] = 0.0
    whole = len(x) // 4 * 4
    for i in range(0, whole, 4):
        a, b = A[i, start:stop], A[i + 1, start:stop]
        c, d = A[i + 2, start:stop], A[i + 3, start:stop]
        s, t, u, v = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(len(sums)):
            p, q, g, h = 1.0 * a[j], 1.0 * b[j], 1.0 * c[j], 1.0 * d[j]
            sums[j] += s * p + t * q + u * g + v * h
            square_sums[j] += p * p + q * q + g * g + h * h
    for i in range(whole, len(x)):
        a = A[i, start:stop]
        for j in range(len(sums)):
            p = 1.0 * a[j]
            sums[j] += x[i] * p
            square_sums[j] += p * p


@njit(cache=True, nogil=True)
def some_rows_times(A, rows, x, out):
    """Write A[rows[k]] . x to out[k]."""
    for k in range(len(rows)):
        out[k] = dot(A[rows[k]], x)
