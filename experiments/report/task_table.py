"""What tasks need before they can be trained: files in the data folder, and extras of pip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console

from experiments.report.layout import print_table
from experiments.report.tables import TextTable
from experiments.report.terminal import say
from experiments.training import tasks


def needs(name: str) -> dict[str, Any]:
    """Return the files and extras of a task; synthetic means, which are no task, need nothing."""
    if name not in tasks.names():
        return {"files": "", "extras": []}
    task = tasks.get(name)
    return {"files": task.files, "extras": list(task.extras)}


def task_table(names: Iterable[str]) -> TextTable:
    """Return a line for each task."""
    found = {name: needs(name) for name in names}
    rows = [(n, ", ".join(f["extras"]) or "–", f["files"] or "–") for n, f in found.items()]
    return TextTable("what a task needs", ("task", "extras", "files"), tuple(rows), 3)


def show_tasks(names: Iterable[str], console: Console) -> None:
    """Print the table, and where files go and extras come from."""
    print_table(task_table(names), console)
    say(
        "Files are looked for in the folder that --data or SPARSE_SECAGG_DATA names; where to get "
        "them is in docs/datasets.md. Extras are installed in a checkout, such as "
        "pip install -e '.[cli,torch]'.",
        console,
    )
