"""Numba kernels of the counter-based streams: word(key, i) = mix64(key + (i + 1)·φ)."""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import numba

_PHI = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, SplitMix64's increment
_MUL1 = np.uint64(0xBF58476D1CE4E5B9)  # Stafford's mix 13, as in SplitMix64
_MUL2 = np.uint64(0x94D049BB133111EB)


@numba.njit(cache=True, nogil=True, inline="always")
def mix64(z):
    """Mix the bits of a 64-bit word (a bijection)."""
    z = (z ^ (z >> np.uint64(30))) * _MUL1
    z = (z ^ (z >> np.uint64(27))) * _MUL2
    return z ^ (z >> np.uint64(31))


@numba.njit(cache=True, nogil=True, inline="always")
def word(key, i):
    """Return word ``i`` (uint64) of the stream ``key`` (uint64)."""
    return mix64(key + (i + np.uint64(1)) * _PHI)


@numba.njit(cache=True, nogil=True)
def fill_words(key, start, out):
    """Fill ``out`` with the words of the stream from position ``start`` on."""
    for k in range(out.shape[0]):
        out[k] = word(key, start + np.uint64(k))
