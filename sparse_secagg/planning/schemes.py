"""A scheme: an encoder, its clip and a decoder; its lengths, and its error at each length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from sparse_secagg.encoders import registry
from sparse_secagg.planning.clips import (
    JL_CLIP,
    SketchClip,
    clipping_error,
    expected_spectral_factor,
    length_spread,
    tight_factor,
)
from sparse_secagg.planning.laws import MeanLaw
from sparse_secagg.planning.predictions import PREDICTIONS, SPARSE_DECODERS, Situation
from sparse_secagg.walsh_hadamard import next_power_of_two

__all__ = ["ENCODERS", "Scheme", "row_dimension"]

#: Encoders that can be planned; those without compression first, then by their speed.
ENCODERS = ("identity", "hadamard", "count_sketch", "gaussian")


def row_dimension(encoder: str, d: int) -> float:
    """Return D, if the encoder keeps rows of a D×D orthogonal matrix, or infinity."""
    return {"identity": float(d), "hadamard": float(next_power_of_two(d))}.get(encoder, math.inf)


@dataclass(frozen=True)
class Scheme:
    """One way to send and to decode vectors of length d.

    Attributes
    ----------
    encoder, decoder : str
        Names.
    d : int
        Length of the vectors.
    norm : float
        ‖μ‖ = c, for which errors are predicted.
    n_rows : int
        Rows of a count sketch.
    sketch_clip : str or float
        "tight", "jl", "spectral" or a factor.
    sparsity : int or None
        Nonzero entries of μ, where known.
    noise_limit : float
        Variance of a coordinate of the mean sketch at clip 1 and unlimited bits.
    known_unsketch_error : float or None
        E‖SᵀSx − x‖²/‖x‖² of an encoder that is at hand, whatever its name.
    law : MeanLaw or None
        What else is known of μ.
    """

    encoder: str
    decoder: str
    d: int
    norm: float
    n_rows: int
    sketch_clip: SketchClip
    sparsity: int | None
    noise_limit: float
    known_unsketch_error: float | None = None
    law: MeanLaw | None = None

    # -- lengths ------------------------------------------------------------------------------

    @property
    def granularity(self) -> int:
        """Lengths are multiples of this."""
        if self.encoder == "identity":
            return self.d
        return min(self.n_rows, self.d) if self.encoder == "count_sketch" else 1

    @property
    def longest(self) -> int:
        """The longest sketch."""
        return self.at_most(self.d)

    def at_most(self, m: float) -> int:
        """Return the longest length ≤ m; at least the shortest there is."""
        g = self.granularity
        return max(g, g * (int(min(m, self.d)) // g))

    def at_least(self, m: float) -> int:
        """Return the shortest length ≥ m; at most the longest there is."""
        g = self.granularity
        return min(self.longest, max(g, g * math.ceil(m / g)))

    # -- errors -------------------------------------------------------------------------------

    def error(self, m: int, variance: float) -> float:
        """Return the predicted squared error.

        Parameters
        ----------
        m : int
            Length of the sketch.
        variance : float
            Of a coordinate of the mean sketch at clip 1.
        """
        if not variance < math.inf:
            return math.inf
        return self._error(m, variance, self.factor(m))

    def error_limit(self, m: int) -> float:
        """Return the error with unlimited bits."""
        return self.error(m, self.noise_limit)

    def unsketch_error(self, m: int) -> float:
        """Return E‖SᵀSx − x‖²/‖x‖²."""
        if self.known_unsketch_error is not None:
            return self.known_unsketch_error
        return float(_unsketch_error(self.encoder)(self.d, m))

    def clipping_error(self, m: int, factor: float) -> float:
        """Return what clipped sketches add to the error, relative to ‖μ‖².

        Nothing for the linear decoder: it errs in proportion to the length of the sketch, so that
        shortening the longest helps.
        """
        if self.decoder not in SPARSE_DECODERS:
            return 0.0
        return clipping_error(factor, self._spread(m))

    def factor(self, m: int) -> float:
        """Return the clip of a sketch over that of a vector."""
        if self.encoder == "identity":
            return 1.0
        if self.sketch_clip == "tight":
            return self._tight(m)
        if self.sketch_clip == "jl":
            return JL_CLIP
        if self.sketch_clip == "spectral":
            return expected_spectral_factor(self.d, m)
        return float(self.sketch_clip)

    def situation(self, m: int, noise_std: float) -> Situation:
        """Return what the decoder meets."""
        return Situation(
            d=self.d,
            m=m,
            row_dim=row_dimension(self.encoder, self.d),
            unsketch_error=self.unsketch_error(m),
            noise_std=noise_std,
            norm=self.norm,
            sparsity=self.sparsity,
            law=self.law,
        )

    def _tight(self, m: int) -> float:
        if self.decoder not in SPARSE_DECODERS:
            return 1.0
        return _tight_for_sparse(self, m)

    def _error(self, m: int, variance: float, factor: float) -> float:
        noise_std = factor * self.norm * math.sqrt(variance)
        decoding = PREDICTIONS[self.decoder](self.situation(m, noise_std))
        return decoding + self.clipping_error(m, factor) * self.norm**2

    def _spread(self, m: int) -> float:
        return length_spread(m, row_dimension(self.encoder, self.d))


@lru_cache(maxsize=4096)
def _tight_for_sparse(scheme: Scheme, m: int) -> float:
    """Return the factor of least error, given the error of the noise alone."""
    noise_std = scheme.norm * math.sqrt(scheme.noise_limit)
    error = PREDICTIONS[scheme.decoder](scheme.situation(m, noise_std))
    return tight_factor(scheme._spread(m), error / scheme.norm**2)


@lru_cache(maxsize=8)
def _unsketch_error(encoder: str) -> Callable[[int, int], float]:
    return registry.get(encoder).unsketch_error_at
