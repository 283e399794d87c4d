"""What an entry is: sweeps with claims about them, drawn as the paper draws, or findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.report.html import Finding
from experiments.report.tables import TextTable
from experiments.results.table import SweepTable
from experiments.results.verdicts import Judge
from experiments.sweeps.grid import Grid

#: From a finished sweep and a slack to figures, by the end of their name.
Draw = Callable[[SweepTable, float], Mapping[str, Any]]


@dataclass(frozen=True)
class Setting:
    """What was asked for on the command line."""

    task: str
    quick: bool
    seeds: int | None = None
    first_seed: int = 0
    data: str | None = None
    #: Values of parameters that do not vary, in place of the entry's own.
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def seed_list(self, usual: int) -> list[int]:
        """Return the seeds: as many as asked for, or as usual."""
        count = usual if self.seeds is None else self.seeds
        return list(range(self.first_seed, self.first_seed + count))


@dataclass(frozen=True)
class Asked:
    """One sweep of an entry."""

    title: str
    grid: Grid
    judges: Sequence[Judge]
    draw: Draw


@dataclass(frozen=True)
class Entry:
    """One figure, table or theorem of the paper."""

    name: str
    where: str  # in the paper
    claim: str  # what the paper claims
    minutes: tuple[float, float]  # on two cores, at the scales quick and full, of the first task
    tasks: tuple[str, ...] = ()  # on what it can be run; the first by default
    paper: tuple[TextTable, ...] = ()  # the paper's values, to stand beside
    #: Sweeps, and what is found without one.
    sweeps: Callable[[Setting], Sequence[Asked]] | None = None
    findings: Callable[[Setting], Sequence[Finding]] | None = None
