"""Rows of a table of results: all draws of one setting, and the best decoder of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from experiments.results.statistics import Interval, Winner
from experiments.sweeps.store import Result


@dataclass(frozen=True)
class Summary:
    """All draws of one setting."""

    setting: dict[str, Any]  # the parameters that vary within the sweep
    interval: Interval | None  # mean and 95 % interval of the metric; None if no draw gave a value
    status: str  # "done", "infeasible", "failed", or several of them
    message: str  # why a draw gave no value
    extra: dict[str, float]  # arithmetic means of the other metrics, predictions among them
    seconds: float  # mean decoding (or training) time


@dataclass(frozen=True)
class WinnerRow:
    """The best decoder of one setting."""

    setting: dict[str, Any]
    winner: Winner


class Tabular(Protocol):
    """What is drawn of a table of results; see :class:`experiments.results.table.SweepTable`."""

    axes: tuple[str, ...]
    metric: str
    lower_is_better: bool
    results: list[Result]

    @property
    def varying(self) -> list[str]:
        """Parameters with more than one value."""

    @property
    def fixed(self) -> dict[str, Any]:
        """Parameters with one."""

    def summary(self, metric: str | None = None) -> list[Summary]:
        """Return one row for every setting."""
