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
    """Return ε(α) = α/(2z²), the curve of the Gaussian mechanism at noise multiplier z."""
    orders = check_orders(orders)
    z = check_positive("noise_multiplier", noise_multiplier, or_zero=True)
    if z * z == 0:
        return np.full(orders.shape, np.inf)
    return orders / (2.0 * z * z)


def norm_bound(scaled_clip: float, dim: int, beta: float) -> float:
    """Return B, the norm that conditional rounding enforces (Algorithm "detailed").

    B = min{u + √D, sqrt(u² + D/4 + √(2 ln 1/β)·(u + √D/2))} with u = c'/γ; β = 0: the first.
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
        ℓ₂ clip c' of one client's vector.
    dim : int
        Dimension D after padding.
    beta : float
        Bias parameter of conditional rounding.
    adjacency : {"zero_out", "replace_one"}
        What a neighbouring data set is.
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
    """Return the curve of the Skellam mechanism; parameters as in :func:`ddg_rdp`."""
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
    """Return the sensitivity of the sum under ``adjacency``, in units of one client's norm."""
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
