"""What a command found: shown in the terminal, and written as pictures, tables, JSON and a page."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.report.console import show_verdicts
from experiments.report.html import (
    Picture,
    Section,
    configuration_table,
    version_tables,
    write_report,
)
from experiments.report.style import save
from experiments.report.tables import TextTable, print_table, write_tables
from experiments.report.terminal import literal
from experiments.results.table import SweepTable
from experiments.results.verdicts import Verdict


@dataclass(frozen=True)
class Finding:
    """One question and what was found."""

    #: What it is called and what it asks.
    title: str
    question: str
    lines: Sequence[str] = ()  # what was found, in words
    #: Figures by the end of their name, and tables.
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    tables: Sequence[TextTable] = ()
    verdicts: Sequence[Verdict] = ()
    failures: Sequence[str] = ()  # cells that failed, and why
    table: SweepTable | None = None  # of the sweep, where it was one
    details: Mapping[str, Any] = field(default_factory=dict)  # further values for JSON

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        found: dict[str, Any] = {"title": self.title, "conclusion": list(self.lines)}
        if self.table is not None:
            found |= {
                "metric": self.table.metric,
                "mean": self.table.mean_name,
                "axes": list(self.table.axes),
                "fixed": self.table.fixed,
                "summary": [asdict(row) for row in self.table.summary()],
                "winners": [asdict(row) for row in self.table.winners()],
                "results": self.table.to_records(),
            }
        return {**found, "failures": list(self.failures), **self.details}


def command_line() -> str:
    """Return the command that is running."""
    return shlex.join(["sparse-secagg", *sys.argv[1:]])


def write_findings(
    found: Sequence[Finding], output: Path, name: str, export: str | None = None
) -> list[Path]:
    """Write pictures, tables and a report; return their paths."""
    files: list[Path] = []
    sections = []
    for number, each in enumerate(found, 1):
        stem = name if len(found) == 1 else f"{name}-{number}"
        for end, picture in each.pictures.items():
            files += save(picture.figure, output / f"{stem}{end}")
        files += write_tables(each.tables, output / stem)
        fixed = []
        if each.table is not None:
            fixed = [configuration_table(each.table.fixed)]
            if export is not None:
                files.append(each.table.export(output / f"{stem}-cells.{export}"))
        sections.append(
            Section(
                each.title,
                each.question,
                each.lines,
                list(each.pictures.values()),
                [*each.tables, *fixed],
                each.failures,
            )
        )
    tables = [each.table for each in found if each.table is not None]
    report = write_report(
        output / "report.html",
        name,
        sections,
        verdicts=[verdict for each in found for verdict in each.verdicts],
        command=command_line(),
        versions=version_tables(r.versions for table in tables for r in table.results),
    )
    return [*files, report]


def show_findings(found: Sequence[Finding], files: Sequence[Path], console: Console) -> None:
    """Print tables, what they show in words, the verdicts, and what was written."""
    for each in found:
        for shown in each.tables:
            print_table(shown, console)
        if each.table is not None:
            _show_refusals(each.table, console)
        for line in each.lines:
            console.print(literal(line))
        console.print()
    show_verdicts([verdict for each in found for verdict in each.verdicts], console)
    for file in files:
        console.print(literal(f"written: {file}"), soft_wrap=True)


def _show_refusals(table: SweepTable, console: Console) -> None:
    refused = [row for row in table.summary() if row.message]
    for reason in dict.fromkeys(row.message for row in refused):
        count = sum(row.message == reason for row in refused)
        console.print(literal(f"– {count} setting(s): {reason}", "dim"))


def as_document(found: Sequence[Finding], files: Sequence[Path]) -> dict[str, Any]:
    """Return findings and files as JSON values."""
    document = {
        "command": command_line(),
        "files": [str(file) for file in files],
        "claims": [asdict(verdict) for each in found for verdict in each.verdicts],
        "sweeps": [each.document() for each in found],
    }
    plain: dict[str, Any] = json.loads(json.dumps(document), parse_constant=lambda _: None)
    return plain
