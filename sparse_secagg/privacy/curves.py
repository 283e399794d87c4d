"""Rényi curves of one round: ε(α) of the Gaussian, the distributed discrete Gaussian and Skellam.

Curves of integer mechanisms are written on the integer grid: B bounds the ℓ₂ norm of one client's
rounded vector, s² = σ²/γ² is the variance parameter of one client's noise, n the number of noise
shares in the sum and D the dimension. Outside the range of its theorem a curve is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.validation import check_positive

__all__ = [
    "DEFAULT_ORDERS",
    "INTEGER_ORDERS",
    "MIN_VARIANCE",
    "Curve",
    "check_orders",
    "ddg_grid_rdp",
    "ddg_rdp",
    "discrete_sum_gap",
    "gaussian_rdp",
    "norm_bound",
    "sensitivity_factor",
    "skellam_grid_rdp",
    "skellam_rdp",
]

#: ε(α) of one mechanism as a function of the orders.
Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]

INTEGER_ORDERS: tuple[float, ...] = (*map(float, range(2, 129)), 256.0)

#: The integer orders; fractional ones, which matter at large ε; and large ones, at small ε.
DEFAULT_ORDERS: tuple[float, ...] = tuple(
    sorted(
        {1.0 + k / 20 for k in range(1, 20)}
        | {k / 4 for k in range(8, 41)}
        | set(INTEGER_ORDERS)
        | {192.0, 384.0, 512.0, 768.0, 1024.0, 2048.0, 4096.0}
    )
)

#: A client's vector is replaced by zero, or by any other vector within the clip.
_SENSITIVITY_FACTOR = {"zero_out": 1.0, "replace_one": 2.0}

#: s ≥ ½, the condition of the theorem on sums of discrete Gaussians.
MIN_VARIANCE = 0.25

#: Terms of τ summed one by one; the later ones are bounded by the last of these.
_TAU_TERMS = 10_000


def gaussian_rdp(orders: ArrayLike, noise_multiplier: float) -> NDArray[np.float64]:
    """Return ε(α) = α/(2z²), the curve of the Gaussian mechanism at noise multiplier z.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    noise_multiplier : float
        Standard deviation z of the noise, over the sensitivity.

    Returns
    -------
    ndarray
        The curve at the orders; infinite for z = 0.

    Raises
    ------
    ValueError
        If an order is not above 1, or the multiplier is negative or not a number.

    See Also
    --------
    rdp_to_dp : From a curve to ε at a δ.
    ddg_rdp : The curve of noise that is added in shares.

    Examples
    --------
    >>> from sparse_secagg.privacy import gaussian_rdp
    >>> gaussian_rdp([2.0, 4.0], noise_multiplier=2.0).tolist()
    [0.25, 0.5]
    """
    orders = check_orders(orders)
    z = check_positive("noise_multiplier", noise_multiplier, or_zero=True)
    if z * z == 0:
        return np.full(orders.shape, np.inf)
    return orders / (2.0 * z * z)


def norm_bound(scaled_clip: float, dim: int, beta: float) -> float:
    """Return B, the norm that conditional rounding enforces (Algorithm "detailed").

    B = min{u + √D, sqrt(u² + D/4 + √(2 ln 1/β)·(u + √D/2))} with u = c'/γ; β = 0: the first.

    Parameters
    ----------
    scaled_clip : float
        Clip in grid units, u = c'/γ.
    dim : int
        Dimension D after padding.
    beta : float
        Bias parameter β of conditional rounding, in [0, 1).

    Returns
    -------
    float
        B, in grid units.

    Raises
    ------
    ValueError
        If β lies outside [0, 1), or another argument is out of range.

    See Also
    --------
    ddg_grid_rdp : What the bound costs.

    Examples
    --------
    >>> from sparse_secagg.privacy import norm_bound
    >>> norm_bound(100.0, 400, beta=0.0)
    120.0
    >>> round(norm_bound(100.0, 400, beta=0.6), 1)
    101.1
    """
    u = check_positive("scaled_clip", scaled_clip, or_zero=True)
    check_positive("dim", dim)
    if not 0 <= beta < 1:
        raise ValueError(f"beta={beta} must lie in [0, 1); the usual choice is exp(-1/2).")
    root = math.sqrt(dim)
    always = u + root
    if beta == 0:
        return always
    spread = math.sqrt(2.0 * math.log(1.0 / beta))
    return min(always, math.sqrt(u * u + dim / 4.0 + spread * (u + root / 2.0)))


def ddg_rdp(
    orders: ArrayLike,
    *,
    gamma: float,
    sigma: float,
    n_clients: int,
    clip_norm: float,
    dim: int,
    beta: float = math.exp(-0.5),
    adjacency: str = "zero_out",
) -> NDArray[np.float64]:
    """Return the curve of the distributed discrete Gaussian.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    gamma : float
        Granularity γ of the integer grid.
    sigma : float
        Noise of one client, in the units of the data; the grid noise is σ/γ.
    n_clients : int
        Noise shares in the sum: the honest survivors.
    clip_norm : float
        Clip c' on the ℓ₂ norm of one client's vector.
    dim : int
        Dimension D after padding.
    beta : float
        Bias parameter of conditional rounding.
    adjacency : {"zero_out", "replace_one"}
        What a neighbouring data set is.

    Returns
    -------
    ndarray
        The curve at the orders; infinite where σ/γ < ½, outside the theorem.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    See Also
    --------
    ddg_grid_rdp : The same in grid units.
    gaussian_rdp : What it approaches on a fine grid.

    Examples
    --------
    >>> from sparse_secagg.privacy import ddg_rdp, gaussian_rdp
    >>> ours = ddg_rdp([2.0], gamma=0.01, sigma=0.2, n_clients=100, clip_norm=1.0, dim=64)
    >>> bool(1 < ours[0] / gaussian_rdp([2.0], noise_multiplier=2.0)[0] < 1.05)
    True
    """
    gamma = check_positive("gamma", gamma)
    bound = norm_bound(check_positive("clip_norm", clip_norm) / gamma, dim, beta)
    variance = (check_positive("sigma", sigma, or_zero=True) / gamma) ** 2
    return ddg_grid_rdp(orders, bound, variance, n_clients, dim, adjacency)


def ddg_grid_rdp(
    orders: ArrayLike,
    bound: float,
    variance: float,
    n_shares: int,
    dim: int,
    adjacency: str = "zero_out",
) -> NDArray[np.float64]:
    """Return the curve of the sum of ``n_shares`` discrete Gaussians on the integer grid.

    With l₂ = B/(√n s), l₁ = B·min(√D, B)/(√n s) and τ of :func:`discrete_sum_gap`,

        ε(α) = min{ α/2·l₂² + max(τD, ατD/4), α/2·(l₂² + 2 l₁τ + τ²D), α/2·(l₂ + √D·τ)² },

    a theorem for s ≥ ½; below, the curve is infinite.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    bound : float
        Bound B on the norm of one client's integers.
    variance : float
        Variance parameter s² of one share.
    n_shares : int
        Honest shares n in the sum.
    dim : int
        Coordinates D.
    adjacency : {"zero_out", "replace_one"}
        What a neighbouring data set is.

    Returns
    -------
    ndarray
        The curve at the orders.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    See Also
    --------
    ddg_rdp : The same in the units of the data.
    skellam_grid_rdp : The curve of the other noise that is drawn in shares.

    Examples
    --------
    >>> from sparse_secagg.privacy import ddg_grid_rdp
    >>> ddg_grid_rdp([2.0, 4.0], bound=10.0, variance=4.0, n_shares=100, dim=16).round(4).tolist()
    [0.25, 0.5]
    """
    orders = check_orders(orders)
    factor = sensitivity_factor(adjacency)
    check_positive("bound", bound)
    if check_positive("variance", variance, or_zero=True) < MIN_VARIANCE:
        return np.full(orders.shape, np.inf)
    noise = math.sqrt(n_shares * variance)
    l2 = factor * bound / noise
    l1 = factor * bound * min(math.sqrt(dim), bound) / noise
    tau = discrete_sum_gap(variance, n_shares)
    half = orders / 2.0
    with np.errstate(over="ignore"):
        first = half * l2**2 + np.maximum(tau * dim, orders * tau * dim / 4.0)
        second = half * (l2**2 + 2.0 * l1 * tau + tau**2 * dim)
        third = half * (l2 + math.sqrt(dim) * tau) ** 2
    return np.minimum(np.minimum(first, second), third)


def discrete_sum_gap(variance: float, n_shares: int) -> float:
    """Return τ = 10·Σ_{k<n} exp(−2π²s²·k/(k+1)), or a little more.

    τ bounds how far a sum of n discrete Gaussians is from one discrete Gaussian.

    Parameters
    ----------
    variance : float
        Variance parameter s² of one share, on the grid.
    n_shares : int
        Shares n in the sum.

    Returns
    -------
    float
        The gap τ; zero for a single share, and negligible from s = 2 on.

    See Also
    --------
    ddg_grid_rdp : Adds it to the Gaussian's curve.

    Examples
    --------
    >>> from sparse_secagg.privacy import discrete_sum_gap
    >>> discrete_sum_gap(4.0, n_shares=1)
    0.0
    >>> discrete_sum_gap(4.0, n_shares=100) < 1e-15
    True
    """
    terms = min(n_shares - 1, _TAU_TERMS)
    if terms <= 0:
        return 0.0
    k = np.arange(1, terms + 1)
    values = np.exp(-2.0 * math.pi**2 * variance * k / (k + 1))
    return 10.0 * float(values.sum() + (n_shares - 1 - terms) * values[-1])


def skellam_rdp(
    orders: ArrayLike,
    *,
    gamma: float,
    sigma: float,
    n_clients: int,
    clip_norm: float,
    dim: int,
    beta: float = math.exp(-0.5),
    adjacency: str = "zero_out",
) -> NDArray[np.float64]:
    """Return the curve of the Skellam mechanism, in the units of the data.

    Parameters
    ----------
    orders : array-like
        Orders α > 1, integers; at others nothing is claimed.
    gamma : float
        Granularity γ of the integer grid.
    sigma : float
        Noise of one client, in the units of the data; the grid noise is σ/γ.
    n_clients : int
        Noise shares in the sum: the honest survivors.
    clip_norm : float
        Clip c' on the ℓ₂ norm of one client's vector.
    dim : int
        Dimension D after padding.
    beta : float
        Bias parameter of conditional rounding.
    adjacency : {"zero_out", "replace_one"}
        What a neighbouring data set is.

    Returns
    -------
    ndarray
        The curve at the orders.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    See Also
    --------
    skellam_grid_rdp : The same in grid units, with the formula.
    ddg_rdp : The curve of the distributed discrete Gaussian.

    Examples
    --------
    >>> from sparse_secagg.privacy import gaussian_rdp, skellam_rdp
    >>> ours = skellam_rdp([2], gamma=0.001, sigma=0.2, n_clients=100, clip_norm=1.0, dim=64)
    >>> bool(1 < ours[0] / gaussian_rdp([2], noise_multiplier=2.0)[0] < 1.05)
    True
    """
    gamma = check_positive("gamma", gamma)
    bound = norm_bound(check_positive("clip_norm", clip_norm) / gamma, dim, beta)
    variance = (check_positive("sigma", sigma, or_zero=True) / gamma) ** 2
    return skellam_grid_rdp(orders, bound, variance, n_clients, dim, adjacency)


def skellam_grid_rdp(
    orders: ArrayLike,
    bound: float,
    variance: float,
    n_shares: int,
    dim: int,
    adjacency: str = "zero_out",
) -> NDArray[np.float64]:
    """Return the curve of a Skellam variable of variance v = n·s² on the integer grid.

    With Δ₂ = B and Δ₁ = B·min(√D, B),

        ε(α) = αΔ₂²/(2v) + min{ ((2α − 1)Δ₂² + 6Δ₁)/(4v²), 3Δ₁/(2v) },

    a theorem about integer orders: at others the curve is infinite, which claims nothing.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    bound : float
        Bound B on the norm of one client's integers.
    variance : float
        Variance s² of one share.
    n_shares : int
        Honest shares n in the sum.
    dim : int
        Coordinates D.
    adjacency : {"zero_out", "replace_one"}
        What a neighbouring data set is.

    Returns
    -------
    ndarray
        The curve at the orders.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    See Also
    --------
    skellam_rdp : The same in the units of the data.
    ddg_grid_rdp : The curve of sums of discrete Gaussians.

    Examples
    --------
    >>> from sparse_secagg.privacy import skellam_grid_rdp
    >>> curve = skellam_grid_rdp([2.0, 2.5], bound=10.0, variance=4.0, n_shares=100, dim=16)
    >>> curve.round(3).tolist()
    [0.251, inf]
    """
    orders = check_orders(orders)
    factor = sensitivity_factor(adjacency)
    check_positive("bound", bound)
    if check_positive("variance", variance, or_zero=True) == 0:
        return np.full(orders.shape, np.inf)
    v = n_shares * variance
    l2 = factor * bound
    l1 = factor * bound * min(math.sqrt(dim), bound)
    with np.errstate(over="ignore"):
        excess = np.minimum(
            ((2.0 * orders - 1.0) * l2**2 + 6.0 * l1) / (4.0 * v * v), 3.0 * l1 / (2.0 * v)
        )
        curve = orders * l2**2 / (2.0 * v) + excess
    return np.where(orders == np.floor(orders), curve, np.inf)


def sensitivity_factor(adjacency: str) -> float:
    """Return the sensitivity of the sum under ``adjacency``, in units of one client's norm.

    Parameters
    ----------
    adjacency : {"zero_out", "replace_one"}
        Whether a client's vector is replaced by zero, or by any other within the clip.

    Returns
    -------
    float
        1 or 2.

    Raises
    ------
    ValueError
        If the adjacency is not one of the two.

    See Also
    --------
    RoundPrivacy : States ε under one of them.

    Examples
    --------
    >>> from sparse_secagg.privacy import sensitivity_factor
    >>> sensitivity_factor("zero_out"), sensitivity_factor("replace_one")
    (1.0, 2.0)
    """
    if adjacency not in _SENSITIVITY_FACTOR:
        raise ValueError(
            f"adjacency={adjacency!r} is not known; choose one of {sorted(_SENSITIVITY_FACTOR)}."
        )
    return _SENSITIVITY_FACTOR[adjacency]


def check_orders(orders: ArrayLike) -> NDArray[np.float64]:
    """Return the orders as an array, or raise unless all are finite and above 1."""
    orders = np.asarray(orders, dtype=np.float64)
    if orders.ndim != 1 or orders.size == 0 or not (np.isfinite(orders) & (orders > 1)).all():
        raise ValueError("orders must be a non-empty list of finite numbers above 1.")
    return orders
