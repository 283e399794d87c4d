"""What a plan says: choices, noise, predicted error, bytes and lower bounds of one round."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from sklearn.base import clone

from sparse_secagg.encoders import (
    CountSketchEncoder,
    GaussianEncoder,
    HadamardEncoder,
    IdentityEncoder,
    LinearEncoder,
)
from sparse_secagg.mechanisms import IntegerMechanism, MechanismParameters
from sparse_secagg.parameters import SketchClip
from sparse_secagg.privacy import RoundPrivacy, Sampling
from sparse_secagg.privacy.conversion import stated
from sparse_secagg.secagg.quorums import GraphParameters, graph_parameters

#: Parameters of the mechanism that say what its noise was sized for.
_TARGET = (
    "epsilon",
    "delta",
    "noise_multiplier",
    "rounds",
    "min_survivors",
    "colluders",
    "sampling",
    "beta",
)

__all__ = ["LowerBounds", "Plan", "SparseErrors", "TradeOff"]


class LowerBounds(NamedTuple):
    """Bits per client that no scheme can go below (Theorem on compression lower bounds).

    Parameters
    ----------
    general : float
        Bound for any scheme of error ξ, the predicted one: max((k/2)·log₂(c²/ξ), 1).
    unbiased_order : float
        Bound for unbiased schemes, min(n²ε², k); order only, the constant is unknown.

    See Also
    --------
    Plan : Has them as ``lower_bound_bits``.

    Notes
    -----
    k is d; for a sparse decoder it is s, as if the support were known.

    Examples
    --------
    >>> from sparse_secagg import plan
    >>> made = plan(d=1000, n_clients=1000, epsilon=1.0)
    >>> made.lower_bound_bits.general < made.bits_per_client
    True
    """

    general: float
    unbiased_order: float


class SparseErrors(NamedTuple):
    """Rules of thumb for the squared errors when the mean has s nonzero coordinates.

    Parameters
    ----------
    lasso : float
        Error of the Lasso at alpha from the noise level, s·noise_std²·(2 ln d + 1).
    least_squares : float
        Error on the true support, s·noise_std²/(1 − s/m); message passing comes close.

    See Also
    --------
    Plan : Has them as ``sparse_mse``.

    Examples
    --------
    >>> from sparse_secagg import plan
    >>> made = plan(d=10_000, n_clients=1000, epsilon=1.0, sparsity=20)
    >>> made.sparse_mse.least_squares < made.sparse_mse.lasso
    True
    """

    lasso: float
    least_squares: float


@dataclass(frozen=True)
class Plan:
    """What one round will do, cost and achieve. Made by :func:`plan`.

    Parameters
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
    sketch_clip : {"tight", "jl", "spectral"} or float
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
        Clients that secure aggregation needs to the end, or their share; None for its default.
    neighbors : int or None
        Neighbours of a client in the masked protocol; None: everybody.
    protocol_bytes : int
        What a client sends for secure aggregation itself, beside the payload.
    mechanism : IntegerMechanism or None
        The mechanism with its target, not calibrated; None for the plan of a round that was run.
    prior : object
        What the decoder is to know of the mean.

    See Also
    --------
    plan : Makes it.
    trade_offs : What else could have been chosen.
    sparse_secagg.SparseSecAgg.from_plan : Runs it.

    Examples
    --------
    >>> from sparse_secagg import plan
    >>> made = plan(d=1000, n_clients=1000, epsilon=1.0)
    >>> made.encoder, made.n_bits, round(made.relative_error, 3)
    ('identity', 13, 0.021)
    >>> print(made.explain().splitlines()[0])
    1,000 clients, d = 1,000: the vectors themselves, m = 1,000 coordinates (compression 1), ...
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
    secagg: str
    threshold: float | None = None
    neighbors: int | None = None
    protocol_bytes: int = 0
    mechanism: IntegerMechanism | None = None
    prior: Any = None

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
    def graph(self) -> GraphParameters:
        """Neighbours and share threshold of a round between parties that do not trust the server.

        Provided for are the plan's colluders, at least 5 % of the clients, and 5 % of drop-outs.
        """
        return graph_parameters(self.n_clients, max(0.05, self.colluders / self.n_clients))

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
        if self.mechanism is None:
            raise ValueError("This plan describes a round that was run; make one with plan(...).")
        made: IntegerMechanism = clone(self.mechanism)
        return made

    @property
    def target(self) -> dict[str, Any] | None:
        """What the noise was sized for; None for the plan of a round that was run."""
        if self.mechanism is None:
            return None
        return {name: getattr(self.mechanism, name) for name in _TARGET}

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
                f"{self.bytes_per_client:,} in all. {self.graph.explain()}"
            )
        return text

    def _explain_privacy(self) -> str:
        against = self.privacy.describe_observer("colluders" if self.colluders else "server")
        return (
            f"Privacy over {self.rounds} round(s), delta = {stated(self.delta, 3)}: "
            f"epsilon {stated(self.epsilon_server)} against {against}, "
            f"{stated(self.epsilon_release)} against {self.privacy.describe_observer('release')}. "
            f"Noise multiplier z = {self.noise_multiplier:.4g} per round (zCDP epsilon "
            f"{stated(self.zcdp_epsilon)})."
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
        left_out = ("privacy", "mechanism", "prior")
        names = [item.name for item in fields(self) if item.name not in left_out]
        document: dict[str, Any] = {name: getattr(self, name) for name in names}
        document["parameters"] = self.parameters.to_dict()
        for name in ("lower_bound_bits", "sparse_mse"):
            value = getattr(self, name)
            document[name] = None if value is None else value._asdict()
        document["target"] = target = self.target
        if target is not None and isinstance(target["sampling"], Sampling):
            target["sampling"] = asdict(target["sampling"])
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
    """The error of one scheme against what a client sends, point by point.

    Parameters
    ----------
    encoder, decoder : str
        The scheme.
    bytes_per_client : list of int
        What a client sends, the protocol of secure aggregation included.
    relative_error : list of float
        Predicted squared error over c².
    n_components, n_bits : list of int
        Sketch length and bits of each point.

    See Also
    --------
    trade_offs : Returns one for each scheme.

    Examples
    --------
    >>> from sparse_secagg.planner import trade_offs
    >>> curve = trade_offs(d=1000, n_clients=1000, epsilon=1.0, encoder="identity")[0]
    >>> curve.encoder, curve.relative_error[0] > curve.relative_error[-1]
    ('identity', True)
    """

    encoder: str
    decoder: str
    bytes_per_client: list[int]
    relative_error: list[float]
    n_components: list[int]
    n_bits: list[int]
