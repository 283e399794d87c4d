"""Numba kernels of arithmetic in Z_M, 2 ≤ M ≤ 2^63: a + v < 2^64 never overflows."""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import njit


@njit(cache=True, nogil=True)
def in_range(rows, modulus, valid, start, stop):
    """Set ``valid[i]`` where all of row i lies in [0, M); a negative integer wraps above M."""
    for i in range(start, stop):
        outside = False
        for j in range(rows.shape[1]):
            outside |= np.uint64(rows[i, j]) >= modulus
        valid[i] = not outside


@njit(cache=True, nogil=True)
def add_rows(total, rows, included, modulus, start, stop):
    """Add the included rows to ``total`` modulo M, in columns ``start`` to ``stop - 1``.

    Plain sums, reduced only before they could overflow: once in ⌊2^64/M⌋ − 1 rows.
    """
    most = np.uint64(0xFFFFFFFFFFFFFFFF) // modulus - np.uint64(1)
    since = np.uint64(0)
    part = total[start:stop]
    for i in range(rows.shape[0]):
        if not included[i]:
            continue
        row = rows[i, start:stop]
        for j in range(part.shape[0]):
            part[j] += np.uint64(row[j])
        since += np.uint64(1)
        if since >= most:
            for j in range(part.shape[0]):
                part[j] %= modulus
            since = np.uint64(0)
    for j in range(part.shape[0]):
        part[j] %= modulus


@njit(cache=True, nogil=True)
def keep_residues(words, low_bits, modulus, residues, filled):
    """Append the low bits of the words that are below M to ``residues``; return how many it holds.

    Every word is written and the place moves on after a residue only: no branch to mispredict.
    """
    for i in range(words.shape[0]):
        if filled == residues.shape[0]:
            break
        v = np.uint64(words[i]) & low_bits
        residues[filled] = v
        filled += np.int64(v < modulus)
    return filled


@njit(cache=True, nogil=True)
def add_lazily(total, residues, modulus, negative):
    """Add ± residues to ``total`` without reducing it: at most M for each is added."""
    if negative:
        for j in range(total.shape[0]):
            total[j] += modulus - residues[j]
    else:
        for j in range(total.shape[0]):
            total[j] += residues[j]


@njit(cache=True, nogil=True)
def add_residues(a, b, modulus, negative, out):
    """Write a ± b mod M for residues; ``out`` may be one of the two."""
    for j in range(out.shape[0]):
        total = a[j] + (modulus - b[j] if negative else b[j])
        out[j] = min(total, total - modulus)  # the second wraps above the first below M
