"""Thresholding of the sketch with an error term: the paper's appendix, kept as an experiment.

Entries of the mean sketch below a quantile of their sizes are set to zero, which is a biased
estimate; what was dropped is kept in an error term e and added back in the next round:

    s ← ŷ + e;   t ← s·1{|s| ≥ quantile of |s|};   e ← s − t.

The error is a sketch, so all rounds must use the same S.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

__all__ = ["ThresholdFeedback"]


class ThresholdFeedback(BaseEstimator):
    """Zero the small entries of a sketch and remember them.

    Parameters
    ----------
    quantile : float, default=0.5
        Share of the entries that is set to zero.

    Attributes
    ----------
    error_ : ndarray of shape (m,)
        What was dropped so far and not yet added back.

    See Also
    --------
    SparseSecAgg : Takes one as ``feedback``.

    Examples
    --------
    >>> import numpy as np
    >>> feedback = ThresholdFeedback(quantile=0.5)
    >>> feedback.apply(np.array([1.0, -4.0, 2.0, 5.0])).tolist()
    [0.0, -4.0, 0.0, 5.0]
    >>> feedback.apply(np.array([1.0, 0.0, 2.0, 0.0])).tolist()
    [2.0, 0.0, 4.0, 0.0]
    """

    error_: NDArray[np.float64]

    def __init__(self, quantile: float = 0.5) -> None:
        self.quantile = quantile

    def apply(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the thresholded sketch and update the error term."""
        if not 0 <= self.quantile < 1:
            raise ValueError(f"quantile={self.quantile} must lie in [0, 1).")
        error = getattr(self, "error_", np.zeros_like(sketch))
        if error.shape != sketch.shape:
            raise ValueError(
                f"the sketch has shape {sketch.shape}, earlier ones had {error.shape}; error "
                "feedback needs the same encoder and seed in every round."
            )
        corrected = sketch + error
        kept = np.abs(corrected) >= np.quantile(np.abs(corrected), self.quantile)
        thresholded = np.where(kept, corrected, 0.0)
        self.error_ = corrected - thresholded
        return thresholded
