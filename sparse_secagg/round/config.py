"""One private round, between parties that share nothing but bytes.

The server broadcasts a :class:`RoundConfig`: a few hundred bytes of JSON with public seeds and
parameters. A client answers with :func:`client_encode`: clip, sketch, and the mechanism's integer
message. The server adds messages modulo M and inverts the steps with :func:`server_decode`.

A client trusts no number it is sent: it recomputes ε from the noise it will really add and refuses
what exceeds its own :class:`ClientPolicy`. What it answers is *not masked*: a message carries one
share of the noise, and its own ε (:attr:`RoundConfig.local_epsilon`) is far above the round's.
Messages are for secure aggregation, or for one process that everybody trusts.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

import solvers
from sparse_secagg import mechanisms
from sparse_secagg.round.clipping import ClippedRows, as_rows, clip_factors
from sparse_secagg.encoders import (
    BlockEncoder,
    HadamardEncoder,
    IdentityEncoder,
    LinearEncoder,
    registry,
)
from sparse_secagg.exceptions import PrivacyWarning, RefusedRoundError
from sparse_secagg.mechanisms import IntegerMechanism, MechanismParameters, rejection
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.mechanisms.rotation import padded_dim
from sparse_secagg.planning.clips import (
    JL_CLIP,
    SketchClip,
    check_sketch_clip,
    length_spread,
    tight_factor,
)
from sparse_secagg.privacy.curves import MIN_VARIANCE, norm_bound, sensitivity_factor
from sparse_secagg.privacy.observers import Costed, RoundPrivacy
from sparse_secagg.public_randomness import resolve_seed, stream_key
from sparse_secagg.secagg.errors import BelowThresholdError
from sparse_secagg.secagg.wire import pack, packed_size, unpack
from sparse_secagg.walsh_hadamard import next_power_of_two

__all__ = [
    "ClientPolicy",
    "Estimate",
    "RefusedRoundError",
    "Round",
    "RoundConfig",
    "aggregate",
    "client_encode",
    "server_decode",
    "sketch_clip_norm",
]

FORMAT_VERSION = 2
_MAGIC = b"SSA1"
_DIGEST_BYTES = 8

#: Noise beyond the largest that calibration aims for, times this, would take a client too long.
_VARIANCE_SLACK = 100
#: One check-and-remember of a round at a time, whichever policy it is in.
_ANSWERING = threading.Lock()


@dataclass(frozen=True)
class RoundConfig:
    """The public description of one round.

    Attributes
    ----------
    round_id : str
        Names the round; a client takes part in a round once.
    dim : int
        Length d of the clients' vectors.
    clip_norm : float
        ℓ₂ clip c of the vectors, before the sketch.
    encoder : dict
        Name and parameters of the encoder.
    encoder_seed : int
        Public seed of the sketch.
    mechanism : MechanismParameters
        Calibrated parameters of the mechanism, its rotation's public seed among them.
    min_survivors : int or None
        Clients that must be in the sum, or nothing is decoded. None: any number is, and the
        realised ε comes with the estimate.
    epsilon, delta : float
        What the round claims to cost: (ε, δ)-DP with the guaranteed survivors, against the server
        and its colluders (of the release, if a trusted server adds the noise). Infinite ε: no
        privacy.
    version : int
        Of the format.
    """

    round_id: str
    dim: int
    clip_norm: float
    encoder: dict[str, Any]
    encoder_seed: int
    mechanism: MechanismParameters
    min_survivors: int | None
    epsilon: float
    delta: float
    version: int = FORMAT_VERSION

    @classmethod
    def create(
        cls,
        *,
        dim: int,
        n_clients: int,
        encoder: LinearEncoder,
        mechanism: IntegerMechanism,
        clip_norm: float = 1.0,
        sketch_clip: SketchClip = "tight",
        random_state: Any = None,
        round_id: str | None = None,
    ) -> RoundConfig:
        """Calibrate a round.

        Parameters
        ----------
        dim, n_clients : int
            Length of the vectors and size of the cohort.
        encoder : LinearEncoder
            The encoder; its own ``random_state`` is not used.
        mechanism : IntegerMechanism
            The mechanism with its target (ε and δ, or a noise multiplier) and bit width. Its
            ``clip_norm`` is set to the clip of the sketches.
        clip_norm : float
            ℓ₂ clip of the vectors.
        sketch_clip : {"tight", "jl", "spectral"} or float
            Clip of the sketches over ``clip_norm``: the factor of the least predicted error, which
            is 1 from m = 800 on; the paper's 1.1; σ_max(S), which never clips twice; or a number.
        random_state : int, RandomState, Generator or None
            Public randomness: sketch and rotation.
        round_id : str, optional
            A fresh one by default.
        """
        if not (clip_norm > 0 and math.isfinite(clip_norm)):
            raise ValueError(f"clip_norm={clip_norm} must be a finite positive number.")
        seed = resolve_seed(random_state)
        encoder_seed = int(stream_key(seed, "encoder"))
        encoder = _with_seed(encoder, encoder_seed).fit_dimension(dim)
        mechanism = clone(mechanism).set_params(
            clip_norm=sketch_clip_norm(encoder, clip_norm, sketch_clip),
            random_state=int(stream_key(seed, "rotation")),
        )
        parameters = mechanism.calibrate(n_clients, encoder.n_components_)
        return cls(
            round_id=secrets.token_hex(8) if round_id is None else str(round_id),
            dim=int(dim),
            clip_norm=float(clip_norm),
            encoder=registry.to_dict(encoder),
            encoder_seed=encoder_seed,
            mechanism=parameters,
            min_survivors=None if mechanism.min_survivors is None else parameters.min_survivors,
            epsilon=mechanism.privacy().sampled(None).epsilon(),
            delta=float(mechanism.delta),
        )

    def to_json(self) -> str:
        """Return the configuration as JSON, with a digest that guards against corruption."""
        document = self._document()
        return json.dumps({**document, "digest": _digest(document)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> RoundConfig:
        """Return the configuration written by :meth:`to_json`; raise if it is not valid."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RefusedRoundError(f"the configuration is not JSON: {error}.") from None
        version = document.get("version") if isinstance(document, dict) else None
        if type(version) is not int or version != FORMAT_VERSION:
            raise RefusedRoundError(
                f"the configuration has version {version}, this software speaks {FORMAT_VERSION}; "
                "update the older of the two."
            )
        digest = document.pop("digest", None)
        if digest != _digest(document):
            raise RefusedRoundError("the configuration was altered: its digest does not match.")
        names = {item.name for item in fields(cls)}
        if set(document) != names:
            wrong = sorted(set(document) ^ names)
            raise RefusedRoundError(f"the configuration has unexpected or missing fields {wrong}.")
        try:
            parameters = MechanismParameters.from_json(json.dumps(document.pop("mechanism")))
            epsilon = float(document.pop("epsilon"))
            config = cls(mechanism=parameters, epsilon=epsilon, **document)
        except (TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise RefusedRoundError(f"the configuration is not valid: {error}") from None
        _check_fields(config)
        if _digest(config._document()) != digest:
            raise RefusedRoundError("the configuration is not written as this software writes it.")
        return config

    @property
    def digest(self) -> bytes:
        """Eight bytes that name this configuration in every message."""
        return bytes.fromhex(_digest(self._document()))[:_DIGEST_BYTES]

    @property
    def local_epsilon(self) -> float:
        """ε, at the round's δ, of one client's message by itself: its own share of noise alone.

        This is what protects the client from whoever sees its bytes, so what is left of the round's
        ε when secure aggregation fails. Infinite if clients add no noise.
        """
        mechanism = _mechanism(self)
        if _is_noiseless(self.mechanism):
            return math.inf
        return mechanism.privacy(1, colluders=0).epsilon("server")

    def _document(self) -> dict[str, Any]:
        document = {item.name: getattr(self, item.name) for item in fields(self)}
        document["mechanism"] = json.loads(self.mechanism.to_json())
        document["epsilon"] = repr(self.epsilon)  # JSON has no infinity
        return document


@dataclass
class ClientPolicy:
    """What a client insists on, whatever a server asks.

    Attributes
    ----------
    max_epsilon, max_delta : float
        Largest ε of a round, with its guaranteed survivors, and largest δ that the client agrees
        to. There is no default: this is the client's decision. Where the round's ``min_survivors``
        is None nobody guarantees any number, and ε is what the noise of all clients gives.
    dim : int, optional
        The length its vectors have.
    allow_trusted_server : bool
        Whether to send messages without noise, which central privacy needs: whoever receives them
        sees the client's vector.
    adjacency : {"zero_out", "replace_one"}
        The neighbours for which the round's ε must hold. "replace_one" refuses a round that
        accounts for "zero_out" only; "zero_out" takes both, the other being the stronger.
    max_clients : int or None
        The largest cohort that the client believes in. A server that claims more clients than there
        are is sent less noise than it needs. None believes in any.
    max_local_epsilon : float
        Largest ε of the client's own bytes (:attr:`RoundConfig.local_epsilon`): what protects it if
        secure aggregation fails. Infinite by default, for it is large in every distributed round.
    seen_rounds : set of str
        Rounds taken part in; :meth:`check` adds to it. It lives as long as the policy.
    """

    max_epsilon: float
    max_delta: float
    dim: int | None = None
    allow_trusted_server: bool = False
    adjacency: str = "zero_out"
    max_clients: int | None = 10_000
    max_local_epsilon: float = math.inf
    seen_rounds: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        limits = [("max_epsilon", math.inf), ("max_delta", 1.0), ("max_local_epsilon", math.inf)]
        for name, largest in limits:
            value = getattr(self, name)
            if not (_is_number(value) and 0 < value <= largest):
                raise ValueError(f"{name}={value!r} must be a number above 0, at most {largest}.")
        if self.max_clients is not None and not _is_whole(self.max_clients, 1):
            raise ValueError(
                f"max_clients={self.max_clients!r} must be a positive integer or None."
            )
        sensitivity_factor(self.adjacency)

    def check(self, config: RoundConfig) -> None:
        """Raise :class:`RefusedRoundError` unless the round is acceptable; remember it if it is."""
        _check_fields(config)
        self._check_limits(config)
        try:
            actual = _round(config).epsilon
        except RefusedRoundError:
            raise
        except Exception as error:  # whatever a configuration breaks, it is refused for it
            raise RefusedRoundError(f"the configuration cannot be used: {error}") from error
        if not actual <= self.max_epsilon:
            raise RefusedRoundError(
                f"the round costs epsilon={actual:.4g}, above this client's limit "
                f"{self.max_epsilon:.4g}; ask for more noise or more clients."
            )
        if self.max_local_epsilon < math.inf:
            self._check_own_message(config)
        with _ANSWERING:
            self._check_new(config)
            self.seen_rounds.add(config.round_id)

    def _check_own_message(self, config: RoundConfig) -> None:
        local = config.local_epsilon
        if not local <= self.max_local_epsilon:
            raise RefusedRoundError(
                f"this client's own message would have epsilon={local:.4g}, above its limit "
                f"max_local_epsilon={self.max_local_epsilon:.4g}."
            )

    def _check_limits(self, config: RoundConfig) -> None:
        p = config.mechanism
        if self.dim is not None and config.dim != self.dim:
            raise RefusedRoundError(
                f"the round is about vectors of length {config.dim}, this client's have {self.dim}."
            )
        self._check_new(config)
        if not config.delta <= self.max_delta:
            raise RefusedRoundError(
                f"the round's delta={config.delta} exceeds this client's limit {self.max_delta}."
            )
        if _is_noiseless(p) and not self.allow_trusted_server:
            raise RefusedRoundError(
                "the round asks for messages without noise (a trusted server), which this client "
                "does not send; use mechanism='ddg' or 'skellam', or allow_trusted_server=True."
            )
        if sensitivity_factor(p.adjacency) < sensitivity_factor(self.adjacency):
            raise RefusedRoundError(
                f"the round accounts for adjacency={p.adjacency!r}, which is weaker than this "
                f"client's {self.adjacency!r}."
            )
        if self.max_clients is not None and p.n_clients > self.max_clients:
            raise RefusedRoundError(
                f"the round claims {p.n_clients} clients, more than this client believes in; if "
                f"there are that many, raise max_clients={self.max_clients}."
            )

    def _check_new(self, config: RoundConfig) -> None:
        if config.round_id in self.seen_rounds:
            raise RefusedRoundError(
                f"round_id={config.round_id!r} was answered before; answering twice would double "
                "the privacy spent."
            )


class Round:
    """The working parts of a configuration: its encoder and its mechanism.

    Making them checks the configuration; ``epsilon`` is what its noise really gives.
    """

    def __init__(self, config: RoundConfig) -> None:
        self.config = config
        self.epsilon = _check_claim(config)
        self.encoder = _with_seed(registry.from_dict(config.encoder), config.encoder_seed)
        self.encoder.fit_dimension(config.dim)
        self.mechanism = _mechanism(config)
        if self.encoder.n_components_ != config.mechanism.dim:
            raise RefusedRoundError(
                f"the encoder makes sketches of length {self.encoder.n_components_}, but the "
                f"mechanism is calibrated for {config.mechanism.dim}."
            )

    def sketch(
        self, X: Any, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], SketchCounts]:
        """Return the sketches of the rows of X (n, d), weighted and then clipped.

        Rows with NaN or Inf count as 0. The sketch is linear, so it is the sketch that is scaled
        into the clip: the rows are read and never copied.
        """
        parts = _clip(X, self.config.clip_norm, self.encoder, weights)
        if isinstance(self.encoder, BlockEncoder):
            encoders = [block.encoder for block in self.encoder.blocks_]
        else:
            encoders = [self.encoder]
        sketches = [_sketch(encoder, part) for encoder, part in zip(encoders, parts)]
        joined = sketches[0] if len(sketches) == 1 else np.concatenate(sketches, axis=1)
        return joined, SketchCounts(parts)

    def encode(self, X: Any, rng: Randomness | None = None) -> NDArray[np.uint64]:
        """Return the messages of the rows of X (n, d), integers in [0, M) of shape (n, D)."""
        return self.mechanism.encode(self.sketch(X)[0], rng)

    def privacy(self, n_survivors: int) -> RoundPrivacy:
        """Return what the round reveals when ``n_survivors`` messages are in the sum.

        Raises :class:`BelowThresholdError` for fewer than the round insists on, and warns where
        their noise gives less privacy than was asked for.
        """
        least, asked = self.config.min_survivors, self.config.epsilon
        if least is not None and n_survivors < least:
            raise BelowThresholdError(
                f"{n_survivors} clients survived, fewer than min_survivors={least}: the round "
                "ends and nothing is decoded."
            )
        privacy = self.mechanism.privacy(n_survivors)
        realised = privacy.epsilon()
        if realised > asked * (1 + 1e-9):
            warnings.warn(
                f"{n_survivors} of {self.config.mechanism.n_clients} clients survived: epsilon is "
                f"{realised:.4g} against {privacy.describe_observer()}, "
                f"{realised - asked:.4g} above the {asked:.4g} asked for. Give min_survivors to "
                "size the noise for them.",
                PrivacyWarning,
                stacklevel=3,
            )
        return privacy

    def decode(
        self, total: ArrayLike, n_survivors: int, rng: Randomness | None = None
    ) -> NDArray[np.float64]:
        """Return the noisy mean sketch from the modular sum of the survivors' messages.

        ``rng`` is for a trusted server, which adds the noise here: each call is one release.
        """
        if isinstance(self.mechanism, mechanisms.CentralGaussian):
            return self.mechanism.decode(total, n_survivors, rng)
        return self.mechanism.decode(total, n_survivors)


@dataclass(frozen=True, eq=False)
class Estimate(Costed):
    """A decoded mean and what it cost. NumPy takes it for the array ``mean``.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        Estimate of the survivors' mean.
    privacy : RoundPrivacy
        What the round revealed, with the noise that survived.
    n_survivors : int
        Clients in the sum.
    noise_std : float
        Standard deviation of the noise in each coordinate of the mean sketch.
    """

    mean: NDArray[np.float64] = field(repr=False)
    privacy: RoundPrivacy = field(repr=False)
    n_survivors: int
    noise_std: float

    def __getitem__(self, index: Any) -> Any:
        return self.mean[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.mean, dtype=dtype, copy=copy)


@dataclass(frozen=True)
class SketchCounts:
    """What clipping met. Data-dependent, so not private.

    Attributes
    ----------
    parts : list of ClippedRows
        The clipped rows, one part for each layer.
    """

    parts: list[ClippedRows]

    @property
    def n_nonfinite(self) -> int:
        """Rows with NaN or Inf."""
        return int(np.any([part.nonfinite for part in self.parts], axis=0).sum())

    @property
    def n_clipped(self) -> int:
        """Rows that were too long, in any layer."""
        return int(np.any([part.clipped for part in self.parts], axis=0).sum())

    @property
    def norms(self) -> NDArray[np.float64]:
        """Norms of the weighted rows before clipping; zero for rows with NaN or Inf."""
        if len(self.parts) == 1:
            return self.parts[0].norms
        with np.errstate(over="ignore"):
            return np.linalg.norm([part.norms for part in self.parts], axis=0)

    def add_to(self, total: NDArray[np.float64], clipped_total: NDArray[np.float64]) -> None:
        """Add the sums of the rows before and after clipping to two totals of length d."""
        start = 0
        for part in self.parts:
            layer = slice(start, start + part.rows.shape[1])
            part.add_to(total[layer], clipped_total[layer])
            start = layer.stop


def client_encode(
    config: RoundConfig | str | bytes,
    x: ArrayLike,
    *,
    policy: ClientPolicy | None = None,
    rng: Randomness | None = None,
) -> bytes:
    """Return one client's message: its sketch, clipped, rounded and noisy, packed at b bits.

    **The bytes are not masked.** They carry this client's share of the noise and nothing more, and
    whoever sees them alone learns what ``config.local_epsilon`` says, which is far more than the
    round's ε. They must not leave a trusted process except through secure aggregation, which shows
    the sum of all messages only.

    Parameters
    ----------
    config : RoundConfig, str or bytes
        The round, or its JSON.
    x : array-like of shape (d,)
        The client's vector. With NaN or Inf in it, the client contributes the zero vector.
    policy : ClientPolicy
        The client's limits; without them nothing is sent.
    rng : Randomness, optional
        Private randomness; the operating system's by default.

    Raises
    ------
    RefusedRoundError
        The configuration is not valid, or not acceptable to the policy. Nothing was spent.
    """
    if policy is None:
        raise ValueError(
            "policy=None: a client answers only within limits of its own; pass, for example, "
            "policy=ClientPolicy(max_epsilon=1.0, max_delta=1e-5)."
        )
    if not isinstance(config, RoundConfig):
        config = RoundConfig.from_json(config)
    x = np.asarray(x)
    if x.dtype != np.float32:
        x = x.astype(np.float64, copy=False)
    if x.shape != (config.dim,):
        raise RefusedRoundError(
            f"x has shape {x.shape}, but the round is about vectors of shape ({config.dim},)."
        )
    policy.check(config)
    message = _round(config).encode(x[None, :], rng)[0]
    return _MAGIC + config.digest + pack(message, config.mechanism.n_bits)


def aggregate(
    config: RoundConfig, messages: Iterable[bytes], *, on_invalid: str = "raise"
) -> tuple[NDArray[np.uint64], list[int]]:
    """Add messages modulo M: what ideal secure aggregation shows the server, and nothing else.

    Parameters
    ----------
    config : RoundConfig
        The round.
    messages : iterable of bytes
        What clients sent.
    on_invalid : {"raise", "exclude"}
        Whether a malformed message ends the aggregation or is left out.

    Returns
    -------
    total : ndarray of uint64, shape (D,)
        The sum modulo M.
    survivors : list of int
        Which messages are in it.

    Raises
    ------
    BelowThresholdError
        Fewer than ``config.min_survivors`` messages are valid. Nothing is returned.
    """
    if on_invalid not in ("raise", "exclude"):
        raise ValueError(f"on_invalid={on_invalid!r} must be 'raise' or 'exclude'.")
    mask = np.uint64(config.mechanism.modulus - 1)
    total = np.zeros(config.mechanism.padded_dim, dtype=np.uint64)
    survivors: list[int] = []
    seen: set[bytes] = set()
    for i, message in enumerate(messages):
        try:
            values = unpack_message(config, message)
            if message in seen:
                raise ValueError("is a repetition of an earlier one, whose noise counts once.")
            seen.add(message)
        except ValueError as error:
            if on_invalid == "raise":
                raise ValueError(f"message {i}: {error}") from None
            continue
        total = (total + values) & mask
        survivors.append(i)
    if config.min_survivors is not None and len(survivors) < config.min_survivors:
        raise BelowThresholdError(
            f"{len(survivors)} valid messages, fewer than min_survivors={config.min_survivors}: "
            "the round ends and reveals nothing."
        )
    return total, survivors


def unpack_message(config: RoundConfig, message: bytes) -> NDArray[np.uint64]:
    """Return the integers in one client's message; raise if it is not one of this round."""
    p = config.mechanism
    header = len(_MAGIC) + _DIGEST_BYTES
    expected = header + packed_size(p.padded_dim, p.n_bits)
    if len(message) != expected:
        raise ValueError(f"has {len(message)} bytes, a message of this round has {expected}.")
    if message[: len(_MAGIC)] != _MAGIC:
        raise ValueError("is not a message of this software.")
    if message[len(_MAGIC) : header] != config.digest:
        raise ValueError("belongs to another round.")
    return unpack(message[header:], p.n_bits, p.padded_dim)


def server_decode(
    config: RoundConfig,
    total: ArrayLike,
    survivors: int | Sequence[int],
    decoder: Any = "linear",
) -> Estimate:
    """Return the estimate of the survivors' mean, and its realised ε, from the modular sum.

    Parameters
    ----------
    config : RoundConfig
        The round.
    total : array-like of shape (D,)
        Sum of the messages modulo M.
    survivors : int or sequence of int
        How many, or which, messages are in the sum.
    decoder : str or Solver
        Any solver; costs no privacy (with central noise, though, every call is a release).

    Raises
    ------
    BelowThresholdError
        Fewer than ``config.min_survivors`` survived. Where that is None any number is decoded,
        with a :class:`PrivacyWarning` if ε exceeds what the round claims.
    """
    if not isinstance(survivors, int | np.integer):
        if len(set(survivors)) < len(survivors):
            raise ValueError("survivors names a message twice; its noise counts once.")
        survivors = len(survivors)
    k, work = int(survivors), _round(config)
    privacy = work.privacy(k)
    sketch, noise_std = work.decode(total, k), work.mechanism.noise_std(k)
    solver = make_decoder(decoder).fit(work.encoder.operator_, sketch, noise_std=noise_std)
    return Estimate(solver.coef_, privacy, k, noise_std)


def make_decoder(decoder: Any) -> Any:
    """Return a new solver for a name, or an unfitted copy of one."""
    return solvers.get(decoder) if isinstance(decoder, str) else clone(decoder)


def sketch_clip_norm(encoder: LinearEncoder, clip_norm: float, kind: SketchClip) -> float:
    """Return the clip c' of the sketches of vectors within ``clip_norm``.

    Parameters
    ----------
    encoder : LinearEncoder
        Fitted. Vectors that are not sketched are not clipped again.
    clip_norm : float
        Clip c of the vectors.
    kind : {"tight", "jl", "spectral"} or float
        As in :meth:`RoundConfig.create`.
    """
    check_sketch_clip(kind)
    if isinstance(encoder, IdentityEncoder):
        return clip_norm
    if kind == "tight":
        d = encoder.n_features_in_
        orthogonal = isinstance(encoder, HadamardEncoder)
        row_dim = next_power_of_two(d) if orthogonal else math.inf
        return clip_norm * tight_factor(length_spread(encoder.n_components_, row_dim))
    if kind == "jl":
        return JL_CLIP * clip_norm
    if not isinstance(kind, str):
        return float(kind) * clip_norm
    if not hasattr(encoder, "sigma_max"):
        raise ValueError(
            f"sketch_clip='spectral' needs the largest singular value of S, which "
            f"{type(encoder).__name__} does not offer; use GaussianEncoder, or sketch_clip='tight'."
        )
    return clip_norm * encoder.sigma_max()


def _sketch(encoder: LinearEncoder, clipped: ClippedRows) -> NDArray[np.float64]:
    sketches = np.asarray(encoder.operator_.matmat(clipped.rows.T).T, dtype=np.float64)
    if (clipped.factors != 1).any():
        sketches *= clipped.factors[:, None]
    return sketches


def _with_seed(encoder: LinearEncoder, seed: int) -> LinearEncoder:
    encoder = clone(encoder)
    if "random_state" in encoder.get_params(deep=False):
        encoder.set_params(random_state=seed)
    return encoder


def _mechanism(config: RoundConfig) -> IntegerMechanism:
    try:
        mechanism = mechanisms.from_parameters(config.mechanism)
    except ValueError as error:
        raise RefusedRoundError(str(error)) from None
    return mechanism.set_params(delta=config.delta)


def _is_noiseless(parameters: MechanismParameters) -> bool:
    """Return whether clients send their values as they are."""
    return parameters.mechanism == "central" or parameters.variance == 0


def _is_number(value: Any) -> bool:
    """Return whether this is a real number, NaN excepted, that a float can hold."""
    if type(value) is int:
        return abs(value) < 1 << 1000
    return type(value) is float and value == value


def _is_whole(value: Any, smallest: int, largest: int = (1 << 64) - 1) -> bool:
    return type(value) is int and smallest <= value <= largest


def _check_fields(config: RoundConfig) -> None:
    """Raise :class:`RefusedRoundError` unless each field has its type and lies in its range."""
    p = config.mechanism
    for where, name, valid in [
        (config, "round_id", lambda v: isinstance(v, str) and 0 < len(v) <= 256),
        (config, "dim", lambda v: _is_whole(v, 1)),
        (config, "clip_norm", _is_positive),
        (config, "encoder", lambda v: isinstance(v, dict)),
        (config, "encoder_seed", lambda v: _is_whole(v, 0)),
        (config, "min_survivors", lambda v: v is None or _is_whole(v, 1)),
        (config, "epsilon", lambda v: _is_number(v) and v > 0),
        (config, "delta", lambda v: _is_number(v) and 0 < v < 1),
        (p, "mechanism", lambda v: isinstance(v, str)),
        (p, "n_clients", lambda v: _is_whole(v, 1, (1 << 32) - 1)),
        (p, "min_survivors", lambda v: _is_whole(v, 1, p.n_clients)),
        (p, "colluders", lambda v: _is_whole(v, 0, p.min_survivors - 1)),
        (p, "dim", lambda v: _is_whole(v, 1)),
        (p, "padded_dim", lambda v: _is_whole(v, p.dim)),
        (p, "clip_norm", _is_positive),
        (p, "gamma", _is_positive),
        (p, "variance", _is_variance),
        (p, "n_bits", lambda v: _is_whole(v, 1, 63)),
        (p, "beta", lambda v: _is_number(v) and 0 <= v < 1),
        (p, "norm_bound", _is_positive),
        (p, "squared_bound", lambda v: _is_whole(v, 0, 1 << 126)),
        (p, "rotation", lambda v: isinstance(v, str)),
        (p, "seed", lambda v: _is_whole(v, 0)),
        (p, "adjacency", lambda v: v in ("zero_out", "replace_one")),
    ]:
        value = getattr(where, name)
        if not valid(value):
            raise RefusedRoundError(
                f"the configuration has {name}={str(value)[:50]}, out of range."
            )


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 1e-100 < value < 1e100


def _is_variance(value: Any) -> bool:
    return isinstance(value, Fraction) and 0 <= value < 1 << 192 and value.denominator <= 1 << 64


def _check_noise(mechanism: IntegerMechanism) -> None:
    """Raise if a client could not draw the noise, or not in reasonable time."""
    p = mechanism.parameters_
    if _is_noiseless(p):
        return
    slow = p.variance > _VARIANCE_SLACK * mechanism.max_variance
    if slow or (p.mechanism == "ddg" and not rejection.prepare(p.variance).fits_kernel):
        raise RefusedRoundError(
            f"the configuration asks for noise of variance={float(p.variance):.4g} on the grid, "
            "which takes too long to draw; use a coarser grid."
        )
    if p.variance < MIN_VARIANCE:
        raise RefusedRoundError(
            f"the configuration asks for noise of variance={float(p.variance):.4g} on the grid; "
            f"below {MIN_VARIANCE} nothing is known about its sum. Use a finer grid."
        )


def _check_claim(config: RoundConfig) -> float:
    """Return the ε that the parameters really give; raise if they contradict each other."""
    _check_fields(config)
    p = config.mechanism
    problems = []
    if p.norm_bound < norm_bound(p.clip_norm / p.gamma, p.padded_dim, p.beta) * (1 - 1e-12):
        problems.append("norm_bound is below the norm that rounding reaches")
    if p.squared_bound > p.norm_bound**2 * (1 + 1e-12):
        problems.append("squared_bound exceeds the square of norm_bound")
    if config.min_survivors not in (None, p.min_survivors):
        problems.append("min_survivors is not what the noise is sized for")
    if (p.mechanism == "central") != (p.rotation == "none"):
        problems.append("the rotation is none exactly for central noise")
    elif (p.dim if p.rotation == "none" else padded_dim(p.rotation, p.dim)) != p.padded_dim:
        problems.append("padded_dim does not fit the rotation")
    if problems:
        raise RefusedRoundError(f"the configuration contradicts itself: {'; '.join(problems)}.")
    mechanism = _mechanism(config)
    _check_noise(mechanism)
    actual = mechanism.privacy().epsilon()
    if not actual <= config.epsilon * (1 + 1e-9):
        raise RefusedRoundError(
            f"the round claims epsilon={config.epsilon:.6g}, but its noise gives {actual:.6g}."
        )
    return actual


def _clip(
    X: Any, clip_norm: float, encoder: LinearEncoder, weights: NDArray[np.float64] | None
) -> list[ClippedRows]:
    """Return the clipped rows, layer by layer; a row that is bad in one layer is zero in all."""
    rows = as_rows(X)
    if not isinstance(encoder, BlockEncoder):
        return [clip_factors(rows, clip_norm, weights)]
    layers = [
        clip_factors(as_rows(rows[:, block.features]), block.clip_share * clip_norm, weights)
        for block in encoder.blocks_
    ]
    bad = np.any([layer.nonfinite for layer in layers], axis=0)
    return [layer.without(bad) for layer in layers]


@lru_cache(maxsize=8)
def _round_from_json(text: str) -> Round:
    return Round(RoundConfig.from_json(text))


def _round(config: RoundConfig) -> Round:
    return _round_from_json(config.to_json())


def _digest(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[: 4 * _DIGEST_BYTES]
