"""The counter-based streams in NumPy: word(key, i) = mix64(key + (i + 1)·φ)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = ["fill_words", "words_at"]

_PHI = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, SplitMix64's increment
_MUL1 = np.uint64(0xBF58476D1CE4E5B9)  # Stafford's mix 13, as in SplitMix64
_MUL2 = np.uint64(0x94D049BB133111EB)


def words_at(key: np.uint64, places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the words at these places of the stream ``key``."""
    z = (places + np.uint64(1)) * _PHI
    z += key
    z ^= z >> np.uint64(30)
    z *= _MUL1
    z ^= z >> np.uint64(27)
    z *= _MUL2
    z ^= z >> np.uint64(31)
    return z


def fill_words(key: np.uint64, start: np.uint64, out: NDArray[Any]) -> None:
    """Fill ``out`` with the words of the stream from position ``start`` on."""
    for piece in pieces(0, len(out)):
        out[piece] = words_at(key, start + np.arange(piece.start, piece.stop, dtype=np.uint64))
