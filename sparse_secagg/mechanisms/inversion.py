"""Exact samples of an integer distribution by inverting its distribution function, from a table.

A sample is F⁻¹(U) for a uniform number U of infinitely many bits, of which almost always the first
64 decide. One bit chooses the side of the median; for the other 63, V, and the thresholds
T_k = ⌊2·P(tail beyond k)·2^63⌋ of that side, V < T_k says that U is below the k-th probability and
V > T_k that it is not. Only V = T_k does not decide: then further random bits are compared with
further digits of the probabilities, in integers. The distribution of the samples is the true one:
the total variation distance is zero.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each
from sparse_secagg import kernels
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.mechanisms.tail_sums import Distribution, TailSums, Undecided

__all__ = ["Table", "build_table", "draw", "table_of"]

#: Bits of the uniform number in one word, beside the side.
_WORD_BITS = 63
#: Digits of the probabilities beyond those bits; a floor they leave open takes more.
_SPARE_BITS = 32
#: Samples that share one stream; larger requests are cut, each piece with a stream of its own.
_CHUNK = 1 << 17
#: Samples inverted at a time, while their words are in cache.
_PIECE = 1 << 14


@dataclass(frozen=True)
class Table:
    """Thresholds of one distribution and where to look for them.

    Attributes
    ----------
    thresholds : ndarray of uint64
        2T_k + 1, descending and ending with 1, of the upper side, then of the lower if it differs.
    guide : ndarray of int32
        First threshold not above the words of a cell, for each side.
    cell_bits : uint64
        Bits that tell cells with the same number of leading zeros apart.
    stride, centre, mirror : uint64
        How the kernel finds the side's part of the guide, and the sample, modulo 2^64.
    n_bits : int
        Bits of V that the thresholds have: 63; tests take fewer.
    """

    distribution: Distribution
    thresholds: NDArray[np.uint64]
    guide: NDArray[np.int32]
    cell_bits: np.uint64
    stride: np.uint64
    centre: np.uint64
    mirror: np.uint64
    n_bits: int

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays."""
        return self.thresholds.nbytes + self.guide.nbytes

    def fill(self, out: NDArray[np.int64], rng: Randomness) -> None:
        """Overwrite ``out`` with samples."""
        for start in range(0, len(out), _PIECE):
            self._invert(out[start : start + _PIECE], rng)

    def _invert(self, out: NDArray[np.int64], rng: Randomness) -> None:
        rng.fill(out)  # each word is replaced by its sample
        words = out.view(np.uint64)
        slack = np.uint64(2 ** (64 - self.n_bits) - 2)
        done = 0
        while True:
            done += kernels.inversion.invert(
                words[done:],
                out[done:],
                self.guide,
                self.thresholds,
                self.cell_bits,
                self.stride,
                self.centre,
                self.mirror,
                slack,
            )
            if done == len(out):
                return
            out[done] = self._decide(int(words[done]), rng)
            done += 1

    def _decide(self, word: int, rng: Randomness) -> int:
        """Return the sample of a word that the thresholds leave open, with further random bits."""
        value, bits = word >> (64 - self.n_bits), self.n_bits
        while True:
            value, bits = value << 64 | int(rng.words(1)[0]), bits + 64
            sums = _more_digits(self.distribution, bits)
            try:
                if word & 1:
                    return sums.centre - sums.count(sums.below, value, bits)
                return sums.centre + sums.count(sums.above, value, bits)
            except Undecided:
                continue


def draw(table: Table, size: int, rng: Randomness) -> NDArray[np.int64]:
    """Draw ``size`` samples, in threads."""
    out = np.empty(size, dtype=np.int64)
    pieces = range(0, size, _CHUNK)
    streams = [rng] if len(pieces) <= 1 else rng.spawn(len(pieces))
    for_each(lambda i: table.fill(out[pieces[i] : pieces[i] + _CHUNK], streams[i]), len(pieces))
    return out


@lru_cache(maxsize=16)
def table_of(distribution: Distribution) -> Table:
    """Return the table of a distribution, which the last few distributions keep."""
    return build_table(distribution)


@lru_cache(maxsize=4)
def _more_digits(distribution: Distribution, bits: int) -> TailSums:
    return _tail_sums(distribution, bits)


def build_table(distribution: Distribution, n_bits: int = _WORD_BITS) -> Table:
    """Tabulate a distribution to ``n_bits`` bits of its probabilities."""
    bits = n_bits + _SPARE_BITS
    while True:
        sums = _tail_sums(distribution, bits)
        try:
            above = _floors(sums, sums.above, n_bits, bits)
            below = [] if distribution.symmetric else _floors(sums, sums.below, n_bits, bits)
        except Undecided:
            bits += 64
            continue
        return _with_guide(distribution, sums.centre, above, below, n_bits)


def _tail_sums(distribution: Distribution, bits: int) -> TailSums:
    """Sum to at least ``bits`` bits, and to as many as the median needs to be known."""
    while True:
        try:
            return distribution.tail_sums(bits)
        except Undecided:
            bits += 64


def _floors(sums: TailSums, tail: list[int], n_bits: int, bits: int) -> list[int]:
    """Return ⌊2·P(tail beyond k)·2^n_bits⌋ for k = 0, 1, … up to the first 0."""
    last = bisect_left(tail, True, key=lambda weight: weight << (n_bits + 1) < sums.total)
    digits = sums.probabilities(tail[: last + 1], bits)
    shift, width = bits - n_bits, sums.width(bits)
    floors = [x >> shift for x in digits]
    if floors != [(x + width) >> shift for x in digits]:
        raise Undecided(f"{bits} bits leave a floor open.")
    return floors


def _with_guide(
    distribution: Distribution, centre: int, above: list[int], below: list[int], n_bits: int
) -> Table:
    floors = np.array(above + below, dtype=np.uint64)
    thresholds = floors << np.uint64(64 - n_bits) | np.uint64(1)
    firsts = [0, len(above)] if below else [0]
    cell_bits = max(1, max(len(above), len(below)).bit_length() - 5)
    while True:
        stride = 65 << cell_bits  # cells begin at 1 << cell_bits
        guide = np.zeros(stride * len(firsts), dtype=np.int32)
        if all(
            kernels.inversion.fill_guide(
                guide[i * stride : (i + 1) * stride], thresholds, k, np.uint64(cell_bits)
            )
            for i, k in enumerate(firsts)
        ):
            break
        cell_bits += 1
    return Table(
        distribution,
        thresholds,
        guide,
        np.uint64(cell_bits),
        stride=np.uint64(stride if below else 0),
        centre=np.uint64(centre),
        mirror=np.uint64(firsts[-1] + 1),
        n_bits=n_bits,
    )
