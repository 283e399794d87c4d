"""The search: of all schemes, lengths and bits, the fewest bits within an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.planning.noise import NoiseModel
from sparse_secagg.planning.schemes import Scheme

__all__ = ["Choice", "Search"]

#: Where the length is given, the error may exceed that of unlimited bits by this factor.
_BITS_SLACK = 1.05
#: Ratio of neighbouring lengths in the coarse scan.
_STEP = 1.15
#: A minimum of the coarse scan this close to the budget is looked at more closely.
_CLOSE = 1.3
#: Lengths of a curve; bits at each are added until the noise falls by less than this share.
_CURVE_LENGTHS = 80
_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Choice:
    """A scheme with its length and bits.

    Attributes
    ----------
    scheme : Scheme
        Encoder and decoder.
    m, b : int
        Length of a sketch, bits of a coordinate.
    bits : int
        Payload of a message.
    error : float
        Predicted squared error.
    """

    scheme: Scheme
    m: int
    b: int
    bits: int
    error: float


class Search:
    """Errors and costs of every (scheme, m, b).

    Parameters
    ----------
    schemes : sequence of Scheme
        What may be chosen.
    noise : NoiseModel
        Of the mechanism.
    """

    def __init__(self, schemes: Sequence[Scheme], noise: NoiseModel) -> None:
        self.schemes, self.noise = list(schemes), noise

    def error(self, scheme: Scheme, m: int, b: int) -> float:
        """Return the predicted squared error; infinite where the modulus is too small."""
        return scheme.error(m, self.noise.variance(m, b))

    def best_error(self) -> float:
        """Return the least error of any scheme, at any length, with unlimited bits."""
        return min(scheme.error_limit(scheme.longest) for scheme in self.schemes)

    # -- length and bits, or length alone ------------------------------------------------------

    def cheapest(self, budget: float, n_bits: int | None = None) -> Choice | None:
        """Return the fewest bits whose error is within the budget; None if there are none."""
        widths = range(1, self.noise.max_bits + 1) if n_bits is None else [n_bits]
        best: Choice | None = None
        for scheme in self._undominated():
            if scheme.error_limit(scheme.longest) <= budget:
                best = self._cheapest(scheme, budget, widths, best)
        return best

    def _undominated(self) -> list[Scheme]:
        """Return the schemes without those that a subsampled Hadamard transform always beats.

        It errs less at every length, for every decoder, and has every length; only its clip may
        differ, where that is spectral.
        """
        decoders = {
            scheme.decoder
            for scheme in self.schemes
            if scheme.encoder == "hadamard" and scheme.sketch_clip != "spectral"
        }
        independent = ("count_sketch", "gaussian")
        return [
            scheme
            for scheme in self.schemes
            if scheme.encoder not in independent or scheme.decoder not in decoders
        ]

    def fewest_bits(self, budget: float, after: int) -> int | None:
        """Return the smallest width above ``after`` at which some scheme is within the budget."""
        for b in range(after + 1, self.noise.max_bits + 1):
            if self.cheapest(budget, b) is not None:
                return b
        return None

    def _cheapest(
        self, scheme: Scheme, budget: float, widths: Iterable[int], best: Choice | None
    ) -> Choice | None:
        shortest = _first_good(scheme, 0, scheme.longest, lambda m: scheme.error_limit(m) <= budget)
        fewest = min(self.noise.least_bits(m) for m in _scan(scheme, shortest, scheme.longest))
        for b in widths:
            if b < fewest:
                continue
            longest = scheme.longest
            if best is not None:
                longest = min(longest, scheme.at_most(best.bits // b))
                if self.noise.bits(shortest, b) > best.bits or longest < shortest:
                    break
            m = self._shortest(scheme, b, budget, shortest, longest)
            if m is not None:
                found = self._choice(scheme, m, b)
                if best is None or (found.bits, found.error) < (best.bits, best.error):
                    best = found
        return best

    def _shortest(self, scheme: Scheme, b: int, budget: float, low: int, high: int) -> int | None:
        """Return the shortest length from ``low`` to ``high`` within the budget at b bits.

        The error falls with m until rounding takes over. A coarse scan finds a first good length
        or, around the best one, a finer search; bisection then the shortest.
        """
        lengths, errors = [0], [math.inf]
        for m in _scan(scheme, low, high):
            lengths.append(m)
            errors.append(self.error(scheme, m, b))
            if errors[-1] <= budget or errors[-1] > errors[-2]:
                break
        k = int(np.argmin(errors))
        good, bad = lengths[k], lengths[k - 1]
        if errors[k] > budget:
            if k == 0 or errors[k] > _CLOSE * budget:
                return None
            above = lengths[min(k + 1, len(lengths) - 1)]
            good = self._least_error(scheme, b, max(bad, 1), above)
            if self.error(scheme, good, b) > budget:
                return None
        return _first_good(scheme, bad, good, lambda m: self.error(scheme, m, b) <= budget)

    def _least_error(self, scheme: Scheme, b: int, low: int, high: int) -> int:
        """Return the length of least error between two others, by thirds."""
        while high - low > 3 * scheme.granularity:
            first, second = (
                scheme.at_least(low + (high - low) * share) for share in (1 / 3, 2 / 3)
            )
            if self.error(scheme, first, b) <= self.error(scheme, second, b):
                high = second
            else:
                low = first
        lengths = range(scheme.at_least(low), scheme.at_most(high) + 1, scheme.granularity)
        return min(lengths, key=lambda m: self.error(scheme, m, b))

    def _choice(self, scheme: Scheme, m: int, b: int) -> Choice:
        """Return the choice, with the length that fills the message."""
        m = max(m, scheme.at_most(self.noise.padded(m)))
        return Choice(scheme, m, b, self.noise.bits(m, b), self.error(scheme, m, b))

    # -- length given --------------------------------------------------------------------------

    def at_length(
        self, lengths: dict[Scheme, int], n_bits: int | None, budget: float | None
    ) -> Choice:
        """Return the scheme of least error, each at its length.

        Parameters
        ----------
        lengths : dict of Scheme to int
            Lengths of the sketches.
        n_bits : int or None
            Bits, if given.
        budget : float or None
            Error that the bits must reach; by default 1.05 times that of unlimited bits.
        """
        found = [
            Choice(scheme, m, b, self.noise.bits(m, b), self.error(scheme, m, b))
            for scheme, m in lengths.items()
            for b in [self._bits_at(scheme, m, budget) if n_bits is None else n_bits]
            if b is not None
        ]
        found = [choice for choice in found if choice.error < math.inf]
        if found:
            return min(found, key=lambda choice: (choice.error, choice.bits))
        fewest = min(self.noise.smallest_bits(m) for m in lengths.values())
        if n_bits is not None and n_bits < fewest <= self.noise.max_bits:
            raise InfeasibleError(
                f"n_bits={n_bits} cannot hold {self.noise.n_clients} clients at this length and "
                f"privacy; the smallest that can is {fewest}.",
                "n_bits",
                fewest,
            )
        raise InfeasibleError(
            f"No modulus up to {self.noise.max_bits} bits brings the error of "
            f"{self.noise.n_clients} clients at this length within what is asked; ask for less, "
            "or leave compression out.",
            "n_bits",
            self.noise.max_bits + 1,
        )

    def _bits_at(self, scheme: Scheme, m: int, budget: float | None) -> int | None:
        allowed = _BITS_SLACK * scheme.error_limit(m) if budget is None else budget
        for b in range(self.noise.least_bits(m), self.noise.max_bits + 1):
            if self.error(scheme, m, b) <= allowed:
                return b
        return None

    # -- curves --------------------------------------------------------------------------------

    def frontier(self, scheme: Scheme) -> list[Choice]:
        """Return the choices of one scheme that no other one beats in both bits and error."""
        lengths = np.geomspace(scheme.granularity, scheme.longest, _CURVE_LENGTHS)
        choices = []
        for m in dict.fromkeys(scheme.at_least(length) for length in lengths):
            last = math.inf
            for b in range(self.noise.least_bits(m), self.noise.max_bits + 1):
                variance = self.noise.variance(m, b)
                if variance < math.inf:
                    choices.append(self._choice(scheme, m, b))
                    if variance > (1 - _LEAST_GAIN) * last:
                        break
                last = variance
        kept: list[Choice] = []
        for choice in sorted(choices, key=lambda choice: (choice.bits, choice.error)):
            if not kept or choice.error < kept[-1].error * (1 - 1e-3):
                kept.append(choice)
        return kept


def _scan(scheme: Scheme, low: int, high: int) -> Iterable[int]:
    """Return lengths from ``low`` to ``high``, both included, a constant ratio apart."""
    m = low
    while m < high:
        yield m
        m = max(scheme.at_least(_STEP * m), m + scheme.granularity)
    yield high


def _first_good(scheme: Scheme, bad: int, good: int, is_good: Callable[[int], bool]) -> int:
    """Return the shortest good length above ``bad``, by bisection; ``good`` is one."""
    g = scheme.granularity
    while good - bad > g:
        middle = scheme.at_least(bad + (good - bad) // (2 * g) * g)
        if middle in (bad, good):
            break
        if is_good(middle):
            good = middle
        else:
            bad = middle
    return good
