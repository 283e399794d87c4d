"""How near an estimate is to the truth: the measures that every experiment reports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def relative_error(estimate: NDArray[np.floating], truth: NDArray[np.floating]) -> float:
    """Return ‖estimate − truth‖²/‖truth‖²: 1 is no better than zero. NaN for a zero truth."""
    size = float(np.sum(np.square(truth, dtype=np.float64)))
    if not size:
        return float("nan")
    return float(np.sum(np.square(np.subtract(estimate, truth, dtype=np.float64)))) / size


def cosine(estimate: NDArray[np.floating], truth: NDArray[np.floating]) -> float:
    """Return the cosine of the angle between the two; 0 when either is zero."""
    lengths = float(np.linalg.norm(estimate)) * float(np.linalg.norm(truth))
    return float(np.dot(estimate, truth)) / lengths if lengths else 0.0


def top_support(
    estimate: NDArray[np.floating], truth: NDArray[np.floating], k: int
) -> tuple[float, float]:
    """Return precision and recall of the truth's k largest entries among the estimate's k largest.

    Largest in absolute value, or in value where the truth has no negative entry. Entries that an
    estimate leaves at zero are not reported by it: a sparse one may report fewer than k, which
    costs recall and not precision. Of entries that tie for the k-th place any will do.
    """
    sizes = (truth, estimate) if truth.min() >= 0 else (np.abs(truth), np.abs(estimate))
    true_size, found_size = sizes
    k = min(k, int(np.count_nonzero(true_size > 0)))
    if k == 0:
        return float("nan"), float("nan")
    smallest = np.partition(true_size, len(true_size) - k)[len(true_size) - k]
    reported = np.argsort(-found_size, kind="stable")[:k]
    reported = reported[found_size[reported] > 0]
    if len(reported) == 0:
        return 0.0, 0.0
    hits = int(np.count_nonzero(true_size[reported] >= smallest))
    return hits / len(reported), hits / k
