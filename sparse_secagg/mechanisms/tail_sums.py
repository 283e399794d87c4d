"""Digits of the distribution functions of integer noise, in integer arithmetic with error bounds.

A distribution with weights w(k), seen from its median c, is described by the sums of the weights
above c + k and below c − k, k = 0, 1, … Everything is rounded down, so a sum lies between the
integer kept for it and that integer plus one bound, and any number of digits can be had by asking
for more bits. There is no floating point anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

__all__ = ["Distribution", "Gaussian", "Poisson", "TailSums", "Undecided", "exp_rounded_down"]

#: Bits below those asked for that the weights carry, and how many of them rounding may spoil: the
#: weights end where they fall below 2^32 units.
_GUARD_BITS = 64
_LAST_WEIGHT = 1 << 32


class Undecided(ArithmeticError):
    """The digits at hand do not decide; more bits will."""


@dataclass(frozen=True)
class TailSums:
    """Tails of one distribution: each sum is between the integer here and that plus ``error``.

    ``above[k]`` stands for Σ w(i) over i > centre + k, ``below[k]`` over i < centre − k; both end
    with 0, which also stands for everything beyond. At least half of the weight is at the centre
    or above, and at least half at the centre or below.
    """

    centre: int
    above: list[int]
    below: list[int]
    total: int
    error: int

    def __post_init__(self) -> None:
        for tail in (self.above, self.below):
            if 2 * (tail[0] + self.error) > self.total:
                raise Undecided("The centre is not known to be the median.")

    def probabilities(self, tail: list[int], bits: int) -> list[int]:
        """Return x with x ≤ 2·P(tail)·2^bits ≤ x + ``self.width(bits)`` for each sum of a tail."""
        largest = self.total + self.error
        return [(weight << (bits + 1)) // largest for weight in tail]

    def width(self, bits: int) -> int:
        """Bound the error of :meth:`probabilities`.

        With a, t the integers and e, f ≤ E their errors, 2(a + e)/(t + f) − 2a/(t + E) is at most
        2E/t + 2a/(t + E)·E/t ≤ 3E/t, as 2a/(t + E) is a lower bound of a number up to 1. One more
        unit is for rounding to an integer, one for rounding the bound.
        """
        return ((3 * self.error) << bits) // self.total + 2

    def count(self, tail: list[int], value: int, bits: int) -> int:
        """Return #{k : v < 2·P(tail beyond k)} for every v in [value, value + 1)/2^bits."""
        k = bisect_left(
            tail, True, key=lambda weight: self.probabilities([weight], bits)[0] <= value
        )
        if self.probabilities([tail[k]], bits)[0] + self.width(bits) > value:
            raise Undecided(f"{bits} bits of the uniform number do not decide.")
        return k


@dataclass(frozen=True)
class Gaussian:
    """The discrete Gaussian: w(k) = exp(−k²/(2σ²))."""

    sigma2: Fraction

    @property
    def symmetric(self) -> bool:
        """Both tails are the same."""
        return True

    def tail_sums(self, bits: int) -> TailSums:
        """Sum the tails to a little more than ``bits`` bits.

        w(k + 1) = w(k)·r(k) and r(k + 1) = r(k)·exp(−1/σ²). In units of the last bit, a product of
        two numbers up to 1 has at most the sum of their errors and 1 for rounding. Hence r(k) is
        within 2 + 3k, w(k) within 3k², and a sum over k < K within K³. What follows K is
        a geometric series at most: w(K)·(1 + σ²/K), since 1/(1 − exp(−y)) ≤ 1 + 1/y.
        """
        bits += _GUARD_BITS
        ratio = exp_rounded_down(1 / (2 * self.sigma2), bits)
        step = exp_rounded_down(1 / self.sigma2, bits)
        weights = []
        weight = ratio
        while weight >= _LAST_WEIGHT:
            weights.append(weight)
            ratio = ratio * step >> bits
            weight = weight * ratio >> bits
        K = len(weights) + 1
        rest = (_LAST_WEIGHT + 3 * K * K) * (2 + self.sigma2 // K)
        sums = _sums_from(weights)
        total = (1 << bits) + 2 * sums[0]
        return TailSums(0, sums, sums, total, 2 * (K**3 + rest))


@dataclass(frozen=True)
class Poisson:
    """The Poisson distribution: w(k) = λ^k/k!, relative to that of the mode."""

    mean: Fraction

    @property
    def symmetric(self) -> bool:
        """Both tails are the same."""
        return False

    def tail_sums(self, bits: int) -> TailSums:
        """Sum the tails to a little more than ``bits`` bits.

        A weight is the one before times a rational number up to 1, rounded down: after k steps from
        the mode the error is at most k units of the last bit, that of a sum of K weights at most
        K². What follows the last weight is a geometric series at most.
        """
        bits += _GUARD_BITS
        p, q = self.mean.numerator, self.mean.denominator
        mode = p // q
        upper, k = [1 << bits], mode + 1
        while (weight := upper[-1] * p // (q * k)) >= _LAST_WEIGHT:
            upper.append(weight)
            k += 1
        error = (_LAST_WEIGHT + len(upper)) * q * (k + 1) // (q * (k + 1) - p) + 1
        lower, k = [1 << bits], mode
        while k > 0 and (weight := lower[-1] * k * q // p) >= _LAST_WEIGHT:
            lower.append(weight)
            k -= 1
        if k > 0:
            error += (_LAST_WEIGHT + len(lower)) * p // (p - q * (k - 1)) + 1
        weights = lower[:0:-1] + upper
        error += len(weights) ** 2
        return _around_the_median(weights, mode - len(lower) + 1, error)


Distribution = Gaussian | Poisson


def _around_the_median(weights: list[int], first: int, error: int) -> TailSums:
    """Return the tails of weights that begin with that of ``first``."""
    from_here_on = _sums_from(weights)
    total = from_here_on[0]
    # the last place with at least half of the weight at it or above
    m = bisect_left(from_here_on, True, key=lambda weight: 2 * weight < total) - 1
    below = list(accumulate(weights[:m], initial=0))[::-1]
    return TailSums(first + m, from_here_on[m + 1 :], below, total, error)


def _sums_from(weights: list[int]) -> list[int]:
    """Return Σ_{i ≥ k} weights[i] for each k, and a final 0."""
    return list(accumulate(reversed(weights), initial=0))[::-1]


def exp_rounded_down(x: Fraction, bits: int) -> int:
    """Return L with L ≤ exp(−x)·2^bits < L + 2, for rational x ≥ 0.

    The alternating series at y = x/2^s ≤ ½, with terms rounded down and thus within 2 units each,
    then s squarings, each of which at most doubles the error and adds one unit for rounding.
    """
    if x >= bits:
        return 0  # less than 1, since exp(−bits) < 2^−bits
    s = (x.numerator // x.denominator).bit_length() + 1
    p, q = x.numerator, x.denominator << s
    extra = s + 16
    scale = bits + extra
    term, n, total = 1 << scale, 0, 0
    while term:
        total += -term if n % 2 else term
        n += 1
        term = term * p // (q * n)
    # n terms within 2 units, and the rest of the series is below the first term that was left out
    lower = total - 2 * n - 2
    if 4 * n + 5 >= 1 << 16:
        raise OverflowError(f"bits={bits} is more than this series was made for.")
    for _ in range(s):
        lower = lower * lower >> scale
    return lower >> extra
