"""The Skellam mechanism: Poisson differences, which add up to the same family."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.base import IntegerMechanism
from sparse_secagg.mechanisms.poisson import skellam
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.privacy.curves import skellam_grid_rdp

__all__ = ["Skellam"]


class Skellam(IntegerMechanism):
    """The Skellam mechanism behind the same contract as the distributed discrete Gaussian.

    Each client adds X − Y with X, Y ~ Poisson(σ²/(2γ²)). The sum of Skellam variables is Skellam,
    so nothing is paid for adding up; the curve itself is a little above the Gaussian's. Draws are
    exact.

    Parameters
    ----------
    {parameters}

    See Also
    --------
    DiscreteGaussian : The default.

    Examples
    --------
    >>> from sparse_secagg import Skellam
    >>> Skellam(epsilon=2.0, n_bits=18).calibrate(n_clients=100, dim=50).mechanism
    'skellam'
    """

    name = "skellam"
    _max_variance = 2e8  # twenty tables a draw

    grid_rdp = staticmethod(skellam_grid_rdp)

    def _noise(self, variance: Fraction, size: int, rng: Randomness) -> NDArray[Any]:
        if variance == 0:
            return np.zeros(size, dtype=np.int64)
        return skellam(variance, size, rng)
