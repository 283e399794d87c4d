"""The privacy of a round: one object, from which every number that anyone reads comes.

A round publishes one or several noisy sums (the sketch; the count of an adaptive clip). Who sees
what differs, and so does ε:

- the *server* knows the cohort and sees the sums: nothing is amplified;
- the *server with c colluding clients* knows c shares of the noise as well: k − c protect;
- the *release* is all that anybody else sees: secret cohorts amplify. Where the server adds the
  noise itself (the central mechanism) this holds if it is trusted; against it ε is infinite.

Outside the range of a theorem a curve is infinite, never the value of a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.privacy.conversion import rdp_to_dp, rdp_to_zcdp, stated
from sparse_secagg.privacy.curves import (
    DEFAULT_ORDERS,
    check_orders,
    discrete_sum_gap,
    sensitivity_factor,
)
from sparse_secagg.privacy.sampling import (
    Sampling,
    fixed_cohort_rdp,
    mixture_rdp,
    poisson_subsampled_rdp,
    subsampled_rdp_without_replacement,
)
from sparse_secagg.validation import check_delta, check_integer, check_positive

__all__ = [
    "OBSERVERS",
    "Costed",
    "NoisySum",
    "RoundPrivacy",
    "describe_observer",
    "rounds_within",
]

#: Who may look: the server alone, the server with colluding clients, everybody else.
OBSERVERS = ("server", "colluders", "release")

#: ε(α) on the grid: orders, norm bound B, variance s² of a share, shares, D, adjacency.
GridCurve = Callable[[NDArray[np.float64], float, float, int, int, str], NDArray[np.float64]]


@dataclass(frozen=True)
class NoisySum:
    """One sum with integer noise, as the accountant sees it.

    Parameters
    ----------
    grid_rdp : callable
        The family's curve on the grid.
    bound : float
        Bound B on the norm of one client's integers.
    variance : float
        Variance s² of one share of the noise; zero: no noise.
    guaranteed_shares : int
        Shares that are counted on. More never cost more: further noise is post-processing.
    dim : int
        Coordinates D.
    total_variation : float
        Distance of the noise drawn from the ideal one, charged to δ.
    central : bool
        One noise for the whole sum, added by the server, instead of a share from each client.
    near_gaussian : bool
        Whether the sum of the shares is pointwise close to one discrete Gaussian.

    See Also
    --------
    RoundPrivacy : The sums of a round together.

    Examples
    --------
    >>> from sparse_secagg.privacy import NoisySum, ddg_grid_rdp
    >>> held = NoisySum(ddg_grid_rdp, bound=10.0, variance=4.0, guaranteed_shares=100, dim=16)
    >>> held.squared_ratio(shares=100)  # B²/(n·s²)
    0.25
    """

    grid_rdp: GridCurve
    bound: float
    variance: float
    guaranteed_shares: int
    dim: int
    total_variation: float = 0.0
    central: bool = False
    near_gaussian: bool = False

    def rdp(self, orders: NDArray[np.float64], shares: int, adjacency: str) -> NDArray[np.float64]:
        """Return ε(α) for ``shares`` honest shares of noise in the sum; infinite for none."""
        if self.variance == 0 or not (shares >= 1 or self.central):
            return np.full(orders.shape, np.inf)
        counts = {1} if self.central else {shares, min(shares, self.guaranteed_shares)}
        curves = [
            self.grid_rdp(orders, self.bound, self.variance, count, self.dim, adjacency)
            for count in counts
        ]
        return np.asarray(np.minimum.reduce(curves))

    def squared_ratio(self, shares: int) -> float:
        """Return ρ = B²/(variance of the sum's noise), the squared inverse noise multiplier."""
        return self.bound**2 / (self.variance * (1 if self.central else shares))

    def gap(self, shares: int) -> float:
        """Return D·τ, at least the distance in log-probability from one discrete Gaussian."""
        return 0.0 if self.central else self.dim * discrete_sum_gap(self.variance, shares)


@dataclass(frozen=True)
class RoundPrivacy:
    """What one round reveals, to whom.

    Parameters
    ----------
    sums : tuple of NoisySum
        All that is published about the clients' data.
    delta : float
        The δ of every ε, unless another is asked for.
    adjacency : {"zero_out", "replace_one"}
        What neighbouring data sets are.
    n_survivors : int
        Clients whose messages, and noise, are in the sums.
    colluders : int
        Of them, clients that may tell the server their noise.
    sampling : Sampling, optional
        How the cohort was drawn. Clients may drop out of it, as long as that does not depend on
        who they are.

    Raises
    ------
    ValueError
        If an argument is out of range, or noise that is drawn in shares is sampled by Poisson.

    See Also
    --------
    Ledger : Adds rounds up.
    Sampling : How cohorts are drawn.

    Examples
    --------
    >>> from sparse_secagg import DiscreteGaussian
    >>> mechanism = DiscreteGaussian(epsilon=1.0, n_bits=16)
    >>> _ = mechanism.calibrate(n_clients=100, dim=50)
    >>> privacy = mechanism.privacy()
    >>> round(privacy.epsilon(), 3), privacy.observer
    (1.0, 'server')
    >>> round(mechanism.privacy(n_survivors=70).epsilon(), 2)
    1.21
    >>> privacy.rounds_within(4.0)
    12
    """

    sums: tuple[NoisySum, ...]
    delta: float
    adjacency: str
    n_survivors: int
    colluders: int = 0
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        sensitivity_factor(self.adjacency)
        check_integer("n_survivors", self.n_survivors, 0)
        check_integer("colluders", self.colluders, 0)
        if self.sampling is not None and self.n_survivors > self.sampling.cohort:
            raise ValueError(
                f"n_survivors={self.n_survivors} is more than the cohort of {self.sampling.cohort}."
            )
        poisson = self.sampling is not None and self.sampling.kind == "poisson"
        if poisson and not all(part.central for part in self.sums):
            raise ValueError(
                "sampling='poisson' amplifies only noise that does not depend on the cohort, "
                "which is the central mechanism's; shares of noise need cohorts of fixed size."
            )

    @property
    def central(self) -> bool:
        """Whether the noise is the server's own, so that it sees the sums without."""
        return any(part.central for part in self.sums)

    @property
    def observer(self) -> str:
        """The observer that this round's ε is about unless another is named."""
        if self.central:
            return "release"
        return "colluders" if self.colluders else "server"

    @property
    def total_variation(self) -> float:
        """Distance of the noise drawn from what the curves are about, charged to δ."""
        return sum(part.total_variation for part in self.sums)

    def describe_observer(self, observer: str | None = None) -> str:
        """Return who ``observer`` is, in words."""
        which = self._check_observer(observer)
        if which != "release":
            return describe_observer(which, self.colluders)
        trust = ", if the server is trusted" if self.central else ""
        secret = self.sampling is not None and self.sampling.rate < 1
        return (
            describe_observer(which) + trust + (", while the cohorts stay secret" if secret else "")
        )

    def rdp(
        self, orders: ArrayLike = DEFAULT_ORDERS, observer: str | None = None
    ) -> NDArray[np.float64]:
        """Return ε(α) of one round against ``observer``."""
        orders = check_orders(orders)
        which = self._check_observer(observer)
        if which == "release":
            return self._released(orders)
        if self.central:
            return np.full(orders.shape, np.inf)
        shares = self.n_survivors - (self.colluders if which == "colluders" else 0)
        return self._plain(orders, shares, self.adjacency)

    def epsilon(
        self, observer: str | None = None, *, delta: float | None = None, rounds: int = 1
    ) -> float:
        """Return the ε of ``rounds`` such rounds against ``observer``, at ``delta``."""
        check_integer("rounds", rounds, 1)
        rdp = rounds * self.rdp(DEFAULT_ORDERS, observer)
        delta = self.delta if delta is None else delta
        return rdp_to_dp(DEFAULT_ORDERS, rdp, delta, rounds * self.total_variation)

    def zcdp_epsilon(self, observer: str | None = None, *, rounds: int = 1) -> float:
        """Return the paper's ε, by which ``rounds`` such rounds are ½ε²-zCDP."""
        check_integer("rounds", rounds, 1)
        return rdp_to_zcdp(DEFAULT_ORDERS, rounds * self.rdp(DEFAULT_ORDERS, observer))

    def rounds_within(self, epsilon: float, observer: str | None = None) -> int:
        """Return how many such rounds together cost at most ``epsilon``."""
        check_positive("epsilon", epsilon)
        step = self.rdp(DEFAULT_ORDERS, observer)

        def fits(rounds: int) -> bool:
            tv = rounds * self.total_variation
            return rdp_to_dp(DEFAULT_ORDERS, rounds * step, self.delta, tv) <= epsilon

        return rounds_within(fits)

    def plus(self, *sums: NoisySum) -> RoundPrivacy:
        """Return the privacy of a round that publishes ``sums`` about the same clients as well."""
        return replace(self, sums=(*self.sums, *sums))

    def sampled(self, sampling: Sampling | None) -> RoundPrivacy:
        """Return the privacy of the round when its cohort is drawn by ``sampling``."""
        return replace(self, sampling=sampling)

    def __str__(self) -> str:
        observers = ["server", "release"] if self.central else ["server"]
        observers += ["colluders"] if self.colluders and not self.central else []
        observers += ["release"] if self.sampling is not None and not self.central else []
        parts = [
            f"({stated(self.epsilon(who))}, {stated(self.delta, 3)})-DP against "
            f"{self.describe_observer(who)}"
            for who in observers
        ]
        return f"{'; '.join(parts)} ({self.adjacency})"

    # -- curves ---------------------------------------------------------------------------------

    def _plain(
        self, orders: NDArray[np.float64], shares: int, adjacency: str
    ) -> NDArray[np.float64]:
        return np.asarray(
            np.sum([part.rdp(orders, shares, adjacency) for part in self.sums], axis=0)
        )

    def _released(self, orders: NDArray[np.float64]) -> NDArray[np.float64]:
        k = self.n_survivors
        plain = self._plain(orders, k, self.adjacency)
        if self.sampling is None or self.sampling.rate == 1.0 or np.isinf(plain).all():
            return plain
        rate = self.sampling.rate
        # exchanging one member of the cohort for another takes the curve of replacement
        exchanged = partial(self._plain, shares=k, adjacency="replace_one")
        bounds = [
            mixture_rdp(orders, plain, rate),
            subsampled_rdp_without_replacement(orders, exchanged, rate),
        ]
        if self.adjacency == "zero_out":
            bounds += self._zero_out_bounds(orders, rate)
        return np.asarray(np.minimum.reduce(bounds))

    def _zero_out_bounds(self, orders: NDArray[np.float64], rate: float) -> list[NDArray[Any]]:
        """Return the bounds that compare with the round in which the client's vector is zero."""
        assert self.sampling is not None
        k, bounds = self.n_survivors, []
        if self.sampling.kind == "poisson":  # absent and zero are the same there
            zeroed = partial(self._plain, shares=k, adjacency="zero_out")
            bounds.append(poisson_subsampled_rdp(orders, zeroed, rate))
        if all(part.near_gaussian for part in self.sums):
            ratio = sum(part.squared_ratio(k) for part in self.sums)
            gap = sum(part.gap(k) for part in self.sums)
            bounds.append(fixed_cohort_rdp(orders, ratio, rate, gap))
        return bounds

    def _check_observer(self, observer: str | None) -> str:
        if observer is None:
            return self.observer
        if observer not in OBSERVERS:
            raise ValueError(f"observer={observer!r} must be one of {', '.join(OBSERVERS)}.")
        return observer


def describe_observer(observer: str, colluders: int = 0) -> str:
    """Return who an observer is, in words.

    Parameters
    ----------
    observer : {"server", "colluders", "release"}
        Who looks.
    colluders : int
        Clients that help the server, for "colluders".

    Returns
    -------
    str
        The words that every report uses.

    See Also
    --------
    RoundPrivacy.describe_observer : The same for a round, with what has to be trusted.

    Examples
    --------
    >>> from sparse_secagg.privacy import describe_observer
    >>> describe_observer("colluders", 5)
    'the server with 5 colluding clients'
    """
    return {
        "server": "the server",
        "colluders": f"the server with {colluders} colluding clients",
        "release": "anyone who sees only the results",
    }[observer]


class Costed:
    """What was learnt from a round, and so has its price: adds the round's ε to a result.

    See Also
    --------
    RoundPrivacy : Where the numbers come from.
    sparse_secagg.Aggregate : Such a result.

    Examples
    --------
    >>> from sparse_secagg import DiscreteGaussian
    >>> from sparse_secagg.privacy import Costed
    >>> mechanism = DiscreteGaussian(epsilon=1.0, n_bits=16)
    >>> _ = mechanism.calibrate(n_clients=100, dim=50)
    >>> class Histogram(Costed):
    ...     privacy = mechanism.privacy()
    >>> round(Histogram().epsilon, 3), Histogram().observer
    (1.0, 'the server')
    """

    privacy: RoundPrivacy

    @property
    def epsilon(self) -> float:
        """ε of the round against ``observer``, with the noise that survived."""
        return self.privacy.epsilon()

    @property
    def delta(self) -> float:
        """The δ of ``epsilon``."""
        return self.privacy.delta

    @property
    def zcdp_epsilon(self) -> float:
        """The paper's ε: the round is ½ε²-zCDP against ``observer``."""
        return self.privacy.zcdp_epsilon()

    @property
    def observer(self) -> str:
        """Whom ``epsilon`` is about, in words."""
        return self.privacy.describe_observer()


def rounds_within(fits: Callable[[int], bool]) -> int:
    """Return the largest number of rounds for which ``fits`` holds; it must be decreasing."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
        if high > 2**62:
            raise ValueError("a round costs nothing: rounds are unlimited.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
