"""A sweep in the terminal: progress with the best so far, and sentences about what it found."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from experiments.report.tables import value_text
from experiments.report.terminal import literal
from experiments.results.table import SweepTable
from experiments.sweeps.claims import Verdict
from experiments.sweeps.store import Result

#: Rows of the live table.
_BEST_ROWS = 8


def bar(console: Console) -> Progress:
    """Return the progress bar of every command."""
    return Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


class SweepProgress:
    """A bar over cells with an estimate of the time left, and a table of the best so far.

    Call it with the results of every finished draw.
    """

    def __init__(self, total: int, console: Console) -> None:
        self._bar = bar(console)
        self._task = self._bar.add_task("cells", total=total)
        self._values: dict[tuple[str, str], dict[tuple[Any, ...], list[float]]] = {}
        self._lower = True
        self._metric = ""
        self._refused = 0
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)
        if not self._live.console.is_terminal:
            self._live.console.print()  # the last frame ends without a line feed

    def __call__(self, results: list[Result]) -> None:
        for result in results:
            cell = result.cell
            self._metric, self._lower = cell.metric, cell.lower_is_better
            value = result.metrics.get(cell.metric)
            if value is None:
                self._refused += 1
                continue
            setting = cell.setting()
            place = tuple((name, setting[name]) for name in cell.axes if setting.get(name))
            series = self._values.setdefault((cell.spec.encoder, cell.spec.decoder), {})
            series.setdefault(place, []).append(value)
        self._bar.advance(self._task, len(results))

    def _render(self) -> Group:
        table = Table(title=f"best {self._metric} so far", title_justify="left")
        for k, heading in enumerate(("encoder", "decoder", "best", "where", "cells")):
            table.add_column(heading, justify="right" if k in (2, 4) else "left")
        for row in self._best()[:_BEST_ROWS]:
            table.add_row(*map(literal, row))
        text = f"cells ({self._refused} without a value)" if self._refused else "cells"
        self._bar.update(self._task, description=text)
        return Group(table, self._bar) if self._values else Group(self._bar)

    def _best(self) -> list[tuple[str, ...]]:
        pick = min if self._lower else max
        constant = self._constant()
        rows = []
        for (encoder, decoder), places in list(self._values.items()):
            means = {place: float(np.mean(values)) for place, values in places.items()}
            where = pick(means, key=lambda place: means[place])
            shown = ", ".join(f"{n}={value_text(v)}" for n, v in where if (n, v) not in constant)
            count = str(sum(map(len, places.values())))
            rows.append((means[where], (encoder, decoder, f"{means[where]:.4g}", shown, count)))
        rows.sort(key=lambda row: row[0], reverse=not self._lower)
        return [row for _, row in rows]

    def _constant(self) -> set[tuple[str, Any]]:
        places = [set(place) for series in self._values.values() for place in series]
        return set.intersection(*places) if len(places) > 1 else set()


def duration(seconds: float) -> str:
    """Return seconds as ``1 h 5 min``, ``4 min`` or ``30 s``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def winners_text(table: SweepTable) -> str:
    """Return how often each decoder won alone, or shared the win; "" with a single decoder."""
    if "decoder" not in table.varying:
        return ""
    alone: dict[str, int] = {}
    shared: dict[str, int] = {}
    rows = table.winners()
    for row in rows:
        if row.winner.tied:
            for name in (row.winner.best, *row.winner.tied):
                shared[name] = shared.get(name, 0) + 1
        else:
            alone[row.winner.best] = alone.get(row.winner.best, 0) + 1
    parts = [
        f"{name} {alone.get(name, 0)}"
        + (f" (and {shared[name]} shared)" if shared.get(name) else "")
        for name in sorted({*alone, *shared}, key=lambda n: -alone.get(n, 0))
    ]
    return (
        f"Winners of {len(rows)} setting{'s' * (len(rows) > 1)}, compared on the same draws with "
        f"95 % for all pairs of a setting together: {', '.join(parts)}."
    )


def show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print claims with pass or fail, and what was measured."""
    for verdict in verdicts:
        word = "[green]PASS[/green]" if verdict.passed else "[red]FAIL[/red]"
        console.print(f"{word} ", literal(verdict.claim, "bold"))
        for line in verdict.evidence:
            console.print(literal(f"      {line}"))
