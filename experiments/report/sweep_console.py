"""A sweep in the terminal: progress with the best so far, and tables of what it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.box import SIMPLE_HEAD
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
from rich.text import Text

from experiments.report.terminal import literal
from experiments.results.statistics import Winner
from experiments.results.summary import Summary
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES
from experiments.sweeps.claims import Verdict
from experiments.sweeps.store import Result

__all__ = ["SweepProgress", "duration", "show_table", "show_verdicts", "show_winners", "value_text"]

#: Rows of the live table.
_BEST_ROWS = 8


class SweepProgress:
    """A bar over cells with an estimate of the time left, and a table of the best so far.

    Call it with the results of every finished draw.
    """

    def __init__(self, total: int, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
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
            place = tuple(
                (name, getattr(cell, name)) for name in cell.axes if getattr(cell, name, None)
            )
            series = self._values.setdefault((cell.encoder, cell.decoder), {})
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


def value_text(value: Any) -> str:
    """Return a parameter's value as a person would write it."""
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> Text:
    return literal(value_text(value))


def _heading(text: str) -> Text:
    return literal(text, "table.title")


def duration(seconds: float) -> str:
    """Return seconds as ``1 h 5 min``, ``4 min`` or ``30 s``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def show_table(
    table: SweepTable,
    console: Console,
    title: str,
    marked: Sequence[dict[str, Any]] = (),
) -> None:
    """Print mean and interval of every setting: decoders side by side, or a matrix of two axes."""
    if len(table.axes) == 1:
        full = summary_table(table, title)
        fits = console.measure(full, options=console.options.update(width=1000)).maximum
        for shown in [full] if fits <= console.width else compact_tables(table, title):
            console.print(shown)
    else:
        for matrix in matrices(table, title, marked):
            console.print(matrix)
    refused = [row for row in table.summary() if row.interval is None]
    for reason in dict.fromkeys(row.message for row in refused):
        count = sum(row.message == reason for row in refused)
        console.print(literal(f"– {count} setting(s): {reason}", "dim"))


def summary_table(table: SweepTable, title: str) -> Table:
    """Return one line for each setting and one column for each decoder."""
    names = [name for name in table.varying if name != "decoder"]
    shown = Table(
        title=_heading(
            f"{title}: {table.metric.replace('_', ' ')}, mean and 95 % interval of "
            f"{_seeds(table)} seed(s)"
        ),
        title_justify="left",
    )
    for name in names:
        label = AXES[name].label if name in AXES else name
        shown.add_column(label, justify="right" if name in AXES else "left")
    decoders = _decoders(table)
    for decoder in decoders:
        shown.add_column(literal(decoder), justify="right")
    if len(decoders) > 1:
        shown.add_column("winner")
    for place, cells, winner in _lines(table, names):
        texts = [str(row.interval or row.status) if row else "" for row in cells]
        if len(decoders) > 1:
            texts.append("" if winner is None else str(winner))
        shown.add_row(*map(_cell, (*place, *texts)))
    return shown


def compact_tables(table: SweepTable, title: str) -> Iterator[Table]:
    """Yield the same for a narrow terminal: a table for each encoder, without intervals."""
    names = [name for name in table.varying if name not in ("decoder", "encoder")]
    decoders = _decoders(table)
    for encoder in dict.fromkeys(result.cell.encoder for result in table.results):
        shown = Table(
            title=_heading(
                f"{title}, {encoder}: {table.metric.replace('_', ' ')}, mean of {_seeds(table)} "
                "seed(s); ≈ others within chance"
            ),
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=0,
        )
        for heading in (*names, *decoders):
            shown.add_column(literal(heading), justify="right")
        if len(decoders) > 1:
            shown.add_column("winner")
        for place, cells, winner in _lines(table, ["encoder", *names]):
            if place[0] != encoder:
                continue
            texts = [_brief(row.interval.mean) if row and row.interval else "–" for row in cells]
            if len(decoders) > 1 and winner is not None:
                texts.append(winner.best + (" ≈" if winner.tied else ""))
            shown.add_row(*map(_cell, (*place[1:], *texts)))
        yield shown


def _brief(value: float) -> str:
    """Return two digits, as 0.81, 5.4 or 3e-4."""
    if abs(value) >= 0.01 or not value:
        return f"{value:.2g}"
    digits, _, power = f"{value:.0e}".partition("e")
    return f"{digits}e{int(power)}"


def _decoders(table: SweepTable) -> list[str]:
    return list(dict.fromkeys(result.cell.decoder for result in table.results))


def _seeds(table: SweepTable) -> int:
    return len({result.cell.seed for result in table.results})


def _lines(
    table: SweepTable, names: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], list[Summary | None], Winner | None]]:
    """Yield the settings of ``names``, the rows of all decoders there, and who won."""
    decoders = _decoders(table)
    fixed = table.fixed

    def place(setting: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(setting.get(name, fixed.get(name)) for name in names)

    winners = {place(row.setting): row.winner for row in table.winners()}
    lines: dict[tuple[Any, ...], dict[str, Summary]] = {}
    for row in table.summary():
        decoder = row.setting.get("decoder", decoders[0])
        lines.setdefault(place(row.setting), {})[decoder] = row
    for where, found in lines.items():
        yield where, [found.get(decoder) for decoder in decoders], winners.get(where)


def matrices(
    table: SweepTable, title: str, marked: Sequence[dict[str, Any]] = ()
) -> Iterator[Table]:
    """Yield one matrix over the two axes for every other choice."""
    first, second = table.axes
    others = [name for name in table.varying if name not in table.axes]
    groups: dict[str, list[Summary]] = {}
    for row in table.summary():
        name = ", ".join(str(row.setting[other]) for other in others)
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        shown = Table(
            title=_heading(
                f"{title}{', ' if name else ''}{name}: {table.metric.replace('_', ' ')}, mean "
                f"and 95 % interval; columns: {AXES[second].label}"
            ),
            title_justify="left",
        )
        shown.add_column(AXES[first].label, justify="right")
        columns = sorted({row.setting[second] for row in rows})
        for column in columns:
            shown.add_column(value_text(column), justify="right")
        for line in sorted({row.setting[first] for row in rows}):
            cells = {row.setting[second]: row for row in rows if row.setting[first] == line}
            texts = [matrix_text(cells.get(column), table.axes, marked) for column in columns]
            shown.add_row(value_text(line), *texts)
        yield shown


def matrix_text(
    row: Summary | None, axes: Sequence[str], marked: Sequence[dict[str, Any]] = ()
) -> str:
    """Return what stands in one place of a matrix; a star where it is marked."""
    if row is None or row.interval is None:
        return "–"
    star = "*" if {name: row.setting[name] for name in axes} in marked else ""
    return f"{row.interval}{star}"


def show_winners(table: SweepTable, console: Console) -> None:
    """Print how often each decoder won alone, or shared the win, where there are several."""
    if "decoder" not in table.varying:
        return
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
    console.print(
        literal(
            f"winners of {len(rows)} settings, by paired differences on the same draws: "
            + ", ".join(parts)
        )
    )


def show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print claims with pass or fail, and what was measured."""
    for verdict in verdicts:
        word = "[green]PASS[/green]" if verdict.passed else "[red]FAIL[/red]"
        console.print(f"{word} ", literal(verdict.claim, "bold"))
        for line in verdict.evidence:
            console.print(literal(f"      {line}"))
