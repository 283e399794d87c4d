"""Calibration of a round: its sketch, the clip of its sketches, the noise that it takes.

Done once, by whoever announces the round. Clients are told the result and check it.
"""

from __future__ import annotations

import math
import secrets
from typing import Any, NamedTuple

from sklearn.base import clone

from sparse_secagg.encoders import HadamardEncoder, IdentityEncoder, LinearEncoder, registry
from sparse_secagg.mechanisms import IntegerMechanism
from sparse_secagg.parameters import SketchClip
from sparse_secagg.planning.clips import JL_CLIP, check_sketch_clip, length_spread, tight_factor
from sparse_secagg.public_randomness import resolve_seed, stream_key
from sparse_secagg.validation import positive
from sparse_secagg.walsh_hadamard import next_power_of_two

__all__ = ["Calibrated", "calibrated_round", "sketch_clip_norm"]


class Calibrated(NamedTuple):
    """What a configuration is made of, by field, and the parts that calibration made on the way.

    ``encoder`` is fitted to the dimension; ``mechanism`` is calibrated.
    """

    fields: dict[str, Any]
    encoder: LinearEncoder
    mechanism: IntegerMechanism


def calibrated_round(
    *,
    dim: int,
    n_clients: int,
    encoder: LinearEncoder,
    mechanism: IntegerMechanism,
    clip_norm: float,
    sketch_clip: SketchClip,
    random_state: Any = None,
    round_id: str | None = None,
) -> Calibrated:
    """Calibrate a round, as ``RoundConfig.create`` says; return its parts as well."""
    positive.check("clip_norm", clip_norm)
    seed = resolve_seed(random_state)
    encoder_seed = int(stream_key(seed, "encoder"))
    encoder = registry.with_seed(encoder, encoder_seed).fit_dimension(dim)
    mechanism = clone(mechanism).set_params(
        clip_norm=sketch_clip_norm(encoder, clip_norm, sketch_clip),
        random_state=int(stream_key(seed, "rotation")),
    )
    parameters = mechanism.calibrate(n_clients, encoder.n_components_)
    # whoever answers knows the round: its ε is the server's, whatever the noise was sized for
    mechanism.set_params(sampling=None)
    fields: dict[str, Any] = dict(
        round_id=secrets.token_hex(8) if round_id is None else str(round_id),
        dim=int(dim),
        clip_norm=float(clip_norm),
        encoder=registry.to_dict(encoder),
        encoder_seed=encoder_seed,
        mechanism=parameters,
        min_survivors=None if mechanism.min_survivors is None else parameters.min_survivors,
        epsilon=mechanism.privacy().epsilon(),
        delta=float(mechanism.delta),
    )
    return Calibrated(fields, encoder, mechanism)


def sketch_clip_norm(encoder: LinearEncoder, clip_norm: float, kind: SketchClip) -> float:
    """Return the clip c' of the sketches of vectors within ``clip_norm``.

    Parameters
    ----------
    encoder : LinearEncoder
        Fitted. Vectors that are not sketched are not clipped again.
    clip_norm : float
        Clip c of the vectors.
    kind : {"tight", "jl", "spectral"} or float
        As ``sketch_clip`` of :class:`~sparse_secagg.RoundSpec`.

    Returns
    -------
    float
        The clip of a sketch, in the units of the data.

    Raises
    ------
    ValueError
        If the kind is unknown, or "spectral" is asked of an encoder that does not know σ_max(S).

    See Also
    --------
    RoundConfig.create : Uses it.

    Examples
    --------
    >>> from sparse_secagg import CountSketchEncoder, IdentityEncoder
    >>> from sparse_secagg.rounds import sketch_clip_norm
    >>> sketch_clip_norm(IdentityEncoder().fit_dimension(1000), 2.0, "tight")
    2.0
    >>> encoder = CountSketchEncoder(n_components=100).fit_dimension(1000)
    >>> 2.0 < sketch_clip_norm(encoder, 2.0, "tight") < 3.0
    True
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
    return float(clip_norm * encoder.sigma_max())
