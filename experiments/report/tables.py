"""Tables of results: made once, shown in the terminal, as CSV, as LaTeX and in HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.results.statistics import Winner
from experiments.results.table import Summary, SweepTable
from experiments.sweeps.axes import AXES
from sparse_secagg.private_files import make_folder, write_text


@dataclass(frozen=True)
class TextTable:
    """A table of texts."""

    title: str  # what it shows
    heads: tuple[str, ...]  # headings of the columns
    rows: tuple[tuple[str, ...], ...]  # what stands below them
    left: int = 1  # columns, the first ones, that are names and not numbers
    bold: frozenset[tuple[int, int]] = frozenset()  # cells, by row and column, that stand out

    def to_csv(self) -> str:
        """Return the table as comma-separated values."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.heads, *self.rows])
        return text.getvalue()

    def to_latex(self) -> str:
        """Return the table for a paper, with the rules of the package booktabs."""
        columns = "".join("l" if k < self.left else "r" for k in range(len(self.heads)))
        body = [
            " & ".join(
                rf"\textbf{{{_latex(text)}}}" if (i, j) in self.bold else _latex(text)
                for j, text in enumerate(row)
            )
            + r" \\"
            for i, row in enumerate(self.rows)
        ]
        head = " & ".join(map(_latex, self.heads)) + r" \\"
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body]
        return "\n".join([f"% {self.title}", *lines, r"\bottomrule", r"\end{tabular}", ""])


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×/÷": r"$\times\!/\!\div$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "ε": r"$\varepsilon$",
    "μ": r"$\mu$",
    "–": "--",
    "∞": r"$\infty$",
    "‖μ̂ − μ‖² / ‖μ‖²": r"$\|\hat\mu-\mu\|^2/\|\mu\|^2$",
}


def _latex(text: str) -> str:
    """Return a text as LaTeX shows it sign by sign."""
    found, k = [], 0
    longest = sorted(_LATEX, key=len, reverse=True)
    while k < len(text):
        sign = next((s for s in longest if text.startswith(s, k)), text[k])
        found.append(_LATEX.get(sign, sign))
        k += len(sign)
    return "".join(found)


def write_tables(tables: Sequence[TextTable], stem: Path) -> list[Path]:
    """Write tables as ``stem.csv`` and ``stem.tex``, one below the other."""
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "tex")]
    write_text(paths[0], "\n".join(table.to_csv() for table in tables))
    write_text(paths[1], "\n".join(table.to_latex() for table in tables))
    return paths


def value_text(value: Any) -> str:
    """Return a parameter's value as a person would write it."""
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_tables(
    table: SweepTable, title: str, marked: Sequence[dict[str, Any]] = ()
) -> list[TextTable]:
    """Return what a sweep found: decoders side by side, or a matrix over two axes for each."""
    about = f"{table.metric.replace('_', ' ')}, {table.mean_name} and 95 % interval"
    draws = f"{table.draws} draw{'s' * (table.draws > 1)}"
    settings = table.groups("decoder")
    if len(settings) == 1 and len(table.decoders) > 1:
        return [_by_decoder(table, f"{title}: {about} of {draws}")]
    if len(table.axes) == 1:
        return [_side_by_side(table, f"{title}: {about} of {draws}")]
    return list(_matrices(table, title, f"{about} of {draws}", marked))


def label(name: str) -> str:
    """Return the heading of a parameter."""
    return AXES[name].label if name in AXES else name.replace("_", " ")


def _side_by_side(table: SweepTable, title: str) -> TextTable:
    names = [name for name in table.varying if name != "decoder"]
    decoders = table.decoders
    several = len(decoders) > 1
    rows, bold = [], set()
    for k, (place, cells, winner) in enumerate(_lines(table, names)):
        texts = [_cell(row) for row in cells]
        bits = [row.extra["bits_per_parameter"] for row in cells if row and row.interval]
        texts.append(f"{bits[0]:.3g}" if bits else "–")
        if several:
            texts.append("" if winner is None else str(winner))
            if winner is not None:
                bold.add((k, len(place) + decoders.index(winner.best)))
        rows.append((*map(value_text, place), *texts))
    heads = [*map(label, names), *decoders, "bits per parameter", *(["winner"] if several else [])]
    return TextTable(title, tuple(heads), tuple(rows), len(names), frozenset(bold))


#: Further columns of a table of decoders: metric, heading and form.
_FURTHER = (
    ("theory_limit", "limit", "{:.3g}"),
    ("covered", "covered by 95 %", "{:.1%}"),
    ("cosine", "cosine", "{:.3f}"),
    ("precision", "precision", "{:.0%}"),
    ("recall", "recall", "{:.0%}"),
    ("bits_per_parameter", "bits per parameter", "{:.3g}"),
)


def _by_decoder(table: SweepTable, title: str) -> TextTable:
    """Return one line a decoder, for a single setting."""
    winner = next((row.winner for row in table.winners()), None)
    further = [f for f in _FURTHER if any(f[0] in row.extra for row in table.summary())]
    rows, bold = [], set()
    for k, row in enumerate(table.summary()):
        name = str(row.setting["decoder"])
        gap = "" if winner is None else "1" if name == winner.best else ""
        if winner is not None and name in winner.gaps:
            found = winner.gaps[name]
            gap = str(found) + ("" if found.matters or not math.isfinite(found.high) else " ≈")
        if winner is not None and name == winner.best:
            bold.add((k, 0))
        texts = [
            form.format(row.extra[key]) if key in row.extra else "–" for key, _, form in further
        ]
        rows.append((name, _cell(row), gap, *texts))
    heads = (
        "decoder",
        table.metric.replace("_", " "),
        "against the best",
        *(f[1] for f in further),
    )
    return TextTable(title, heads, tuple(rows), 1, frozenset(bold))


def _cell(row: Summary | None) -> str:
    """Return mean and interval, or why there is none."""
    if row is None:
        return ""
    if row.interval is None:
        return row.status
    return f"{row.interval} ({row.status})" if "failed" in row.status else str(row.interval)


def _lines(
    table: SweepTable, names: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], list[Summary | None], Winner | None]]:
    """Yield the settings of ``names``, the rows of all decoders there, and who won."""
    decoders = table.decoders

    def place(setting: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(setting.get(name) for name in names)

    winners = {place(row.setting): row.winner for row in table.winners()}
    lines: dict[tuple[Any, ...], dict[str, Summary]] = {}
    for row in table.summary():
        lines.setdefault(place(row.setting), {})[row.setting.get("decoder", decoders[0])] = row
    for where, found in lines.items():
        yield where, [found.get(decoder) for decoder in decoders], winners.get(where)


def _matrices(
    table: SweepTable, title: str, about: str, marked: Sequence[dict[str, Any]]
) -> Iterator[TextTable]:
    """Yield one matrix over the two axes for every other choice; a star marks a setting."""
    first, second = table.axes
    others = [name for name in table.varying if name not in table.axes]
    groups: dict[str, list[Summary]] = {}
    for row in table.summary():
        name = ", ".join(value_text(row.setting[other]) for other in others)
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        columns = sorted({row.setting[second] for row in rows})
        body = []
        for line in sorted({row.setting[first] for row in rows}):
            cells = {row.setting[second]: row for row in rows if row.setting[first] == line}
            texts = [_starred(cells.get(column), table.axes, marked) for column in columns]
            body.append((value_text(line), *texts))
        heads = (label(first), *map(value_text, columns))
        which = f"{title}{', ' if name else ''}{name}: {about}; columns: {label(second)}"
        yield TextTable(which, heads, tuple(body))


def _starred(row: Summary | None, axes: Sequence[str], marked: Sequence[dict[str, Any]]) -> str:
    if row is None:
        return ""
    star = "*" if {name: row.setting[name] for name in axes} in marked else ""
    return f"{_cell(row)}{star}"
