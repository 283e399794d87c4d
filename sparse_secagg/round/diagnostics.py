"""What the clients' data did to a round: for simulations, which know the truth. Not private."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.parameters import EncodeReport
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.mechanisms.sums import centre
from sparse_secagg.round.parts import Round
from sparse_secagg.round.sketching import SketchCounts

__all__ = ["Diagnostics", "Witness"]


@dataclass(frozen=True)
class Diagnostics:
    """What the clients' data did to the round. Data-dependent, so **not private**.

    Attributes
    ----------
    n_nonfinite : int
        Clients whose vector had NaN or Inf and counted as zero.
    n_clipped, n_sketch_clipped, n_rejected : int
        Vectors clipped, sketches clipped, rounded sketches that failed the integer check.
    n_wrapped : int
        Coordinates of the sum that left the range of the modulus.
    clipping_error : float
        ‖μ_c − μ‖² for the means before and after clipping.
    compression_error : float
        ‖SᵀSμ_c − μ_c‖²: the linear decoder's error without noise.
    privatisation_error : float
        ‖ŷ − Sμ_c‖²: noise, rounding, sketch clipping and wrapping, in the sketch.
    decoding_error : float
        ‖μ̂ − μ_c‖² of the decoded mean.
    squared_norm : float
        ‖μ‖², to compare with.
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


class Witness:
    """Watches the clients of a round and adds up what only a simulation may know.

    Parameters
    ----------
    round_ : Round
        The round.
    """

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._sum, self._clipped_sum = np.zeros((2, round_.config.dim))
        self._n_nonfinite = self._n_clipped = self._n_sketch_clipped = self._n_rejected = 0
        self._total = np.zeros(0, dtype=np.uint64)
        self._scale = 1.0

    def see_clients(self, counts: SketchCounts, report: EncodeReport) -> None:
        """Add a batch of clients."""
        counts.add_to(self._sum, self._clipped_sum)
        self._n_nonfinite += counts.n_nonfinite
        self._n_clipped += counts.n_clipped
        self._n_sketch_clipped += report.n_clipped
        self._n_rejected += report.n_rejected

    def see_sum(self, total: NDArray[np.uint64], scale: float) -> None:
        """Remember the modular sum, and by what weights scale the mean."""
        self._total, self._scale = total, scale

    def diagnose(self, sketch: NDArray[np.float64], mean: NDArray[np.float64]) -> Diagnostics:
        """Compare a sketch and a decoded mean with the truth. Dropouts count as errors."""
        n = self._round.config.mechanism.n_clients
        operator = self._round.encoder.operator_
        truth, clipped = self._scale * self._sum / n, self._scale * self._clipped_sum / n
        true_sketch = operator.matvec(clipped)
        return Diagnostics(
            n_nonfinite=self._n_nonfinite,
            n_clipped=self._n_clipped,
            n_sketch_clipped=self._n_sketch_clipped,
            n_rejected=self._n_rejected,
            n_wrapped=self._wrapped(operator.matvec(self._clipped_sum)),
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
