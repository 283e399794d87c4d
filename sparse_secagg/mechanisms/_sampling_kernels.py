"""Numba kernels of the exact discrete Gaussian: integers in, integers out.

Randomness arrives as an array of 32-bit words whose length is a power of two, and a position in
it. Reading wraps around at the end, so a draw never leaves the array; whoever calls checks after
each sample whether it ended beyond the last word and, if so, discards the sample and repeats it
from the same first word with more words behind. How many words a draw consumes depends only on
its bound, not on the arithmetic that computes it: paths can be exchanged without changing a
single output.
"""

from __future__ import annotations

import numpy as np

from solvers.compiling_kernels import numba

DONE, NEED_WORDS, NEED_BIG = 0, 1, 2

_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO32 = np.uint64(1 << 32)


@numba.njit(cache=True, nogil=True)
def multiply(a, b):
    """Return the 128-bit product of two 64-bit words as (high, low)."""
    a0, a1 = a & _LOW, a >> _32
    b0, b1 = b & _LOW, b >> _32
    low = a0 * b0
    middle = a1 * b0 + (low >> _32)
    cross = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _32) + (cross >> _32), a * b


@numba.njit(cache=True, nogil=True)
def below32(words, pos, b):
    """Return (position, uniform integer in [0, b)) for b <= 2**32: Lemire's method."""
    mask = words.shape[0] - 1
    m = np.uint64(words[pos & mask]) * b
    pos += 1
    if (m & _LOW) < b:
        threshold = (_TWO32 - b) % b
        while (m & _LOW) < threshold:
            m = np.uint64(words[pos & mask]) * b
            pos += 1
    return pos, m >> _32


@numba.njit(cache=True, nogil=True)
def below64(words, pos, b):
    """Return (position, uniform integer in [0, b)) for b < 2**64."""
    if b <= _TWO32:
        return below32(words, pos, b)
    mask = words.shape[0] - 1
    word = np.uint64(words[pos & mask]) | (np.uint64(words[(pos + 1) & mask]) << _32)
    pos += 2
    high, low = multiply(word, b)
    if low < b:
        threshold = (_ZERO - b) % b
        while low < threshold:
            word = np.uint64(words[pos & mask]) | (np.uint64(words[(pos + 1) & mask]) << _32)
            pos += 2
            high, low = multiply(word, b)
    return pos, high


@numba.njit(cache=True, nogil=True)
def less_than_128(words, pos, b_high, b_low, a_high, a_low):
    """Return (position, u < a) for u uniform below b >= 2**64: whole words, masked, rejected.

    A word more than b - 1 has bits is never read: three 32-bit words for b - 1 < 2**96, else four,
    and two for b = 2**64.
    """
    mask = words.shape[0] - 1
    top = b_high if b_low != _ZERO else b_high - _ONE  # high word of b - 1
    bits = _ZERO
    while bits < np.uint64(64) and (top >> bits) != _ZERO:
        bits += _ONE
    keep = (_ONE << bits) - _ONE if bits < np.uint64(64) else ~_ZERO
    while True:
        low = np.uint64(words[pos & mask]) | (np.uint64(words[(pos + 1) & mask]) << _32)
        pos += 2
        high = _ZERO
        if bits > _ZERO:
            high = np.uint64(words[pos & mask])
            pos += 1
        if bits > _32:
            high |= np.uint64(words[pos & mask]) << _32
            pos += 1
        high &= keep
        if high < b_high or (high == b_high and low < b_low):
            return pos, high < a_high or (high == a_high and low < a_low)


@numba.njit(cache=True, nogil=True)
def bernoulli_exp1(words, pos):
    """Return (position, Bernoulli(exp(-1))): the parity of the first K with no Bernoulli(1/K)."""
    k = np.uint64(2)
    while True:
        pos, u = below32(words, pos, k)
        if u != _ZERO:
            return pos, (k & _ONE) == _ONE
        k += _ONE


@numba.njit(cache=True, nogil=True)
def bernoulli_exp64(words, pos, a, b):
    """Return (position, Bernoulli(exp(-a/b))) for a <= b < 2**64, by products of Bernoullis."""
    k = _ONE
    while True:
        if k > _ONE:
            pos, u = below32(words, pos, k)
            if u != _ZERO:
                break
        pos, u = below64(words, pos, b)
        if not u < a:
            break
        k += _ONE
    return pos, (k & _ONE) == _ONE


@numba.njit(cache=True, nogil=True)
def bernoulli_exp128(words, pos, a_high, a_low, b_high, b_low):
    """Return (position, Bernoulli(exp(-a/b))) for a <= b, 2**64 <= b < 2**128."""
    k = _ONE
    while True:
        if k > _ONE:
            pos, u = below32(words, pos, k)
            if u != _ZERO:
                break
        pos, below = less_than_128(words, pos, b_high, b_low, a_high, a_low)
        if not below:
            break
        k += _ONE
    return pos, (k & _ONE) == _ONE


@numba.njit(cache=True, nogil=True)
def accept(words, pos, distance, d_high, d_low):
    """Return (position, Bernoulli(exp(-distance² / d))) for a 64-bit distance."""
    high, low = multiply(distance, distance)
    while high > d_high or (high == d_high and low >= d_low):
        pos, success = bernoulli_exp1(words, pos)
        if not success:
            return pos, False
        high = high - d_high - (_ONE if low < d_low else _ZERO)
        low = low - d_low
    if d_high == _ZERO:
        return bernoulli_exp64(words, pos, low, d_low)
    return bernoulli_exp128(words, pos, high, low, d_high, d_low)


@numba.njit(cache=True, nogil=True)
def laplace(words, pos, t):
    """Return (position, magnitude, is negative) of a discrete Laplace variable of scale t."""
    mask = words.shape[0] - 1
    while True:
        u = _ZERO
        if t > _ONE:
            pos, u = below64(words, pos, t)
            pos, success = bernoulli_exp64(words, pos, u, t)
            if not success:
                continue
        v = _ZERO
        while True:
            pos, success = bernoulli_exp1(words, pos)
            if not success:
                break
            v += _ONE
        magnitude = u + t * v
        negative = (words[pos & mask] & np.uint32(1)) == np.uint32(1)
        pos += 1
        if negative and magnitude == _ZERO:
            continue
        return pos, magnitude, negative


@numba.njit(cache=True, nogil=True)
def fill_gaussian(out, start, words, pos, t, slope, offset, d_high, d_low, largest):
    """Write samples to ``out[start:]`` while the words last.

    The proposal y is accepted with probability exp(-(|y|·slope - offset)²/d). Magnitudes above
    ``largest`` would overflow 64 bits there: such a sample is left to the caller.

    Returns
    -------
    status, next index of ``out``, position of the next unused word
    """
    available = words.shape[0]
    i = start
    while i < out.shape[0]:
        first = pos
        while True:
            pos, magnitude, negative = laplace(words, pos, t)
            if pos > available:
                return NEED_WORDS, i, first
            if magnitude > largest:
                return NEED_BIG, i, first
            product = magnitude * slope
            distance = product - offset if product > offset else offset - product
            pos, success = accept(words, pos, distance, d_high, d_low)
            if pos > available:
                return NEED_WORDS, i, first
            if success:
                break
        out[i] = -np.int64(magnitude) if negative else np.int64(magnitude)
        i += 1
    return DONE, i, pos
