"""Calibration: the finest grid that the modulus holds, and the least noise that is private.

With u = c'/γ and s = σ/γ everything happens on the grid. The noise s(u) that meets the target
grows with the norm bound B(u), so the range that the sum needs,

    R(u) = 2k·sqrt(ρu²n²/D + (1/4 + s(u)²)·n),

grows with u: the finest grid is the largest u with R(u) ≤ 2^b. Both equations are solved inside a
bracket and the answer is taken on the safe side: ε ≤ target and R ≤ 2^b, always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.parameters import MAX_BITS
from sparse_secagg.privacy.curves import norm_bound

__all__ = ["GridProblem", "least_noise"]

#: Coarser grids, which multiply the sensitivity by more than this, are refused.
MAX_INFLATION = 10.0


def least_noise(
    epsilon_at: Callable[[float], float], target: float, start: float, smallest: float
) -> float:
    """Return the smallest variance ≥ ``smallest`` with ``epsilon_at(variance) ≤ target``.

    ``epsilon_at`` decreases; ``start`` is a guess. The result errs upwards, by 1e-12.
    """
    if epsilon_at(smallest) <= target:
        return smallest
    high = max(start * (1 + 1e-4), smallest)
    if epsilon_at(high) > target:
        low = high
        while epsilon_at(high) > target:
            low, high = high, 4.0 * high
    else:
        low, step = max(smallest, start * (1 - 1e-4)), 0.25
        while low > smallest and epsilon_at(low) <= target:
            low, high = max(smallest, step * low), low

    def gap(variance: float) -> float:
        epsilon = epsilon_at(variance)
        return math.log(max(epsilon, 1e-300) / target) if epsilon < math.inf else 700.0

    root = _root_of(gap, low, high)
    return _nudge(root, lambda variance: epsilon_at(variance) <= target, 1.0)


@dataclass(frozen=True)
class GridProblem:
    """One calibration on the grid.

    Attributes
    ----------
    n_clients, padded_dim : int
        Clients n in the sum and coordinates D.
    clip_norm : float
        c', needed only by the "theory" bias, which depends on γ itself.
    beta : float or "theory"
        Bias parameter, or min(√(γ/n), 1/n), and never above exp(−1/2).
    wrap_deviations : float
        k, how many standard deviations fit the modulus.
    alignment : float
        ρ: 1 if all clients may hold the same vector.
    variance_for : callable
        Noise variance on the grid for a norm bound B.
    smallest_bound : float
        B below which ``variance_for`` would be less than the smallest variance.
    max_variance : float
        Grids so fine that the noise would be larger are not used: drawing it would take long and
        rounding is invisible already.
    """

    n_clients: int
    padded_dim: int
    clip_norm: float
    beta: float | str
    wrap_deviations: float
    alignment: float
    variance_for: Callable[[float], float]
    smallest_bound: float = 0.0
    max_variance: float = math.inf

    def beta_at(self, u: float) -> float:
        """Return β at the scaled clip u."""
        if isinstance(self.beta, str):
            gamma, n = self.clip_norm / u, self.n_clients
            return min(math.sqrt(gamma / n), 1.0 / n, math.exp(-0.5))
        return float(self.beta)

    def bound(self, u: float) -> float:
        """Return B(u)."""
        return norm_bound(u, self.padded_dim, self.beta_at(u))

    def log_range(self, u: float) -> float:
        """Return log₂ R(u), the bits that the sum needs."""
        n = self.n_clients
        signal = self.alignment * u * u * n * n / self.padded_dim
        spread = signal + (0.25 + self.variance_for(self.bound(u))) * n
        return math.log2(2.0 * self.wrap_deviations) + 0.5 * math.log2(spread)

    @cached_property
    def coarsest(self) -> float:
        """The smallest u allowed: inflation B/u ≤ 10, and enough noise on the grid."""

        def allowed(u: float) -> bool:
            bound = self.bound(u)
            return bound <= MAX_INFLATION * u and bound >= self.smallest_bound

        low, high = 1e-9, 1.0
        while not allowed(high):
            high *= 2.0
        while high / low > 1 + 1e-9:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if allowed(middle) else (middle, high)
        return high

    @cached_property
    def smallest_bits(self) -> int:
        """The smallest workable number of bits."""
        return max(1, math.ceil(self.log_range(self.coarsest)))

    def finest(self, n_bits: int) -> float:
        """Return the largest u with R(u) ≤ 2^n_bits, if its noise is not above ``max_variance``."""
        low = self.coarsest
        if self.log_range(low) > n_bits:
            smallest = self.smallest_bits
            remedy = (
                f"the smallest that can is {smallest}."
                if smallest <= MAX_BITS
                else f"not even {MAX_BITS} can: ask for less privacy or fewer clients."
            )
            raise InfeasibleError(
                f"n_bits={n_bits} cannot hold {self.n_clients} clients in {self.padded_dim} "
                f"dimensions at this privacy; {remedy}",
                "n_bits",
                smallest,
            )
        if self.variance_for(self.bound(low)) >= self.max_variance:
            return low

        def excess(u: float) -> float:
            too_fine = self.variance_for(self.bound(u)) > self.max_variance
            return 1.0 if too_fine else self.log_range(u) - n_bits

        high = 2.0 * low
        while excess(high) <= 0:
            low, high = high, 4.0 * high
        root = _root_of(excess, low, high)
        return max(self.coarsest, _nudge(root, lambda u: excess(u) <= 0, -1.0))


def _root_of(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # a client calibrates nothing, and does without it

    return float(brentq(function, low, high, xtol=1e-13 * low, rtol=1e-13))


def _nudge(value: float, good: Callable[[float], bool], direction: float) -> float:
    """Move ``value`` by the smallest relative step (from 1e-13 on) that makes it good."""
    step = 1e-13
    moved = value
    while not good(moved):
        moved = value * (1.0 + direction * step)
        step *= 2.0
    return moved
