"""The mechanism contract, and what the integer mechanisms share.

A client turns its sketch y into a message Z ∈ Z_M^D: clip, scale by 1/γ, rotate, round
conditionally, **check the integer norm**, add integer noise, reduce modulo M (Algorithm
"detailed"). The server sees Σ Z mod M and decodes the mean. Everything before the check is
untrusted floating point; privacy rests on the check and on the noise.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.parallel import for_each
from sparse_secagg.clipped_rows import ClippedRows, clip_factors
from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms.calibration import GridProblem, least_noise
from sparse_secagg.mechanisms.parameters import EncodeReport, MechanismParameters
from sparse_secagg.mechanisms.randomness import Randomness, as_randomness
from sparse_secagg.mechanisms.rotation import Rotation, padded_dim
from sparse_secagg.mechanisms.rounding import conditional_rounding, within_bound
from sparse_secagg.mechanisms.sampling import round_up_variance
from sparse_secagg.mechanisms.sums import mean_of_sum
from sparse_secagg.parameterised import Parameterised
from sparse_secagg.parameters import MAX_BITS, NoiseParameters, check_parameters, documented
from sparse_secagg.privacy.conversion import rdp_to_dp, smallest_epsilon
from sparse_secagg.privacy.curves import (
    DEFAULT_ORDERS,
    MIN_VARIANCE,
    gaussian_rdp,
    sensitivity_factor,
)
from sparse_secagg.privacy.observers import NoisySum, RoundPrivacy
from sparse_secagg.privacy.sampling import Sampling
from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.validation import check_integer, check_positive, positive, whole

__all__ = ["IntegerMechanism", "rational_above"]

#: Variance of stochastic rounding in grid units, averaged over fractions: E f(1−f) = 1/6.
ROUNDING_VARIANCE = 1.0 / 6.0
#: Clients rotated together: Fourier transforms of several vectors fill the vector registers.
_GROUP = 8


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class IntegerMechanism(NoiseParameters, Parameterised):
    """Clip, rotate, round, check, add integer noise, modulo. Subclasses choose the noise.

    Parameters
    ----------
    {parameters}
    sampling : Sampling, optional
        Calibrate against an observer of the release only, who does not know the cohorts drawn
        this way. Default: against the server.
    wrap_deviations : float
        k: a coordinate of the sum leaves the modulus with probability 2Φ(−k); 4 gives 6.33e-5.
    alignment : float
        ρ in (0, 1]: 1 plans for clients that all hold the same vector.
    random_state : None, int, RandomState or Generator
        Public randomness: the rotation. None draws a new seed at each ``calibrate``.

    Attributes
    ----------
    parameters_ : MechanismParameters
        Set by ``calibrate`` (or assign the server's to a client's instance).
    report_ : EncodeReport
        What the last ``encode`` met. Data-dependent: not private.

    See Also
    --------
    sparse_secagg.DiscreteGaussian, sparse_secagg.Skellam : Noise in shares, one from each client.
    sparse_secagg.CentralGaussian : Noise of a trusted server.
    get : A mechanism by its name.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg.mechanisms import get
    >>> mechanism = get("ddg", noise_multiplier=0.5, n_bits=20, clip_norm=2.0)
    >>> _ = mechanism.calibrate(n_clients=50, dim=4)
    >>> x = np.ones((50, 4))
    >>> total = mechanism.encode(x).sum(axis=0) % mechanism.parameters_.modulus
    >>> bool(np.abs(mechanism.decode(total, n_survivors=50) - 1.0).max() < 0.5)
    True
    """

    #: Registered name.
    name: ClassVar[str]
    #: Curve of one round on the grid, a :data:`GridCurve` and static method.
    grid_rdp: ClassVar[Any]
    #: Whether a sum of shares is pointwise close to one discrete Gaussian.
    near_gaussian = False
    #: Whether the server adds the noise itself.
    central = False
    #: Largest noise variance on the grid; a finer grid would be slow to draw and gain nothing.
    _max_variance = 2.0**44

    def __init_subclass__(cls, **options: Any) -> None:
        """Put the parameters, which all mechanisms share, where a subclass's docstring says so."""
        super().__init_subclass__(**options)
        shared = inspect.getdoc(IntegerMechanism) or ""
        parameters = shared.partition("Parameters\n----------\n")[2].partition("\n\nAttributes")[0]
        text = textwrap.indent(parameters, "    ").strip()
        cls.__doc__ = (cls.__doc__ or "").replace("{parameters}", text) or None

    sampling: Sampling | None = None
    wrap_deviations: float = 4.0
    alignment: float = 1.0
    random_state: Any = None

    # -- what a subclass provides ------------------------------------------------------------

    def _noise(self, variance: Fraction, size: int, rng: Randomness) -> NDArray[Any]:
        """Return ``size`` noise integers of one client."""
        raise NotImplementedError

    def _draw_total_variation(self, variance: Fraction) -> float:
        """Return the distance of one noise integer from the ideal: zero for exact samplers."""
        return 0.0

    # -- calibration --------------------------------------------------------------------------

    @property
    def max_variance(self) -> float:
        """Largest noise variance on the grid that calibration aims for."""
        return self._max_variance

    @property
    def not_private(self) -> bool:
        """True for quantisation without noise."""
        return self.noise_multiplier is not None and self.noise_multiplier == 0

    def calibrate(self, n_clients: int, dim: int) -> MechanismParameters:
        """Choose γ, σ and B for ``n_clients`` vectors of ``dim`` coordinates.

        The result is kept in ``parameters_``. Raises :class:`InfeasibleError`, with the smallest
        workable ``n_bits``, when the modulus cannot hold the sum.
        """
        self.check(n_clients, dim)
        problem = self.grid_problem(n_clients, dim)
        u = problem.finest(self.n_bits)
        gamma = float(self.clip_norm / u)
        # From here on the rounded numbers count: the ones that clients and accountant use.
        u = self.clip_norm / gamma
        bound, variance = problem.bound(u), Fraction(0)
        if not self.not_private:
            variance = rational_above(problem.variance_for(bound))
        self.parameters_ = MechanismParameters(
            mechanism=self.name,
            n_clients=int(n_clients),
            min_survivors=self._survivors(n_clients),
            colluders=int(self.colluders),
            dim=int(dim),
            padded_dim=padded_dim(self.rotation, dim),
            clip_norm=float(self.clip_norm),
            gamma=gamma,
            variance=variance,
            n_bits=int(self.n_bits),
            beta=problem.beta_at(u),
            norm_bound=bound,
            squared_bound=math.floor(Fraction(bound) ** 2),
            rotation=self.rotation,
            seed=resolve_seed(self.random_state),
            adjacency=self.adjacency,
        )
        return self.parameters_

    def grid_problem(self, n_clients: int, dim: int) -> GridProblem:
        """Return the calibration problem on the grid, for planners."""
        shares = self._shares(n_clients)
        D = padded_dim(self.rotation, dim)
        smallest_bound = 0.0
        variance_for: Callable[[float], float]
        if self.noise_multiplier is None:
            # The Gaussian's noise multiplier starts the search close to the answer.
            z = gaussian_multiplier(self.epsilon, self.delta, self.rounds)
            z *= sensitivity_factor(self.adjacency)

            ratio = z * z / shares

            def least_for_target(bound: float) -> float:
                nonlocal ratio

                def epsilon_at(variance: float) -> float:
                    return self._epsilon(bound, variance, shares, D, n_clients)

                # The last answer starts the next search: on fine grids they are proportional.
                found = least_noise(epsilon_at, self.epsilon, ratio * bound**2, MIN_VARIANCE)
                ratio = found / bound**2
                return found

            variance_for = lru_cache(maxsize=8)(least_for_target)
        else:
            z = float(self.noise_multiplier)

            def fixed_multiple(bound: float) -> float:
                return (z * bound) ** 2 / shares

            variance_for = fixed_multiple
            if z > 0:
                smallest_bound = math.sqrt(MIN_VARIANCE * shares) / z
        return GridProblem(
            n_clients,
            D,
            self.clip_norm,
            self.beta,
            self.wrap_deviations,
            self.alignment,
            variance_for,
            smallest_bound,
            self._max_variance,
        )

    def _epsilon(
        self, bound: float, variance: float, shares: int, dim: int, n_clients: int
    ) -> float:
        """Return the ε that calibration has to bring down to the target."""
        part = self._noisy_sum(bound, variance, shares, dim, n_clients)
        privacy = RoundPrivacy((part,), self.delta, self.adjacency, shares, sampling=self.sampling)
        released = self.sampling is not None or self.central
        return privacy.epsilon("release" if released else "server", rounds=self.rounds)

    def _noisy_sum(
        self, bound: float, variance: float, shares: int, dim: int, n_clients: int
    ) -> NoisySum:
        return NoisySum(
            grid_rdp=type(self).grid_rdp,
            bound=bound,
            variance=variance,
            guaranteed_shares=shares,
            dim=dim,
            total_variation=n_clients * dim * self._draw_total_variation(Fraction(variance)),
            central=self.central,
            near_gaussian=self.near_gaussian,
        )

    def _survivors(self, n_clients: int) -> int:
        return int(n_clients if self.min_survivors is None else self.min_survivors)

    def _shares(self, n_clients: int) -> int:
        return self._survivors(n_clients) - int(self.colluders)

    def check(self, n_clients: int, dim: int) -> None:
        """Raise for parameters that make no sense, for this many clients and coordinates."""
        check_parameters(self)
        check_integer("n_clients", n_clients, 1)
        check_integer("dim", dim, 1)
        positive.check("clip_norm", self.clip_norm)
        whole(1, MAX_BITS).check("n_bits", self.n_bits)
        survivors = check_integer("min_survivors", self._survivors(n_clients), 1, n_clients)
        if self.colluders >= survivors and not self.central:
            raise ValueError(
                f"colluders={self.colluders} leave no honest client among the {survivors} "
                "guaranteed survivors; nobody's noise would protect the sum."
            )
        check_positive("wrap_deviations", self.wrap_deviations)
        if not 0 < self.alignment <= 1:
            raise ValueError(f"alignment={self.alignment} must lie in (0, 1].")

    # -- client -------------------------------------------------------------------------------

    def encode(self, y: ArrayLike, rng: Randomness | None = None) -> NDArray[np.uint64]:
        """Turn sketches into messages.

        Parameters
        ----------
        y : array-like of shape (m,) or (n, m)
            One client's sketch, or one row for each client. A row with NaN or Inf counts as zero.
        rng : Randomness, optional
            Private randomness, from which every client gets a stream of its own. None: the
            operating system's.

        Returns
        -------
        ndarray of uint64, shape (D,) or (n, D)
            Values in [0, M).
        """
        p = self._calibrated()
        Y = np.atleast_2d(np.ascontiguousarray(y, dtype=np.float64))
        if Y.ndim != 2 or Y.shape[1] != p.dim:
            raise ValueError(
                f"y has shape {np.shape(y)}, but the mechanism is calibrated for vectors of "
                f"{p.dim} coordinates; pass ({p.dim},) or (n, {p.dim})."
            )
        clipped = clip_factors(Y, p.clip_norm)
        messages = np.empty((len(Y), p.padded_dim), dtype=np.uint64)
        rejected = self._encode(clipped, as_randomness(rng).spawn(len(Y)), messages)
        self.report_ = EncodeReport(
            len(Y), int(clipped.nonfinite.sum()), int(clipped.clipped.sum()), int(rejected.sum())
        )
        return messages if np.ndim(y) == 2 else messages[0]

    def _encode(
        self, sketches: ClippedRows, streams: list[Randomness], messages: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Write the clients' messages; return whose failed the integer check."""
        p = self.parameters_
        n = len(messages)
        factors = sketches.factors / p.gamma
        rejected = np.zeros(n, dtype=bool)

        def encode_group(k: int) -> None:
            group = range(k * _GROUP, min((k + 1) * _GROUP, n))
            rows = slice(group.start, group.stop)
            X = self._rotate(sketches.rows[rows], factors[rows])
            for i, x in zip(group, X):
                rejected[i] = self._encode_client(x, streams[i], messages[i])

        # Threads pay for long vectors only: short ones would queue for the interpreter lock. One
        # client alone leaves them to its noise.
        for_each(encode_group, -(-n // _GROUP), threaded=n > 1 and p.padded_dim >= 1 << 13)
        return rejected

    def _encode_client(
        self, y: NDArray[np.float64], rng: Randomness, message: NDArray[np.uint64]
    ) -> bool:
        """Write the message of one rotated sketch in grid units; return whether it was rejected."""
        p = self.parameters_
        x = conditional_rounding(y, p.squared_bound, rng, message.view(np.int64))
        # The privacy proof needs this line and the noise below, and nothing above.
        rejected = not within_bound(x, p.squared_bound)
        if rejected:
            x[:] = 0
        self._add_noise(x, rng, message)
        return rejected

    def _add_noise(
        self, x: NDArray[np.int64], rng: Randomness, message: NDArray[np.uint64]
    ) -> None:
        p = self.parameters_
        _add_modulo(x, self._noise(p.variance, len(x), rng), p.modulus, message)

    def _rotate(self, Y: NDArray[np.float64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rows of Y times their factors, rotated; a new array."""
        p = self.parameters_
        return Rotation(p.rotation, p.dim, p.seed).forward(Y, factors)

    # -- server -------------------------------------------------------------------------------

    def decode(
        self, total: ArrayLike, n_survivors: int, rng: Randomness | None = None
    ) -> NDArray[np.float64]:
        """Return the mean of the survivors' sketches from the sum of their messages modulo M.

        Parameters
        ----------
        total : array-like of uint64, shape (D,) or (k, D)
            Sum of the messages modulo M.
        n_survivors : int
            Messages in the sum.
        rng : Randomness, optional
            For mechanisms whose server adds the noise; not used by others.
        """
        return mean_of_sum(self._calibrated(), total, n_survivors)

    def noise_std(self, n_survivors: int | None = None) -> float:
        """Return the standard deviation of a coordinate of the decoded mean.

        sqrt((σ² + γ²/6)/k): noise of k clients and their stochastic rounding. An adversary may
        choose fractions of ½, which raises 1/6 to 1/4.
        """
        p = self._calibrated()
        k = p.n_clients if n_survivors is None else n_survivors
        check_integer("n_survivors", k, 1)
        return p.gamma * math.sqrt((float(p.variance) + ROUNDING_VARIANCE) / k)

    # -- accounting ---------------------------------------------------------------------------

    def noisy_sum(self) -> NoisySum:
        """Return the calibrated sum as the accountant sees it."""
        p = self._calibrated()
        # Rounded down: the accountant must not see more noise than is drawn (rational_above).
        variance = math.nextafter(float(p.variance), 0.0) if p.variance else 0.0
        return self._noisy_sum(p.norm_bound, variance, p.noise_shares, p.padded_dim, p.n_clients)

    def privacy(
        self,
        n_survivors: int | None = None,
        *,
        colluders: int | None = None,
        sampling: Sampling | None = None,
    ) -> RoundPrivacy:
        """Return what one round reveals, to every observer.

        Parameters
        ----------
        n_survivors : int, optional
            Clients whose messages are in the sum. Default: the guaranteed number. Fewer cost
            more; more never cost more, since further noise is post-processing.
        colluders : int, optional
            Of them, clients that may tell the server their noise. Default: as calibrated.
        sampling : Sampling, optional
            How the cohort was drawn. Default: as calibrated.
        """
        p = self._calibrated()
        k = p.min_survivors if n_survivors is None else n_survivors
        return RoundPrivacy(
            sums=(self.noisy_sum(),),
            delta=self.delta,
            adjacency=p.adjacency,
            n_survivors=check_integer("n_survivors", k, 1, p.n_clients),
            colluders=p.colluders if colluders is None else colluders,
            sampling=self.sampling if sampling is None else sampling,
        )

    def rdp(self, orders: ArrayLike, n_survivors: int | None = None) -> NDArray[np.float64]:
        """Return ε(α) of one round against the server and its colluders, without amplification.

        For the central mechanism, whose server is trusted, it is that of the release.
        """
        return self.privacy(n_survivors).sampled(None).rdp(orders)

    def total_variation(self) -> float:
        """Return the distance of one round's noise from the ideal, to be charged to δ."""
        return self.noisy_sum().total_variation

    def epsilon_spent(self, n_survivors: int | None = None, rounds: int = 1) -> float:
        """Return the ε of ``rounds`` rounds at ``delta``, against the server and its colluders."""
        return self.privacy(n_survivors).sampled(None).epsilon(rounds=rounds)

    def _calibrated(self) -> MechanismParameters:
        if not hasattr(self, "parameters_"):
            raise ValueError(
                f"This {type(self).__name__} is not calibrated; call calibrate(n_clients, dim) or "
                "assign the round's parameters_."
            )
        return self.parameters_


def rational_above(variance: float) -> Fraction:
    """Return a rational so far above ``variance`` that its float, rounded down, is not below."""
    return round_up_variance(math.nextafter(variance, math.inf))


def _add_modulo(
    x: NDArray[np.int64], noise: NDArray[Any], modulus: int, out: NDArray[np.uint64]
) -> None:
    if noise.dtype == object:
        out[:] = [(int(a) + int(b)) % modulus for a, b in zip(x, noise)]
        return
    # A power of two divides 2^64, so the sum may wrap around on its way.
    np.add(x.view(np.uint64), noise.view(np.uint64), out=out)
    out &= np.uint64(modulus - 1)


@lru_cache(maxsize=256)
def gaussian_multiplier(epsilon: float, delta: float, rounds: int) -> float:
    """Return about the noise multiplier at which the Gaussian mechanism is (ε, δ)-DP."""
    orders = np.array(DEFAULT_ORDERS)
    if not epsilon > (least := smallest_epsilon(orders, delta)):
        raise InfeasibleError(
            f"epsilon={epsilon:g} is not above {least:.2g}, the least that the account can tell "
            f"from 0 at delta={delta:g}; ask for more.",
            "epsilon",
            least,
        )

    def epsilon_at(variance: float) -> float:
        return rdp_to_dp(orders, rounds * gaussian_rdp(orders, math.sqrt(variance)), delta)

    return math.sqrt(least_noise(epsilon_at, epsilon, 1.0, 1e-12))
