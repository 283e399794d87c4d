"""The noise of a decoded sketch, for every length and number of bits, without calibrating anew."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms import IntegerMechanism
from sparse_secagg.mechanisms.base import ROUNDING_VARIANCE
from sparse_secagg.mechanisms.calibration import GridProblem
from sparse_secagg.mechanisms.rotation import padded_dim
from sparse_secagg.parameters import MAX_BITS

__all__ = ["NoiseModel"]

#: On a grid this fine, in units of √n, rounding is invisible: B = u and σ = √variance·γ.
_FINE = 1e6
#: Discrete Gaussians of at least this variance add up like Gaussians: τ is about 1e-12.
_LIKE_GAUSSIANS = 3.0


class NoiseModel:
    """Variance of a coordinate of the mean sketch at clip 1, by length m and bits b.

    Parameters
    ----------
    mechanism : IntegerMechanism
        With its target; ``clip_norm`` matters only to ``beta="theory"``, and little.
    n_clients : int
        Messages in the sum.
    """

    def __init__(self, mechanism: IntegerMechanism, n_clients: int) -> None:
        self.mechanism, self.n_clients = mechanism, n_clients
        self._problem = lru_cache(maxsize=None)(self._make_problem)
        self._rough_problem = lru_cache(maxsize=None)(self._make_rough_problem)
        self._at = lru_cache(maxsize=None)(self._variance)
        fine = _FINE * math.sqrt(n_clients)
        exact = mechanism.grid_problem(n_clients, 2)
        self._ratio = exact.variance_for(fine) / fine**2
        #: The variance that is left with unlimited bits.
        self.limit = self._ratio / n_clients

    def padded(self, m: int) -> int:
        """Return the coordinates of a message for sketches of length m."""
        return padded_dim(self.mechanism.rotation, m)

    def bits(self, m: int, b: int) -> int:
        """Return the payload of a message."""
        return self.padded(m) * b

    def variance(self, m: int, b: int) -> float:
        """Return the variance; infinite where the modulus is too small."""
        return self._at(self.padded(m), b)

    def smallest_bits(self, m: int) -> int:
        """Return the fewest bits that hold the sum; may exceed what any modulus offers."""
        return self._problem(self.padded(m)).smallest_bits

    def least_bits(self, m: int) -> int:
        """Return a number of bits below which none hold the sum, found faster."""
        problem = self._rough_problem if self._gaussian else self._problem
        return problem(self.padded(m)).smallest_bits

    def _variance(self, dim: int, b: int) -> float:
        if self._gaussian:
            # Far from coarse grids the noise is a multiple of B, which needs no accounting; on
            # coarse ones it is more, so what this finds too coarse is too coarse.
            found = self._on_finest_grid(self._rough_problem(dim), b)
            if found is None or found[1] >= _LIKE_GAUSSIANS:
                return self._decoded(found)
        return self._decoded(self._on_finest_grid(self._problem(dim), b))

    @property
    def _gaussian(self) -> bool:
        mechanism = self.mechanism
        return mechanism.name == "ddg" and mechanism.noise_multiplier is None

    def _on_finest_grid(self, problem: GridProblem, b: int) -> tuple[float, float] | None:
        """Return u and the noise variance on the finest grid that b bits hold, if any."""
        try:
            u = problem.finest(b)
        except InfeasibleError:
            return None
        return u, problem.variance_for(problem.bound(u))

    def _decoded(self, found: tuple[float, float] | None) -> float:
        if found is None:
            return math.inf
        u, variance = found
        return (variance + ROUNDING_VARIANCE) / (u * u * self.n_clients)

    def _make_problem(self, dim: int) -> GridProblem:
        return self.mechanism.grid_problem(self.n_clients, dim)

    def _make_rough_problem(self, dim: int) -> GridProblem:
        return replace(self._problem(dim), variance_for=lambda bound: self._ratio * bound * bound)

    @property
    def max_bits(self) -> int:
        """The widest modulus."""
        return MAX_BITS
