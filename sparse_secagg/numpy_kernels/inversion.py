"""Inversion by table in NumPy: one random word in, one sample out, by the same guide.

Each step is one operation on all words, whatever they are, as in the compiled kernels: which
instructions run does not depend on the samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["fill_guide", "invert"]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_63 = np.uint64(63)
_64 = np.uint64(64)


def _cells_of(u: NDArray[np.uint64], bits: np.uint64) -> NDArray[np.uint64]:
    """Return the cells of odd numbers: leading zeros, and ``bits`` bits after the first one."""
    ones = u.copy()  # from the first one on
    for shift in (1, 2, 4, 8, 16, 32):
        ones |= ones >> np.uint64(shift)
    zeros = _64 - np.bitwise_count(ones)
    return (zeros << bits) + ((u << zeros) >> (_63 - bits))


def fill_guide(
    guide: NDArray[np.int32], thresholds: NDArray[np.uint64], first: int, bits: np.uint64
) -> bool:
    """Fill the guide over one side's thresholds, descending from index ``first`` to a final 1.

    Returns whether no cell has two thresholds, of which only those above its least number count.
    """
    last = first + int(np.argmax(thresholds[first:] == _ONE))
    ascending = thresholds[first : last + 1][::-1].copy()
    size = 1 << int(bits)
    heads = np.arange(size, 2 * size, dtype=np.uint64)
    for zeros in range(64):
        least = ((heads << (_63 - bits)) >> np.uint64(zeros)) | _ONE
        largest = ((((heads + _ONE) << (_63 - bits)) - _ONE) >> np.uint64(zeros)) | _ONE
        k = last + 1 - np.searchsorted(ascending, largest, side="right")
        guide[(zeros << int(bits)) + size :][:size] = k
        inside = thresholds[k] > least
        if (thresholds[k[inside] + 1] > least[inside]).any():
            return False
    return True


def invert(
    words: NDArray[np.uint64],
    samples: NDArray[np.int64],
    guide: NDArray[np.int32],
    thresholds: NDArray[np.uint64],
    bits: np.uint64,
    stride: np.uint64,
    centre: np.uint64,
    mirror: np.uint64,
    slack: np.uint64,
) -> int:
    """Write the samples of ``words``, up to the first that the thresholds do not decide.

    With k thresholds above the word, the sample is centre + k or centre + mirror − 1 − k by its
    side; ``stride`` is where the guide of the second side begins. A word that agrees with a
    threshold but for ``slack`` is not decided. ``samples`` may be the same memory as ``words``.

    Returns
    -------
    how many samples were written
    """
    side = _ZERO - (words & _ONE)  # no bits, or all
    u = words | _ONE
    k = guide[(_cells_of(u, bits) + (side & stride)).astype(np.intp)].astype(np.intp)
    k += u < thresholds[k]
    undecided = np.flatnonzero((u ^ thresholds[k]) <= slack)
    end = int(undecided[0]) if len(undecided) else len(words)
    found = (k.astype(np.uint64) ^ side) + (side & mirror) + centre
    samples[:end] = found[:end].view(np.int64)
    return end
