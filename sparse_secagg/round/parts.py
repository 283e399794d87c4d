"""The working parts of a round, encoder and mechanism, built once and checked where it matters.

Whoever calibrates a round has the parts already (:meth:`Round.calibrate`); whoever is sent a
configuration makes them of it, and believes no number in it that can be recomputed.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.encoders import LinearEncoder, registry
from sparse_secagg.exceptions import PrivacyWarning, RefusedRoundError
from sparse_secagg.mechanisms import IntegerMechanism, rejection
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.mechanisms.rotation import padded_dim
from sparse_secagg.privacy.curves import MIN_VARIANCE, norm_bound
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.round.config import (
    RoundConfig,
    calibrated_round,
    check_fields,
    is_noiseless,
    mechanism_of,
)
from sparse_secagg.round.sketching import SketchCounts, sketch_rows, with_seed
from sparse_secagg.secagg.errors import BelowThresholdError

__all__ = ["Round", "parts_of"]

#: Noise beyond the largest that calibration aims for, times this, would take a client too long.
_VARIANCE_SLACK = 100


class Round:
    """The working parts of a configuration: its encoder and its mechanism.

    Parameters
    ----------
    config : RoundConfig
        Checked: :class:`RefusedRoundError` if it contradicts itself, or claims a smaller ε than
        its noise gives.

    Attributes
    ----------
    config : RoundConfig
        The configuration.
    encoder : LinearEncoder
        Fitted to the round's dimension.
    mechanism : IntegerMechanism
        Calibrated.
    epsilon : float
        What the noise really gives.

    Raises
    ------
    RefusedRoundError
        If the configuration contradicts itself.

    See Also
    --------
    sparse_secagg.RoundConfig : What clients and server agree on.

    Examples
    --------
    >>> from sparse_secagg import RoundSpec
    >>> from sparse_secagg.rounds import Round
    >>> config = RoundSpec(epsilon=4.0, n_bits=18, encoder="identity").config(5, 3)
    >>> round(Round(config).epsilon, 2)
    4.0
    """

    def __init__(self, config: RoundConfig) -> None:
        epsilon = _check_claim(config)
        encoder = with_seed(registry.from_dict(dict(config.encoder)), config.encoder_seed)
        encoder.fit_dimension(config.dim)
        if encoder.n_components_ != config.mechanism.dim:
            raise RefusedRoundError(
                f"the encoder makes sketches of length {encoder.n_components_}, but the "
                f"mechanism is calibrated for {config.mechanism.dim}."
            )
        self._assemble(config, encoder, mechanism_of(config), epsilon)

    @classmethod
    def calibrate(cls, **parameters: Any) -> Round:
        """Calibrate a round, with the parameters of :meth:`RoundConfig.create`; keep the parts."""
        config, encoder, mechanism = calibrated_round(**parameters)
        made = cls.__new__(cls)
        made._assemble(config, encoder, mechanism, config.epsilon)
        return made

    def _assemble(
        self,
        config: RoundConfig,
        encoder: LinearEncoder,
        mechanism: IntegerMechanism,
        epsilon: float,
    ) -> None:
        self.config, self.encoder, self.mechanism = config, encoder, mechanism
        self.epsilon = epsilon

    def sketch(
        self, X: Any, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], SketchCounts]:
        """Return the sketches of the rows of X (n, d), weighted and then clipped."""
        return sketch_rows(self.encoder, X, self.config.clip_norm, weights)

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
        return self.mechanism.decode(total, n_survivors, rng)


@lru_cache(maxsize=8)
def parts_of(config: RoundConfig) -> Round:
    """Return the checked working parts of a configuration; those of the last few are kept."""
    return Round(config)


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


def _check_claim(config: RoundConfig) -> float:
    """Return the ε that the parameters really give; raise if they contradict each other."""
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
    return actual
