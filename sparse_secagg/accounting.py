"""Privacy accounting: Rényi curves, subsampling, composition, conversion and the ledger.

A mechanism is (α, ε(α))-RDP; R rounds add their curves; the conversion lemma turns a curve into

    ε(δ) = min_α  ε(α) + log(1 − 1/α) − log(αδ)/(α − 1).

Curves of integer mechanisms are written on the integer grid: B bounds the ℓ₂ norm of one client's
rounded vector, s² = σ²/γ² is the variance parameter of one client's noise, n the number of noise
shares in the sum and D the dimension.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

__all__ = [
    "DEFAULT_ORDERS",
    "INTEGER_ORDERS",
    "Ledger",
    "ddg_rdp",
    "gaussian_rdp",
    "norm_bound",
    "poisson_subsampled_rdp",
    "rdp_to_dp",
    "skellam_rdp",
    "subsampled_rdp_without_replacement",
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

#: Terms of τ summed one by one; the later ones are bounded by the last of these.
_TAU_TERMS = 10_000


# ---------------------------------------------------------------------------------------------
# Curves of one round


def gaussian_rdp(orders: ArrayLike, noise_multiplier: float) -> NDArray[np.float64]:
    """Return ε(α) = α/(2z²), the curve of the Gaussian mechanism at noise multiplier z."""
    orders = _check_orders(orders)
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

        ε(α) = min{ α/2·l₂² + max(τD, ατD/4), α/2·(l₂² + 2 l₁τ + τ²D), α/2·(l₂ + √D·τ)² }.
    """
    orders = _check_orders(orders)
    factor = sensitivity_factor(adjacency)
    check_positive("bound", bound)
    if check_positive("variance", variance, or_zero=True) == 0:
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
    orders = _check_orders(orders)
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


# ---------------------------------------------------------------------------------------------
# Subsampling


def poisson_subsampled_rdp(orders: ArrayLike, curve: Curve, rate: float) -> NDArray[np.float64]:
    """Return the curve after Poisson sampling of the clients with probability q = ``rate``.

    Zhu and Wang's bound for any mechanism, at integer orders, or the unamplified curve where
    that is smaller:

        1/(α−1)·log[ (1−q)^{α−1}(αq − q + 1) + C(α,2) q²(1−q)^{α−2} e^{ε(2)}
                     + 3 Σ_{l≥3} C(α,l)(1−q)^{α−l} q^l e^{(l−1)ε(l)} ].

    It holds for whoever does not learn the cohort, and only if the noise does not depend on the
    cohort. A secure-aggregation server knows the cohort: for it nothing is amplified.
    """
    orders, plain = _check_curve(orders, curve)
    rate = _check_rate(rate)
    if rate == 1.0:
        return plain
    if rate == 0.0:
        return np.zeros_like(plain)
    log_q, log_p = math.log(rate), math.log1p(-rate)

    def log_moment(alpha: int, l: NDArray, eps: NDArray) -> float:
        later = _log_binomials(alpha) + (alpha - l) * log_p + l * log_q + (l - 1) * eps
        later[1:] += math.log(3.0)
        none_or_one = (alpha - 1) * log_p + math.log1p((alpha - 1) * rate)
        return _log_sum(later, none_or_one)

    return np.minimum(plain, _amplified(orders, curve, log_moment))


def subsampled_rdp_without_replacement(
    orders: ArrayLike, replace_one_curve: Curve, rate: float
) -> NDArray[np.float64]:
    """Return the curve after drawing a cohort of fixed size, a fraction q of the population.

    Wang, Balle and Kasiviswanathan's bound for integer orders and any mechanism. It compares
    cohorts that differ by exchanging one member, so ``replace_one_curve`` must be the curve of
    the mechanism under replace-one adjacency, also when the claim is about zeroing a client:

        1/(α−1)·log[ 1 + C(α,2) q² min{4(e^{ε(2)} − 1), 2e^{ε(2)}}
                     + 2 Σ_{l≥3} C(α,l) q^l e^{(l−1)ε(l)} ].
    """
    orders, plain = _check_curve(orders, replace_one_curve)
    rate = _check_rate(rate)
    if rate == 0.0:
        return np.zeros_like(plain)
    log_q = math.log(rate)

    def log_moment(alpha: int, l: NDArray, eps: NDArray) -> float:
        later = _log_binomials(alpha) + l * log_q + (l - 1) * eps + math.log(2.0)
        if eps[0] < math.log(2.0):
            # 4(e^ε − 1) < 2e^ε exactly here.
            small = math.log(4.0) + (math.log(math.expm1(eps[0])) if eps[0] > 0 else -math.inf)
            later[0] = _log_binomials(alpha)[0] + 2.0 * log_q + small
        return _log_sum(later, 0.0)

    return np.minimum(plain, _amplified(orders, replace_one_curve, log_moment))


def _amplified(
    orders: NDArray[np.float64],
    curve: Curve,
    log_moment: Callable[[int, NDArray, NDArray], float],
) -> NDArray[np.float64]:
    """Evaluate a binomial-type bound at the integer orders; infinite at the others."""
    integers = orders == np.floor(orders)
    out = np.full(orders.shape, np.inf)
    if not integers.any():
        return out
    l = np.arange(2.0, orders[integers].max() + 1)
    eps = np.asarray(curve(l), dtype=np.float64)
    for i in np.flatnonzero(integers):
        alpha = int(orders[i])
        out[i] = max(0.0, log_moment(alpha, l[: alpha - 1], eps[: alpha - 1]) / (alpha - 1))
    return out


def _log_sum(logs: NDArray[np.float64], one_more: float) -> float:
    """Return log(Σ e^logs + e^one_more) without overflow."""
    top = max(float(logs.max()), one_more)
    if math.isinf(top):
        return top
    return top + math.log(float(np.exp(logs - top).sum()) + math.exp(one_more - top))


def _log_binomials(alpha: int) -> NDArray[np.float64]:
    """Return log C(α, l) for l = 2, …, α."""
    logs = _log_factorials(1 << alpha.bit_length())
    return logs[alpha] - logs[2 : alpha + 1] - logs[alpha - 2 :: -1][: alpha - 1]


@lru_cache(maxsize=16)
def _log_factorials(stop: int) -> NDArray[np.float64]:
    return gammaln(np.arange(1.0, stop + 1))


# ---------------------------------------------------------------------------------------------
# Conversion


def rdp_to_dp(
    orders: ArrayLike, rdp: ArrayLike, delta: float, total_variation: float = 0.0
) -> float:
    """Return the smallest ε such that the curve implies (ε, δ)-DP.

    Parameters
    ----------
    orders, rdp : array-like
        The curve: orders α > 1 and ε(α) ≥ 0 (infinite where nothing is claimed).
    delta : float
        δ in (0, 1).
    total_variation : float
        Distance of the noise actually drawn from the noise the curve is about. It is charged to
        δ: the curve has to give (ε, δ − (1 + e^ε)·total_variation).
    """
    orders = _check_orders(orders)
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


def _convert(orders: NDArray, rdp: NDArray, delta: float) -> float:
    # TV <= sqrt(1 - exp(-KL)) and KL <= every Rényi divergence: ε = 0 when that is below δ.
    if (delta**2 + np.expm1(-rdp) > 0).any():
        return 0.0
    candidates = rdp + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return max(0.0, float(candidates.min()))


def zcdp_epsilon(noise_multiplier: float) -> float:
    """Return the paper's ε: the mechanism is ½ε²-zCDP, and ε = 1/z."""
    return math.inf if noise_multiplier == 0 else 1.0 / noise_multiplier


# ---------------------------------------------------------------------------------------------
# The ledger


@dataclass
class Ledger:
    """Add up rounds and answer "ε so far" and "rounds left".

    Two observers are kept apart. The secure-aggregation server knows which clients took part:
    `epsilon_server` has no amplification. Whoever sees only the released models does not:
    `epsilon_release` uses the amplified curves, where rounds were given them.

    Parameters
    ----------
    delta : float
        The δ of every ε reported.
    orders : sequence of float
        Orders at which curves are added.

    Examples
    --------
    >>> from functools import partial
    >>> from sparse_secagg.accounting import Ledger, gaussian_rdp
    >>> ledger = Ledger(delta=1e-5)
    >>> ledger.spend(partial(gaussian_rdp, noise_multiplier=10.0), rounds=4)
    >>> round(ledger.epsilon_server, 3)
    0.795
    >>> ledger.rounds_left(1.0)
    2
    """

    delta: float
    orders: Sequence[float] = DEFAULT_ORDERS
    rounds: int = field(default=0, init=False)
    total_variation: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ValueError(f"delta={self.delta} must lie strictly between 0 and 1.")
        self.orders = tuple(float(a) for a in _check_orders(self.orders))
        self._server = np.zeros(len(self.orders))
        self._release = np.zeros(len(self.orders))
        self._last: tuple[NDArray, NDArray, float] | None = None

    def spend(
        self,
        rdp: Curve | ArrayLike,
        *,
        release_rdp: Curve | ArrayLike | None = None,
        sampling_rate: float | None = None,
        rounds: int = 1,
        total_variation: float = 0.0,
    ) -> None:
        """Record ``rounds`` rounds of a mechanism.

        Parameters
        ----------
        rdp : callable or array-like
            Curve of one round without amplification: a function of the orders (a mechanism's
            ``rdp``), or its values at ``self.orders``.
        release_rdp : callable or array-like, optional
            Curve of one round for an observer of the release only. Default: ``rdp``.
        sampling_rate : float, optional
            Instead of ``release_rdp``: the clients were Poisson sampled at this rate and ``rdp``
            is a function; the release curve is :func:`poisson_subsampled_rdp` of it.
        rounds : int
            How many such rounds.
        total_variation : float
            Distance of one round's sampler from exact noise, charged to δ.
        """
        if rounds < 1 or rounds != int(rounds):
            raise ValueError(f"rounds={rounds} must be a positive integer.")
        if not 0 <= total_variation < math.inf:
            raise ValueError(f"total_variation={total_variation} must be at least 0.")
        if sampling_rate is not None and release_rdp is not None:
            raise ValueError("Give sampling_rate or release_rdp, not both.")
        server = self._values("rdp", rdp)
        if sampling_rate is not None:
            if not callable(rdp):
                raise ValueError(
                    "sampling_rate needs rdp as a function of the orders, because the bound uses "
                    "every integer order; pass the mechanism's rdp method, not its values."
                )
            release = poisson_subsampled_rdp(self.orders, rdp, sampling_rate)
        else:
            release = server if release_rdp is None else self._values("release_rdp", release_rdp)
        self._server = self._server + rounds * server
        self._release = self._release + rounds * release
        self.total_variation += rounds * total_variation
        self.rounds += int(rounds)
        self._last = (server, release, total_variation)

    @property
    def epsilon_server(self) -> float:
        """ε against the server, which knows the cohort."""
        return self._epsilon(self._server, self.total_variation)

    @property
    def epsilon_release(self) -> float:
        """ε against an observer of the released results only."""
        return self._epsilon(self._release, self.total_variation)

    def rounds_left(self, epsilon: float, observer: str = "server") -> int:
        """Return how many more rounds like the last one keep the ε of ``observer`` ≤ ``epsilon``.

        Parameters
        ----------
        epsilon : float
            The budget.
        observer : {"server", "release"}
            Whose ε is meant.
        """
        check_positive("epsilon", epsilon)
        if observer not in ("server", "release"):
            raise ValueError(f"observer={observer!r} must be 'server' or 'release'.")
        if self._last is None:
            raise ValueError("The ledger is empty; spend one round before asking what is left.")
        which = 0 if observer == "server" else 1
        spent, step = (self._server, self._release)[which], self._last[which]
        tv = self._last[2]

        def fits(more: int) -> bool:
            total_variation = self.total_variation + more * tv
            return self._epsilon(spent + more * step, total_variation) <= epsilon

        if not fits(1):
            return 0
        low, high = 1, 2
        while fits(high):
            low, high = high, 2 * high
            if high > 2**62:
                raise ValueError("The last round cost nothing: rounds are unlimited.")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def to_json(self) -> str:
        """Return the ledger as JSON, without loss."""
        last = None if self._last is None else [[*self._last[0]], [*self._last[1]], self._last[2]]
        document: dict[str, Any] = {
            "delta": self.delta,
            "orders": list(self.orders),
            "rounds": self.rounds,
            "total_variation": self.total_variation,
            "server": list(self._server),
            "release": list(self._release),
            "last": last,
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return the ledger written by :meth:`to_json`."""
        document = json.loads(text)
        ledger = cls(document["delta"], document["orders"])
        ledger.rounds = document["rounds"]
        ledger.total_variation = document["total_variation"]
        ledger._server = np.array(document["server"])
        ledger._release = np.array(document["release"])
        if document["last"] is not None:
            server, release, tv = document["last"]
            ledger._last = (np.array(server), np.array(release), tv)
        return ledger

    def _epsilon(self, rdp: NDArray, total_variation: float) -> float:
        return rdp_to_dp(self.orders, rdp, self.delta, total_variation)

    def _values(self, name: str, rdp: Curve | ArrayLike) -> NDArray[np.float64]:
        values = rdp(np.array(self.orders)) if callable(rdp) else rdp
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (len(self.orders),):
            raise ValueError(
                f"{name} has shape {values.shape}; it must hold one value for each of the "
                f"{len(self.orders)} orders of the ledger."
            )
        if np.isnan(values).any() or (values < 0).any():
            raise ValueError(f"{name} holds NaN or negative values; a Rényi divergence is neither.")
        return values


# ---------------------------------------------------------------------------------------------
# Checks


def sensitivity_factor(adjacency: str) -> float:
    """Return the sensitivity of the sum under ``adjacency``, in units of one client's norm."""
    if adjacency not in _SENSITIVITY_FACTOR:
        raise ValueError(
            f"adjacency={adjacency!r} is not known; choose one of {sorted(_SENSITIVITY_FACTOR)}."
        )
    return _SENSITIVITY_FACTOR[adjacency]


def check_positive(name: str, value: float, *, or_zero: bool = False) -> float:
    """Return ``value`` as a float, or raise if it is not a finite positive number."""
    if not (value >= 0 if or_zero else value > 0) or not math.isfinite(value):
        kind = "a finite number, at least 0" if or_zero else "a finite positive number"
        raise ValueError(f"{name}={value} must be {kind}.")
    return float(value)


def _check_orders(orders: ArrayLike) -> NDArray[np.float64]:
    orders = np.asarray(orders, dtype=np.float64)
    if orders.ndim != 1 or orders.size == 0 or not (np.isfinite(orders) & (orders > 1)).all():
        raise ValueError("orders must be a non-empty list of finite numbers above 1.")
    return orders


def _check_curve(orders: ArrayLike, curve: Curve) -> tuple[NDArray, NDArray]:
    orders = _check_orders(orders)
    values = np.asarray(curve(orders), dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError("curve returned NaN; a Rényi divergence is a number or infinite.")
    return orders, values


def _check_rate(rate: float) -> float:
    if not 0 <= rate <= 1:
        raise ValueError(f"rate={rate} must be a probability, from 0 to 1.")
    return float(rate)
