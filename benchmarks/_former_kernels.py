"""The Walsh–Hadamard kernels before those of the package, two stages at a time, to compare."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def butterflies(a, h):
    """Run the in-place stages of strides h, 2h, … , len(a)/2, unscaled.

    Stages from stride h on transform axis 0 of ``a`` seen as an array of shape (len(a)/h, h), so
    one kernel serves rows (h = 1) and strips of columns (h = the width of the strip).
    """
    n = a.shape[0]
    if h == 1 and n >= 8:  # three stages at once: short strides do not vectorise
        for i in range(0, n, 8):
            a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
            a4, a5, a6, a7 = a[i + 4], a[i + 5], a[i + 6], a[i + 7]
            b0, b1, b2, b3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
            b4, b5, b6, b7 = a4 + a5, a4 - a5, a6 + a7, a6 - a7
            c0, c1, c2, c3 = b0 + b2, b1 + b3, b0 - b2, b1 - b3
            c4, c5, c6, c7 = b4 + b6, b5 + b7, b4 - b6, b5 - b7
            a[i], a[i + 1], a[i + 2], a[i + 3] = c0 + c4, c1 + c5, c2 + c6, c3 + c7
            a[i + 4], a[i + 5], a[i + 6], a[i + 7] = c0 - c4, c1 - c5, c2 - c6, c3 - c7
        h = 8
    while 4 * h <= n:  # two stages at once: half the passes over the cache
        for i in range(0, n, 4 * h):
            p, q = a[i : i + h], a[i + h : i + 2 * h]
            r, s = a[i + 2 * h : i + 3 * h], a[i + 3 * h : i + 4 * h]
            for j in range(h):
                sum0, dif0 = p[j] + q[j], p[j] - q[j]
                sum1, dif1 = r[j] + s[j], r[j] - s[j]
                p[j] = sum0 + sum1
                q[j] = dif0 + dif1
                r[j] = sum0 - sum1
                s[j] = dif0 - dif1
        h *= 4
    if 2 * h <= n:
        for i in range(0, n, 2 * h):
            p, q = a[i : i + h], a[i + h : i + 2 * h]
            for j in range(h):
                p[j], q[j] = p[j] + q[j], p[j] - q[j]


@numba.njit(cache=True, nogil=True)
def transform_rows(X, scale):
    """Transform every row of X in place, scaled."""
    for i in range(X.shape[0]):
        row = X[i]
        butterflies(row, 1)
        for j in range(row.shape[0]):
            row[j] *= scale


@numba.njit(cache=True, nogil=True)
def transform_strip(X, start, width, scale, buffer):
    """Transform the columns start … start+width-1 of X in place, scaled, through a buffer."""
    n_rows = X.shape[0]
    for i in range(n_rows):
        for k in range(width):
            buffer[i * width + k] = X[i, start + k] * scale
    butterflies(buffer, width)
    for i in range(n_rows):
        for k in range(width):
            X[i, start + k] = buffer[i * width + k]
