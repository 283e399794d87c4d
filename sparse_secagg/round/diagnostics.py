"""What the clients' data did to a round: for simulations, which know the truth. Not private."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.parameters import EncodeReport
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.mechanisms.sums import centre
from sparse_secagg.round.parts import Round
from sparse_secagg.round.sketching import SketchCounts

__all__ = ["Diagnostics", "Sightings", "Witness"]


@dataclass(frozen=True)
class Diagnostics:
    """What the clients' data did to the round. Data-dependent, so **not private**.

    Parameters
    ----------
    n_nonfinite : int
        Clients whose vector had NaN or Inf and counted as zero.
    n_clipped, n_sketch_clipped, n_rejected : int
        Vectors clipped, sketches clipped, rounded sketches that failed the integer check.
    n_wrapped : int
        Coordinates of the sum that left the range of the modulus.
    clipping_error : float
        Error ‖μ_c − μ‖² for the means before and after clipping.
    compression_error : float
        Error ‖SᵀSμ_c − μ_c‖²: the linear decoder's error without noise.
    privatisation_error : float
        Error ‖ŷ − Sμ_c‖²: noise, rounding, sketch clipping and wrapping, in the sketch.
    decoding_error : float
        Error ‖μ̂ − μ_c‖² of the decoded mean.
    squared_norm : float
        Squared length ‖μ‖² of the mean, to compare with.

    See Also
    --------
    sparse_secagg.SparseSecAgg : Has them as ``diagnostics_``, where they were asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import SparseSecAgg
    >>> X = np.random.default_rng(0).normal(0.0, 0.01, (200, 100))
    >>> X[0] = 1.0  # one client far beyond the clip
    >>> estimator = SparseSecAgg(epsilon=1.0, clip_norm=1.0, diagnostics=True).fit(X)
    >>> estimator.diagnostics_.n_clipped
    1
    """

    n_nonfinite: int
    n_clipped: int
    n_sketch_clipped: int
    n_rejected: int
    n_wrapped: int
    clipping_error: float
    compression_error: float
    privatisation_error: float
    decoding_error: float
    squared_norm: float


class Sightings:
    """What was seen of some clients: sums of their vectors and counts, which can be added.

    Parameters
    ----------
    dim : int
        Length d of a vector.
    """

    def __init__(self, dim: int) -> None:
        self.total, self.clipped_total = np.zeros((2, dim))
        self.n_nonfinite = self.n_clipped = self.n_sketch_clipped = self.n_rejected = 0

    def see(self, counts: SketchCounts, report: EncodeReport) -> None:
        """Add a batch of clients."""
        counts.add_to(self.total, self.clipped_total)
        self.n_nonfinite += counts.n_nonfinite
        self.n_clipped += counts.n_clipped
        self.n_sketch_clipped += report.n_clipped
        self.n_rejected += report.n_rejected

    def __add__(self, other: Sightings) -> Sightings:
        """Return what was seen of these and other clients."""
        both = copy.copy(self)
        for name, value in vars(other).items():
            setattr(both, name, getattr(self, name) + value)
        return both


class Witness:
    """Adds up what only a simulation may know of the clients of a round.

    Parameters
    ----------
    round_ : Round
        The round.

    Attributes
    ----------
    seen : Sightings
        Of the clients.
    """

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.seen = Sightings(round_.config.dim)
        self._total = np.zeros(0, dtype=np.uint64)
        self._scale = 1.0

    def see_sum(self, total: NDArray[np.uint64], scale: float) -> None:
        """Remember the modular sum, and by what weights scale the mean."""
        self._total, self._scale = total, scale

    def diagnose(self, sketch: NDArray[np.float64], mean: NDArray[np.float64]) -> Diagnostics:
        """Compare a sketch and a decoded mean with the truth. Dropouts count as errors."""
        n = self._round.config.mechanism.n_clients
        operator = self._round.encoder.operator_
        truth, clipped = (
            self._scale * self.seen.total / n,
            self._scale * self.seen.clipped_total / n,
        )
        true_sketch = operator.matvec(clipped)
        return Diagnostics(
            n_nonfinite=self.seen.n_nonfinite,
            n_clipped=self.seen.n_clipped,
            n_sketch_clipped=self.seen.n_sketch_clipped,
            n_rejected=self.seen.n_rejected,
            n_wrapped=self._wrapped(operator.matvec(self.seen.clipped_total)),
            clipping_error=float(np.sum((clipped - truth) ** 2)),
            compression_error=float(np.sum((operator.rmatvec(true_sketch) - clipped) ** 2)),
            privatisation_error=float(np.sum((sketch - true_sketch) ** 2)),
            decoding_error=float(np.sum((mean - clipped) ** 2)),
            squared_norm=float(truth @ truth),
        )

    def _wrapped(self, true_sum: NDArray[np.float64]) -> int:
        p = self._round.config.mechanism
        rotated = true_sum
        if p.rotation != "none":
            rotated = Rotation(p.rotation, p.dim, p.seed).forward(true_sum[None, :])[0]
        off = centre(self._total, p.modulus) - rotated / p.gamma
        return int(np.sum(np.abs(off) > p.modulus / 2))
