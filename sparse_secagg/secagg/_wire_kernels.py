"""Numba kernels of bit packing: b-bit integers as one little-endian bit stream."""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import njit


@njit(cache=True, nogil=True)
def pack_words(values, bits, words):
    """Write value i to bits [i·b, (i+1)·b) of the zeroed 64-bit ``words``."""
    position = np.uint64(0)
    width = np.uint64(bits)
    for i in range(values.shape[0]):
        word = position >> np.uint64(6)
        offset = position & np.uint64(63)
        value = np.uint64(values[i])
        words[word] |= value << offset
        if offset + width > np.uint64(64):
            words[word + np.uint64(1)] |= value >> (np.uint64(64) - offset)
        position += width


@njit(cache=True, nogil=True)
def unpack_words(words, bits, values):
    """Invert ``pack_words``."""
    position = np.uint64(0)
    width = np.uint64(bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    for i in range(values.shape[0]):
        word = position >> np.uint64(6)
        offset = position & np.uint64(63)
        value = words[word] >> offset
        if offset + width > np.uint64(64):
            value |= words[word + np.uint64(1)] << (np.uint64(64) - offset)
        values[i] = value & mask
        position += width
