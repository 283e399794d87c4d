"""Recorded rounds for cells of a sweep: found by number, known by content, memory-mapped.

The truth is the mean of the clipped clients: that is what a round estimates. Rounds are read in
blocks, so that one larger than memory will do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from experiments.recordings.recording import Recording
from sparse_secagg.clipped_rows import ClippedRows, as_rows, clip_factors

_BLOCK_BYTES = 2**25
#: A round with at most this share of nonzeros, and so many of them, is kept as a sparse matrix.
_SPARSE_UP_TO = 0.1
_MOST_NONZEROS = 2**26


@dataclass(frozen=True)
class ClippedMean:
    """What clients send to be averaged, and what their average is."""

    rows: Any  # before clipping, an array or csr_array of shape (n, d)
    mean: NDArray[np.float64]  # of the clipped rows: what decoders estimate
    clip_norm: float
    n_clipped: int
    n_nonfinite: int  # rows with NaN or Inf, which count as zero


def clipped_mean(rows: Any, clip_norm: float) -> ClippedMean:
    """Clip rows as a round does, and average them."""
    totals = np.zeros((2, rows.shape[1]))
    n_clipped = n_nonfinite = 0
    for part in _row_slices(rows):
        found = _measured(rows[part], clip_norm)
        found.add_to(*totals)
        # unit vectors rounded to 32 bits are not above a clip of 1
        n_clipped += int(np.count_nonzero(found.norms > (1 + 1e-6) * clip_norm))
        n_nonfinite += int(np.count_nonzero(found.nonfinite))
    return ClippedMean(rows, totals[1] / rows.shape[0], clip_norm, n_clipped, n_nonfinite)


def _measured(rows: Any, clip_norm: float) -> ClippedRows:
    return clip_factors(as_rows(rows), clip_norm)


@dataclass(frozen=True)
class RecordedRound:
    """A round on disk."""

    number: int
    updates: Any  # memory map of shape (n, d): what clients would have sent, before clipping
    shapes: dict[str, tuple[int, ...]]  # layers by name; empty where not known
    clip_norm: float | None  # recorded with the round, else with the recording

    @property
    def digest(self) -> str:
        """Name of the contents."""
        found = hashlib.sha256(str(self.updates.shape).encode())
        for row in self.updates:
            found.update(np.ascontiguousarray(row).data)
        return found.hexdigest()[:32]

    def clip(self, given: float | None) -> float:
        """Return the clip that is given, else the recorded one, else the median norm.

        The median is that of clients who sent a finite vector other than zero.
        """
        given = self.clip_norm if given is None else given
        if given is not None:
            return float(given)
        parts = [_measured(self.updates[part], np.inf).norms for part in _row_slices(self.updates)]
        sent = [norm for norm in np.concatenate(parts) if norm > 0]
        if not sent:
            raise ValueError(
                f"round {self.number}: no update is a finite vector other than zero, so there is "
                "no median norm to clip at; give clip_norm."
            )
        return float(np.median(sent))

    def prepared(self, clip_norm: float, clients: int | None = None) -> ClippedMean:
        """Return the round ready for evaluation, the first so many of its clients where said."""
        found = clipped_mean(_read(self.updates[:clients]), clip_norm)
        if not found.mean.any():
            raise ValueError(
                f"round {self.number}: the mean of the updates is zero; nothing to measure."
            )
        return found


def round_numbers(path: str, wanted: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the numbers of the recorded rounds, all or those wanted, which must be there."""
    numbers = tuple(Recording.open(Path(path)).rounds)
    if not numbers:
        raise ValueError(f"{path} holds no rounds; there is nothing to evaluate.")
    missing = sorted(set(wanted) - set(numbers))
    if missing:
        raise ValueError(
            f"round {missing[0]} is not in {path}, which holds {len(numbers)} rounds from "
            f"{numbers[0]} to {numbers[-1]}."
        )
    return wanted or numbers


@lru_cache(maxsize=2)
def recorded_round(path: str, number: int) -> RecordedRound:
    """Return a round of a recording by its number."""
    round_numbers(path, (number,))
    recording = Recording.open(Path(path))
    k = recording.rounds.index(number)
    return RecordedRound(number, recording[k], recording.shapes, recording.clip_norm(k))


@lru_cache(maxsize=2)
def prepared_round(path: str, number: int, clients: int | None, clip_norm: float) -> ClippedMean:
    """Return :meth:`RecordedRound.prepared` of a round by its number."""
    return recorded_round(path, number).prepared(clip_norm, clients)


def _read(X: NDArray[np.float32]) -> Any:
    """Return X, as a sparse matrix if it is one: that is many times faster to sketch."""
    blocks: list[sp.csr_array] = []
    nonzeros = 0
    for rows in _row_slices(X):
        blocks.append(sp.csr_array(np.asarray(X[rows])))
        nonzeros += blocks[-1].nnz
        if nonzeros > _SPARSE_UP_TO * rows.stop * X.shape[1] or nonzeros > _MOST_NONZEROS:
            return X
    return sp.csr_array(sp.vstack(blocks, format="csr"))


def _row_slices(X: Any) -> list[slice]:
    n, d = X.shape
    step = max(1, _BLOCK_BYTES // (8 * d))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def draw_seed(seed: int, number: int) -> int:
    """Return the seed of sketch and noise of a recorded round: another one for each round."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
