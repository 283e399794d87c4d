"""The planner: choose sketch length m, bits b, granularity γ and noise σ for a round.

The linear decoder Sᵀ errs by compression and by noise,

    E‖μ̂ − μ‖² = (d − 1)/m·‖μ‖² + d·noise_std²   (count sketch, ‖μ‖ = c at worst),

and noise_std reaches that of the central Gaussian once b is large enough. The best any m ≤ d and b
can do is the reference error; the planner takes the cheapest (m, b) within ``1 + error_slack``
times it, so m = Θ(n²ε²) (Theorem on the upper bound). ε there is ``zcdp_epsilon``.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms import IntegerMechanism, MechanismParameters, get
from sparse_secagg.mechanisms.base import ROUNDING_VARIANCE
from sparse_secagg.mechanisms.calibration import MAX_BITS
from sparse_secagg.privacy import Sampling
from sparse_secagg.validation import check_positive

__all__ = ["LowerBounds", "Plan", "SparseErrors", "plan"]

#: Sketches are clipped at 1.1 times the clients' clip: Johnson–Lindenstrauss lengths rarely exceed.
JL_CLIP = 1.1
#: Sketch length for sparse recovery, in units of s·log(d/s).
_SPARSE_CONSTANT = 4.0
#: Where bits are free but m is given, the error may exceed that of unlimited bits by this factor.
_BITS_SLACK = 1.05


class LowerBounds(NamedTuple):
    """Bits per client that no scheme can go below (Theorem on compression lower bounds).

    ``general``: max((d/2)·log₂(c²/ξ), 1) for any scheme of error ξ, the predicted one.
    ``unbiased_order``: min(n²ε², d) for unbiased schemes; order only, the constant is unknown.
    """

    general: float
    unbiased_order: float


class SparseErrors(NamedTuple):
    """Predicted squared errors when the mean has s nonzero coordinates; estimates, not bounds.

    ``lasso``: s·noise_std²·(2 ln d + 1), the Lasso at alpha from the noise level.
    ``least_squares``: s·noise_std²/(1 − s/m), on the true support; message passing comes close.
    """

    lasso: float
    least_squares: float


@dataclass(frozen=True)
class Plan:
    """What one round will do, cost and achieve. Made by :func:`plan`.

    Attributes
    ----------
    d, n_clients : int
        Dimension and cohort.
    clip_norm : float
        The clients' clip c; sketches are clipped at ``parameters.clip_norm``.
    delta : float
        The δ of both ε.
    rounds : int
        Rounds the ε are about.
    epsilon_server, epsilon_release : float
        ε of all rounds against the server, and against whoever sees the released results only.
    n_components, n_rows : int
        Sketch length m and count-sketch rows t.
    parameters : MechanismParameters
        Calibrated parameters of the mechanism.
    noise_std : float
        Standard deviation of a coordinate of the decoded mean sketch.
    compression_mse, noise_mse, predicted_mse : float
        Error of the linear decoder at ‖μ‖ = c: from compression, from noise, together.
    central_mse : float
        Error of the central Gaussian without compression at the same privacy.
    noise_mse_limit : float
        What ``noise_mse`` would be with unlimited bits.
    sparsity : int or None
        Nonzero coordinates of the mean, if given.
    sparse_mse : SparseErrors or None
        Predicted errors of sparse decoders, if the sparsity is given.
    lower_bound_bits : LowerBounds
        Lower bounds on the bits of one client.
    """

    d: int
    n_clients: int
    clip_norm: float
    delta: float
    rounds: int
    epsilon_server: float
    epsilon_release: float
    n_components: int
    n_rows: int
    parameters: MechanismParameters
    noise_std: float
    compression_mse: float
    noise_mse: float
    central_mse: float
    noise_mse_limit: float
    sparsity: int | None
    sparse_mse: SparseErrors | None
    lower_bound_bits: LowerBounds

    @property
    def n_bits(self) -> int:
        """Bits of one coordinate."""
        return self.parameters.n_bits

    @property
    def gamma(self) -> float:
        """Granularity γ."""
        return self.parameters.gamma

    @property
    def sigma(self) -> float:
        """Noise σ of one client."""
        return self.parameters.sigma

    @property
    def modulus(self) -> int:
        """Modulus M = 2^n_bits."""
        return self.parameters.modulus

    @property
    def noise_multiplier(self) -> float:
        """Z of one round."""
        return self.parameters.noise_multiplier

    @property
    def zcdp_epsilon(self) -> float:
        """The paper's ε of one round: 1/z."""
        return 1.0 / self.noise_multiplier if self.noise_multiplier else math.inf

    @property
    def compression(self) -> float:
        """d/m."""
        return self.d / self.n_components

    @property
    def bits_per_client(self) -> int:
        """Payload of one message, padding included."""
        return self.parameters.bits_per_client

    @property
    def bits_per_parameter(self) -> float:
        """Payload bits for each of the d parameters."""
        return self.bits_per_client / self.d

    @property
    def predicted_mse(self) -> float:
        """(d − 1)/m·c² + d·noise_std²."""
        return self.compression_mse + self.noise_mse

    def explain(self) -> str:
        """Return the plan in sentences: what was chosen, and why more would not help."""
        p = self.parameters
        double = self.compression_mse / 2 + self.noise_mse
        lines = [
            f"{self.n_clients} clients, d = {self.d:,}: sketches of m = {self.n_components:,} "
            f"coordinates in {self.n_rows} rows (compression {self.compression:.3g}), "
            f"b = {self.n_bits} bits each: {self.bits_per_client:,} bits per client, "
            f"{self.bits_per_parameter:.3g} per parameter.",
            f"Privacy over {self.rounds} round(s), delta = {self.delta:.3g}: "
            f"epsilon {self.epsilon_server:.4g} against the server, "
            f"{self.epsilon_release:.4g} against an observer of the release. "
            f"Noise multiplier z = {self.noise_multiplier:.4g} per round (zCDP epsilon "
            f"{self.zcdp_epsilon:.4g}).",
            f"Grid gamma = {p.gamma:.4g}, noise sigma = {p.sigma:.4g} per client; rounding "
            f"inflates the sensitivity by {100 * (p.inflation - 1):.2g} %.",
            f"Predicted squared error of the linear decoder {self.predicted_mse:.4g}: "
            f"compression {self.compression_mse:.4g}, noise {self.noise_mse:.4g}. "
            f"Central Gaussian without compression: {self.central_mse:.4g}.",
            f"More bits would lower the noise part by {100 * self._gain_of_bits():.2g} % at most.",
            f"Twice the sketch would lower the error by "
            f"{100 * (1 - double / self.predicted_mse):.2g} % for twice the bits.",
        ]
        if self.sparse_mse is not None:
            lines.append(
                f"With {self.sparsity} nonzero coordinates: Lasso about "
                f"{self.sparse_mse.lasso:.3g}, least squares on the support "
                f"{self.sparse_mse.least_squares:.3g}."
            )
        lines.append(
            f"Lower bounds, bits per client: any scheme of this error "
            f"{self.lower_bound_bits.general:.4g}; unbiased schemes of the order of "
            f"{self.lower_bound_bits.unbiased_order:.4g} (constant unknown)."
        )
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return every number of the plan as JSON."""
        document = asdict(self)
        document["parameters"] = json.loads(self.parameters.to_json())
        for name in ("lower_bound_bits", "sparse_mse"):
            value = getattr(self, name)
            document[name] = None if value is None else value._asdict()
        for name in ("n_bits", "gamma", "sigma", "modulus", "bits_per_parameter", "predicted_mse"):
            document[name] = getattr(self, name)
        return json.dumps(document)

    def _gain_of_bits(self) -> float:
        return max(0.0, 1.0 - self.noise_mse_limit / self.noise_mse)


def plan(
    d: int,
    n_clients: int,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    noise_multiplier: float | None = None,
    clip_norm: float = 1.0,
    n_bits: int | None = None,
    compression: float | None = None,
    sparsity: int | None = None,
    population: int | None = None,
    rounds: int = 1,
    observer: str = "server",
    mechanism: str = "ddg",
    n_rows: int = 15,
    rotation: str = "dft",
    adjacency: str = "zero_out",
    beta: float | str = math.exp(-0.5),
    min_survivors: int | None = None,
    error_slack: float = 1.0,
) -> Plan:
    """Plan one round of private mean estimation with a count sketch.

    Parameters
    ----------
    d, n_clients : int
        Dimension of the vectors and clients in a round.
    epsilon, delta : float
        Target of all ``rounds`` together, against ``observer``.
    noise_multiplier : float, optional
        z of a round instead of ``epsilon``.
    clip_norm : float
        ℓ₂ clip c of a client's vector.
    n_bits : int, optional
        Bits of a coordinate. Default: chosen.
    compression : float, optional
        d/m. Default: chosen.
    sparsity : int, optional
        Nonzero coordinates of the mean. m is then chosen for sparse recovery, 4·s·ln(d/s).
    population : int, optional
        Clients from whom each round's cohort is Poisson sampled.
    rounds : int
        Rounds that share the budget.
    observer : {"server", "release"}
        Whom ``epsilon`` is about. Sampling helps only against "release", which needs
        ``population``.
    mechanism : {"ddg", "skellam"}
        Noise.
    n_rows : int
        Count-sketch rows t.
    rotation, adjacency, beta, min_survivors
        As in :class:`~sparse_secagg.mechanisms.base.IntegerMechanism`.
    error_slack : float
        Accepted error over the best possible one, relative: 1 allows twice.

    Raises
    ------
    InfeasibleError
        If ``n_bits`` is too small; it carries the smallest value that works.

    Examples
    --------
    >>> p = plan(d=1_000_000, n_clients=1000, epsilon=1.0, delta=1e-6, n_bits=16, compression=10)
    >>> p.n_components, p.n_bits, round(p.bits_per_parameter, 2)
    (99990, 16, 1.6)
    """
    for name, value in [("d", d), ("n_clients", n_clients), ("n_rows", n_rows)]:
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value} must be a positive integer.")
    d, n_clients = int(d), int(n_clients)
    check_positive("clip_norm", clip_norm)
    check_positive("error_slack", error_slack)
    if sparsity is not None and not 1 <= sparsity <= d:
        raise ValueError(f"sparsity={sparsity} must lie between 1 and d={d}.")
    if population is not None and not population >= n_clients:
        raise ValueError(f"population={population} must be at least n_clients={n_clients}.")
    if observer not in ("server", "release"):
        raise ValueError(f"observer={observer!r} must be 'server' or 'release'.")
    if observer == "release" and population is None:
        raise ValueError("observer='release' needs population, from which cohorts are sampled.")
    if mechanism not in ("ddg", "skellam"):
        raise ValueError(f"mechanism={mechanism!r} cannot be planned; choose 'ddg' or 'skellam'.")
    sampling = None if population is None else Sampling(n_clients, int(population))
    built = get(
        mechanism,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        clip_norm=JL_CLIP * clip_norm,
        n_bits=16 if n_bits is None else n_bits,
        rotation=rotation,
        beta=beta,
        adjacency=adjacency,
        min_survivors=min_survivors,
        rounds=rounds,
        sampling=sampling if observer == "release" else None,
    )
    built._check(n_clients, d)
    search = _Search(built, d, n_clients, clip_norm, n_rows, error_slack)
    if compression is not None or sparsity is not None:
        m = search.length(compression, sparsity)
        b = n_bits if n_bits is not None else search.bits_for(m, sparse=sparsity is not None)
    elif n_bits is not None:
        m, b = search.length_for(n_bits), n_bits
    else:
        m, b = search.cheapest()
    built.set_params(n_bits=b)
    parameters = built.calibrate(n_clients, m)
    return _report(search, m, parameters, sampling, sparsity, delta, rounds)


def _report(
    search: _Search,
    m: int,
    parameters: MechanismParameters,
    sampling: Sampling | None,
    sparsity: int | None,
    delta: float,
    rounds: int,
) -> Plan:
    built, d, n, c = search.mechanism, search.d, search.n_clients, search.clip_norm
    noise_std = built.noise_std(n)
    compression_mse, noise_mse = (d - 1) / m * c * c, d * noise_std**2
    privacy = built.privacy(sampling=sampling)
    server = privacy.epsilon(rounds=rounds)
    release = privacy.epsilon("release", rounds=rounds)
    sparse = None
    if sparsity is not None:
        sparse = SparseErrors(
            lasso=sparsity * noise_std**2 * (2.0 * math.log(d) + 1.0),
            least_squares=sparsity * noise_std**2 / (1 - sparsity / m)
            if sparsity < m
            else math.inf,
        )
    epsilon = 1.0 / parameters.noise_multiplier if parameters.variance else math.inf
    error = compression_mse + noise_mse
    return Plan(
        d=d,
        n_clients=n,
        clip_norm=float(c),
        delta=delta,
        rounds=rounds,
        epsilon_server=server,
        epsilon_release=release,
        n_components=m,
        n_rows=search.rows(m),
        parameters=parameters,
        noise_std=noise_std,
        compression_mse=compression_mse,
        noise_mse=noise_mse,
        central_mse=search.noise_limit / JL_CLIP**2 * parameters.min_survivors / n,
        noise_mse_limit=search.noise_limit,
        sparsity=sparsity,
        sparse_mse=sparse,
        lower_bound_bits=LowerBounds(
            general=max(d / 2 * math.log2(c * c / error), 1.0),
            unbiased_order=min((n * epsilon) ** 2, float(d)),
        ),
    )


class _Search:
    """Errors and costs of every (m, b), and the cheapest within the budget."""

    def __init__(
        self,
        mechanism: IntegerMechanism,
        d: int,
        n_clients: int,
        clip_norm: float,
        n_rows: int,
        error_slack: float,
    ) -> None:
        self.mechanism, self.d, self.n_clients = mechanism, d, n_clients
        self.clip_norm, self.n_rows = clip_norm, n_rows
        self.problem = lru_cache(maxsize=None)(partial(mechanism.grid_problem, n_clients))
        self.noise_mse = lru_cache(maxsize=None)(self._noise_mse)
        # On a grid this fine rounding is invisible: B = u and σ = √variance·γ.
        fine = 1e6 * math.sqrt(n_clients)
        ratio = self.problem(2).variance_for(fine) / fine**2
        self.noise_limit = d * (JL_CLIP * clip_norm) ** 2 * ratio / n_clients
        reference = self.compression_mse(self.snap(d)) + self.noise_limit
        self.budget = (1.0 + error_slack) * reference

    def rows(self, m: int) -> int:
        return min(self.n_rows, m)

    def snap(self, m: float) -> int:
        """Return the largest sketch length ≤ m that the rows divide."""
        m = max(1, min(self.d, int(m)))
        rows = self.rows(m)
        return rows * (m // rows)

    def compression_mse(self, m: int) -> float:
        return (self.d - 1) / m * self.clip_norm**2

    def _noise_mse(self, m: int, b: int) -> float:
        """Noise part of the error; infinite where the modulus is too small."""
        problem = self.problem(m)
        try:
            u = problem.finest(b)
        except InfeasibleError:
            return math.inf
        gamma = JL_CLIP * self.clip_norm / u
        variance = problem.variance_for(problem.bound(u))
        return self.d * gamma**2 * (variance + ROUNDING_VARIANCE) / self.n_clients

    def mse(self, m: int, b: int) -> float:
        return self.compression_mse(m) + self.noise_mse(m, b)

    def length(self, compression: float | None, sparsity: int | None) -> int:
        """Return m as asked for, or as sparse recovery needs it."""
        if compression is not None:
            from sparse_secagg.encoders.base import resolve_n_components

            return self.snap(resolve_n_components(self.d, None, compression))
        s = int(sparsity or 1)
        wanted = _SPARSE_CONSTANT * s * math.log(max(math.e, self.d / s))
        return self.snap(math.ceil(wanted) + self.n_rows - 1)

    def bits_for(self, m: int, *, sparse: bool) -> int:
        """Return the smallest b whose error at length m is that of unlimited bits, or 5 % more.

        Compression costs a sparse decoder nothing, so for it the noise alone counts.
        """
        first = self.problem(m).smallest_bits
        compression = 0.0 if sparse and self.noise_limit > 0 else self.compression_mse(m)
        for b in range(first, MAX_BITS + 1):
            if compression + self.noise_mse(m, b) <= _BITS_SLACK * (compression + self.noise_limit):
                return b
        raise InfeasibleError(
            f"No modulus up to {MAX_BITS} bits holds {self.n_clients} clients at this privacy; "
            f"the smallest that can is {first}.",
            "n_bits",
            first,
        )

    def length_for(self, b: int) -> int:
        """Return the smallest m whose error at b bits is within the budget."""
        m = self._shortest(b, self.d)
        if m is not None:
            return m
        for more in range(b + 1, MAX_BITS + 1):
            if self._shortest(more, self.d) is not None:
                raise InfeasibleError(
                    f"n_bits={b} cannot bring the error within {self.budget:.4g}; the smallest "
                    f"that can is {more}. With compression given, fewer may do.",
                    "n_bits",
                    more,
                )
        raise InfeasibleError(
            f"n_bits={b} cannot bring the error within {self.budget:.4g}, and no width can; give "
            "compression.",
            "n_bits",
            MAX_BITS + 1,
        )

    def cheapest(self) -> tuple[int, int]:
        """Return the (m, b) of the fewest bits within the budget."""
        best: tuple[int, int] | None = None
        shortest = self._unlimited()
        for b in range(1, MAX_BITS + 1):
            if best is not None and shortest * b >= best[0] * best[1]:
                break
            limit = self.d if best is None else min(self.d, best[0] * best[1] // b)
            m = self._shortest(b, limit)
            if m is not None and (best is None or m * b < best[0] * best[1]):
                best = m, b
        if best is None:
            raise InfeasibleError(
                f"No modulus up to {MAX_BITS} bits holds {self.n_clients} clients at this privacy.",
                "n_bits",
                MAX_BITS + 1,
            )
        return best

    def _unlimited(self) -> int:
        """Return the shortest m that would do with unlimited bits."""
        room = self.budget - self.noise_limit
        needed = (self.d - 1) * self.clip_norm**2 / room
        return self._next(needed)

    def _next(self, m: float) -> int:
        """Return the smallest admissible length ≥ m, at most d."""
        rows = self.rows(self.d)
        return min(self.snap(self.d), max(rows, rows * math.ceil(m / rows)))

    def _shortest(self, b: int, limit: int) -> int | None:
        """Return the smallest m ≤ limit within the budget at b bits, or None.

        The error falls with m until padding and quantisation take over, so a coarse scan finds a
        first good length and bisection the smallest.
        """
        low, limit = self._unlimited(), self.snap(limit)
        bad, m = 0, low
        while self.mse(m, b) > self.budget:
            if m >= limit:
                return None
            bad, m = m, min(limit, max(self._next(1.15 * m), m + 1))
            m = self.snap(m)
            if m <= bad:
                return None
        rows = self.rows(m)
        while bad and m - bad > rows:
            middle = rows * ((bad + m) // (2 * rows))
            if middle in (bad, m):
                break
            if self.mse(middle, b) <= self.budget:
                m = middle
            else:
                bad = middle
        return m if m <= limit else None
