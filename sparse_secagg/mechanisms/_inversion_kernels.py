"""Numba kernels of inversion by table: one random word in, one sample out.

A word is a side (its lowest bit) and 63 bits V of a uniform number. Thresholds and words are
compared as odd numbers, 2V + 1, so no word is zero. A guide gives for the leading bits of a word
how many thresholds lie above every word that begins like this; its cells become narrower with the
number of leading zeros, as the tails do, so that no cell has more than one threshold inside and
one comparison is left, whatever the sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from solvers.compiling_kernels import numba

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_63 = np.uint64(63)


def _leading_zeros(typingctx, word):
    """Count the zeros before the first one of a 64-bit word, which must not be 0."""

    def generate(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


leading_zeros: Any = intrinsic(_leading_zeros)


@numba.njit(cache=True, nogil=True)
def cell_of(u, bits):
    """Return the cell of an odd number: its leading zeros, and ``bits`` bits after its first."""
    zeros = leading_zeros(u)
    return (zeros << bits) + ((u << zeros) >> (_63 - bits))


@numba.njit(cache=True, nogil=True)
def fill_guide(guide, thresholds, first, bits):
    """Fill the guide over one side's thresholds, descending from index ``first`` to a final 1.

    Returns whether no cell has two thresholds, of which only those above its least number count.
    """
    k = first
    size = np.uint64(1) << bits
    for zeros in range(64):
        for j in range(size):
            head = size + size - _ONE - np.uint64(j)  # descending, as the thresholds do
            least = ((head << (_63 - bits)) >> np.uint64(zeros)) | _ONE
            largest = ((((head + _ONE) << (_63 - bits)) - _ONE) >> np.uint64(zeros)) | _ONE
            while thresholds[k] > largest:
                k += 1
            guide[(np.uint64(zeros) << bits) + head] = k
            if thresholds[k] > least and thresholds[k + 1] > least:
                return False
    return True


@numba.njit(cache=True, nogil=True)
def invert(words, samples, guide, thresholds, bits, stride, centre, mirror, slack):
    """Write the samples of ``words``, up to the first that the thresholds do not decide.

    With k thresholds above the word, the sample is centre + k or centre + mirror − 1 − k by its
    side; ``stride`` is where the guide of the second side begins. A word that agrees with a
    threshold but for ``slack`` is not decided. ``samples`` may be the same memory as ``words``.
    Nothing but that rare end branches on a word: time does not follow the sample.

    Returns
    -------
    how many samples were written
    """
    for i in range(words.shape[0]):
        word = words[i]
        side = _ZERO - (word & _ONE)  # no bits, or all
        u = word | _ONE
        k = np.uint64(guide[cell_of(u, bits) + (side & stride)])
        k += np.uint64(u < thresholds[k])
        if (u ^ thresholds[k]) <= slack:
            return i
        samples[i] = np.int64((k ^ side) + (side & mirror) + centre)
    return words.shape[0]
