"""What message passing has to know of a matrix: column norms, and whether rows are orthogonal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.operators import Operator

__all__ = ["Ensemble"]

#: Columns whose norms differ by more than this ratio are normalised one by one. Below, one
#: common scale keeps the entries of A independent, as the theory has them.
_EQUAL_NORMS = 1.25

#: Up to this many columns the norms of an operator that offers products only are computed.
_NORMS_UP_TO = 20_000

#: A measured share m/D below this is the error of its own estimate.
_LEAST_SHARE = 0.03


@dataclass(frozen=True)
class Ensemble:
    """What message passing has to know of a matrix: its column norms and the share m/D.

    Attributes
    ----------
    scale : float or ndarray of shape (d,)
        Norms of the columns; a number where they are nearly equal.
    row_share : float
        m/D: 0 for independent entries; for orthogonal rows D is the number of columns of the
        orthogonal matrix that they are taken from.
    isotropic : bool
        Whether AᵀA has the second moment of such an ensemble; if not, the theory does not hold.
    """

    scale: Any
    row_share: float
    isotropic: bool

    @classmethod
    def of(cls, A: Operator, seed: int = 0) -> Ensemble:
        """Measure A with a few products with random signs of a fixed, public seed.

        In units of the column norms ‖AᵀA g‖²/‖A g‖² is 1 + d/m for independent entries, and
        smaller by d/D where the rows are orthogonal in D dimensions. An operator that knows its
        D says so, exactly, as ``orthogonal_dimension``.
        """
        m, d = A.shape
        rng = np.random.default_rng(seed)
        probes = rng.choice([-1.0, 1.0], (d, 1 + 20_000 // d)).astype(A.dtype)
        scale = _column_scale(A, probes)
        if A.orthogonal_dimension is not None:
            return cls(scale, min(m / A.orthogonal_dimension, 1.0), True)
        images = A.matmat(probes / _column(scale))
        back = A.rmatmat(images) / _column(scale)
        energy = float(np.sum(np.square(images, dtype=np.float64)))
        ratio = float(np.sum(np.square(back, dtype=np.float64))) / energy if energy else 1.0
        share = (d / m + 1.0 - ratio) * m / d
        isotropic = bool(share > -0.5)
        return cls(scale, min(share, 1.0) if share > _LEAST_SHARE else 0.0, isotropic)


def _column_scale(A: Operator, probes: NDArray[np.floating]) -> Any:
    d = A.shape[1]
    if not A.has_column_norms and d > _NORMS_UP_TO:
        # products only: ‖A‖_F from products with random signs
        return float(np.linalg.norm(A.matmat(probes)) / math.sqrt(d * probes.shape[1])) or 1.0
    norms = A.column_norms()
    positive = norms[norms > 0]
    if len(positive) == 0:
        return 1.0
    if positive.max() <= _EQUAL_NORMS * positive.min():
        return float(np.sqrt(np.mean(positive**2)))
    return np.where(norms > 0, norms, 1.0)


def _column(scale: Any) -> Any:
    return scale[:, None] if isinstance(scale, np.ndarray) else scale
