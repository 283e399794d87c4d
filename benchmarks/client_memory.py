"""What a client needs for one message: memory at its peak, update included, and time.

Every case runs in a process of its own, which has made a small message before, so that what is
measured is the update and the work on it. With ``BENCHMARK_REVISION`` set to a revision of this
repository, that revision is measured beside, in the same run.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.harness import Report

ROOT = Path(__file__).resolve().parents[1]

_CLIENT = """
import json, sys, time, warnings
import numpy as np
import sparse_secagg as s
warnings.simplefilter("ignore")
d, kind = int(sys.argv[1]), sys.argv[2]

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith(name))

def config(d):
    Encoder = s.CountSketchEncoder if kind == "count sketch" else s.HadamardEncoder
    mechanism = s.DiscreteGaussian(epsilon=1.0, n_bits=18)
    return s.RoundConfig.create(
        dim=d, n_clients=1000, encoder=Encoder(compression=100), mechanism=mechanism).to_json()

policy = s.ClientPolicy(max_epsilon=2.0, max_delta=1e-4)
s.client_encode(config(10_000), np.ones(10_000, np.float32), policy=policy)
s.client_encode(config(10_000), np.ones(10_000, np.float32), policy=policy)
text = config(d)  # the server's work; its sketch is made anew by the client
import gc; gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
x = np.full(d, 1e-3, dtype=np.float32)
start = time.perf_counter(), time.process_time()
s.client_encode(text, x, policy=policy)
seconds = time.perf_counter() - start[0], time.process_time() - start[1]
print(json.dumps([(status("VmHWM") - before) / x.nbytes, *seconds]))
"""


def run(quick: bool) -> list[Report]:
    revision = os.environ.get("BENCHMARK_REVISION")
    dims = (10**6,) if quick else (10**7, 10**8)
    columns = ["d, sketch, r = 100", "peak / update", "seconds", "CPU s"]
    with tempfile.TemporaryDirectory() as folder:
        sources = {"": ROOT}
        if revision is not None:
            columns += [f"peak, {revision}", "seconds", "CPU s"]
            sources[revision] = _checked_out(revision, Path(folder))
        report = Report("One client's message: float32 update, 18 bits", columns)
        for d in dims:
            for kind in ("count sketch", "hadamard"):
                found = [_measure(source, d, kind) for source in sources.values()]
                report.add(f"{d:.0e} {kind}", *[value for pair in found for value in pair])
    report.notes = [
        "peak: growth of the process's resident memory, update included, over the update's bytes.",
        "The sketch's signs and rows are made from the seed within the time.",
    ]
    return [report]


def _measure(source: Path, d: int, kind: str) -> list[float]:
    env = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(d), kind],
        env=env, cwd=source, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def _checked_out(revision: str, folder: Path) -> Path:
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder / revision, filter="data")
    return folder / revision
