"""The exact discrete Gaussian by rejection, left to the caller's Python integers.

They draw word for word what the compiled kernels draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["DONE", "NEED_BIG", "NEED_WORDS", "fill_gaussian"]

DONE, NEED_WORDS, NEED_BIG = 0, 1, 2


def fill_gaussian(
    out: NDArray[np.int64],
    start: int,
    words: NDArray[np.uint32],
    pos: int,
    t: np.uint64,
    slope: np.uint64,
    offset: np.uint64,
    d_high: np.uint64,
    d_low: np.uint64,
    largest: np.uint64,
) -> tuple[int, int, int]:
    """Leave every sample of ``out[start:]`` to the caller, and its words unread.

    Returns
    -------
    status, next index of ``out``, position of the next unused word
    """
    return (NEED_BIG if start < len(out) else DONE), start, pos
