"""A sweep in the terminal: progress, and sentences about what it found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from experiments.report.terminal import literal
from experiments.results.table import SweepTable
from experiments.results.verdicts import FAILS, HOLDS, OPEN, Verdict
from experiments.sweeps.store import Result


def bar(console: Console) -> Progress:
    """Return the progress bar of every command; with ``--quiet`` it stays invisible."""
    return Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=logging.getLogger(__name__).getEffectiveLevel() >= logging.ERROR,
    )


class SweepProgress:
    """A bar over cells with an estimate of the time left; call it with each draw's results."""

    def __init__(self, total: int, console: Console) -> None:
        self._bar = bar(console)
        self._task = self._bar.add_task("cells", total=total)
        self._refused = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bar.stop()

    def __call__(self, results: list[Result]) -> None:
        self._refused += sum(r.metrics.get(r.cell.metric) is None for r in results)
        text = f"cells ({self._refused} without a value)" if self._refused else "cells"
        self._bar.update(self._task, description=text, advance=len(results))


def winners_text(table: SweepTable) -> str:
    """Return how often each decoder won alone, or shared the win; "" with a single decoder."""
    if "decoder" not in table.varying:
        return ""
    rows = table.winners()
    alone = Counter(row.winner.best for row in rows if not row.winner.tied)
    shared = Counter(n for r in rows if r.winner.tied for n in (r.winner.best, *r.winner.tied))
    parts = [
        f"{name} {alone[name]}" + (f" (and {shared[name]} shared)" if shared[name] else "")
        for name in sorted(alone | shared, key=lambda name: (-alone[name], name))
    ]
    return (
        f"Winners of {len(rows)} setting{'s' * (len(rows) > 1)}, compared on the same draws with "
        f"95 % for all pairs of a setting together: {', '.join(parts)}."
    )


def show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print what became of claims, and what was measured."""
    colours = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}
    for verdict in verdicts:
        console.print(
            literal(verdict.outcome.upper(), colours[verdict.outcome]),
            "",
            literal(verdict.claim, "bold"),
        )
        for line in verdict.evidence:
            console.print(literal(f"      {line}"))
