"""Recorded rounds as cells of a sweep: found by content, memory-mapped by every worker."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.cells import RecordingCell

__all__ = ["recorded_cell", "recorded_round"]


@lru_cache(maxsize=2)
def recorded_round(path: str, number: int) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Return the memory-mapped updates of a round and the shapes of its layers."""
    from experiments.recording import Recording

    recording = Recording.open(Path(path))
    numbers = list(recording.rounds)
    if number not in numbers:
        raise ValueError(
            f"round={number} is not in the recording {path}; it has "
            f"{', '.join(map(str, numbers)) or 'none'}."
        )
    return recording[numbers.index(number)], dict(recording.shapes)


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
        Fields of :class:`~experiments.cells.RecordingCell`. ``clip_norm`` is by default the one
        that was recorded, or else the median of the clients' norms.
    """
    from experiments.recording import Recording

    recording = Recording.open(Path(path))
    numbers = list(recording.rounds)
    if not numbers:
        raise ValueError(f"recording={path} holds no round; record one first.")
    number = numbers[-1] if round is None else round
    updates, _ = recorded_round(str(path), number)
    digest = hashlib.sha256(str(updates.shape).encode())
    for row in updates:
        digest.update(np.ascontiguousarray(row).data)
    if values.get("clip_norm") is None:
        values["clip_norm"] = recording.metadata.clip_norm or median_norm(updates)
    cell = RecordingCell(recording=digest.hexdigest()[:32], round=number)
    return dataclasses.replace(cell.with_values(**values))


def median_norm(updates: NDArray[np.floating]) -> float:
    """Return the median of the rows' norms, to four digits, NaN left out; 1 if there is none."""
    norms = np.array([np.linalg.norm(row.astype(np.float64)) for row in updates])
    norms = norms[np.isfinite(norms) & (norms > 0)]
    return float(f"{np.median(norms):.4g}") if len(norms) else 1.0
