"""What the first use costs: import, first fit after an installation and of later processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Report

ROOT = Path(__file__).resolve().parent.parent
FIT = """
import time, warnings
start = time.perf_counter()
import numpy as np
from sparse_secagg import SparseSecAgg
imported = time.perf_counter()
warnings.simplefilter("ignore")
SparseSecAgg(epsilon=8.0, decoder="linear", random_state=0).fit(0.01 * np.ones((6, 3000)))
fitted = time.perf_counter()
from solvers.compiling_kernels import notice
print(imported - start, fitted - imported, notice.seconds)
"""
WARM_UP = "from sparse_secagg.warmup import warm_up; print(0, 0, warm_up())"


def run(quick: bool) -> list[Report]:
    report = Report(
        "first use, each in a process of its own, s", ["what", "import", "fit", "compiling"]
    )
    with tempfile.TemporaryDirectory() as folder:
        report.add("first fit, nothing compiled", *_times(FIT, folder))
        report.add("first fit, compiled before", *_times(FIT, folder))
        if not quick:
            report.add("sparse-secagg warmup", "", "", _times(WARM_UP, f"{folder}/warm")[2])
            report.add("first fit after it", *_times(FIT, f"{folder}/warm"))
    return [report]


def _times(code: str, cache: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)},
    )
    return [float(word) for word in done.stdout.split()]
