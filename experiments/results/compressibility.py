"""How compressible the mean of a recorded round is: how few numbers hold its energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.models.architectures import layer_slices

#: Layers whose smaller side is above this get no rank: their Gram matrix would take minutes.
_LARGEST_SIDE = 4096

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class LayerEnergy:
    """One layer of the mean update."""

    name: str
    shape: tuple[int, ...]
    share: float  # its share of the energy ‖μ‖²
    #: Rank that holds 50, 90 and 99 % of its energy; None for vectors and for very large layers.
    ranks: dict[float, int] | None


@dataclass(frozen=True)
class Compressibility:
    """How much of the energy of the mean few numbers hold."""

    #: Coordinates that hold 50, 90 and 99 % of the energy, the largest first.
    coordinates: dict[float, int]
    layers: list[LayerEnergy]  # the same by layer, with ranks


def compressibility(
    truth: NDArray[np.float64], shapes: Mapping[str, tuple[int, ...]]
) -> Compressibility:
    """Measure how few coordinates, and by layer how low a rank, hold the energy of the mean."""
    total = float(truth @ truth)
    layers = []
    for name, part in layer_slices(shapes).items():
        values, shape = truth[part], shapes[name]
        layers.append(
            LayerEnergy(name, shape, float(values @ values) / total, _ranks(values, shape))
        )
    return Compressibility(_needed(truth**2), layers)


def _ranks(values: NDArray[np.float64], shape: tuple[int, ...]) -> dict[float, int] | None:
    matrix = values.reshape(-1, shape[-1])  # further axes are merged, as the denoiser does
    smaller = min(matrix.shape)
    if len(shape) < 2 or not 2 <= smaller <= _LARGEST_SIDE or not values.any():
        return None
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    return _needed(np.maximum(np.linalg.eigvalsh(gram), 0.0))


def _needed(squares: NDArray[np.float64]) -> dict[float, int]:
    cumulative = np.cumsum(np.sort(squares)[::-1])
    shares, last = cumulative / cumulative[-1], len(squares) - 1
    return {q: min(int(np.searchsorted(shares, q * (1 - 1e-12))), last) + 1 for q in SHARES}
