"""How many items a user may contribute, chosen privately.

One noisy histogram of how many items users hold, each user in one bin (sensitivity 1). A limit K
lets the share min(1, K/size) of a user's items through, at noise proportional to √K. The holders of
a common item hold more than the average user, so users weigh √size: between all users alike and
all pairs alike. The largest K whose Σ√size·min(1, K/size)/√K is within a few per cent of the best
is taken.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["EDGES", "chosen_limit", "size_rows"]


def _edges() -> tuple[int, ...]:
    fine = [round(2 ** (k / 4)) for k in range(4 * 14 + 1)]
    return tuple(dict.fromkeys([1, 2, 3, *[edge for edge in fine if edge > 3]]))


#: Largest sizes of the bins, four per doubling; the last bin holds everything above, too.
EDGES = _edges()
#: A limit this much below the best in signal over noise is taken if it is larger.
_SLACK = 0.05
#: Bins within this many standard deviations of zero are taken for empty.
_VISIBLE = 2.0
#: Where no bin is visible.
_FALLBACK = 8


def size_rows(sizes: NDArray[np.int64], n: int) -> sp.csr_array:
    """Return each user's bin as a row with a single one; users that hold nothing have none."""
    bins = np.minimum(np.searchsorted(EDGES, sizes), len(EDGES) - 1)
    held = sizes > 0
    indptr = np.concatenate([[0], np.cumsum(held), np.full(n - len(sizes), held.sum())])
    return sp.csr_array(
        (np.ones(int(held.sum())), bins[held], indptr), shape=(n, len(EDGES)), dtype=np.float64
    )


def chosen_limit(histogram: NDArray[np.float64], std: float) -> int:
    """Return the limit for a noisy histogram of sizes whose bins have standard error ``std``."""
    users = np.where(histogram > _VISIBLE * std, histogram, 0.0)
    if not users.any():
        return _FALLBACK
    edges = np.array(EDGES, dtype=float)
    through = np.minimum(1.0, edges[:, None] / edges[None, :]) @ (users * np.sqrt(edges))
    gain = through / np.sqrt(edges)
    return int(edges[np.flatnonzero(gain >= (1 - _SLACK) * gain.max())[-1]])
