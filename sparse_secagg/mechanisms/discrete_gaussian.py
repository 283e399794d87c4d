"""DDG, the distributed discrete Gaussian: every client adds exact discrete Gaussian noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.base import IntegerMechanism
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.mechanisms.sampling import discrete_gaussian
from sparse_secagg.privacy.curves import ddg_grid_rdp

__all__ = ["DiscreteGaussian"]


class DiscreteGaussian(IntegerMechanism):
    """The distributed discrete Gaussian mechanism (Algorithm "detailed").

    Each client adds N_Z(0, σ²/γ²) to its rounded, checked vector. A sum of discrete Gaussians is
    not one, and the accounting pays for the difference.

    Parameters
    ----------
    {parameters}

    See Also
    --------
    Skellam : Other noise, the same contract.
    CentralGaussian : For a server that is trusted.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg.mechanisms.randomness import SimulationRandomness
    >>> mechanism = DiscreteGaussian(epsilon=8.0, n_bits=18, random_state=0)
    >>> parameters = mechanism.calibrate(n_clients=100, dim=50)
    >>> y = np.full((100, 50), 0.1)
    >>> total = mechanism.encode(y, SimulationRandomness(1)).sum(axis=0) % parameters.modulus
    >>> bool(np.abs(mechanism.decode(total, 100) - 0.1).max() < 5 * mechanism.noise_std())
    True
    """

    name = "ddg"

    grid_rdp = staticmethod(ddg_grid_rdp)
    near_gaussian = True

    def _noise(self, variance: Fraction, size: int, rng: Randomness) -> NDArray[Any]:
        if variance == 0:
            return np.zeros(size, dtype=np.int64)
        return discrete_gaussian(variance, size, rng)
