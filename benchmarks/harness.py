"""What every benchmark shares: fair timing, peak memory, one table, JSON."""

from __future__ import annotations

import json
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

#: Idle threads of a BLAS library spin for about this long after its last call, on a core that
#: the next library timed could use.
SPIN_SECONDS = 0.2


def seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Least wall time of ``function()``; one untimed call first, so compilation is not timed."""
    time.sleep(SPIN_SECONDS)
    function()
    return min(_once(function) for _ in range(repeats))


def seconds_interleaved(functions: dict[str, Callable[[], Any]], repeats: int = 5) -> dict:
    """Least wall time of each function, called in turn so that all see the same machine."""
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(_once(function))
    return {name: min(values) for name, values in times.items()}


def peak_bytes(function: Callable[[], Any]) -> int:
    """Peak memory that ``function()`` allocates beyond what exists before the call."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _once(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@dataclass
class Report:
    """Rows of one benchmark, printed as a table and written as JSON."""

    title: str
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        """Append one row."""
        self.rows.append(list(cells))

    def show(self, console: Console) -> None:
        """Print the table and its notes."""
        table = Table(title=self.title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))  # fits 80 columns
        for k, column in enumerate(self.columns):
            table.add_column(column, justify="left" if k == 0 else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(
                *[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
            )
        console.print(table)
        for note in self.notes:
            console.print(f"  {note}")

    def as_dict(self) -> dict[str, Any]:
        """Return title, rows (one dictionary each) and notes."""
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, row)) for row in self.rows],
            "notes": self.notes,
        }


def write_json(path: Path, reports: list[Report]) -> None:
    """Write reports and the versions they were measured with."""
    packages = ["numpy", "scipy", "scikit-learn", "numba"]
    document = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: metadata.version(name) for name in packages},
        "reports": [report.as_dict() for report in reports],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
