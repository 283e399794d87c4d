"""Public weights: applied before clipping, divided out afterwards."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.secagg.result import AggregationResult


def unit_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Return public weights scaled to at most 1, to multiply vectors with before they are clipped.

    Clipping after weighting keeps the sensitivity that of one unweighted client.

    Parameters
    ----------
    weights : array-like of shape (n,)
        Public weights, at least 0. They must not depend on private data.

    Returns
    -------
    ndarray of shape (n,)
        The weights over the largest.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or all are zero.

    See Also
    --------
    survivor_weight : What to divide the sum by.

    Examples
    --------
    >>> from sparse_secagg.secagg import unit_weights
    >>> unit_weights([1, 2, 4]).tolist()
    [0.25, 0.5, 1.0]
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

    Parameters
    ----------
    weights : array-like of shape (n,)
        The clients' weights, from :func:`unit_weights`.
    result : AggregationResult
        The round, which knows who survived.

    Returns
    -------
    float
        Total weight of the survivors, above 0.

    Raises
    ------
    ValueError
        If there is not one weight for each client, or the survivors have none.

    See Also
    --------
    unit_weights : Scales the weights.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> from sparse_secagg.secagg import survivor_weight
    >>> result = IdealSecAgg(modulus=16).aggregate(np.ones((3, 2), int), dropouts=[1])
    >>> survivor_weight([0.25, 0.5, 1.0], result)
    1.25
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
