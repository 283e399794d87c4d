"""A recorded round prepared for evaluation: its clip, its truth and the seed of its noise.

The truth is the mean of the clipped clients: that is what a round estimates. Rounds are read in
blocks, so that one larger than memory will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_BLOCK_BYTES = 2**25

#: A round with at most this share of nonzeros, and so many of them, is kept as a sparse matrix.
_SPARSE_UP_TO = 0.1
_MOST_NONZEROS = 2**26


@dataclass(frozen=True)
class RoundData:
    """A round, ready for evaluation."""

    X: Any  # the updates as recorded, a memory map or csr_array of shape (n, d)
    truth: NDArray[np.float64]  # mean of the clipped updates: what decoders estimate
    clip_norm: float
    n_clipped: int
    n_nonfinite: int  # updates with NaN or Inf, which count as zero


def prepare_round(number: int, X: NDArray[np.float32], clip_norm: float) -> RoundData:
    """Read a round (n, d) twice: its norms, then the mean of its clipped clients."""
    norms, data = row_norms(X), _read(X)
    with np.errstate(divide="ignore"):
        factors = np.where(np.isfinite(norms), np.minimum(1.0, clip_norm / norms), 0.0)
    truth = _weighted_sum(data, factors) / len(norms)
    if not truth.any():
        raise ValueError(f"round {number}: the mean of the updates is zero; nothing to measure.")
    return RoundData(
        X=data,
        truth=truth,
        clip_norm=clip_norm,
        # unit vectors rounded to 32 bits are not above a clip of 1; NaN compares as False
        n_clipped=int(np.count_nonzero(norms > (1 + 1e-6) * clip_norm)),
        n_nonfinite=int(np.count_nonzero(np.isnan(norms))),
    )


def median_norm(number: int, X: NDArray[np.float32]) -> float:
    """Return the median norm of those who sent a finite vector other than zero."""
    norms = row_norms(X)
    sent = norms[norms > 0]  # neither zeros nor NaN
    if not len(sent):
        raise ValueError(
            f"round {number}: no update is a finite vector other than zero, so there is no median "
            "norm to clip at; give clip_norm."
        )
    return float(np.median(sent))


def row_norms(X: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the norm of each row, read in blocks; NaN for a row with NaN or Inf."""
    norms = np.empty(len(X))
    for rows in _row_slices(X):
        block = np.asarray(X[rows])
        with np.errstate(over="ignore", invalid="ignore"):
            # squares of 32-bit floats are within the range of 64-bit ones
            norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
    norms[~np.isfinite(norms)] = np.nan
    return norms


def _read(X: NDArray[np.float32]) -> Any:
    """Return X, as a sparse matrix if it is one: that is many times faster to sketch."""
    blocks: list[sp.csr_array] = []
    nonzeros = 0
    for rows in _row_slices(X):
        blocks.append(sp.csr_array(np.asarray(X[rows])))
        nonzeros += blocks[-1].nnz
        if nonzeros > _SPARSE_UP_TO * rows.stop * X.shape[1] or nonzeros > _MOST_NONZEROS:
            return X
    return sp.csr_array(sp.vstack(blocks, format="csr"))


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


def draw_seed(seed: int, number: int) -> int:
    """Return the seed of sketch and noise of a recorded round: another one for each round."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
