"""Public weights: applied before clipping, divided out afterwards."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.secagg.result import AggregationResult


def unit_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Return public weights scaled to at most 1, to multiply vectors with before they are clipped.

    Clipping after weighting keeps the sensitivity that of one unweighted client.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("weights must be finite and at least 0, one a client.")
    if not (weights > 0).any():
        raise ValueError("weights are all zero; at least one client must count.")
    return np.asarray(weights / weights.max())


def survivor_weight(weights: ArrayLike, result: AggregationResult) -> float:
    """Return the survivors' total weight, the number to divide a weighted sum by.

    A mechanism's ``decode`` divides by the number of survivors; the weighted mean is its result
    times ``result.n_survivors / survivor_weight(weights, result)``.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != result.cohort.shape:
        raise ValueError(
            f"weights has shape {weights.shape}; the round had {len(result.cohort)} clients."
        )
    total = float(weights[result.survivors].sum())
    if total <= 0:
        raise ValueError("the survivors' weights add up to zero; there is no mean of them.")
    return total
