"""A sweep in the terminal: progress, and what became of claims."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from experiments.report.terminal import literal
from experiments.results.verdicts import FAILS, HOLDS, OPEN, Verdict
from experiments.sweeps.store import Result

#: Columns of a terminal in which a bar and the time left have room beside what is done.
_WIDE = 80
#: Columns that a description, numbers and times take beside the bar.
_BESIDE = 72


def bar() -> Progress:
    """Return the progress bar of every command, on standard error; with ``--quiet`` invisible."""
    console = Console(stderr=True)
    wide = console.width >= _WIDE
    whole = Column(no_wrap=True)  # only the bar is shortened
    columns: list[ProgressColumn] = [
        MofNCompleteColumn(table_column=whole.copy()),
        TimeElapsedColumn(table_column=whole.copy()),
    ]
    if wide:
        strip = BarColumn(bar_width=min(40, console.width - _BESIDE))
        left = TimeRemainingColumn(table_column=whole.copy())
        columns = [strip, *columns, TextColumn("left"), left]
    return Progress(
        TextColumn("{task.description:<40}" if wide else "{task.description}"),
        *columns,
        console=console,
        disable=logging.getLogger(__name__).getEffectiveLevel() >= logging.ERROR,
    )


@contextmanager
def sweep_progress(total: int) -> Iterator[Callable[[list[Result]], None]]:
    """Show a bar over cells with the time left; yield what takes the results of each draw."""
    refused = 0
    with bar() as bars:
        line = bars.add_task("cells", total=total, visible=total > 0)

        def progress(results: list[Result]) -> None:
            nonlocal refused
            refused += sum(r.metrics.get(r.cell.metric) is None for r in results)
            text = f"cells ({refused} without a value)" if refused else "cells"
            bars.update(line, description=text, advance=len(results))

        yield progress


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
