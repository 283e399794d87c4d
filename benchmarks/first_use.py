"""What the first use costs: import and first fit, import and first message of a client."""

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
#: A client that lives for one message; the second message shows what the first had to load.
MESSAGE = """
import sys, time
if {bare}:
    for name in ("numba", "llvmlite", "scipy", "sklearn", "joblib", "threadpoolctl"):
        sys.modules[name] = None
start = time.perf_counter()
from sparse_secagg import ClientPolicy, client_encode
imported = time.perf_counter()
import numpy as np
x = np.full({d}, 1e-3, dtype=np.float32)
times = [time.perf_counter()]
for _ in range(2):
    policy = ClientPolicy(max_epsilon=3.0, max_delta=1e-4)
    client_encode({config!r}, x, policy=policy)
    times.append(time.perf_counter())
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(imported - start, times[1] - times[0], times[2] - times[1], peak)
"""
CONFIG = """
from sparse_secagg import RoundSpec
spec = RoundSpec(epsilon=2.0, encoder={encoder!r}, compression=100, n_bits=18)
print(spec.config({d}, 1000, random_state=0).to_json())
"""


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
    return [report, _clients(10**5 if quick else 10**6)]


def _clients(d: int) -> Report:
    report = Report(
        f"a client's first message, d = {d:.0e}, r = 100, each in a process of its own",
        ["kernels", "encoder", "import, s", "first, s", "second, s", "peak MB"],
    )
    with tempfile.TemporaryDirectory() as folder:
        for encoder in ("count_sketch", "hadamard"):
            config = _output(CONFIG.format(encoder=encoder, d=d), folder).strip()
            for kernels, bare in (("numba", False), ("NumPy, nothing else installed", True)):
                code = MESSAGE.format(bare=bare, d=d, config=config)
                if not bare:
                    _times(code, folder)  # compiles
                report.add(kernels, encoder, *_times(code, folder))
    return report


def _times(code: str, cache: str) -> list[float]:
    return [float(word) for word in _output(code, cache).split()]


def _output(code: str, cache: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout
