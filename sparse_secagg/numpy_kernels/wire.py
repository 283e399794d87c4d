"""Bit packing in NumPy: b-bit integers as one little-endian bit stream.

64/gcd(64, b) integers fill b/gcd(64, b) words: what is done for the j-th of such a group is the
same in all groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = ["pack_words", "unpack_words"]


def pack_words(values: NDArray[Any], bits: int, words: NDArray[np.uint64]) -> None:
    """Write value i to bits [i·b, (i+1)·b) of the zeroed 64-bit ``words``."""
    group, span = _group(bits)
    for piece, in_words in _pieces_and_words(len(values), bits):
        table = _padded(values[piece], group)
        packed = np.zeros((len(table), span), dtype=np.uint64)
        for j in range(group):
            word, offset = divmod(j * bits, 64)
            packed[:, word] |= table[:, j] << offset
            if offset + bits > 64:
                packed[:, word + 1] |= table[:, j] >> (64 - offset)
        words[in_words] |= packed.ravel()[: in_words.stop - in_words.start]


def unpack_words(words: NDArray[np.uint64], bits: int, values: NDArray[np.uint64]) -> None:
    """Invert ``pack_words``."""
    group, span = _group(bits)
    for piece, in_words in _pieces_and_words(len(values), bits):
        packed = _padded(words[in_words], span)
        table = np.empty((len(packed), group), dtype=np.uint64)
        for j in range(group):
            word, offset = divmod(j * bits, 64)
            table[:, j] = packed[:, word] >> offset
            if offset + bits > 64:
                table[:, j] |= packed[:, word + 1] << (64 - offset)
        table &= (1 << bits) - 1
        values[piece] = table.ravel()[: piece.stop - piece.start]


def _group(bits: int) -> tuple[int, int]:
    """Return how many integers fill how many words without a rest."""
    common = math.gcd(64, bits)
    return 64 // common, bits // common


def _pieces_and_words(length: int, bits: int) -> Iterator[tuple[slice, slice]]:
    """Yield pieces of the integers, each with the words it fills: no word holds parts of two."""
    for piece in pieces(0, length):
        yield piece, slice(piece.start * bits // 64, -(-piece.stop * bits // 64))


def _padded(flat: NDArray[Any], width: int) -> NDArray[np.uint64]:
    """Return the entries as rows of ``width``, zeros after the last."""
    table = np.zeros(-(-len(flat) // width) * width, dtype=np.uint64)
    table[: len(flat)] = flat
    return table.reshape(-1, width)
