"""A recorded round as it is compared: the clipped mean, and how compressible it is.

Rounds are read in blocks, so that one larger than memory can be compared. A round of mostly zeros,
as presence vectors are, is kept as a sparse matrix, which is many times faster to sketch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_BLOCK_BYTES = 2**25

#: A round with at most this share of nonzeros, and so many of them, is kept as a sparse matrix.
_SPARSE_UP_TO = 0.1
_MOST_NONZEROS = 2**26

#: Layers whose smaller side is above this get no rank: their Gram matrix would take minutes.
_LARGEST_SIDE = 4096

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class LayerEnergy:
    """One layer of the mean update.

    Attributes
    ----------
    name : str
        Its name.
    shape : tuple of int
        Its shape.
    share : float
        Its share of the energy ‖μ‖².
    ranks : dict of float to int, or None
        Rank that holds 50, 90 and 99 % of its energy; None for vectors and for very large layers.
    singular_values : list of float
        The leading ones, for pictures.
    """

    name: str
    shape: tuple[int, ...]
    share: float
    ranks: dict[float, int] | None
    singular_values: list[float]


@dataclass(frozen=True)
class Compressibility:
    """How much of the energy of the mean few numbers hold.

    Attributes
    ----------
    coordinates : dict of float to int
        Coordinates that hold 50, 90 and 99 % of the energy, the largest first.
    curve : list of (int, float)
        Number of coordinates against share of the energy, for pictures.
    layers : list of LayerEnergy
        The same by layer, with ranks.
    """

    coordinates: dict[float, int]
    curve: list[tuple[int, float]]
    layers: list[LayerEnergy]


@dataclass(frozen=True)
class RoundData:
    """A round, ready to be compared.

    Attributes
    ----------
    number : int
        Its number in the recording.
    X : memory map or csr_array of shape (n, d)
        The updates as recorded.
    truth : ndarray of shape (d,)
        Mean of the clipped updates: what decoders estimate.
    clip_norm : float
        The clip.
    clip_source : str
        Where it is from.
    n_clipped, n_nonfinite : int
        Updates above the clip, and updates with NaN or Inf, which count as zero.
    """

    number: int
    X: Any
    truth: NDArray[np.float64]
    clip_norm: float
    clip_source: str
    n_clipped: int
    n_nonfinite: int


def prepare_round(
    number: int, X: NDArray[np.float32], recorded: float | None, given: float | None
) -> RoundData:
    """Read a round once or twice: its norms, then its clipped mean.

    Parameters
    ----------
    number : int
        Of the round.
    X : array of shape (n, d)
        As recorded.
    recorded, given : float or None
        The recording's clip, and one that overrides it. With neither, the median norm.
    """
    norms, data = _norms(X)
    finite = norms[np.isfinite(norms)]
    if given is not None:
        clip, source = given, "given"
    elif recorded is not None:
        clip, source = recorded, "recorded"
    else:
        clip, source = float(np.median(finite)) if len(finite) else 0.0, "the median norm"
    if not clip > 0:
        raise ValueError(
            f"round {number}: half of the updates are zero, so their median norm is no clip; "
            "give clip_norm."
        )
    with np.errstate(divide="ignore"):
        factors = np.where(np.isfinite(norms), np.minimum(1.0, clip / norms), 0.0)
    truth = _weighted_sum(data, factors) / len(norms)
    if not truth.any():
        raise ValueError(f"round {number}: the mean of the updates is zero; nothing to compare.")
    return RoundData(
        number=number,
        X=data,
        truth=truth,
        clip_norm=clip,
        clip_source=source,
        # unit vectors rounded to 32 bits are not above a clip of 1
        n_clipped=int(np.count_nonzero(finite > (1 + 1e-6) * clip)),
        n_nonfinite=len(norms) - len(finite),
    )


def _norms(X: NDArray[np.float32]) -> tuple[NDArray[np.float64], Any]:
    """Return the rows' norms, NaN for those with NaN or Inf; and X, as a sparse matrix if it is."""
    n, d = X.shape
    norms = np.empty(n)
    blocks: list[sp.csr_array] | None = []
    nonzeros = 0
    for rows in _row_slices(X):
        block = np.asarray(X[rows])
        if blocks is not None:
            blocks.append(sp.csr_array(block))
            nonzeros += blocks[-1].nnz
            if nonzeros > _SPARSE_UP_TO * rows.stop * d or nonzeros > _MOST_NONZEROS:
                blocks = None
        with np.errstate(over="ignore", invalid="ignore"):
            # squares of 32-bit floats are within the range of 64-bit ones
            norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
    norms[~np.isfinite(norms)] = np.nan
    return norms, X if blocks is None else sp.csr_array(sp.vstack(blocks, format="csr"))


def _weighted_sum(X: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ_i weights_i·x_i; a weight of 0 takes a row out, whatever is in it."""
    total = np.zeros(X.shape[1])
    for rows in _row_slices(X):
        kept = np.flatnonzero(weights[rows])
        if len(kept):
            total += X[rows][kept].T @ weights[rows][kept]
    return total


def _row_slices(X: Any) -> list[slice]:
    n, d = X.shape
    step = max(1, _BLOCK_BYTES // (8 * d))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


# --- compressibility -------------------------------------------------------------------------


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


def layer_slices(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, slice]:
    """Return where each layer lies in the flat vector."""
    slices, start = {}, 0
    for name, shape in shapes.items():
        slices[name] = slice(start, start + math.prod(shape))
        start = slices[name].stop
    return slices


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
    return cumulative / cumulative[-1]


def _needed(shares: NDArray[np.float64]) -> dict[float, int]:
    last = len(shares) - 1
    return {q: min(int(np.searchsorted(shares, q * (1 - 1e-12))), last) + 1 for q in SHARES}
