"""The public description of a round, as a server broadcasts it: a few hundred bytes of JSON.

A configuration never changes and is serialised once: its text is what it is compared by, what its
digest is made of, and the key under which its working parts are kept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparse_secagg import mechanisms
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.frozen import freeze
from sparse_secagg.mechanisms import IntegerMechanism, MechanismParameters
from sparse_secagg.parameters import SketchClip, default

if TYPE_CHECKING:
    from sparse_secagg.encoders import LinearEncoder

__all__ = [
    "FORMAT_VERSION",
    "RoundConfig",
    "check_fields",
    "digest_of",
    "is_noiseless",
    "mechanism_of",
]

FORMAT_VERSION = 2
_CLIP_NORM, _SKETCH_CLIP = default("clip_norm"), default("sketch_clip")
#: Bytes of the digest that name a configuration in every message.
DIGEST_BYTES = 8


@dataclass(frozen=True, eq=False)
class RoundConfig:
    """The public description of one round.

    Parameters
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

    See Also
    --------
    RoundSpec.config : Makes one.
    client_encode, server_decode : What parties do with it.

    Examples
    --------
    >>> from sparse_secagg import RoundConfig, RoundSpec
    >>> config = RoundSpec(epsilon=2.0, n_bits=18, encoder="identity").config(100, 50)
    >>> RoundConfig.from_json(config.to_json()) == config
    True
    """

    round_id: str
    dim: int
    clip_norm: float
    encoder: Mapping[str, Any]
    encoder_seed: int
    mechanism: MechanismParameters
    min_survivors: int | None
    epsilon: float
    delta: float
    version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", freeze(self.encoder))

    @classmethod
    def create(
        cls,
        *,
        dim: int,
        n_clients: int,
        encoder: LinearEncoder,
        mechanism: IntegerMechanism,
        clip_norm: float = _CLIP_NORM,
        sketch_clip: SketchClip = _SKETCH_CLIP,
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
        from sparse_secagg.round.calibration import calibrated_round  # clients do without it

        calibrated = calibrated_round(
            dim=dim,
            n_clients=n_clients,
            encoder=encoder,
            mechanism=mechanism,
            clip_norm=clip_norm,
            sketch_clip=sketch_clip,
            random_state=random_state,
            round_id=round_id,
        )
        return cls(**calibrated.fields)

    def to_json(self) -> str:
        """Return the configuration as JSON, with a digest that guards against corruption."""
        return f'{self._canonical[:-1]},"digest":"{self._digest}"}}'

    @classmethod
    def from_json(cls, text: str | bytes) -> RoundConfig:
        """Return the configuration written by :meth:`to_json`; raise if it is not valid."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RefusedRoundError(f"the configuration is not JSON: {error}.") from None
        try:
            return cls._read(document)
        except RefusedRoundError:
            raise
        except (TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            raise RefusedRoundError(f"the configuration is not valid: {error}") from None

    @classmethod
    def _read(cls, document: Any) -> RoundConfig:
        version = document.get("version") if isinstance(document, dict) else None
        if type(version) is not int or version != FORMAT_VERSION:
            raise RefusedRoundError(
                f"the configuration has version {version}, this software speaks {FORMAT_VERSION}; "
                "update the older of the two."
            )
        digest = document.pop("digest", None)
        if digest != digest_of(document):
            raise RefusedRoundError("the configuration was altered: its digest does not match.")
        names = {item.name for item in fields(cls)}
        if set(document) != names:
            wrong = sorted(set(document) ^ names)
            raise RefusedRoundError(f"the configuration has unexpected or missing fields {wrong}.")
        parameters = MechanismParameters.from_json(json.dumps(document.pop("mechanism")))
        epsilon = float(document.pop("epsilon"))
        config = cls(mechanism=parameters, epsilon=epsilon, **document)
        check_fields(config)
        if config._digest != digest:
            raise RefusedRoundError("the configuration is not written as this software writes it.")
        return config

    @property
    def digest(self) -> bytes:
        """Eight bytes that name this configuration in every message."""
        return bytes.fromhex(self._digest)[:DIGEST_BYTES]

    @property
    def local_epsilon(self) -> float:
        """ε, at the round's δ, of one client's message by itself: its own share of noise alone.

        This is what protects the client from whoever sees its bytes, so what is left of the round's
        ε when secure aggregation fails. Infinite if clients add no noise.
        """
        if is_noiseless(self.mechanism):
            return math.inf
        return mechanism_of(self).privacy(1, colluders=0).epsilon("server")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundConfig) and self._canonical == other._canonical

    def __hash__(self) -> int:
        return hash(self._canonical)

    @cached_property
    def _canonical(self) -> str:
        document = {item.name: getattr(self, item.name) for item in fields(self)}
        document["mechanism"] = self.mechanism.to_dict()
        document["epsilon"] = repr(self.epsilon)  # JSON has no infinity
        return _canonical_text(document)

    @cached_property
    def _digest(self) -> str:
        return _digest_of_text(self._canonical)


def mechanism_of(config: RoundConfig) -> IntegerMechanism:
    """Return the mechanism that a configuration describes, ready to encode and decode."""
    try:
        mechanism = mechanisms.from_parameters(config.mechanism)
    except ValueError as error:
        raise RefusedRoundError(str(error)) from None
    made: IntegerMechanism = mechanism.set_params(delta=config.delta)
    return made


def is_noiseless(parameters: MechanismParameters) -> bool:
    """Return whether clients send their values as they are."""
    return parameters.mechanism == "central" or parameters.variance == 0


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the digest of a configuration's document, as JSON has it."""
    return _digest_of_text(_canonical_text(document))


def _canonical_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[: 4 * DIGEST_BYTES]


def check_fields(config: RoundConfig) -> None:
    """Raise :class:`RefusedRoundError` unless each field has its type and lies in its range."""
    p = config.mechanism
    rules: list[tuple[Any, str, Callable[[Any], bool]]] = [
        (config, "round_id", _is_name),
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
    ]
    for where, name, valid in rules:
        value = getattr(where, name)
        if not valid(value):
            raise RefusedRoundError(
                f"the configuration has {name}={str(value)[:50]}, out of range."
            )


def _is_name(value: Any) -> bool:
    """Return whether this is a text that a file can hold: JSON also has halves of characters."""
    halves = isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value)
    return isinstance(value, str) and 0 < len(value) <= 256 and not halves


def _is_number(value: Any) -> bool:
    """Return whether this is a real number, NaN excepted, that a float can hold."""
    if type(value) is int:
        return abs(value) < 1 << 1000
    return type(value) is float and value == value


def _is_whole(value: Any, smallest: int, largest: int = (1 << 64) - 1) -> bool:
    return type(value) is int and smallest <= value <= largest


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 1e-100 < value < 1e100


def _is_variance(value: Any) -> bool:
    return isinstance(value, Fraction) and 0 <= value < 1 << 192 and value.denominator <= 1 << 64
