"""The server's half of a mechanism: from the modular sum back to the mean sketch.

Residues in [0, M) are centred to [−M/2, M/2), scaled by the grid γ, rotated back and divided by the
number of survivors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.mechanisms.parameters import MechanismParameters
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.validation import check_integer

__all__ = ["centre", "mean_of_sum"]


def centre(total: NDArray[np.uint64], modulus: int) -> NDArray[np.int64]:
    """Return the residues in [−M/2, M/2), for M a power of two up to 2^63."""
    half = np.uint64(modulus // 2)
    shifted = (np.asarray(total, dtype=np.uint64) + half) & np.uint64(modulus - 1)
    return shifted.astype(np.int64) - np.int64(modulus // 2)


def mean_of_sum(p: MechanismParameters, total: ArrayLike, n_survivors: int) -> NDArray[np.float64]:
    """Return the mean of the survivors' sketches, of shape (m,) or (k, m), from modular sums.

    Parameters
    ----------
    p : MechanismParameters
        Of the round.
    total : array-like of uint64, shape (D,) or (k, D)
        Sum of the messages modulo M.
    n_survivors : int
        Messages in the sum.
    """
    check_integer("n_survivors", n_survivors, 1)
    total = np.asarray(total)
    if total.shape[-1:] != (p.padded_dim,) or total.dtype.kind not in "ui":
        raise ValueError(
            f"total has shape {total.shape} and dtype {total.dtype}; it must hold "
            f"{p.padded_dim} integers modulo {p.modulus}."
        )
    sums = centre(total.astype(np.uint64, copy=False), p.modulus)
    rows = np.atleast_2d(sums).astype(np.float64) * p.gamma
    decoded = Rotation(p.rotation, p.dim, p.seed).inverse(rows) / n_survivors
    return np.asarray(decoded if total.ndim == 2 else decoded[0])
