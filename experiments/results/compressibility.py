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
    singular_values: list[float]  # the leading ones, for pictures


@dataclass(frozen=True)
class Compressibility:
    """How much of the energy of the mean few numbers hold."""

    #: Coordinates that hold 50, 90 and 99 % of the energy, the largest first.
    coordinates: dict[float, int]
    #: Number of coordinates against share of the energy, for pictures.
    curve: list[tuple[int, float]]
    layers: list[LayerEnergy]  # the same by layer, with ranks


def compressibility(
    truth: NDArray[np.float64], shapes: Mapping[str, tuple[int, ...]]
) -> Compressibility:
    """Measure how few coordinates, and by layer how low a rank, hold the energy of the mean."""
    shares = _cumulative_shares(truth**2)
    points = np.unique(np.geomspace(1, len(truth), 200).astype(int))
    return Compressibility(
        coordinates=_needed(shares),
        curve=[(int(k), float(shares[k - 1])) for k in points],
        layers=[
            _layer(name, truth[part], shapes[name], float(truth @ truth))
            for name, part in layer_slices(shapes).items()
        ],
    )


def _layer(
    name: str, values: NDArray[np.float64], shape: tuple[int, ...], total: float
) -> LayerEnergy:
    share = float(values @ values) / total
    matrix = values.reshape(-1, shape[-1])  # further axes are merged, as the denoiser does
    if len(shape) < 2 or min(matrix.shape) < 2 or min(matrix.shape) > _LARGEST_SIDE or not share:
        return LayerEnergy(name, shape, share, None, [])
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    squares = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    return LayerEnergy(
        name, shape, share, _needed(_cumulative_shares(squares)), np.sqrt(squares[:200]).tolist()
    )


def _cumulative_shares(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    cumulative = np.cumsum(np.sort(squares)[::-1])
    shares: NDArray[np.float64] = cumulative / cumulative[-1]
    return shares


def _needed(shares: NDArray[np.float64]) -> dict[float, int]:
    last = len(shares) - 1
    return {q: min(int(np.searchsorted(shares, q * (1 - 1e-12))), last) + 1 for q in SHARES}
