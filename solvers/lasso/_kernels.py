"""Compiled inner loops of the solvers: arrays and scalars in, arrays changed in place.

All Lasso kernels work with lam = m alpha, that is on 1/2 ||y - A x||^2 + lam ||x||_1, whose
gap is m times that of the objective in :mod:`solvers.lasso.problem`.
"""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import njit
from solvers.product_kernels import dot

# Sums may be reordered, and NaN must survive.
_FAST = {"reassoc", "contract", "nsz"}

#: Sweeps over the support between two sweeps over the whole working set.
_SUPPORT_SWEEPS = 20


@njit(cache=True, nogil=True)
def soft(z, lam, positive):
    """Return the proximal operator of lam |.|, or of lam . on x >= 0."""
    if z > lam:
        return z - lam
    if z < -lam and not positive:
        return z + lam
    return 0.0


@njit(cache=True, nogil=True)
def _gap(rr, ry, largest, l1_norm, lam):
    """Gap of x from ||r||^2, r.y, the largest correlation and ||x||_1.

    The columns left out are below lam, not below the largest correlation here, where that is less.
    """
    scale = min(max(ry / rr, 0.0), lam / max(largest, lam)) if rr > 0 else 0.0
    return 0.5 * rr + lam * l1_norm - scale * (ry - 0.5 * scale * rr)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _subtract(q, delta, row, n):
    for k in range(n):
        q[k] -= delta * row[k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def gram_gap(q, c, x, n, lam, yy, positive):
    """Gap on the working set, from q = c - G x alone: A^T r = q, ||r||^2 = yy - x.c - x.q."""
    xc = 0.0
    xq = 0.0
    l1_norm = 0.0
    largest = 0.0
    for j in range(n):
        xc += x[j] * c[j]
        xq += x[j] * q[j]
        l1_norm += abs(x[j])
        largest = max(largest, q[j] if positive else abs(q[j]))
    return _gap(max(yy - xc - xq, 0.0), yy - xc, largest, l1_norm, lam)


@njit(cache=True, nogil=True)
def gram_descent(G, n, c, q, x, lam, yy, target, positive, max_rounds):
    """Coordinate descent on n columns through their Gram matrix G.

    A round sweeps once over all columns, then over the support alone, on a copy of its
    part of G. Stops at gap <= target, or when a round left the signs of x as they were.
    Changes x and q = c - G x; returns the gap and the rounds made.
    """
    signs = np.empty(n)
    gap = gram_gap(q, c, x, n, lam, yy, positive)
    rounds = 0
    while gap > target and rounds < max_rounds:
        rounds += 1
        for j in range(n):
            signs[j] = np.sign(x[j])
            g = G[j, j]
            if g == 0:
                x[j] = 0.0
            else:
                new = soft(x[j] * g + q[j], lam, positive) / g
                if new != x[j]:
                    _subtract(q, new - x[j], G[j], n)
                    x[j] = new
        gap = gram_gap(q, c, x, n, lam, yy, positive)
        if gap <= target:
            break
        support = np.flatnonzero(x[:n])
        _descend_on_support(G, n, q, x, support, lam, target, positive)
        gap = gram_gap(q, c, x, n, lam, yy, positive)
        stable = True
        for j in range(n):
            if np.sign(x[j]) != signs[j]:
                stable = False
                break
        if stable:
            break
    return gap, rounds


@njit(cache=True, nogil=True)
def _descend_on_support(G, n, q, x, support, lam, target, positive):
    s = len(support)
    part = np.empty((s, s))
    q_part = np.empty(s)
    x_part = np.empty(s)
    for a in range(s):
        q_part[a] = q[support[a]]
        x_part[a] = x[support[a]]
        row = G[support[a]]
        for b in range(s):
            part[a, b] = row[support[b]]
    for _ in range(_SUPPORT_SWEEPS):
        decrease = 0.0
        for a in range(s):
            g = part[a, a]
            new = soft(x_part[a] * g + q_part[a], lam, positive) / g
            delta = new - x_part[a]
            if delta != 0.0:
                _subtract(q_part, delta, part[a], s)
                x_part[a] = new
                decrease += delta * delta * g
        if decrease < 0.01 * target:
            break
    for a in range(s):
        delta = x_part[a] - x[support[a]]
        if delta != 0.0:
            _subtract(q, delta, G[support[a]], n)
            x[support[a]] = x_part[a]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _column_dot(data, indices, start, stop, r):
    total = 0.0
    for k in range(start, stop):
        total += data[k] * r[indices[k]]
    return total


@njit(cache=True, nogil=True)
def _sweep_columns(data, indices, indptr, squares, columns, r, x, lam, positive):
    decrease = 0.0
    for j in columns:
        if squares[j] == 0:
            x[j] = 0.0  # a start may have put it there
        else:
            start, stop = indptr[j], indptr[j + 1]
            old = x[j]
            z = old * squares[j] + _column_dot(data, indices, start, stop, r)
            new = soft(z, lam, positive) / squares[j]
            delta = new - old
            if delta != 0.0:
                x[j] = new
                decrease += delta * delta * squares[j]
                for k in range(start, stop):
                    r[indices[k]] -= delta * data[k]
    return decrease


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sparse_gap(data, indices, indptr, y, r, x, lam, positive):
    rr = 0.0
    ry = 0.0
    for i in range(len(r)):
        rr += r[i] * r[i]
        ry += r[i] * y[i]
    l1_norm = 0.0
    largest = 0.0
    for j in range(len(x)):
        l1_norm += abs(x[j])
        q = _column_dot(data, indices, indptr[j], indptr[j + 1], r)
        largest = max(largest, q if positive else abs(q))
    return _gap(rr, ry, largest, l1_norm, lam)


@njit(cache=True, nogil=True)
def sparse_descent(data, indices, indptr, squares, y, r, x, lam, target, positive, max_rounds):
    """Coordinate descent on CSC columns, through the residual.

    A round sweeps over all columns, then over the support. Stops at gap <= target, or when a round
    left the signs of x as they were and a tenth of the gap. Changes x and writes r = y - A x;
    returns the gap.
    """
    everything = np.arange(len(x))
    signs = np.empty(len(x))
    gap = np.inf
    rounds = 0
    while True:
        r[:] = y  # anew in each round, see dense_descent
        for j in range(len(x)):
            if x[j] != 0:
                for k in range(indptr[j], indptr[j + 1]):
                    r[indices[k]] -= x[j] * data[k]
        before = gap
        gap = _sparse_gap(data, indices, indptr, y, r, x, lam, positive)
        stuck = rounds > 0 and gap > 0.1 * before and np.all(np.sign(x) == signs)
        if gap <= target or stuck or rounds == max_rounds:
            return gap
        rounds += 1
        signs[:] = np.sign(x)
        _sweep_columns(data, indices, indptr, squares, everything, r, x, lam, positive)
        support = np.flatnonzero(x)
        for sweep in range(_SUPPORT_SWEEPS):
            moved = _sweep_columns(data, indices, indptr, squares, support, r, x, lam, positive)
            if sweep >= 1 and moved < 1e-3 * target:
                break


@njit(cache=True, nogil=True)
def squared_norms(C, rows):
    """Return ||C_j||^2 for the rows j of C."""
    out = np.empty(len(rows))
    for k in range(len(rows)):
        out[k] = dot(C[rows[k]], C[rows[k]])
    return out


@njit(cache=True, nogil=True, fastmath=_FAST)
def _distance(a, b):
    total = 0.0
    for k in range(len(a)):
        total += (a[k] - b[k]) ** 2
    return np.sqrt(total)


@njit(cache=True, nogil=True)
def _sweep_rows(C, rows, squares, places, r, x, lam, positive):
    decrease = 0.0
    for k in places:
        if squares[k] == 0:
            x[k] = 0.0  # a start may have put it there
        else:
            a = C[rows[k]]
            old = x[k]
            new = soft(old * squares[k] + dot(a, r), lam, positive) / squares[k]
            delta = new - old
            if delta != 0.0:
                x[k] = new
                decrease += delta * delta * squares[k]
                _subtract(r, delta, a, len(r))
    return decrease


@njit(cache=True, nogil=True)
def _correlate(C, rows, squares, r, x, reference, q, lam, positive, active):
    """Write the support and the violated columns to ``active``; return their number.

    Returns also max |A^T r|, or where that is below lam a bound on it. q is A^T reference, and
    |A_k^T r| <= |q_k| + ||A_k|| ||r - reference||: where that is below lam and x_k = 0, no product
    is needed. Once this excludes less than half of the columns, r becomes the reference.
    """
    n = len(x)
    moved = _distance(r, reference)
    n_open = 0
    if moved > 0:
        for k in range(n):
            bound = (q[k] if positive else abs(q[k])) + np.sqrt(squares[k]) * moved
            if bound >= lam or x[k] != 0:
                n_open += 1
        if 2 * n_open > n:
            for k in range(n):
                q[k] = dot(C[rows[k]], r)
            reference[:] = r
            moved = 0.0
    largest = 0.0
    n_active = 0
    for k in range(n):
        value = (q[k] if positive else abs(q[k])) + np.sqrt(squares[k]) * moved
        if moved > 0 and (value >= lam or x[k] != 0):
            value = dot(C[rows[k]], r)
            value = value if positive else abs(value)
        largest = max(largest, value)
        if x[k] != 0 or value > lam:
            active[n_active] = k
            n_active += 1
    return n_active, largest


@njit(cache=True, nogil=True)
def dense_descent(C, rows, squares, y, r, x, reference, q, lam, target, positive, max_rounds):
    """Coordinate descent through the residual; the k-th column is row rows[k] of C.

    A round sweeps over the columns that violate their condition and the support, then over the
    support. Stops at gap <= target, or when a round left the signs of x as they were and a tenth
    of the gap. Changes x, writes r = y - A x and keeps q = A^T reference; returns the gap.
    """
    active = np.empty(len(x), dtype=np.int64)
    signs = np.empty(len(x))
    gap = np.inf
    rounds = 0
    while True:
        r[:] = y  # anew in each round: changes made one by one leave their rounding behind
        for k in range(len(x)):
            if x[k] != 0:
                _subtract(r, x[k], C[rows[k]], len(r))
        n_active, largest = _correlate(C, rows, squares, r, x, reference, q, lam, positive, active)
        before = gap
        gap = _gap(dot(r, r), dot(r, y), largest, np.abs(x).sum(), lam)
        stuck = rounds > 0 and gap > 0.1 * before and np.all(np.sign(x) == signs)
        if gap <= target or stuck or rounds == max_rounds:
            return gap
        rounds += 1
        signs[:] = np.sign(x)
        places = active[:n_active]
        for sweep in range(1 + _SUPPORT_SWEEPS):
            moved = _sweep_rows(C, rows, squares, places, r, x, lam, positive)
            if sweep >= 2 and moved < 1e-3 * target:
                break
            places = np.flatnonzero(x)


@njit(cache=True, nogil=True, fastmath=_FAST)
def proximal_step(z, slope, x, step, threshold, positive, new):
    """Write new = S(z + step * slope, threshold); slope is minus the gradient at z.

    Returns ||new - z||^2 and (z - new).(new - x), positive where the momentum points uphill.
    """
    moved = 0.0
    uphill = 0.0
    for j in range(len(z)):
        v = soft(z[j] + step * slope[j], threshold, positive)
        change = v - z[j]
        moved += change * change
        uphill -= change * (v - x[j])
        new[j] = v
    return moved, uphill


@njit(cache=True, nogil=True, fastmath=_FAST)
def extrapolate(new, x, beta, z):
    """Write z = new + beta (new - x)."""
    for j in range(len(z)):
        z[j] = new[j] + beta * (new[j] - x[j])
