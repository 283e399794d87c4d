"""Amplification by sampling: what an observer who does not know the cohort learns less.

Two ways of drawing cohorts, each with the bound that is true of it:

- *fixed*: n of N clients, without replacement. The only one for distributed noise, whose amount
  depends on how many take part.
- *poisson*: every client by itself with probability q, for noise that does not depend on the
  cohort: that of a trusted server.

Against a server that knows the cohort nothing is amplified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.privacy.curves import Curve, check_orders
from sparse_secagg.validation import check_integer, check_positive

__all__ = [
    "Sampling",
    "fixed_cohort_rdp",
    "mixture_rdp",
    "poisson_subsampled_rdp",
    "subsampled_rdp_without_replacement",
]

#: Moments beyond are bounded by |x − y|^l ≤ x^l + y^l instead of being integrated: those of higher
#: order, and those with l·√ρ so large that one of the two has all the weight anyway.
_LARGEST_ORDER = 256
_LARGEST_SHIFT = 60.0
#: Step of the trapezoidal rule over a standard normal variable: its error is far below 1e-12.
_STEP = 0.1
#: Added to the logarithm of every integral, so that rounding never understates it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sampling:
    """How a cohort is drawn from a population.

    Parameters
    ----------
    cohort, population : int
        Clients in a round (on average, for "poisson"), and clients altogether.
    kind : {"fixed", "poisson"}
        A cohort of fixed size, or every client by itself. The latter amplifies only while nobody
        learns how many took part: sums are divided by the public ``cohort``, not by that number.
    secret : bool
        Whether the draw stays secret: private randomness, and nobody publishes the cohorts. If
        not, sampling amplifies nothing.

    Raises
    ------
    ValueError
        If the cohort is larger than the population, or the kind is unknown.

    See Also
    --------
    RoundPrivacy : States what a sampled round reveals.

    Examples
    --------
    >>> from sparse_secagg.privacy import Sampling
    >>> Sampling(cohort=100, population=1000).rate
    0.1
    >>> Sampling(cohort=100, population=1000, secret=False).rate
    1.0
    """

    cohort: int
    population: int
    kind: str = "fixed"
    secret: bool = True

    def __post_init__(self) -> None:
        check_integer("cohort", self.cohort, 1)
        if check_integer("population", self.population, 1) < self.cohort:
            raise ValueError(
                f"population={self.population} must be at least the cohort of {self.cohort}."
            )
        if self.kind not in ("fixed", "poisson"):
            raise ValueError(f"kind={self.kind!r} must be 'fixed' or 'poisson'.")

    @property
    def rate(self) -> float:
        """Probability q that a client takes part; 1 where the cohort is known."""
        return self.cohort / self.population if self.secret else 1.0


def poisson_subsampled_rdp(orders: ArrayLike, curve: Curve, rate: float) -> NDArray[np.float64]:
    """Return the curve after Poisson sampling of the clients with probability q = ``rate``.

    Zhu and Wang's bound for any mechanism, or the unamplified curve where that is smaller; at
    integer orders

        1/(α−1)·log[ (1−q)^{α−1}(αq − q + 1) + C(α,2) q²(1−q)^{α−2} e^{ε(2)}
                     + 3 Σ_{l≥3} C(α,l)(1−q)^{α−l} q^l e^{(l−1)ε(l)} ].

    It holds for whoever does not learn the cohort, and only if the noise does not depend on the
    cohort. A secure-aggregation server knows the cohort: for it nothing is amplified.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    curve : callable
        The curve without sampling, under zeroing out, as a function of an array of orders.
    rate : float
        Probability q, from 0 to 1.

    Returns
    -------
    ndarray
        The curve with sampling, at the orders.

    Raises
    ------
    ValueError
        If the rate is no probability, or the curve returns NaN.

    See Also
    --------
    subsampled_rdp_without_replacement : Cohorts of fixed size.

    Examples
    --------
    >>> from functools import partial
    >>> from sparse_secagg.privacy import gaussian_rdp, poisson_subsampled_rdp
    >>> curve = partial(gaussian_rdp, noise_multiplier=2.0)
    >>> sampled = poisson_subsampled_rdp([2.0], curve, rate=0.1)
    >>> bool(sampled[0] < 0.02 * curve([2.0])[0])  # about q² = 0.01 of it
    True
    """
    orders, plain = _check_curve(orders, curve)
    rate = _check_rate(rate)
    if rate == 1.0:
        return plain
    if rate == 0.0:
        return np.zeros_like(plain)
    log_q, log_p = math.log(rate), math.log1p(-rate)

    def log_moment(alpha: int, l: NDArray[Any], eps: NDArray[Any]) -> float:
        later = _log_binomials(alpha) + (alpha - l) * log_p + l * log_q + (l - 1) * eps
        later[1:] += math.log(3.0)
        none_or_one = (alpha - 1) * log_p + math.log1p((alpha - 1) * rate)
        return _log_sum(later, none_or_one)

    return np.asarray(np.minimum(plain, _amplified(orders, curve, log_moment)))


def mixture_rdp(orders: ArrayLike, rdp: ArrayLike, rate: float) -> NDArray[np.float64]:
    """Return the curve of a mechanism that touches a client with probability q = ``rate``.

    Whatever happens otherwise is the same in both worlds, P = (1−q)·A + q·B and
    Q = (1−q)·A + q·B', and E_Q[(P/Q)^α] is jointly convex:

        ε(α) = 1/(α−1)·log[ 1 − q + q·e^{(α−1)·ε(α)} ].

    True of every way of sampling and every order; best at small ones, where it divides ε by q.

    Parameters
    ----------
    orders, rdp : array-like
        The curve without sampling, under the adjacency that is claimed.
    rate : float
        q.
    """
    orders = check_orders(orders)
    exponent = (orders - 1) * np.asarray(rdp, dtype=np.float64)
    rate = _check_rate(rate)
    # log(1 + q·(e^x − 1)), without cancellation where x is small nor overflow where it is large
    small = np.log1p(rate * np.expm1(np.minimum(exponent, 1.0)))
    with np.errstate(divide="ignore"):
        large = np.logaddexp(np.log1p(-rate), np.log(rate) + exponent)
    return np.where(exponent <= 1.0, small, large) / (orders - 1)


def subsampled_rdp_without_replacement(
    orders: ArrayLike, replace_one_curve: Curve, rate: float
) -> NDArray[np.float64]:
    """Return the curve after drawing a cohort of fixed size, a fraction q of the population.

    Wang, Balle and Kasiviswanathan's bound for any mechanism, at integer orders. It compares
    cohorts that differ by exchanging one member, so ``replace_one_curve`` must be the curve of
    the mechanism under replace-one adjacency, also when the claim is about zeroing a client:

        1/(α−1)·log[ 1 + C(α,2) q² min{4(e^{ε(2)} − 1), 2e^{ε(2)}}
                     + 2 Σ_{l≥3} C(α,l) q^l e^{(l−1)ε(l)} ].

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    replace_one_curve : callable
        The curve without sampling, as a function of an array of orders.
    rate : float
        Fraction q, from 0 to 1.

    Returns
    -------
    ndarray
        The curve with sampling, at the orders.

    Raises
    ------
    ValueError
        If the rate is no fraction, or the curve returns NaN.

    See Also
    --------
    fixed_cohort_rdp : A smaller curve for Gaussian sums.
    poisson_subsampled_rdp : Every client by itself.

    Examples
    --------
    >>> from functools import partial
    >>> from sparse_secagg.privacy import gaussian_rdp, subsampled_rdp_without_replacement
    >>> curve = partial(gaussian_rdp, noise_multiplier=1.0)  # 2 under zeroing out, halved
    >>> sampled = subsampled_rdp_without_replacement([2.0], curve, rate=0.1)
    >>> bool(sampled[0] < 0.1 * curve([2.0])[0])
    True
    """
    orders, plain = _check_curve(orders, replace_one_curve)
    rate = _check_rate(rate)
    if rate == 0.0:
        return np.zeros_like(plain)
    log_q = math.log(rate)

    def log_moment(alpha: int, l: NDArray[Any], eps: NDArray[Any]) -> float:
        later = _log_binomials(alpha) + l * log_q + (l - 1) * eps + math.log(2.0)
        if eps[0] < math.log(2.0):
            # 4(e^ε − 1) < 2e^ε exactly here.
            small = math.log(4.0) + (math.log(math.expm1(eps[0])) if eps[0] > 0 else -math.inf)
            later[0] = _log_binomials(alpha)[0] + 2.0 * log_q + small
        return _log_sum(later, 0.0)

    return np.asarray(np.minimum(plain, _amplified(orders, replace_one_curve, log_moment)))


def fixed_cohort_rdp(
    orders: ArrayLike, ratio: float, rate: float, gap: float = 0.0
) -> NDArray[np.float64]:
    """Return the curve of a Gaussian sum over a secret cohort of fixed size, zeroing one client.

    The client is in the cohort with probability q. For the other members R and the client j who
    has the place otherwise, the two worlds are the mixtures

        P = (1−q)·M(R + x_j) + q·M(R + x_i),   Q = (1−q)·M(R + x_j) + q·M(R + 0),

    with all three centres in one ball. Expanding E_Q[(P/Q)^α] and using that ``|u|^l/v^{l−1}``
    is convex, it is at most 1 + Σ_{l≥2} C(α,l) q^l [(1−q)·G_l + q·H_l], where for even l, with
    W = exp(√ρ·g − ρ/2) and g standard normal,

        H_l = E|W − 1|^l,   G_l = e^{l(l−1)ρ/2}·E|W·e^{(l−1)ρ} − 1|^l,

    the worst case x_j = −x_i (docs/privacy.md has the proof); odd moments follow by Cauchy and
    Schwarz. All moments used are of integer order, where the discrete Gaussian equals the
    Gaussian. The curve is infinite at no order: between integers (α−1)ε(α) is convex.

    Parameters
    ----------
    orders : array-like
        Orders α > 1.
    ratio : float
        Squared ratio ρ = (sensitivity of zeroing out / standard deviation of the noise)².
    rate : float
        The cohort's share q of the population.
    gap : float
        Largest difference between the logarithms of the noise's probabilities and those of one
        discrete Gaussian: costs (2α−1)/(α−1)·gap.

    Returns
    -------
    ndarray
        The curve at the orders.

    Raises
    ------
    ValueError
        If the rate is no fraction, or the ratio is negative or not a number.

    See Also
    --------
    subsampled_rdp_without_replacement : The bound for any mechanism.

    Examples
    --------
    >>> from sparse_secagg.privacy import fixed_cohort_rdp, gaussian_rdp
    >>> sampled = fixed_cohort_rdp([2.0], ratio=0.25, rate=0.1)  # noise multiplier 2
    >>> bool(sampled[0] < 0.05 * gaussian_rdp([2.0], noise_multiplier=2.0)[0])
    True
    """
    orders = check_orders(orders)
    rate = _check_rate(rate)
    ratio = check_positive("ratio", ratio, or_zero=True)
    if rate == 0.0 or ratio == 0.0:
        return np.zeros_like(orders)
    integers = np.arange(2.0, max(2.0, np.ceil(orders.max())) + 1)
    mixed = np.logaddexp(
        math.log1p(-rate) + _log_moments(integers, ratio, opposite=True)
        if rate < 1
        else np.full(integers.shape, -np.inf),
        math.log(rate) + _log_moments(integers, ratio, opposite=False),
    )

    def log_moment(alpha: int) -> float:
        l = integers[: alpha - 1]
        return _log_sum(_log_binomials(alpha) + l * math.log(rate) + mixed[: alpha - 1], 0.0)

    return _at_all_orders(orders, log_moment) + (2 * orders - 1) / (orders - 1) * gap


def _log_moments(l: NDArray[np.float64], ratio: float, *, opposite: bool) -> NDArray[np.float64]:
    """Return log G_l (``opposite``) or log H_l for l = 2, 3, …."""
    furthest = 4.0 * ratio if opposite else ratio
    out = np.logaddexp(l * (l - 1) * furthest / 2, l * (l - 1) * (ratio / 2 if opposite else 0.0))
    largest = min(int(l[-1]), _LARGEST_ORDER, int(_LARGEST_SHIFT / math.sqrt(ratio)))
    if largest < 2:
        return out
    n_even = largest // 2 + 1
    even = np.array([_log_even_moment(2 * k, ratio, opposite) for k in range(1, n_even + 1)])
    exact = np.empty(2 * n_even - 1)
    exact[::2] = even
    exact[1::2] = (even[:-1] + even[1:]) / 2
    n_exact = min(len(l), len(exact))
    out[:n_exact] = np.minimum(out[:n_exact], exact[:n_exact])
    return out


def _log_even_moment(l: int, ratio: float, opposite: bool) -> float:
    """Return log H_l, or log G_l if ``opposite``, by the trapezoidal rule."""
    width = math.sqrt(ratio)
    shift = (l - 1) * ratio if opposite else 0.0
    g = np.arange(-40.0, l * width + 40.0, _STEP)
    exponent = width * g - ratio / 2 + shift
    with np.errstate(divide="ignore"):
        logs = l * _log_abs_expm1(exponent) - g * g / 2
    total = _log_sum(logs, -np.inf) + math.log(_STEP / math.sqrt(2 * math.pi)) + _ROUNDING
    return total + (l * (l - 1) * ratio / 2 if opposite else 0.0)


def _log_abs_expm1(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log|e^x − 1| without overflow."""
    return np.maximum(x, 0.0) + np.log(-np.expm1(-np.abs(x)))


def _amplified(
    orders: NDArray[np.float64],
    curve: Curve,
    log_moment: Callable[[int, NDArray[Any], NDArray[Any]], float],
) -> NDArray[np.float64]:
    """Evaluate a binomial-type bound that uses the mechanism's curve at every integer order."""
    l = np.arange(2.0, max(2.0, np.ceil(orders.max())) + 1)
    eps = np.asarray(curve(l), dtype=np.float64)
    return _at_all_orders(orders, lambda a: log_moment(a, l[: a - 1], eps[: a - 1]))


def _at_all_orders(
    orders: NDArray[np.float64], log_moment: Callable[[int], float]
) -> NDArray[np.float64]:
    """Return ε(α) from log E[(P/Q)^α] at integers; (α−1)ε(α) is convex, hence below its chords."""
    at = lru_cache(maxsize=None)(lambda alpha: max(0.0, log_moment(alpha)) if alpha > 1 else 0.0)

    def chord(alpha: float) -> float:
        low = math.floor(alpha)
        part = alpha - low
        if part == 0.0:
            return at(low) / (alpha - 1)
        return ((1 - part) * at(low) + part * at(low + 1)) / (alpha - 1)

    return np.array([chord(float(alpha)) for alpha in orders])


def _log_sum(logs: NDArray[np.float64], one_more: float) -> float:
    """Return log(Σ e^logs + e^one_more) without overflow."""
    top = max(float(logs.max()), one_more)
    if math.isinf(top):
        return top
    if top == one_more:  # what is added may be far below the rounding of 1
        return top + math.log1p(float(np.exp(logs - top).sum()))
    return top + math.log(float(np.exp(logs - top).sum()) + math.exp(one_more - top))


def _log_binomials(alpha: int) -> NDArray[np.float64]:
    """Return log C(α, l) for l = 2, …, α."""
    logs = _log_factorials(1 << alpha.bit_length())
    return np.asarray(logs[alpha] - logs[2 : alpha + 1] - logs[alpha - 2 :: -1][: alpha - 1])


@lru_cache(maxsize=16)
def _log_factorials(stop: int) -> NDArray[np.float64]:
    from scipy.special import gammaln  # clients do without it

    return np.asarray(gammaln(np.arange(1.0, stop + 1)))


def _check_curve(orders: ArrayLike, curve: Curve) -> tuple[NDArray[Any], NDArray[Any]]:
    orders = check_orders(orders)
    values = np.asarray(curve(orders), dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError("curve returned NaN; a Rényi divergence is a number or infinite.")
    return orders, values


def _check_rate(rate: float) -> float:
    if not 0 <= rate <= 1:
        raise ValueError(f"rate={rate} must be a probability, from 0 to 1.")
    return float(rate)
