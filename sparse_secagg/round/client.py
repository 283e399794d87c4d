"""A client's part of a round: check what it is told, sketch, and make the message.

Nothing here needs scikit-learn, SciPy or a decoder, for a client may be a small machine, or a
process that lives for one message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.mechanisms import IntegerMechanism, rejection
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.mechanisms.rotation import padded_dim
from sparse_secagg.privacy.curves import MIN_VARIANCE, norm_bound
from sparse_secagg.round.config import RoundConfig, check_fields, is_noiseless, mechanism_of
from sparse_secagg.round.sketching import SketchCounts, sketch_rows
from sparse_secagg.sketches.described import LIGHT, Layer, layers_of

__all__ = ["ClientRound", "client_round"]

#: Noise beyond the largest that calibration aims for, times this, would take a client too long.
_VARIANCE_SLACK = 100


class ClientRound:
    """What a client needs of a configuration: its sketch and its mechanism.

    Parameters
    ----------
    config : RoundConfig
        Checked: :class:`RefusedRoundError` if it contradicts itself, or claims a smaller ε than
        its noise gives.

    Attributes
    ----------
    config : RoundConfig
        The configuration.
    mechanism : IntegerMechanism
        Calibrated.
    layers : list of Layer
        The parts of a vector that are clipped and sketched by themselves.
    epsilon : float
        What the noise really gives.
    """

    def __init__(self, config: RoundConfig) -> None:
        self.config = config
        self.mechanism, self.epsilon = _claimed(config)
        self.layers = self._make_layers()
        length = sum(layer.length for layer in self.layers)
        if length != config.mechanism.dim:
            raise RefusedRoundError(
                f"the encoder makes sketches of length {length}, but the "
                f"mechanism is calibrated for {config.mechanism.dim}."
            )

    def _make_layers(self) -> list[Layer]:
        config = self.config
        if _is_light(config.encoder):
            return layers_of(config.encoder, config.dim, config.encoder_seed)
        # one of the client's own, or a Gaussian matrix: it is a transformer of scikit-learn
        from sparse_secagg.encoders import registry

        encoder = registry.from_dict(dict(config.encoder))
        return registry.with_seed(encoder, config.encoder_seed).fit_dimension(config.dim).layers_

    def sketch(
        self, X: Any, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], SketchCounts]:
        """Return the sketches of the rows of X (n, d), weighted and then clipped."""
        return sketch_rows(self.layers, X, self.config.clip_norm, weights)

    def encode(self, X: Any, rng: Randomness | None = None) -> NDArray[np.uint64]:
        """Return the messages of the rows of X (n, d), integers in [0, M) of shape (n, D)."""
        return self.mechanism.encode(self.sketch(X)[0], rng)


@lru_cache(maxsize=8)
def client_round(config: RoundConfig) -> ClientRound:
    """Return a client's checked part of a configuration; those of the last few are kept."""
    return ClientRound(config)


def _is_light(description: Any) -> bool:
    """Return whether a description names sketches that need no encoder, all the way down."""
    if not isinstance(description, dict) or description.get("name") not in LIGHT:
        return False
    encoders = description.get("encoders", {})
    inner = list(encoders.values()) if isinstance(encoders, dict) else [encoders]
    if "encoder" in description:
        inner.append(description["encoder"])
    return all(_is_light(each) for each in inner)


def _check_noise(mechanism: IntegerMechanism) -> None:
    """Raise if a client could not draw the noise, or not in reasonable time."""
    p = mechanism.parameters_
    if is_noiseless(p):
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


def _claimed(config: RoundConfig) -> tuple[IntegerMechanism, float]:
    """Return the mechanism and the ε that it really gives; raise for contradictions."""
    check_fields(config)
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
    mechanism = mechanism_of(config)
    _check_noise(mechanism)
    actual = mechanism.privacy().epsilon()
    if not actual <= config.epsilon * (1 + 1e-9):
        raise RefusedRoundError(
            f"the round claims epsilon={config.epsilon:.6g}, but its noise gives {actual:.6g}."
        )
    return mechanism, actual
