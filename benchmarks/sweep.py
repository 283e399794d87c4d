"""Sweeps in parallel: speed-up of two jobs over one, and that the results are the same."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness import Report
from experiments.results.table import SweepTable
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.engine import group_draws, run_sweep, warm_kernels
from experiments.sweeps.grid import Grid

_TIMES = ("seconds", "draw_seconds", "finished")


def run(quick: bool) -> list[Report]:
    grid = Grid(
        {"sparsity": (10, 50) if quick else (5, 10, 20, 50, 100)},
        MeanCell(dim=1000 if quick else 5000, clients=50 if quick else 500, compression=5),
        encoders=("count_sketch", "gaussian"),
        decoders=("linear", "ridge", "lasso", "amp"),
        seeds=2 if quick else 4,
    )
    report = Report(
        f"sweep of {len(grid.cells())} cells in {len(grid.cells()) // 4} draws",
        ["jobs", "seconds", "speed-up", "results"],
    )
    tiny = Grid({"sparsity": (5, 6, 7, 8)}, MeanCell(dim=200, clients=10), seeds=1)
    run_sweep(tiny, jobs=2)  # workers start and import here, and stay
    warm_kernels(group_draws(grid.cells()))
    ways = {"1": (1, "loky"), "2, loky": (2, "loky"), "2, threads": (2, "threading")}
    runs = {name: [timed(grid, *way)] for name, way in ways.items()}
    for name, way in ways.items():  # a second round, so that all see the same machine
        runs[name].append(timed(grid, *way))
    alone = min(taken for taken, _ in runs["1"])
    expected = rows(runs["1"][0][1])
    for name, results in runs.items():
        taken = min(taken for taken, _ in results)
        same = all(rows(table) == expected for _, table in results)
        report.add(name, taken, alone / taken, "identical" if same else "DIFFERENT")
    report.notes.append(
        "the faster of two runs each; one thread inside each cell; workers were started before "
        "the clock, kernels compiled"
    )
    return [report]


def timed(grid: Grid, jobs: int, backend: str) -> tuple[float, SweepTable]:
    start = time.perf_counter()
    table = run_sweep(grid, jobs=jobs, backend=backend)
    return time.perf_counter() - start, table


def rows(table: SweepTable) -> list[dict[str, Any]]:
    """Everything but the timings."""
    return [{k: v for k, v in row.items() if k not in _TIMES} for row in table.to_records()]
