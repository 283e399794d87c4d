"""Every matrix-free solver on a count sketch: time, memory, error, and growth with d.

A is d/10 x d with 15 nonzeros a column, never stored; x has d/1000 normal nonzeros and norm
0.3, and the noise has standard deviation 1e-3. A solver runs twice, once for the time and once
for the memory, after a small problem has compiled its kernels.

``DECODERS`` in the environment selects solvers, such as ``linear,working_set``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import solvers
from benchmarks.harness import Report
from sparse_secagg import CountSketchEncoder

NOISE = 1e-3

#: One column per pass takes OMP a thousand passes at d = 10^6.
PARAMETERS: dict[str, dict[str, Any]] = {"omp": {"per_pass": 50}}
NAMES = [
    "linear",
    "median",
    "ridge",
    "working_set",
    "fista",
    "ista",
    "sqrt_lasso",
    "omp",
    "iht",
    "cosamp",
    "amp",
]


@dataclass(frozen=True)
class Problem:
    """y = A x + noise, A a count sketch."""

    A: Any
    x: np.ndarray
    y: np.ndarray

    @classmethod
    def draw(cls, d: int) -> Problem:
        rng = np.random.default_rng(0)
        A = CountSketchEncoder(compression=10, n_rows=15, random_state=0).fit_dimension(d).operator_
        x = np.zeros(d)
        s = d // 1000
        x[rng.choice(d, s, replace=False)] = rng.standard_normal(s)
        x *= 0.3 / np.linalg.norm(x)
        return cls(A, x, A @ x + NOISE * rng.standard_normal(A.shape[0]))


@dataclass(frozen=True)
class Outcome:
    """What one solver did on one problem."""

    seconds: float
    megabytes: float
    error: float
    n_iter: int
    warned: bool


def measure(name: str, problem: Problem) -> Outcome:
    def fit() -> Any:
        solver = solvers.get(name, **PARAMETERS.get(name, {}))
        return solver.fit(problem.A, problem.y, noise_std=NOISE)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        solver = fit()
        elapsed = time.perf_counter() - start
        tracemalloc.start()
        try:
            fit()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    error = float(np.sum((solver.coef_ - problem.x) ** 2) / np.sum(problem.x**2))
    return Outcome(elapsed, peak / 1e6, error, int(solver.n_iter_), bool(caught))


def cold_start() -> Report:
    """First fit of a new process: with an empty cache of compiled kernels, then with it."""
    report = Report("First fit in a new process, d = 10 000", ["solver", "cold s", "cached s"])
    code = (
        "import sys, time; from benchmarks.decoders import Problem, NOISE; import solvers; "
        "p = Problem.draw(10_000); t = time.perf_counter(); "
        "solvers.get(sys.argv[1]).fit(p.A, p.y, noise_std=NOISE); "
        "print(time.perf_counter() - t)"
    )
    for name in ("linear", "working_set", "fista"):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            times = []
            for _ in range(2):
                command = [sys.executable, "-c", code, name]
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                )
                times.append(float(done.stdout))
        report.add(name, *times)
    report.notes.append("the sketch's own kernels, compiled to draw y, are not counted.")
    return report


def run(quick: bool) -> list[Report]:
    console = Console(stderr=True)
    sizes = [10_000] if quick else [10_000, 100_000, 1_000_000]
    chosen = os.environ.get("DECODERS")
    names = chosen.split(",") if chosen else [name for name in NAMES if name in solvers.names()]
    report = Report(
        "Decoders on a count sketch, m = d/10, s = d/1000",
        ["solver", "d", "seconds", "MB", "error", "steps", "growth", ""],
    )
    small = Problem.draw(2000)
    problems = {d: Problem.draw(d) for d in sizes}
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solvers.get(name).fit(small.A, small.y, noise_std=NOISE)  # compile
        before = None
        for d in sizes:
            found = measure(name, problems[d])
            growth = f"{found.seconds / before:.1f}" if before else ""
            before = found.seconds
            remark = "warned" if found.warned else ""
            report.add(
                name, d, found.seconds, found.megabytes, found.error, found.n_iter, growth, remark
            )
            console.print(f"{name} d={d}: {found.seconds:.3g} s, error {found.error:.2g}")
    report.notes += [
        "error: ||x_hat - x||^2 / ||x||^2; growth: time over that of the row above.",
        "omp takes 50 columns a pass; MB is the most that NumPy allocates beyond A, x and y.",
    ]
    return [report, cold_start()]
