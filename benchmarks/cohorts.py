"""Cohorts on several workers: clients per second, and each worker's memory, on Dask and by n_jobs.

Rows are made where they are encoded, each from its own seed, so that no machine ever holds them all
and every run is about the same rows. The sketches of all runs must agree bit for bit.
"""

from __future__ import annotations

import math
import resource
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.harness import Report
from sparse_secagg import PrivacyWarning, RoundSpec

#: Rows that a worker of Dask makes and encodes as one block.
_ROWS = 128
SPEC = RoundSpec(epsilon=1.0, encoder="hadamard", compression=100, n_bits=20)


def run(quick: bool) -> list[Report]:
    d, few, many = (2**13, 512, 1024) if quick else (10**5, 10**4, 10**5)
    report = Report(
        f"A cohort, d = {d:,}, Hadamard, r = 100, rows made on the way",
        ["workers", "clients", "seconds", "clients/s", "ms per client and core", "peak MB"],
    )
    rows = Made(few, d)
    _run(Made(64, d), n_jobs=1)
    sketches = []
    for jobs in (1, 2):
        seconds, sketch = _run(rows, n_jobs=jobs)
        sketches.append(sketch)
        _add(report, f"n_jobs={jobs}", few, seconds, jobs, math.nan)
    with _cluster() as client:
        _run(_lazy(512, d))
        for n in (few, many):
            seconds, sketch = _run(_lazy(n, d))
            sketches += [sketch] if n == few else []
            _add(report, "Dask, 2 processes", n, seconds, 2, max(client.run(_peak).values()))
    same = all(np.array_equal(sketch, sketches[0]) for sketch in sketches)
    made = _seconds(lambda: rows[:200]) / 200
    report.notes = [
        f"sketches of the same {few:,} clients agree bit for bit: {same}",
        f"{1e3 * made:.3g} ms of each client's time make its row",
        "peak: the largest resident memory of a worker so far, libraries included",
    ]
    return [report, _long(quick)]


def _long(quick: bool) -> Report:
    """Measure long rows on one core, and what a hundred workers would need for a million."""
    d, n = (2**17, 8) if quick else (10**7, 16)
    rows = np.full((1, d), 1e-4, dtype=np.float32)
    report = Report("Long rows, one core", ["d", "encoder", "seconds per client", "10^6 on 100, h"])
    for encoder in ("hadamard", "count_sketch"):
        spec = SPEC.replace(encoder=encoder)
        lazy = Repeated(rows, n)
        first, _ = _run(Repeated(rows, 1), n_jobs=1, spec=spec)
        both, _ = _run(lazy, n_jobs=1, spec=spec)
        each = (both - first) / (n - 1)  # the public parts are made once
        report.add(f"{d:.0e}", encoder, each, 1e6 * each / 100 / 3600)
    report.notes = ["on paper: a worker is one such core, and makes or holds its rows itself"]
    return report


class Made:
    """Rows that are made when they are sliced, each from its own seed."""

    def __init__(self, n: int, d: int) -> None:
        self.shape = (n, d)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return _make(rows.start or 0, rows.stop, self.shape[1])


class Repeated(Made):
    """The same row again and again."""

    def __init__(self, row: np.ndarray, n: int) -> None:
        super().__init__(n, row.shape[1])
        self.row = row

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.repeat(self.row, rows.stop - rows.start, axis=0)


def _make(start: int, stop: int, d: int) -> np.ndarray:
    rows = np.empty((stop - start, d), dtype=np.float32)
    for i, row in enumerate(rows, start):
        np.random.default_rng(i).standard_normal(out=row, dtype=np.float32)
    return rows


def _lazy(n: int, d: int) -> Any:
    import dask.array as da
    from dask.delayed import delayed

    make = delayed(_make, pure=False)
    starts = range(0, n, _ROWS)
    return da.concatenate(
        [
            da.from_delayed(
                make(k, min(k + _ROWS, n), d), (min(k + _ROWS, n) - k, d), dtype=np.float32
            )
            for k in starts
        ]
    )


def _run(X: Any, n_jobs: int | None = None, spec: RoundSpec = SPEC) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        aggregate = spec.run(X, random_state=0, simulation_seed=0, n_jobs=n_jobs)
    return time.perf_counter() - start, aggregate.sketch


def _seconds(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _add(report: Report, name: str, n: int, seconds: float, cores: int, peak: float) -> None:
    shown = "" if math.isnan(peak) else peak / 2**20
    report.add(name, n, seconds, n / seconds, 1e3 * seconds * cores / n, shown)


def _cluster() -> Any:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return Client(cluster)


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
