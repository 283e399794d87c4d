"""From a Rényi curve to numbers: ε at a δ, and the paper's zCDP ε.

ε(δ) = min_α  ε(α) + log(1 − 1/α) − log(αδ)/(α − 1),     ε_zCDP = sup_α √(2ε(α)/α).
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.privacy.curves import check_orders

__all__ = ["rdp_to_dp", "rdp_to_zcdp", "smallest_epsilon", "stated"]


def rdp_to_dp(
    orders: ArrayLike, rdp: ArrayLike, delta: float, total_variation: float = 0.0
) -> float:
    """Return the smallest ε such that the curve implies (ε, δ)-DP.

    Parameters
    ----------
    orders, rdp : array-like
        The curve: orders α > 1 and ε(α) ≥ 0 (infinite where nothing is claimed).
    delta : float
        Failure probability δ, strictly between 0 and 1.
    total_variation : float
        Distance of the noise actually drawn from the noise the curve is about. It is charged to
        δ: the curve has to give (ε, δ − (1 + e^ε)·total_variation).

    Returns
    -------
    float
        The least ε; infinite if the curve gives none at this δ.

    Raises
    ------
    ValueError
        If the curve is negative, not a number or of another shape than the orders, or δ or the
        distance is out of range.

    See Also
    --------
    rdp_to_zcdp : The paper's ε of the same curve.
    Ledger : Adds curves up before they are converted.

    Examples
    --------
    >>> from sparse_secagg.privacy import DEFAULT_ORDERS, gaussian_rdp, rdp_to_dp
    >>> one = gaussian_rdp(DEFAULT_ORDERS, noise_multiplier=10.0)
    >>> round(rdp_to_dp(DEFAULT_ORDERS, one, delta=1e-5), 3)
    0.375
    >>> round(rdp_to_dp(DEFAULT_ORDERS, 4 * one, delta=1e-5), 3)  # four such rounds
    0.795
    """
    orders = check_orders(orders)
    rdp = np.asarray(rdp, dtype=np.float64)
    if rdp.shape != orders.shape:
        raise ValueError(f"rdp has shape {rdp.shape}, but orders has {orders.shape}.")
    if np.isnan(rdp).any() or (rdp < 0).any():
        raise ValueError("rdp holds NaN or negative values; a Rényi divergence is neither.")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie strictly between 0 and 1.")
    if not 0 <= total_variation < math.inf:
        raise ValueError(f"total_variation={total_variation} must be at least 0.")
    epsilon = _convert(orders, rdp, delta)
    if total_variation == 0 or math.isinf(epsilon):
        return epsilon
    guess = epsilon + 1e-9
    while guess < 700:  # e^guess must stay finite
        remaining = delta - (1.0 + math.exp(guess)) * total_variation
        if remaining <= 0:
            break
        epsilon = _convert(orders, rdp, remaining)
        if epsilon <= guess:
            return epsilon
        guess = epsilon + 2.0 * (epsilon - guess)
    return math.inf


def _convert(orders: NDArray[Any], rdp: NDArray[Any], delta: float) -> float:
    # TV <= sqrt(1 - exp(-KL)) and KL <= every Rényi divergence: ε = 0 when that is below δ.
    if (delta**2 + np.expm1(-rdp) > 0).any():
        return 0.0
    return _smallest_candidate(orders, rdp, delta)


def _smallest_candidate(orders: NDArray[Any], rdp: NDArray[Any] | float, delta: float) -> float:
    candidates = rdp + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return max(0.0, float(candidates.min()))


def smallest_epsilon(orders: ArrayLike, delta: float) -> float:
    """Return the least ε that these orders can tell from 0 at this δ: that of no divergence.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    delta : float
        Failure probability δ.

    Returns
    -------
    float
        The least ε; 0 if every one can be told.

    See Also
    --------
    rdp_to_dp : The conversion that this is a limit of.

    Examples
    --------
    >>> from sparse_secagg.privacy import DEFAULT_ORDERS
    >>> from sparse_secagg.privacy.conversion import smallest_epsilon
    >>> round(smallest_epsilon(DEFAULT_ORDERS, delta=1e-6), 4)
    0.0011
    """
    return _smallest_candidate(check_orders(orders), 0.0, delta)


def stated(value: float, digits: int = 4) -> str:
    """Return ε or δ in so many digits, rounded up: what is promised is never less than was spent.

    Parameters
    ----------
    value : float
        The number.
    digits : int
        Significant digits.

    Returns
    -------
    str
        Its shortest decimal form, or the next above with so many digits.

    See Also
    --------
    rdp_to_dp : Where ε comes from.

    Examples
    --------
    >>> from sparse_secagg.privacy.conversion import stated
    >>> stated(0.12345), stated(1.1), stated(1.23449e-06, 3)
    ('0.1235', '1.1', '1.24e-06')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(rounded):.{digits}g}"


def rdp_to_zcdp(orders: ArrayLike, rdp: ArrayLike) -> float:
    """Return the paper's ε of a curve: the smallest with ε(α) ≤ ½ε²·α at every order claimed.

    Orders at which the curve is infinite claim nothing (Skellam's theorem is about integers);
    a curve that is infinite at all of them gives ∞.

    Parameters
    ----------
    orders, rdp : array-like
        The curve: orders α > 1 and ε(α) ≥ 0.

    Returns
    -------
    float
        The ε by which the mechanism is ½ε²-zCDP.

    Raises
    ------
    ValueError
        If an order is not above 1.

    See Also
    --------
    rdp_to_dp : The ε that goes with a δ.

    Examples
    --------
    >>> from sparse_secagg.privacy import gaussian_rdp, rdp_to_zcdp
    >>> rdp_to_zcdp([2.0, 4.0], gaussian_rdp([2.0, 4.0], noise_multiplier=2.0))  # 1/z
    0.5
    """
    orders = check_orders(orders)
    rdp = np.asarray(rdp, dtype=np.float64)
    finite = np.isfinite(rdp)
    return float(np.sqrt(2.0 * (rdp[finite] / orders[finite]).max())) if finite.any() else math.inf
