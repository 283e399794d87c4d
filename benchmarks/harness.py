"""What every benchmark shares: fair timing, peak memory, one table, JSON."""

from __future__ import annotations

import json
import platform
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from solvers.parallel import n_threads

#: Idle threads of a BLAS library spin for about this long after its last call, on a core that
#: the next library timed could use.
SPIN_SECONDS = 0.2


def seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Least wall time of ``function()``; one untimed call first, so compilation is not timed."""
    time.sleep(SPIN_SECONDS)
    function()
    return min(_once(function) for _ in range(repeats))


def seconds_interleaved(
    functions: dict[Any, Callable[[], Any]], repeats: int = 5, warm: bool = False
) -> dict:
    """Least wall time of each function, called in turn so that all see the same machine.

    With ``warm`` a call that is not timed comes before each one that is: the caches are then those
    that the function leaves to itself, and not what the one before it left.
    """
    for function in functions.values():
        function()
    times: dict[Any, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            if warm:
                function()
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
        """Print the table, in as many parts as the width takes, and its notes.

        Headings break between words and numbers never break; columns that do not fit beside the
        first follow below it, so nothing is cut.
        """
        cells = [
            [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
            for row in self.rows
        ]
        widths = [
            max(map(cell_len, [*column.split(), "", *(row[k] for row in cells)]))
            for k, column in enumerate(self.columns)
        ]
        for n, part in enumerate(_parts(widths, console.width)):
            table = Table(title=None if n else self.title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
            for k in part:
                table.add_column(
                    self.columns[k],
                    justify="right" if k else "left",
                    min_width=widths[k],
                    overflow="fold",
                )
            for row in cells:
                table.add_row(*[row[k] for k in part])
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


def _parts(widths: list[int], width: int) -> list[list[int]]:
    """Divide columns of these widths into tables that fit, each beginning with the first column."""
    parts, used = [[0]], widths[0] + 3
    for k in range(1, len(widths)):
        if used + widths[k] + 2 > width and len(parts[-1]) > 1:
            parts.append([0])
            used = widths[0] + 3
        parts[-1].append(k)
        used += widths[k] + 2
    return parts


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: processor, cores, versions, revision."""
    packages = (
        "numpy", "scipy", "scikit-learn", "numba", "cryptography",
        "opendp", "celer", "skglm", "pylops", "adelie", "glmnetpp", "FFHT-unofficial",
    )  # fmt: skip
    return {
        "processor": _processor(),
        "cores": n_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in packages if (version := _version(name))},
        "commit": _commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the revision of this checkout, with a plus if files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def write_json(path: Path, reports: list[Report]) -> None:
    """Write reports and what they were measured on."""
    document = {**machine(), "reports": [report.as_dict() for report in reports]}
    path.write_text(json.dumps(document, indent=2) + "\n")
