"""The trusted-server baseline: clients send exact values, the server adds the noise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.mechanisms.base import (
    ROUNDING_VARIANCE,
    IntegerMechanism,
    gaussian_multiplier,
    rational_above,
)
from sparse_secagg.mechanisms.calibration import least_noise
from sparse_secagg.mechanisms.parameters import MechanismParameters
from sparse_secagg.mechanisms.randomness import Randomness, as_randomness
from sparse_secagg.mechanisms.sampling import discrete_gaussian
from sparse_secagg.mechanisms.sums import centre
from sparse_secagg.privacy.curves import gaussian_rdp, norm_bound, sensitivity_factor
from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.validation import check_integer

__all__ = ["CentralGaussian"]

#: Grid units in a clip, at least: fine enough that rounding does not show beside the noise.
_RESOLUTION = 4096.0


def central_grid_rdp(
    orders: NDArray[np.float64],
    bound: float,
    variance: float,
    n_shares: int,
    dim: int,
    adjacency: str = "zero_out",
) -> NDArray[np.float64]:
    """Return the curve of one discrete Gaussian on the sum: the Gaussian's, at any variance."""
    return gaussian_rdp(orders, math.sqrt(variance) / (bound * sensitivity_factor(adjacency)))


class CentralGaussian(IntegerMechanism):
    """Central differential privacy: the best a distributed mechanism can hope to match.

    Clients clip and send their values on a fine grid, without noise; the server adds one discrete
    Gaussian N_Z(0, σ²/γ²) to the sum, whose curve is the Gaussian's, α/(2z²). **Privacy holds
    only if the server is trusted**: it sees the exact sum. Nothing is rotated, and ``n_bits`` is
    a result here (``parameters_.n_bits``), not a request. Each ``decode`` draws new noise and is
    one release.

    Parameters
    ----------
    {parameters}

    See Also
    --------
    DiscreteGaussian : Needs no trusted server.

    Examples
    --------
    >>> from sparse_secagg import CentralGaussian
    >>> mechanism = CentralGaussian(noise_multiplier=2.0)
    >>> mechanism.calibrate(n_clients=10, dim=4).mechanism
    'central'
    """

    name = "central"

    grid_rdp = staticmethod(central_grid_rdp)
    near_gaussian = True
    central = True

    def _noise(self, variance: Fraction, size: int, rng: Randomness) -> NDArray[Any]:
        return np.zeros(size, dtype=np.int64)

    def calibrate(self, n_clients: int, dim: int) -> MechanismParameters:
        """Choose the noise, and a grid so fine that rounding costs less than 1 % of it."""
        self.check(n_clients, dim)
        beta = math.exp(-0.5) if isinstance(self.beta, str) else float(self.beta)
        if self.noise_multiplier is None:
            z = gaussian_multiplier(self.epsilon, self.delta, self.rounds)
            z *= sensitivity_factor(self.adjacency)
        else:
            z = float(self.noise_multiplier)
        # B ≤ 1.01·u, and the rounding of n clients stays below 1 % of the noise.
        u = max(_RESOLUTION, 8.0 * math.sqrt(dim))
        u = max(u, 5.0 * math.sqrt(n_clients) / z if z > 0 else 256.0 * math.sqrt(n_clients))
        gamma = float(self.clip_norm / u)
        bound = norm_bound(self.clip_norm / gamma, dim, beta)
        variance = Fraction(0)
        if z > 0:
            wanted = (z * bound) ** 2
            if self.noise_multiplier is None:

                def epsilon_at(v: float) -> float:
                    return self._epsilon(bound, v, 1, dim, n_clients)

                wanted = least_noise(epsilon_at, self.epsilon, wanted, 1e-6)
            variance = rational_above(wanted)
        self.parameters_ = MechanismParameters(
            mechanism=self.name,
            n_clients=int(n_clients),
            min_survivors=self._survivors(n_clients),
            colluders=int(self.colluders),
            dim=int(dim),
            padded_dim=int(dim),
            clip_norm=float(self.clip_norm),
            gamma=gamma,
            variance=variance,
            n_bits=math.ceil(math.log2(2 * n_clients * (bound + 1))),
            beta=beta,
            norm_bound=bound,
            squared_bound=math.floor(Fraction(bound) ** 2),
            rotation="none",
            seed=resolve_seed(self.random_state),
            adjacency=self.adjacency,
        )
        return self.parameters_

    def _rotate(self, Y: NDArray[np.float64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
        return Y * factors[:, None]

    def decode(
        self, total: ArrayLike, n_survivors: int, rng: Randomness | None = None
    ) -> NDArray[np.float64]:
        """Add the server's noise to the sum and return the mean: one private release."""
        p = self._calibrated()
        check_integer("n_survivors", n_survivors, 1)
        sums = centre(np.asarray(total, dtype=np.uint64), p.modulus).astype(np.float64)
        if p.variance:
            noise = discrete_gaussian(p.variance, sums.shape, as_randomness(rng))
            sums += noise.astype(np.float64)
        return sums * (p.gamma / n_survivors)

    def noise_std(self, n_survivors: int | None = None) -> float:
        """Return the standard deviation of a coordinate of the decoded mean."""
        p = self._calibrated()
        k = p.n_clients if n_survivors is None else n_survivors
        check_integer("n_survivors", k, 1)
        return p.gamma * math.sqrt(float(p.variance) + ROUNDING_VARIANCE * k) / k
