"""What a command found: shown in the terminal, and written as pictures, tables, JSON and a page."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.report.console import show_verdicts
from experiments.report.html import Finding, version_tables, write_report
from experiments.report.layout import print_table
from experiments.report.style import save
from experiments.report.tables import write_tables
from experiments.report.terminal import literal
from experiments.results.table import SweepTable


def command_line() -> str:
    """Return the command that is running."""
    return shlex.join(["sparse-secagg", *sys.argv[1:]])


def write_findings(found: Sequence[Finding], output: Path, name: str) -> list[Path]:
    """Write pictures, tables and a report; return their paths."""
    files: list[Path] = []
    for number, each in enumerate(found, 1):
        stem = name if len(found) == 1 else f"{name}-{number}"
        for end, picture in each.pictures.items():
            files += save(picture.figure, output / f"{stem}{end}")
        files += write_tables(each.tables, output / stem)
        if each.table is not None:
            files.append(each.table.export(output / f"{stem}-cells.csv"))
    made = [r.versions for each in found if each.table is not None for r in each.table.results]
    more = {"command": command_line(), "versions": version_tables(made)}
    return [*files, write_report(output / "report.html", name, found, **more)]


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
        "sweeps": list(map(_document, found)),
    }
    plain: dict[str, Any] = json.loads(json.dumps(document), parse_constant=lambda _: None)
    return plain


def _document(found: Finding) -> dict[str, Any]:
    document: dict[str, Any] = {"title": found.title, "conclusion": list(found.lines)}
    table = found.table
    if table is not None:
        document |= {
            "metric": table.metric,
            "mean": table.mean_name,
            "axes": list(table.axes),
            "fixed": table.fixed,
            "summary": [asdict(row) for row in table.summary()],
            "winners": [asdict(row) for row in table.winners()],
            "results": table.to_records(),
        }
    return {**document, "failures": list(found.failures), **found.details}
