"""Exact discrete Gaussian noise for rational σ² = p/q of any size, by rejection.

Canonne, Kamath and Steinke's method in integers only: propose a discrete Laplace y of scale
t = ⌊σ⌋ + 1, accept with probability exp(−(|y|qt − p)²/(2pqt²)). There is no floating point
anywhere. Compiled kernels do the work while 128 bits hold every number, tested for each proposal;
Python integers take over beyond, and draw everything where numba is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each
from sparse_secagg import kernels
from sparse_secagg.mechanisms.randomness import Randomness

__all__ = ["draw_by_rejection", "laplace_scale"]

#: Samples that share one stream; larger requests are cut, each piece with a stream of its own.
_CHUNK = 1 << 16
#: Above this scale a sample might leave int64, so Python integers are returned.
_MAX_INT64_SCALE = 1 << 55
_WORD = 1 << 64


def draw_by_rejection(sigma2: Fraction, size: int, rng: Randomness) -> NDArray[Any]:
    """Draw ``size`` samples: int64, or Python integers for σ of 2**55 and more."""
    setup = prepare(sigma2)
    if setup.t > _MAX_INT64_SCALE:
        words = WordBuffer(rng)
        return np.array([sample_big(setup, words) for _ in range(size)], object)
    out = np.empty(size, dtype=np.int64)
    pieces = range(0, size, _CHUNK)
    streams = [rng] if len(pieces) <= 1 else rng.spawn(len(pieces))

    def draw(i: int) -> None:
        fill_by_rejection(out[pieces[i] : pieces[i] + _CHUNK], setup, streams[i])

    for_each(draw, len(pieces))
    return out


@dataclass(frozen=True)
class Setup:
    """σ² as the kernels want it: accept |y| with probability exp(−(|y|·slope − offset)²/d)."""

    t: int
    slope: int
    offset: int
    d: int

    @property
    def fits_kernel(self) -> bool:
        """Whether some proposals can be judged in 128 bits."""
        return self.t < _WORD and self.offset < _WORD and self.slope < _WORD and self.d < _WORD**2


@lru_cache(maxsize=256)
def prepare(sigma2: Fraction) -> Setup:
    """Reduce (|y|qt − p)²/(2pqt²) by the square of gcd(qt, p)."""
    t = laplace_scale(sigma2)
    slope, offset = sigma2.denominator * t, sigma2.numerator
    common = math.gcd(slope, offset)
    slope, offset = slope // common, offset // common
    return Setup(t, slope, offset, 2 * offset * slope * t)


def laplace_scale(sigma2: Fraction) -> int:
    """Return t = ⌊σ⌋ + 1: the integer part of a root is the root of the integer part."""
    return math.isqrt(sigma2.numerator // sigma2.denominator) + 1


class WordBuffer:
    """32-bit words of one source, with the unused ones kept in front at every refill."""

    def __init__(self, rng: Randomness, size: int = 1 << 10) -> None:
        if size & (size - 1):
            raise ValueError(f"size={size} must be a power of two.")
        self.words = np.empty(size, dtype=np.uint32)
        self.position = size
        self._rng = rng

    def refill(self) -> None:
        """Move the unused words to the front and fill the rest."""
        unused = len(self.words) - self.position
        self.words[:unused] = self.words[self.position :].copy()
        self._rng.fill(self.words[unused:])
        self.position = 0

    def take(self, n: int) -> int:
        """Return the next ``n`` words as one integer, the first word lowest."""
        value = 0
        for i in range(n):
            if self.position == len(self.words):
                self.refill()
            value |= int(self.words[self.position]) << (32 * i)
            self.position += 1
        return value


def fill_by_rejection(out: NDArray[np.int64], setup: Setup, rng: Randomness) -> None:
    """Overwrite ``out`` with samples from one stream."""
    if not setup.fits_kernel:
        words = WordBuffer(rng)
        for i in range(len(out)):
            out[i] = sample_big(setup, words)
        return
    # About twelve words a sample; a first buffer of that size saves refills.
    size = 1 << min(max((12 * len(out)).bit_length(), 10), 16)
    buffer = WordBuffer(rng, size)
    t, slope, offset = np.uint64(setup.t), np.uint64(setup.slope), np.uint64(setup.offset)
    d_high, d_low = (np.uint64(v) for v in divmod(setup.d, _WORD))
    largest = np.uint64((_WORD - 1) // setup.slope)
    buffer.refill()
    i = 0
    while True:
        status, i, buffer.position = kernels.rejection.fill_gaussian(
            out, i, buffer.words, buffer.position, t, slope, offset, d_high, d_low, largest
        )
        if status == kernels.rejection.DONE:
            return
        if status == kernels.rejection.NEED_BIG:
            out[i] = sample_big(setup, buffer)
            i += 1
        else:
            buffer.refill()


# ---------------------------------------------------------------------------------------------
# The same algorithm in Python integers, word for word


def sample_big(setup: Setup, words: WordBuffer) -> int:
    """Draw one sample with integers of any size, from the words the kernel would use."""
    while True:
        magnitude, negative = _laplace(setup.t, words)
        distance = abs(magnitude * setup.slope - setup.offset)
        if _bernoulli_exp(distance * distance, setup.d, words):
            return -magnitude if negative else magnitude


def _laplace(t: int, words: WordBuffer) -> tuple[int, bool]:
    while True:
        u = 0
        if t > 1:
            u = _below(t, words)
            if not _bernoulli_exp(u, t, words):
                continue
        v = 0
        while _bernoulli_exp1(words):
            v += 1
        magnitude = u + t * v
        negative = words.take(1) & 1 == 1
        if not (negative and magnitude == 0):
            return magnitude, negative


def _bernoulli_exp(a: int, b: int, words: WordBuffer) -> bool:
    """Bernoulli(exp(−a/b)) for any a/b ≥ 0."""
    while a >= b:
        if not _bernoulli_exp1(words):
            return False
        a -= b
    k = 1
    while (k == 1 or _below(k, words) == 0) and _below(b, words) < a:
        k += 1
    return k % 2 == 1


def _bernoulli_exp1(words: WordBuffer) -> bool:
    k = 2
    while _below(k, words) == 0:
        k += 1
    return k % 2 == 1


def _below(b: int, words: WordBuffer) -> int:
    """Return a uniform integer in [0, b): Lemire up to 64 bits, masked words beyond."""
    if b < _WORD:
        n, bits = (1, 32) if b <= 1 << 32 else (2, 64)
        threshold = (1 << bits) % b
        while True:
            product = words.take(n) * b
            if product % (1 << bits) >= threshold:
                return product >> bits
    bits = (b - 1).bit_length()
    while True:
        value = words.take(-(-bits // 32)) & ((1 << bits) - 1)
        if value < b:
            return value
