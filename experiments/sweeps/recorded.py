"""Recorded rounds as cells of a sweep: found by content, memory-mapped by every worker."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.recordings.prepared import RoundData, choose_clip, prepare_round, row_norms
from experiments.sweeps.cells import RecordingCell

__all__ = ["RecordedRound", "prepared_round", "recorded_cell", "recorded_round"]


@dataclass(frozen=True)
class RecordedRound:
    """A round on disk.

    Attributes
    ----------
    updates : memory map of shape (n, d)
        What the clients would have sent, before clipping.
    shapes : dict of str to tuple of int
        Layers by name; empty where not known.
    clip_norm : float or None
        The clip recorded with the round, else with the recording.
    """

    updates: Any
    shapes: dict[str, tuple[int, ...]]
    clip_norm: float | None


@lru_cache(maxsize=2)
def recorded_round(path: str, number: int) -> RecordedRound:
    """Return a round of a recording by its number."""
    from experiments.recordings.recording import Recording

    recording = Recording.open(Path(path))
    numbers = list(recording.rounds)
    if number not in numbers:
        raise ValueError(
            f"round={number} is not in the recording {path}; it has "
            f"{', '.join(map(str, numbers)) or 'none'}."
        )
    k = numbers.index(number)
    return RecordedRound(recording[k], dict(recording.shapes), recording.clip_norm(k))


@lru_cache(maxsize=2)
def prepared_round(path: str, number: int, clients: int | None, clip_norm: float) -> RoundData:
    """Return a round ready for evaluation, the first so many of its clients where said."""
    updates = recorded_round(path, number).updates
    if clients is not None and clients > len(updates):
        raise ValueError(f"clients={clients}, but the round has {len(updates)}; ask for less.")
    return prepare_round(number, updates[:clients], None, clip_norm)


def recorded_cell(
    path: str | os.PathLike[str], round: int | None = None, **values: Any
) -> RecordingCell:
    """Return the cell of a recorded round, to sweep around.

    Parameters
    ----------
    path : path
        The recording.
    round : int, optional
        Number of the round; the last by default.
    **values
        Fields of :class:`~experiments.sweeps.cells.RecordingCell`. ``clip_norm`` is by default the
        one recorded with the round, as :func:`experiments.recordings.prepared.choose_clip` has it.
    """
    from experiments.recordings.recording import Recording

    recording = Recording.open(Path(path))
    numbers = list(recording.rounds)
    if not numbers:
        raise ValueError(f"recording={path} holds no round; record one first.")
    number = numbers[-1] if round is None else round
    found = recorded_round(str(path), number)
    digest = hashlib.sha256(str(found.updates.shape).encode())
    for row in found.updates:
        digest.update(np.ascontiguousarray(row).data)
    if values.get("clip_norm") is None:
        norms = row_norms(found.updates)
        values["clip_norm"], _ = choose_clip(number, norms, found.clip_norm, None)
    cell = RecordingCell(recording=digest.hexdigest()[:32], round=number)
    return dataclasses.replace(cell.with_values(**values))
