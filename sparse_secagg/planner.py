"""The planner: choose encoder, decoder, sketch length m, bits b, granularity γ and noise σ.

A scheme is an encoder and a decoder; its error at ‖μ‖ = c is predicted for every m and b
(:mod:`sparse_secagg.planning`). For the linear decoder,

    E‖μ̂ − μ‖² = a·c² + d·noise_std²,   a = 0 (identity), (d−1)/m·(D−m)/(D−1) (Hadamard),
                                           (d−1)/m (count sketch), (d+1)/m (Gaussian ensemble).

The best any scheme reaches with unlimited bits is the reference; the planner takes the fewest bits
within ``1 + error_slack`` times it. Sending min(n²ε², d) coordinates without, and of the order of
s·log d with sparsity, comes out by itself (ε there is ``zcdp_epsilon``).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from sparse_secagg.encoders import (
    CountSketchEncoder,
    GaussianEncoder,
    HadamardEncoder,
    IdentityEncoder,
    LinearEncoder,
)
from sparse_secagg.encoders.base import resolve_n_components
from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms import IntegerMechanism, MechanismParameters, get
from sparse_secagg.planning.clips import JL_CLIP, SketchClip, check_sketch_clip
from sparse_secagg.planning.noise import NoiseModel
from sparse_secagg.planning.predictions import PREDICTIONS, SPARSE_DECODERS
from sparse_secagg.planning.schemes import ENCODERS, Scheme
from sparse_secagg.planning.search import Choice, Search
from sparse_secagg.privacy import RoundPrivacy, Sampling
from sparse_secagg.secagg.registry import make_secagg
from sparse_secagg.validation import check_positive

__all__ = [
    "JL_CLIP",
    "LowerBounds",
    "Plan",
    "PrivacyTarget",
    "SparseErrors",
    "TradeOff",
    "describe_round",
    "plan",
    "trade_offs",
]

#: Decoders that are tried, with a sparsity and without.
_DECODERS = ("linear",)
_DECODERS_FOR_SPARSE = ("linear", "working_set", "amp")
_ALIASES = {"lasso": "working_set"}


class LowerBounds(NamedTuple):
    """Bits per client that no scheme can go below (Theorem on compression lower bounds).

    ``general``: max((k/2)·log₂(c²/ξ), 1) for any scheme of error ξ, the predicted one.
    ``unbiased_order``: min(n²ε², k) for unbiased schemes; order only, the constant is unknown.
    k is d; for a sparse decoder it is s, as if the support were known.
    """

    general: float
    unbiased_order: float


class SparseErrors(NamedTuple):
    """Rules of thumb for the squared errors when the mean has s nonzero coordinates.

    ``lasso``: s·noise_std²·(2 ln d + 1), the Lasso at alpha from the noise level.
    ``least_squares``: s·noise_std²/(1 − s/m), on the true support; message passing comes close.
    """

    lasso: float
    least_squares: float


class PrivacyTarget(NamedTuple):
    """What the noise was sized for.

    ``epsilon`` of all ``rounds`` at ``delta``, or ``noise_multiplier`` of each;
    ``min_survivors`` clients (None: all), of whom ``colluders`` are not honest; ``sampling`` where
    ``epsilon`` is about an observer of the release; ``beta`` of the rounding.
    """

    epsilon: float
    delta: float
    noise_multiplier: float | None
    rounds: int
    min_survivors: int | None
    colluders: int
    sampling: Sampling | None
    beta: float | str


@dataclass(frozen=True)
class Plan:
    """What one round will do, cost and achieve. Made by :func:`plan`.

    Attributes
    ----------
    d, n_clients : int
        Dimension and cohort.
    clip_norm : float
        The clients' clip c; sketches are clipped at ``parameters.clip_norm``.
    privacy : RoundPrivacy
        What one round reveals, to every observer.
    rounds : int
        Rounds the ε are about.
    encoder, decoder : str
        Names of the encoder and of the solver.
    n_components : int
        Sketch length m.
    n_rows : int or None
        Rows t of a count sketch.
    sketch_clip : float or "spectral"
        Clip of a sketch over that of a vector; "spectral": σ_max(S), known when S is drawn.
    parameters : MechanismParameters
        Calibrated parameters of the mechanism.
    noise_std : float
        Standard deviation of a coordinate of the decoded mean sketch.
    predicted_mse : float
        Squared error of ``decoder`` at ‖μ‖ = c.
    compression_mse, noise_mse : float
        Error of the linear decoder at ‖μ‖ = c: from compression and from noise.
    central_mse : float
        Error of the central Gaussian without compression at the same privacy.
    noise_mse_limit : float
        What ``noise_mse`` would be with unlimited bits.
    sparsity : int or None
        Nonzero coordinates of the mean, if given.
    sparse_mse : SparseErrors or None
        Rules of thumb for sparse decoders, if the sparsity is given.
    lower_bound_bits : LowerBounds
        Lower bounds on the bits of one client.
    secagg : str
        "ideal" or "masked".
    threshold : float or None
        Of secure aggregation: clients, or their share; None for its default.
    neighbors : int or None
        Neighbours of a client in the masked protocol; None: everybody.
    protocol_bytes : int
        What a client sends for secure aggregation itself, beside the payload.
    target : PrivacyTarget or None
        What the noise was sized for; None for the plan of a fitted estimator.
    """

    d: int
    n_clients: int
    clip_norm: float
    privacy: RoundPrivacy
    rounds: int
    encoder: str
    decoder: str
    n_components: int
    n_rows: int | None
    sketch_clip: SketchClip
    parameters: MechanismParameters
    noise_std: float
    predicted_mse: float
    compression_mse: float
    noise_mse: float
    central_mse: float
    noise_mse_limit: float
    sparsity: int | None
    sparse_mse: SparseErrors | None
    lower_bound_bits: LowerBounds
    secagg: str = "ideal"
    threshold: float | None = None
    neighbors: int | None = None
    protocol_bytes: int = 0
    target: PrivacyTarget | None = None

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
    def delta(self) -> float:
        """The δ of every ε."""
        return self.privacy.delta

    @property
    def colluders(self) -> int:
        """Clients that may tell the server their noise."""
        return self.privacy.colluders

    @property
    def epsilon_server(self) -> float:
        """ε of all rounds against the server and its colluders."""
        return self.privacy.epsilon("colluders", rounds=self.rounds)

    @property
    def epsilon_release(self) -> float:
        """ε of all rounds against anyone who sees only the results."""
        return self.privacy.epsilon("release", rounds=self.rounds)

    @property
    def zcdp_epsilon(self) -> float:
        """The paper's ε of one round: 1/z for Gaussian noise under zero-out."""
        return self.privacy.zcdp_epsilon()

    @property
    def compression(self) -> float:
        """d/m."""
        return self.d / self.n_components

    @property
    def bits_per_client(self) -> int:
        """Payload of one message, padding included."""
        return self.parameters.bits_per_client

    @property
    def bytes_per_client(self) -> int:
        """All that a client sends in a round: payload and protocol."""
        return -(-self.bits_per_client // 8) + self.protocol_bytes

    @property
    def bits_per_parameter(self) -> float:
        """Payload bits for each of the d parameters."""
        return self.bits_per_client / self.d

    @property
    def relative_error(self) -> float:
        """``predicted_mse`` over c²: 1 is what answering zero gives."""
        return self.predicted_mse / self.clip_norm**2

    def make_encoder(self) -> LinearEncoder:
        """Return the encoder, not yet fitted."""
        m = self.n_components
        if self.encoder == "identity":
            return IdentityEncoder()
        if self.encoder == "hadamard":
            return HadamardEncoder(n_components=m)
        if self.encoder == "gaussian":
            return GaussianEncoder(n_components=m)
        if self.encoder == "count_sketch":
            return CountSketchEncoder(n_components=m, n_rows=int(self.n_rows or 1))
        raise ValueError(f"encoder={self.encoder!r} cannot be made from a plan.")

    def make_mechanism(self) -> IntegerMechanism:
        """Return the mechanism with the plan's target and bits, not yet calibrated."""
        if self.target is None:
            raise ValueError("This plan describes a round that was run; make one with plan(...).")
        p, target = self.parameters, self.target
        return get(
            p.mechanism,
            epsilon=target.epsilon,
            delta=target.delta,
            noise_multiplier=target.noise_multiplier,
            clip_norm=p.clip_norm,
            n_bits=p.n_bits,
            rotation=p.rotation,
            beta=target.beta,
            adjacency=p.adjacency,
            min_survivors=target.min_survivors,
            colluders=target.colluders,
            rounds=target.rounds,
            sampling=target.sampling,
        )

    def explain(self) -> str:
        """Return the plan in sentences: what was chosen, and why more would not help."""
        lines = [
            self._explain_message(),
            self._explain_privacy(),
            f"Grid gamma = {self.gamma:.4g}, noise sigma = {self.sigma:.4g} per client; rounding "
            f"inflates the sensitivity by {100 * (self.parameters.inflation - 1):.2g} %, sketches "
            f"are clipped at {self.parameters.clip_norm / self.clip_norm:.4g} times the clip of "
            "vectors.",
            *self._explain_error(),
            f"Lower bounds, bits per client: any scheme of this error "
            f"{self.lower_bound_bits.general:.4g}; unbiased schemes of the order of "
            f"{self.lower_bound_bits.unbiased_order:.4g} (constant unknown).",
        ]
        if not self.relative_error < 1:
            lines.insert(
                0,
                f"Of no use by itself: the predicted error is {self.relative_error:.4g} times "
                "that of answering zero. Ask for less privacy or more clients, or average over "
                "rounds.",
            )
        return "\n".join(lines)

    def _explain_message(self) -> str:
        m = f"m = {self.n_components:,} coordinates"
        how = {
            "identity": f"the vectors themselves, {m}",
            "count_sketch": f"count sketches of {m} in {self.n_rows} rows",
            "hadamard": f"subsampled Hadamard sketches of {m}",
            "gaussian": f"Gaussian sketches of {m}",
        }.get(self.encoder, f"sketches of {m} ({self.encoder})")
        text = (
            f"{self.n_clients:,} clients, d = {self.d:,}: {how} (compression "
            f"{self.compression:.3g}), b = {self.n_bits} bits each: {self.bits_per_client:,} bits "
            f"per client, {self.bits_per_parameter:.3g} per parameter."
        )
        if self.secagg == "masked":
            text += (
                f" Secure aggregation adds {self.protocol_bytes:,} bytes, "
                f"{self.bytes_per_client:,} in all."
            )
        return text

    def _explain_privacy(self) -> str:
        against = self.privacy.describe_observer("colluders" if self.colluders else "server")
        return (
            f"Privacy over {self.rounds} round(s), delta = {self.delta:.3g}: "
            f"epsilon {self.epsilon_server:.4g} against {against}, "
            f"{self.epsilon_release:.4g} against {self.privacy.describe_observer('release')}. "
            f"Noise multiplier z = {self.noise_multiplier:.4g} per round (zCDP epsilon "
            f"{self.zcdp_epsilon:.4g})."
        )

    def _explain_error(self) -> list[str]:
        parts = ""
        if self.decoder == "linear":
            parts = f" (compression {self.compression_mse:.4g}, noise {self.noise_mse:.4g})"
        lines = [
            f"Predicted squared error of the {self.decoder} decoder {self.predicted_mse:.4g}"
            f"{parts}; divided by that of answering zero {self.relative_error:.4g}. "
            f"Central Gaussian without compression or decoder: {self.central_mse:.4g}.",
            f"More bits would lower the noise part by {100 * self._gain_of_bits():.2g} % at most.",
        ]
        if self.decoder == "linear" and self.encoder != "identity":
            double = self.compression_mse / 2 + self.noise_mse
            lines.append(
                f"Twice the sketch would lower the error by "
                f"{100 * (1 - double / self.predicted_mse):.2g} % or more, for twice the bits."
            )
        if self.sparse_mse is not None:
            lines.append(
                f"With {self.sparsity} nonzero coordinates: Lasso about "
                f"{self.sparse_mse.lasso:.3g}, least squares on the support "
                f"{self.sparse_mse.least_squares:.3g}."
            )
        return lines

    def to_json(self) -> str:
        """Return every number of the plan as JSON."""
        names = [item.name for item in fields(self) if item.name != "privacy"]
        document: dict[str, Any] = {name: getattr(self, name) for name in names}
        document["parameters"] = json.loads(self.parameters.to_json())
        for name in ("lower_bound_bits", "sparse_mse", "target"):
            value = getattr(self, name)
            document[name] = None if value is None else value._asdict()
        if self.target is not None and self.target.sampling is not None:
            document["target"]["sampling"] = asdict(self.target.sampling)
        for name in (
            "delta",
            "colluders",
            "epsilon_server",
            "epsilon_release",
            "zcdp_epsilon",
            "n_bits",
            "gamma",
            "sigma",
            "modulus",
            "bits_per_client",
            "bytes_per_client",
            "bits_per_parameter",
            "relative_error",
        ):
            document[name] = getattr(self, name)
        return json.dumps(document)

    def _gain_of_bits(self) -> float:
        return max(0.0, 1.0 - self.noise_mse_limit / self.noise_mse)


class TradeOff(NamedTuple):
    """The error of one scheme against what a client sends; see :func:`trade_offs`.

    ``bytes_per_client`` includes the protocol of secure aggregation; ``relative_error`` is over
    c², ``n_components`` and ``n_bits`` are those of each point.
    """

    encoder: str
    decoder: str
    bytes_per_client: list[int]
    relative_error: list[float]
    n_components: list[int]
    n_bits: list[int]


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
    encoder: str | None = None,
    decoder: str | None = None,
    colluders: int = 0,
    secagg: Any = "ideal",
    error_slack: float = 1.0,
    target_error: float | None = None,
    population: int | None = None,
    rounds: int = 1,
    observer: str = "server",
    mechanism: str = "ddg",
    n_rows: int = 15,
    rotation: str = "dft",
    adjacency: str = "zero_out",
    beta: float | str = math.exp(-0.5),
    min_survivors: int | None = None,
    sketch_clip: SketchClip = "tight",
) -> Plan:
    """Plan one round of private mean estimation.

    Of all schemes, sketch lengths and bit widths, the plan is the one of the fewest bits whose
    error at ‖μ‖ = ``clip_norm`` is within ``1 + error_slack`` of the best that any of them reaches,
    or within ``target_error``.

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
        d/m; 1 sends the vectors themselves. The scheme is then the one of the least error, and
        bits, if not given, as many as bring it within 5 % of that of unlimited bits. Default:
        chosen.
    sparsity : int, optional
        Nonzero coordinates of the mean. Adds the Lasso and message passing to the decoders.
    encoder : {"identity", "hadamard", "count_sketch", "gaussian"}, optional
        Consider this one only.
    decoder : str, optional
        Consider this one only: "linear", "amp" or a solver of the Lasso, "lasso" for the usual
        one. All but "linear" need ``sparsity``.
    colluders : int
        Clients that may work with the server: their noise does not count.
    secagg : {"ideal", "masked"} or an instance
        With a threshold, as "masked" always has, the noise is sized for that many survivors. The
        bytes of the protocol are part of ``bytes_per_client``.
    error_slack : float
        Accepted error over the best possible one, relative: 1 allows twice.
    target_error : float, optional
        Largest ``relative_error`` to accept, in place of ``error_slack``: a squared error over
        ``clip_norm``², so that 1 is what answering zero gives.
    population : int, optional
        Clients from whom each round's cohort, of fixed size, is drawn in secret.
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
    sketch_clip : {"tight", "jl", "spectral"} or float
        Clip of a sketch over that of a vector: the factor of the least predicted error, the
        paper's 1.1, σ_max(S) (Gaussian ensemble only), or a number.

    Raises
    ------
    InfeasibleError
        If ``n_bits`` or ``target_error`` is too small; it carries the smallest value that works.

    Examples
    --------
    >>> p = plan(d=1000, n_clients=1000, epsilon=1.0)
    >>> p.encoder, p.n_bits, round(p.relative_error, 3)
    ('identity', 13, 0.021)
    >>> p = plan(d=1_000_000, n_clients=1000, epsilon=1.0, delta=1e-6, n_bits=16, compression=10)
    >>> p.encoder, p.n_components, p.n_bits, round(p.bits_per_parameter, 2)
    ('hadamard', 100000, 16, 1.6)
    """
    request = _Request(
        d=d,
        n_clients=n_clients,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        clip_norm=clip_norm,
        n_bits=n_bits,
        compression=compression,
        sparsity=sparsity,
        encoder=encoder,
        decoder=decoder,
        colluders=colluders,
        secagg=secagg,
        error_slack=error_slack,
        target_error=target_error,
        population=population,
        rounds=rounds,
        observer=observer,
        mechanism=mechanism,
        n_rows=n_rows,
        rotation=rotation,
        adjacency=adjacency,
        beta=beta,
        min_survivors=min_survivors,
        sketch_clip=sketch_clip,
    )
    return request.check().plan()


def trade_offs(d: int, n_clients: int, **request: Any) -> list[TradeOff]:
    """Return, for each scheme that :func:`plan` considers, its error against its bytes.

    Parameters are those of :func:`plan`; ``n_bits``, ``compression``, ``error_slack`` and
    ``target_error`` choose among the points and are not used.
    """
    for name in ("n_bits", "compression", "error_slack", "target_error"):
        request.pop(name, None)
    return _Request(d=d, n_clients=n_clients, **request).check().trade_offs()


@dataclass
class _Request:
    """The arguments of :func:`plan`, checked, and the parts that follow from them."""

    d: int
    n_clients: int
    epsilon: float = 1.0
    delta: float = 1e-5
    noise_multiplier: float | None = None
    clip_norm: float = 1.0
    n_bits: int | None = None
    compression: float | None = None
    sparsity: int | None = None
    encoder: str | None = None
    decoder: str | None = None
    colluders: int = 0
    secagg: Any = "ideal"
    error_slack: float = 1.0
    target_error: float | None = None
    population: int | None = None
    rounds: int = 1
    observer: str = "server"
    mechanism: str = "ddg"
    n_rows: int = 15
    rotation: str = "dft"
    adjacency: str = "zero_out"
    beta: float | str = math.exp(-0.5)
    min_survivors: int | None = None
    sketch_clip: SketchClip = "tight"

    def check(self) -> _Request:
        """Raise for arguments that make no sense; return the request."""
        for name in ("d", "n_clients", "n_rows"):
            value = getattr(self, name)
            if value != int(value) or value < 1:
                raise ValueError(f"{name}={value} must be a positive integer.")
        self.d, self.n_clients = int(self.d), int(self.n_clients)
        check_positive("clip_norm", self.clip_norm)
        check_positive("error_slack", self.error_slack)
        if self.target_error is not None:
            check_positive("target_error", self.target_error)
        check_sketch_clip(self.sketch_clip)
        self._check_scheme()
        self._check_privacy()
        self.built = self._mechanism()
        self.built.check(self.n_clients, self.d)
        self.noise = NoiseModel(self.built, self.n_clients)
        self.search = Search(self._schemes(), self.noise)
        return self

    def _check_scheme(self) -> None:
        self.decoder = _ALIASES.get(self.decoder or "", self.decoder)
        if self.sparsity is not None and not 1 <= self.sparsity <= self.d:
            raise ValueError(f"sparsity={self.sparsity} must lie between 1 and d={self.d}.")
        if self.encoder is not None and self.encoder not in ENCODERS:
            raise ValueError(
                f"encoder={self.encoder!r} cannot be planned; choose one of {', '.join(ENCODERS)}."
            )
        if self.decoder is not None and self.decoder not in PREDICTIONS:
            raise ValueError(
                f"decoder={self.decoder!r} cannot be planned, for its error is not known; choose "
                f"one of {', '.join(PREDICTIONS)}."
            )
        if self.decoder in SPARSE_DECODERS and self.sparsity is None:
            raise ValueError(
                f"decoder={self.decoder!r} needs sparsity, the number of nonzero coordinates of "
                "the mean."
            )
        if self.encoder == "identity" and self.compression not in (None, 1):
            raise ValueError(
                f"compression={self.compression} and encoder='identity' contradict each other; "
                "leave one of them out."
            )
        if self.sketch_clip == "spectral" and self.encoder not in ("gaussian", "identity"):
            raise ValueError(
                "sketch_clip='spectral' needs the largest singular value of S, which only the "
                "Gaussian ensemble offers; give encoder='gaussian', or another sketch_clip."
            )

    def _check_privacy(self) -> None:
        if self.population is not None and not self.population >= self.n_clients:
            raise ValueError(
                f"population={self.population} must be at least n_clients={self.n_clients}."
            )
        if self.observer not in ("server", "release"):
            raise ValueError(f"observer={self.observer!r} must be 'server' or 'release'.")
        if self.observer == "release" and self.population is None:
            raise ValueError("observer='release' needs population, from which cohorts are sampled.")
        if self.mechanism not in ("ddg", "skellam"):
            raise ValueError(
                f"mechanism={self.mechanism!r} cannot be planned; choose 'ddg' or 'skellam'."
            )
        self.aggregation = make_secagg(self.secagg)
        self.survivors = self.min_survivors
        if self.survivors is None:
            self.survivors = self.aggregation.guaranteed_survivors(self.n_clients)

    # -- parts --------------------------------------------------------------------------------

    @property
    def sampling(self) -> Sampling | None:
        """How cohorts are drawn from the population."""
        return None if self.population is None else Sampling(self.n_clients, int(self.population))

    def _target(self) -> PrivacyTarget:
        return PrivacyTarget(
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            rounds=self.rounds,
            min_survivors=self.survivors,
            colluders=self.colluders,
            sampling=self.sampling if self.observer == "release" else None,
            beta=self.beta,
        )

    def _mechanism(self) -> IntegerMechanism:
        return get(
            self.mechanism,
            **self._target()._asdict(),
            clip_norm=self.clip_norm,
            n_bits=16 if self.n_bits is None else self.n_bits,
            rotation=self.rotation,
            adjacency=self.adjacency,
        )

    def _schemes(self) -> list[Scheme]:
        encoders: tuple[str, ...] = ENCODERS if self.encoder is None else (self.encoder,)
        if self.encoder is None and self.compression is not None:
            encoders = ("identity",) if self.compression == 1 else ENCODERS[1:]
        decoders: tuple[str, ...] = _DECODERS if self.sparsity is None else _DECODERS_FOR_SPARSE
        if self.decoder is not None:
            decoders = (self.decoder,)
        return [
            Scheme(
                encoder=encoder,
                decoder=decoder,
                d=self.d,
                norm=float(self.clip_norm),
                n_rows=int(self.n_rows),
                sketch_clip=self.sketch_clip,
                sparsity=self.sparsity,
                noise_limit=self.noise.limit,
            )
            for encoder in encoders
            for decoder in decoders
        ]

    # -- answers ------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan."""
        if self.compression is not None:
            m = resolve_n_components(self.d, None, self.compression)
            lengths = {scheme: scheme.at_most(m) for scheme in self.search.schemes}
            budget = None
            if self.target_error is not None:
                budget = self.target_error * self.clip_norm**2
            choice = self.search.at_length(lengths, self.n_bits, budget)
        else:
            choice = self._cheapest()
        return self._report(choice)

    def trade_offs(self) -> list[TradeOff]:
        """Return the curves of all schemes."""
        extra = self.aggregation.protocol_bytes(self.n_clients)
        curves = [self.search.frontier(scheme) for scheme in self.search.schemes]
        return [
            TradeOff(
                encoder=curve[0].scheme.encoder,
                decoder=curve[0].scheme.decoder,
                bytes_per_client=[-(-choice.bits // 8) + extra for choice in curve],
                relative_error=[choice.error / self.clip_norm**2 for choice in curve],
                n_components=[choice.m for choice in curve],
                n_bits=[choice.b for choice in curve],
            )
            for curve in curves
            if curve
        ]

    def _cheapest(self) -> Choice:
        best = self.search.best_error()
        if self.target_error is not None:
            budget = self.target_error * self.clip_norm**2
            if budget < best:
                least = best / self.clip_norm**2
                raise InfeasibleError(
                    f"target_error={self.target_error:.4g} is below what unlimited bits reach; "
                    f"the smallest that can be is {least:.4g}. Ask for less privacy, more clients "
                    "or a larger error.",
                    "target_error",
                    least,
                )
        elif best == 0:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier} leaves no error to compare that of few "
                "bits with; give target_error or compression."
            )
        else:
            budget = (1.0 + self.error_slack) * best
        choice = self.search.cheapest(budget, self.n_bits)
        if choice is None:
            raise self._infeasible(budget)
        return choice

    def _infeasible(self, budget: float) -> InfeasibleError:
        asked = 0 if self.n_bits is None else self.n_bits
        name = "no modulus" if self.n_bits is None else f"n_bits={self.n_bits}"
        more = self.search.fewest_bits(budget, asked)
        if more is None:
            return InfeasibleError(
                f"{name} can bring the error within {budget:.4g}, and no other width up to "
                f"{self.noise.max_bits} can; give compression, or accept a larger error.",
                "n_bits",
                self.noise.max_bits + 1,
            )
        return InfeasibleError(
            f"{name} cannot bring the error within {budget:.4g}; the smallest that can is {more}. "
            "With compression given, fewer may do.",
            "n_bits",
            more,
        )

    def _report(self, choice: Choice) -> Plan:
        scheme, m = choice.scheme, choice.m
        factor = scheme.factor(m)
        self.built.set_params(n_bits=choice.b, clip_norm=factor * self.clip_norm)
        parameters = self.built.calibrate(self.n_clients, m)
        noise_std = self.built.noise_std(self.n_clients)
        return _make_plan(
            scheme,
            m=m,
            factor=factor,
            parameters=parameters,
            noise_std=noise_std,
            privacy=self.built.privacy(sampling=self.sampling),
            rounds=self.rounds,
            central_std=self._central_std(),
            noise_limit=self.noise.limit,
            aggregation=self.aggregation,
            target=self._target(),
        )

    def _central_std(self) -> float:
        """Return the noise of a trusted server: that of all clients' shares, on one coordinate."""
        shares = self.built.parameters_.noise_shares
        return self.clip_norm * math.sqrt(self.noise.limit * shares / self.n_clients)


def _make_plan(
    scheme: Scheme,
    *,
    m: int,
    factor: float,
    parameters: MechanismParameters,
    noise_std: float,
    privacy: RoundPrivacy,
    rounds: int,
    central_std: float,
    noise_limit: float,
    aggregation: Any,
    target: PrivacyTarget | None,
) -> Plan:
    """Put a plan together from a scheme and its calibrated noise."""
    d, c, n, s = scheme.d, scheme.norm, parameters.n_clients, scheme.sparsity
    decoding = PREDICTIONS[scheme.decoder](scheme.situation(m, noise_std))
    error = decoding + scheme.clipping_error(m, factor) * c**2
    z = parameters.noise_multiplier
    n2e2 = (n / z) ** 2 if z else math.inf  # the paper's n²ε²
    k = d if scheme.decoder not in SPARSE_DECODERS else s or d
    return Plan(
        d=d,
        n_clients=n,
        clip_norm=c,
        privacy=privacy,
        rounds=rounds,
        encoder=scheme.encoder,
        decoder=scheme.decoder,
        n_components=m,
        n_rows=min(scheme.n_rows, m) if scheme.encoder == "count_sketch" else None,
        sketch_clip="spectral" if scheme.sketch_clip == "spectral" else factor,
        parameters=parameters,
        noise_std=noise_std,
        predicted_mse=error,
        compression_mse=scheme.unsketch_error(m) * c**2,
        noise_mse=d * noise_std**2,
        central_mse=d * central_std**2,
        noise_mse_limit=d * (factor * c) ** 2 * noise_limit,
        sparsity=s,
        sparse_mse=None if s is None else _sparse_errors(d, s, m, noise_std),
        lower_bound_bits=LowerBounds(
            general=max(k / 2 * math.log2(c * c / error), 1.0),
            unbiased_order=min(n2e2, float(k)),
        ),
        secagg=aggregation.name,
        threshold=getattr(aggregation, "threshold", None),
        neighbors=getattr(aggregation, "neighbors", None),
        protocol_bytes=aggregation.protocol_bytes(n),
        target=target,
    )


def describe_round(
    *,
    encoder: LinearEncoder,
    encoder_name: str,
    decoder: str,
    parameters: MechanismParameters,
    clip_norm: float,
    privacy: RoundPrivacy,
    noise_std: float,
    sparsity: int | None,
    aggregation: Any,
) -> Plan:
    """Return the plan that a round which was run amounts to.

    Parameters
    ----------
    encoder : LinearEncoder
        Fitted.
    encoder_name, decoder : str
        Their names. Errors are predicted for the linear decoder where that of ``decoder`` is not
        known.
    parameters : MechanismParameters
        Of the round.
    clip_norm : float
        The clients' clip.
    privacy : RoundPrivacy
        What the round revealed.
    noise_std : float
        Noise in each coordinate of the mean sketch.
    sparsity : int or None
        Nonzero coordinates of the mean, where known.
    aggregation : IdealSecAgg or MaskedSecAgg
        The secure aggregation.
    """
    known = decoder in PREDICTIONS and (decoder == "linear" or sparsity is not None)
    central = parameters.mechanism == "central"
    z, n = parameters.noise_multiplier, parameters.n_clients
    limit = (noise_std / parameters.clip_norm) ** 2
    if not central:
        limit = z * z / (parameters.noise_shares * privacy.n_survivors)
    scheme = Scheme(
        encoder=encoder_name,
        decoder=decoder if known else "linear",
        d=encoder.n_features_in_,
        norm=float(clip_norm),
        n_rows=getattr(encoder, "n_rows_", 1),
        sketch_clip=parameters.clip_norm / clip_norm,
        sparsity=sparsity,
        noise_limit=limit,
        known_unsketch_error=encoder.unsketch_error(),
    )
    return _make_plan(
        scheme,
        m=encoder.n_components_,
        factor=parameters.clip_norm / clip_norm,
        parameters=parameters,
        noise_std=noise_std,
        privacy=privacy,
        rounds=1,
        central_std=clip_norm * z / n,
        noise_limit=limit,
        aggregation=aggregation,
        target=None,
    )


def _sparse_errors(d: int, s: int, m: int, noise_std: float) -> SparseErrors:
    return SparseErrors(
        lasso=s * noise_std**2 * (2.0 * math.log(d) + 1.0),
        least_squares=s * noise_std**2 / (1 - s / m) if s < m else math.inf,
    )
