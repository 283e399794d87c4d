"""Numba kernels of the scalar denoisers: one pass to bin pseudo-data, one to denoise it.

A scalar denoiser is a function of u = p/τ. It is tabulated at nodes |u| = 0, 1/64, …, 16 and,
beyond, 16 nodes an octave; between them it is linear. Learning a prior then costs O(nodes)
whatever the length of the vector, and denoising one look-up an entry.
"""

from __future__ import annotations

import math

import numpy as np

from solvers.compiling_kernels import numba

PER_UNIT = 64
UNITS = 16
PER_OCTAVE = 16
OCTAVES = 24
UNIFORM = PER_UNIT * UNITS
N_NODES = UNIFORM + PER_OCTAVE * OCTAVES + 1

#: Entries that stay in the nearest cache between passes.
BLOCK = 2048


def nodes() -> np.ndarray:
    """Return the nodes |u| in ascending order, as an array (N_NODES,)."""
    octaves = np.arange(1, PER_OCTAVE * OCTAVES + 1) / PER_OCTAVE
    return np.concatenate([np.arange(UNIFORM + 1) / PER_UNIT, UNITS * 2.0**octaves])


def coarsened(counts: np.ndarray, grid: np.ndarray, step: int) -> np.ndarray:
    """Return counts (…, N_NODES) at every ``step``-th node: the others go to their neighbours."""
    coarse = grid[::step]
    share = (grid[:-1].reshape(-1, step) - coarse[:-1, None]) / np.diff(coarse)[:, None]
    inner = counts[..., :-1].reshape(*counts.shape[:-1], *share.shape)
    found = np.zeros((*counts.shape[:-1], len(coarse)))
    found[..., :-1] = np.einsum("...ij,ij->...i", inner, 1.0 - share)
    found[..., 1:] += np.einsum("...ij,ij->...i", inner, share)
    found[..., -1] += counts[..., -1]
    return found


@numba.njit(cache=True, nogil=True, inline="always")
def locate(u, grid):
    """Return (i, w): u = (1 − w)·grid[i] + w·grid[i + 1]; w > 1 beyond the last node."""
    if u < UNITS:
        position = u * PER_UNIT
        i = int(position)
        return i, position - i
    i = UNIFORM + int(math.log2(u / UNITS) * PER_OCTAVE)
    i = min(i, grid.shape[0] - 2)
    return i, (u - grid[i]) / (grid[i + 1] - grid[i])


@numba.njit(cache=True, nogil=True)
def bin_entries(p, tau, grid, counts):
    """Add each entry of p to its two nearest nodes, in proportion; row 1 holds p < 0.

    The counts are continuous in p, so that rounding in p never makes a learnt prior jump.
    """
    scale = 1.0 / tau
    for j in range(p.shape[0]):
        u = p[j] * scale
        side = 0
        if u < 0:
            u, side = -u, 1
        i, w = locate(u, grid)
        w = min(w, 1.0)
        counts[side, i] += 1.0 - w
        counts[side, i + 1] += w


@numba.njit(cache=True, nogil=True)
def apply_table(p, tau, grid, table, slopes, out):
    """Write τ·table(p/τ) to ``out``; return the sum of slopes, the divergence.

    ``table`` (2, N_NODES) and ``slopes`` (2, N_NODES − 1) hold f(u) for u ≥ 0 and −f(−u) for
    u < 0: the two rows of an odd function are equal.
    """
    scale = 1.0 / tau
    divergence = 0.0
    for j in range(p.shape[0]):
        u = p[j] * scale
        side, sign = 0, tau
        if u < 0:
            u, side, sign = -u, 1, -tau
        i, _ = locate(u, grid)
        slope = slopes[side, i]
        out[j] = sign * (table[side, i] + slope * (u - grid[i]))
        divergence += slope
    return divergence


@numba.njit(cache=True, nogil=True)
def n_above(scores, borders):
    """Return how many of the borders, at most 127, lie above each score."""
    found = np.zeros(scores.shape[0], dtype=np.int8)
    for start in range(0, scores.shape[0], BLOCK):
        block, above = scores[start : start + BLOCK], found[start : start + BLOCK]
        for border in borders:
            for j in range(block.shape[0]):  # no branches, so that many are compared at a time
                above[j] = np.int8(above[j] + (np.int8(1) if block[j] < border else np.int8(0)))
    return found


@numba.njit(cache=True, nogil=True)
def bin_groups(p, tau, grid, group, counts):
    """Do as :func:`bin_entries` for each group of entries: ``counts`` is (groups, 2, N_NODES)."""
    scale = 1.0 / tau
    for j in range(p.shape[0]):
        u = p[j] * scale
        side = 0
        if u < 0:
            u, side = -u, 1
        i, w = locate(u, grid)
        w = min(w, 1.0)
        counts[group[j], side, i] += 1.0 - w
        counts[group[j], side, i + 1] += w


@numba.njit(cache=True, nogil=True)
def apply_tables(p, tau, grid, group, tables, slopes, out):
    """Do as :func:`apply_table` with the table of each entry's group."""
    scale = 1.0 / tau
    divergence = 0.0
    for j in range(p.shape[0]):
        u = p[j] * scale
        side, sign, g = 0, tau, group[j]
        if u < 0:
            u, side, sign = -u, 1, -tau
        i, _ = locate(u, grid)
        slope = slopes[g, side, i]
        out[j] = sign * (tables[g, side, i] + slope * (u - grid[i]))
        divergence += slope
    return divergence


@numba.njit(cache=True, nogil=True)
def group_log_densities(p, tau, grid, group, table, out):
    """Add to out[g, k] the log-density of the entries of group g under scale k.

    ``table`` (2, N_NODES, scales) holds log-densities relative to that of zero at the nodes.
    """
    scale = 1.0 / tau
    for j in range(p.shape[0]):
        u = p[j] * scale
        side = 0
        if u < 0:
            u, side = -u, 1
        i, w = locate(u, grid)
        g = group[j]
        for k in range(table.shape[2]):
            low = table[side, i, k]
            out[g, k] += low + w * (table[side, i + 1, k] - low)


@numba.njit(cache=True, nogil=True)
def apply_group_posterior(p, tau, grid, group, posterior, means, out):
    """Write the posterior mean Σ_k posterior[g, k]·mean_k(p) to ``out``; return the divergence.

    ``means`` (2, N_NODES, scales) holds E(x | u, scale) at the nodes, as f(u) and −f(−u).
    ∂posterior_k/∂u = posterior_k·(mean_k − Σ_l posterior_l·mean_l), by Tweedie's formula.
    """
    scale = 1.0 / tau
    divergence = 0.0
    for j in range(p.shape[0]):
        u = p[j] * scale
        side, sign = 0, tau
        if u < 0:
            u, side, sign = -u, 1, -tau
        i, w = locate(u, grid)
        g = group[j]
        width = grid[i + 1] - grid[i]
        first, second = 0.0, 0.0
        for k in range(means.shape[2]):
            weight = posterior[g, k]
            if weight == 0.0:
                continue
            low = means[side, i, k]
            step = means[side, i + 1, k] - low
            value = low + w * step
            first += weight * value
            second += weight * value * value
            divergence += weight * step / width
        out[j] = sign * first
        divergence += second - first * first
    return divergence


@numba.njit(cache=True, nogil=True)
def maximise_weights(share, densities, tolerance, start, sweeps, steps, enough):
    """Maximise Σ share·log(densities @ w) over the simplex, from a start without zeros.

    Sweeps of expectation-maximisation, then Newton steps whose quadratic model is minimised over
    w ≥ 0 by coordinate descent: for few scales and a rough tolerance. Stops when
    densitiesᵀ(share/(densities @ w)) is at most 1 + tolerance everywhere, or steps gain nothing;
    or once it is certain that no weights reach ``enough``.
    """
    n, k = densities.shape
    w = start.copy()
    hessian = np.empty((k, k))
    for step in range(sweeps + steps):
        mixture = densities @ w
        weight = share / mixture
        pull = weight @ densities
        if pull.max() <= 1.0 + tolerance:
            break
        # by concavity no weights are better by more than the logarithm of the largest pull
        if _likelihood(share, mixture) + math.log(pull.max()) < enough:
            break
        if step < sweeps:
            w *= pull
            continue
        hessian[:] = 0.0
        for i in range(n):
            square = weight[i] / mixture[i]
            for a in range(k):
                scaled = square * densities[i, a]
                for b in range(a + 1):
                    hessian[a, b] += scaled * densities[i, b]
        for a in range(k):
            hessian[a, a] += 1e-10
            for b in range(a):
                hessian[b, a] = hessian[a, b]
        target = _quadratic_minimum(hessian, hessian @ w + pull - 1.0, w)
        last, length = _loss(share, densities, w), 1.0
        new = _loss(share, densities, target)
        while length > 1e-3 and new > last:
            length /= 2
            new = _loss(share, densities, w + length * (target - w))
        if new > last:
            break
        w = w + length * (target - w)
        if last - new <= 1e-2 * tolerance:  # what is left is hardly worth a step
            break
    return w / w.sum()


@numba.njit(cache=True, nogil=True)
def _quadratic_minimum(hessian, linear, start):
    """Minimise v·Hv/2 − linear·v over v ≥ 0 by coordinate descent, nearly."""
    v = start.copy()
    slope = hessian @ v - linear
    for _ in range(200):
        largest = 0.0
        for a in range(len(v)):
            change = max(v[a] - slope[a] / hessian[a, a], 0.0) - v[a]
            if change != 0.0:
                v[a] += change
                for b in range(len(v)):
                    slope[b] += change * hessian[a, b]
                largest = max(largest, abs(change))
        if largest < 1e-8:
            break
    return v


@numba.njit(cache=True, nogil=True)
def _loss(share, densities, w):
    return w.sum() - _likelihood(share, densities @ w)


@numba.njit(cache=True, nogil=True)
def _likelihood(share, mixture):
    total = 0.0
    for i in range(len(share)):
        total += share[i] * math.log(max(mixture[i], 1e-300))
    return total
