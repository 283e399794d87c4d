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
from sparse_secagg.exceptions import PrivacyWarning
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.privacy.observers import RoundPrivacy
from sparse_secagg.round.calibration import calibrated_round
from sparse_secagg.round.client import ClientRound
from sparse_secagg.round.config import RoundConfig
from sparse_secagg.secagg.errors import BelowThresholdError
from sparse_secagg.sketches.described import Layer

__all__ = ["Round", "parts_of"]


class Round(ClientRound):
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

    encoder: LinearEncoder

    def _make_layers(self) -> list[Layer]:
        config = self.config
        encoder = registry.from_dict(dict(config.encoder))
        encoder = registry.with_seed(encoder, config.encoder_seed)
        self.encoder = encoder.fit_dimension(config.dim)
        return self.encoder.layers_

    @classmethod
    def calibrate(cls, **parameters: Any) -> Round:
        """Calibrate a round, with the parameters of :meth:`RoundConfig.create`; keep the parts."""
        fields, encoder, mechanism = calibrated_round(**parameters)
        made = cls.__new__(cls)
        made.config, made.mechanism = RoundConfig(**fields), mechanism
        made.encoder, made.layers = encoder, encoder.layers_
        made.epsilon = made.config.epsilon
        return made

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
