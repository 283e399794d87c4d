"""From a result to what it costs and means: the ε of the noise that survived, public weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.secagg.result import AggregationResult

#: ε(α) of one round as a function of the orders and of the shares of noise in the sum.
CurveOfShares = Callable[[NDArray[np.float64], int], ArrayLike]


def realised_epsilon(
    result: AggregationResult,
    rdp: CurveOfShares,
    delta: float,
    colluders: Iterable[int] = (),
    orders: ArrayLike | None = None,
    total_variation: float = 0.0,
) -> float:
    """Return the ε of the round as it went: only honest survivors' noise counts.

    Parameters
    ----------
    result : AggregationResult
        The round.
    rdp : callable
        ``rdp(orders, n_shares)``: the mechanism's curve when the sum holds ``n_shares`` shares of
        noise: the ``rdp`` method of a calibrated mechanism.
    delta : float
        δ in (0, 1).
    colluders : iterable of int
        Rows of clients whose noise the server may know.
    orders : array-like, optional
        Orders; by default those of the accountant.
    total_variation : float
        Distance of the noise from what the curve is about: the mechanism's ``total_variation()``.

    Returns
    -------
    float
        ε, infinite if no noise of an honest client is left.
    """
    from sparse_secagg.accounting import DEFAULT_ORDERS, rdp_to_dp

    shares = result.noise_shares(colluders)
    if shares == 0:
        return math.inf
    orders = np.asarray(DEFAULT_ORDERS if orders is None else orders, dtype=np.float64)
    return rdp_to_dp(orders, rdp(orders, shares), delta, total_variation)


def unit_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Return public weights scaled to at most 1, to multiply vectors with before they are clipped.

    Clipping after weighting keeps the sensitivity that of one unweighted client.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("weights must be finite and at least 0, one a client.")
    if not (weights > 0).any():
        raise ValueError("weights are all zero; at least one client must count.")
    return weights / weights.max()


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
