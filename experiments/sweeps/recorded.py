"""Recorded rounds for cells of a sweep: found by number, known by content, memory-mapped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.recordings.prepared import RoundData, median_norm, prepare_round
from experiments.recordings.recording import Recording


@dataclass(frozen=True)
class RecordedRound:
    """A round on disk."""

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

    def clip(self, number: int, given: float | None) -> float:
        """Return the clip that is given, else the recorded one, else the median norm."""
        if given is None:
            given = self.clip_norm
        return median_norm(number, self.updates) if given is None else float(given)


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
    k = list(recording.rounds).index(number)
    return RecordedRound(recording[k], dict(recording.shapes), recording.clip_norm(k))


@lru_cache(maxsize=2)
def prepared_round(path: str, number: int, clients: int | None, clip_norm: float) -> RoundData:
    """Return a round ready for evaluation, the first so many of its clients where said."""
    return prepare_round(number, recorded_round(path, number).updates[:clients], clip_norm)
