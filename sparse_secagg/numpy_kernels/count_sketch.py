"""The count sketch in NumPy: one word of a pair's stream hashes an entry for both of its rows.

Entries are added in the order of their index, as the compiled kernels do (``np.add.at`` goes
through them one by one), so sketches are the same bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.hashing import words_at
from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = [
    "gather_many",
    "gather_one",
    "hash_columns",
    "interleave",
    "scatter_many",
    "scatter_one",
    "scatter_sparse",
]

_ONE = np.uint64(1)
_31 = np.uint64(31)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
#: Numbers gathered at a time.
_GATHERED = 1 << 16

_Hashes = tuple[NDArray[np.intp], NDArray[np.float64]]


def _hashes(half: NDArray[np.uint64], width: np.uint64) -> _Hashes:
    """Return the buckets, from the upper 31 bits of 32-bit half words, and the signs."""
    buckets = (((half >> _ONE) * width) >> _31).astype(np.intp)
    return buckets, np.where(half & _ONE, -1.0, 1.0)


def _hashes_of_pair(
    key: np.uint64, places: NDArray[np.uint64], width: np.uint64
) -> tuple[_Hashes, _Hashes]:
    """Return what the two rows of a pair do with these entries."""
    words = words_at(key, places)
    return _hashes(words >> _32, width), _hashes(words & _LOW, width)


def _places(start: int, piece: slice) -> NDArray[np.uint64]:
    return np.arange(start + piece.start, start + piece.stop, dtype=np.uint64)


def hash_columns(
    keys: NDArray[np.uint64],
    width: np.uint64,
    J: NDArray[Any],
    buckets: NDArray[np.int64],
    signs: NDArray[np.float64],
) -> None:
    """Write buckets and signs (rows, len(J)) of the columns J."""
    for piece in pieces(0, len(J)):
        places = J[piece].astype(np.uint64)
        for p, key in enumerate(keys):
            for row, hashes in enumerate(_hashes_of_pair(key, places, width), start=2 * p):
                if row < len(buckets):
                    buckets[row, piece], signs[row, piece] = hashes


def scatter_one(
    x: NDArray[Any],
    start: int,
    key: np.uint64,
    width: np.uint64,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
) -> None:
    """Add the entries start, start+1, … of one vector to the two rows of a pair."""
    scatter_many(x[:, None], start, key, width, first[:, None], second[:, None])


def scatter_many(
    X: NDArray[Any],
    start: int,
    key: np.uint64,
    width: np.uint64,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
) -> None:
    """Do :func:`scatter_one` for many vectors at once: X (entries, vectors), rows (width, vectors).

    A vector at a time: ``np.add.at`` is fast along one axis only.
    """
    for piece in pieces(0, len(X)):
        hashed = _hashes_of_pair(key, _places(start, piece), width)
        for row, (buckets, signs) in zip((first, second), hashed, strict=True):
            for k in range(X.shape[1]):
                np.add.at(row[:, k], buckets, signs * X[piece, k])


def interleave(X: NDArray[Any], start: int, stop: int, out: NDArray[Any]) -> None:
    """Write the entries ``start`` to ``stop - 1`` of the rows of X to the rows of ``out``."""
    out[: stop - start] = X[:, start:stop].T


def scatter_sparse(
    values: NDArray[np.float64],
    indices: NDArray[np.int64],
    ends: NDArray[np.int64],
    keys: NDArray[np.uint64],
    width: np.uint64,
    scale: float,
    start: int,
    stop: int,
    out: NDArray[np.float64],
) -> None:
    """Write the scaled sketches of the sparse rows ``start`` to ``stop - 1`` to rows of ``out``.

    Indices ascend within a row; a sketch is its rows of ``width`` buckets, one after the other.
    """
    n_rows = out.shape[1] // int(width)
    for i in range(start, stop):
        sketch = out[i]
        sketch[:] = 0.0
        table = sketch.reshape(n_rows, int(width))
        for piece in pieces(int(ends[i]), int(ends[i + 1])):
            places, x = indices[piece].astype(np.uint64), values[piece]
            for p, key in enumerate(keys):
                hashed = _hashes_of_pair(key, places, width)
                for row, (buckets, signs) in zip(table[2 * p : 2 * p + 2], hashed):
                    np.add.at(row, buckets, signs * x)
        sketch *= scale


def gather_one(
    table: NDArray[np.float64],
    keys: NDArray[np.uint64],
    width: np.uint64,
    start: int,
    out: NDArray[np.float64],
) -> None:
    """Write Σ_rows sign·table[row, bucket] for the entries start, start+1, … to ``out``."""
    gather_many(table[:, :, None], keys, width, start, out[:, None])


def gather_many(
    tables: NDArray[np.float64],
    keys: NDArray[np.uint64],
    width: np.uint64,
    start: int,
    out: NDArray[np.float64],
) -> None:
    """Do :func:`gather_one` for many tables at once: tables (rows, width, n), out (entries, n)."""
    out[:] = 0.0
    for piece in pieces(0, len(out), max(_GATHERED // out.shape[1], 1)):
        for p, key in enumerate(keys):
            (b, s), (c, t) = _hashes_of_pair(key, _places(start, piece), width)
            first, second = tables[2 * p], tables[2 * p + 1]
            out[piece] += s[:, None] * first[b] + t[:, None] * second[c]
