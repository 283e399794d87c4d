"""Arithmetic in Z_M in NumPy, 2 ≤ M ≤ 2^63: a + v < 2^64 never overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = ["add_lazily", "add_residues", "add_rows", "in_range", "keep_residues"]


def in_range(
    rows: NDArray[Any], modulus: np.uint64, valid: NDArray[np.bool_], start: int, stop: int
) -> None:
    """Set ``valid[i]`` where all of row i lies in [0, M); a negative integer wraps above M."""
    for i in range(start, stop):
        valid[i] = all(
            (rows[i, piece].astype(np.uint64) < modulus).all() for piece in pieces(0, rows.shape[1])
        )


def add_rows(
    total: NDArray[np.uint64],
    rows: NDArray[Any],
    included: NDArray[np.bool_],
    modulus: np.uint64,
    start: int,
    stop: int,
) -> None:
    """Add the included rows to ``total`` modulo M, in columns ``start`` to ``stop - 1``.

    Plain sums, reduced only before they could overflow: once in ⌊2^64/M⌋ − 1 rows.
    """
    most = (2**64 - 1) // int(modulus) - 1
    part = total[start:stop]
    for since, i in enumerate(np.flatnonzero(included), start=1):
        part += rows[i, start:stop].astype(np.uint64)
        if most <= 1 or since % most == 0:
            part %= modulus
    part %= modulus


def keep_residues(
    words: NDArray[Any],
    low_bits: np.uint64,
    modulus: np.uint64,
    residues: NDArray[Any],
    filled: int,
) -> int:
    """Append the low bits of the words that are below M to ``residues``; return how many it has."""
    low = words & low_bits
    kept = low[low < modulus][: len(residues) - filled]
    residues[filled : filled + len(kept)] = kept
    return filled + len(kept)


def add_lazily(
    total: NDArray[Any], residues: NDArray[Any], modulus: np.unsignedinteger[Any], negative: bool
) -> None:
    """Add ± residues to ``total`` without reducing it: at most M for each is added."""
    for piece in pieces(0, len(total)):
        total[piece] += modulus - residues[piece] if negative else residues[piece]


def add_residues(
    a: NDArray[np.uint64],
    b: NDArray[np.uint64],
    modulus: np.uint64,
    negative: bool,
    out: NDArray[np.uint64],
) -> None:
    """Write a ± b mod M for residues; ``out`` may be one of the two."""
    for piece in pieces(0, len(out)):
        total = a[piece] + (modulus - b[piece] if negative else b[piece])
        out[piece] = np.minimum(total, total - modulus)  # the second wraps above the first below M
