"""Sweeps run: cells in parallel, kept as they finish, resumed where they stopped.

One thread a cell, whatever runs beside it: sums that are split over threads differ in their last
bits, and a result must not depend on the number of jobs.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from experiments.results.table import SweepTable
from experiments.sweeps.cell import NO_INPUTS, Cell, Inputs
from experiments.sweeps.grid import Grid
from experiments.sweeps.parts import collect
from experiments.sweeps.store import Result, Store
from experiments.sweeps.workers import become_worker, check_backend, run_unordered
from experiments.versions import versions
from solvers.parallel import one_thread
from sparse_secagg import InfeasibleError, PrivacyWarning


def evaluate(cells: Sequence[Cell], inputs: Inputs = NO_INPUTS) -> list[Result]:
    """Return the results of the cells of one draw. Errors become results, too."""
    _silence()  # here, and in workers; quiet() ends it in the process that sweeps
    become_worker()
    with one_thread():
        start = time.perf_counter()
        try:
            inputs.parts.install()
            draw = cells[0].draw(inputs)
        except Exception as error:
            return [_refused(cell, error) for cell in cells]
        seconds = time.perf_counter() - start
        return [_measure(cell, draw, inputs, seconds) for cell in cells]


def _silence() -> None:
    """Silence what sweeps expect: noise is simulated on purpose, early stops show in errors."""
    for category in (PrivacyWarning, ConvergenceWarning):
        warnings.simplefilter("ignore", category)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what sweeps expect, until the block ends."""
    with warnings.catch_warnings():
        _silence()
        yield


def _measure(cell: Cell, draw: Any, inputs: Inputs, draw_seconds: float) -> Result:
    try:
        found = cell.measure(draw, inputs)
    except Exception as error:
        return _refused(cell, error)
    metrics = {name: _finite(value) for name, value in found.metrics.items()}
    shared = 0.0 if draw is None else draw_seconds
    return Result(cell, "done", metrics, "", found.seconds, shared, _now(), curve=found.curve)


def _refused(cell: Cell, error: Exception) -> Result:
    status = "infeasible" if isinstance(error, InfeasibleError) else "failed"
    message = str(error) if status == "infeasible" else f"{type(error).__name__}: {error}"
    return Result(cell, status, {}, message, finished=_now())


def _finite(value: float | None) -> float | None:
    """Return the value, or None in place of what JSON has no word for."""
    return value if value is not None and math.isfinite(value) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_sweep(
    grid: Grid,
    *,
    store: str | os.PathLike[str] | Store = ":memory:",
    jobs: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
    retry_failed: bool = False,
    progress: Callable[[list[Result]], None] | None = None,
) -> SweepTable:
    """Run the cells of a grid that have no result yet and return all of them.

    Parameters
    ----------
    grid : Grid
        What to run.
    store : path or Store
        One SQLite file that keeps every result as it comes; in memory by default.
    jobs : int
        Draws at a time. Results do not depend on it.
    backend, scheduler : str
        As in :func:`experiments.sweeps.workers.run_unordered`.
    retry_failed : bool
        Run cells again that failed before.
    progress : callable, optional
        Called with the results of each finished draw.

    Returns
    -------
    SweepTable
        All results of the grid, old and new.

    See Also
    --------
    Grid : What to run.

    Examples
    --------
    >>> from experiments import Grid, MeanCell, run_sweep
    >>> base = MeanCell(dim=200, clients=20, sparsity=5)
    >>> table = run_sweep(Grid({"compression": [2, 4]}, base, decoders=["linear"], seeds=2))
    >>> len(table.to_records())
    4
    """
    check_backend(backend, scheduler)
    with nullcontext(store) if isinstance(store, Store) else Store(store) as opened, quiet():
        if retry_failed:
            opened.forget_failures()
        draws = missing_draws(grid, opened)
        made_with = versions()
        inputs = dataclasses.replace(
            grid.inputs, parts=collect(cell.spec for draw in draws for cell in draw)
        )
        warm_kernels(draws)
        calls = [(draw, inputs) for draw in draws]
        run = run_unordered(evaluate, calls, jobs=jobs, backend=backend, scheduler=scheduler)
        for results in run:
            for result in results:
                opened.add(dataclasses.replace(result, versions=made_with))
            if progress is not None:
                progress(results)
        order = {cell.key(): k for k, cell in enumerate(grid.cells())}
        found = sorted(opened.results(order), key=lambda result: order[result.cell.key()])
    return SweepTable(found, tuple(grid.axes))


def missing_draws(grid: Grid, store: Store) -> list[list[Cell]]:
    """Return the cells without a result, those of one draw together, seed after seed."""
    have = store.keys()
    return group_draws(cell for cell in grid.cells() if cell.key() not in have)


def group_draws(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return lists of cells that can share clients, sketch and noise."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.draw_key(), []).append(cell)
    return list(groups.values())


#: Keys of the small cells whose kernels this process has compiled.
_warm: set[str] = set()


def warm_kernels(draws: Sequence[Sequence[Cell]]) -> None:
    """Compile, once and before any worker starts, what the cells will call.

    The kernels' cache is on disk, where workers find it.
    """
    small = {made.key(): made for draw in draws for cell in draw if (made := cell.small())}
    for group in group_draws(cell for key, cell in small.items() if key not in _warm):
        evaluate(group)
    _warm.update(small)


def describe_failures(results: Iterable[Result]) -> list[str]:
    """Return a sentence for each reason for which cells failed, naming the first such cell."""
    failed: dict[str, list[Result]] = {}
    for result in results:
        if result.status == "failed":
            failed.setdefault(result.message, []).append(result)
    return [
        f"{len(same)} cell{'s' * (len(same) > 1)} failed: {reason} (the first: "
        f"decoder={same[0].cell.spec.decoder}, encoder={same[0].cell.spec.encoder}, "
        f"mechanism={same[0].cell.spec.mechanism}, seed={same[0].cell.seed})"
        for reason, same in failed.items()
    ]
