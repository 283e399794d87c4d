"""Rows of a table of results: all seeds of one setting, and the best decoder of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.results.statistics import Interval, Winner

__all__ = ["Summary", "WinnerRow"]


@dataclass(frozen=True)
class Summary:
    """All seeds of one setting.

    Attributes
    ----------
    setting : dict
        The parameters that vary within the sweep.
    interval : Interval or None
        Mean and 95 % interval of the metric over the seeds; None if no seed gave a value.
    status : str
        "done", "infeasible", "failed", or several of them.
    message : str
        Why a seed gave no value.
    extra : dict of str to float
        Means of the other metrics, predictions among them.
    seconds : float
        Mean decoding (or training) time.
    """

    setting: dict[str, Any]
    interval: Interval | None
    status: str
    message: str
    extra: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class WinnerRow:
    """The best decoder of one setting."""

    setting: dict[str, Any]
    winner: Winner
