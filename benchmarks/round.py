"""One whole round: time and memory of ``fit``, beside the same steps in plain NumPy.

Dense rows with both encoders, in single and double precision, and sparse rows. ``FORMER=`` a
checkout of another revision is timed in the same run, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import scipy.sparse as sp

from benchmarks.encode import NumpyPeer
from benchmarks.encoders import NumpyCountSketch
from benchmarks.harness import Report, peak_bytes, seconds_interleaved
from sparse_secagg import DiscreteGaussian, PrivacyWarning, SparseSecAgg

#: Fits the rows of a file as it is told and prints the seconds; runs on earlier revisions too.
FORMER = """
import json, sys, time, warnings
import numpy as np, scipy.sparse as sp
from sparse_secagg import SparseSecAgg
warnings.simplefilter("ignore")
path, options = sys.argv[1], json.loads(sys.argv[2])
X = sp.load_npz(path) if path.endswith("npz") else np.load(path)
estimator = SparseSecAgg(**options)
estimator.fit(X[:30])
times = []
for _ in range(2):
    start = time.perf_counter()
    estimator.fit(X)
    times.append(time.perf_counter() - start)
print(min(times))
"""
OPTIONS = {"epsilon": 4.0, "n_bits": 16, "decoder": "linear", "random_state": 0}


def run(quick: bool) -> list[Report]:
    dp.enable_features("contrib")
    warnings.simplefilter("ignore", PrivacyWarning)
    if quick:
        return [dense_rows(10**4, 10, peer_clients=2), sparse_rows(500, 2000, 10)]
    return [dense_rows(10**6, 100, peer_clients=4), sparse_rows(50_000, 200_000, 50)]


def dense_rows(d: int, n: int, peer_clients: int) -> Report:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    report = Report(
        f"one round, d = {d:,}, n = {n}, r = 10, b = 16, ideal secure aggregation",
        ["pipeline", "s", "× NumPy", "× former", "MB", "error"],
    )
    truth = X.mean(axis=0, dtype=np.float64)
    rows: dict[str, Any] = {"single": X, "double": X.astype(np.float64)}
    sketch = _estimator("count_sketch").fit(X)
    peers = {}
    for noise in ("float", "OpenDP"):
        spent, mean = _plain_round(X[:peer_clients], sketch, noise)
        error = _relative_error(mean, X[:peer_clients].mean(axis=0, dtype=np.float64))
        peers[noise] = spent * n / peer_clients, error
    former = _former(X, {})
    fits = {
        (encoder, precision): _estimator(encoder)
        for encoder in ("count_sketch", "auto")
        for precision in rows
    }
    times = seconds_interleaved(
        {key: lambda key=key: fits[key].fit(rows[key[1]]) for key in fits}, repeats=4
    )
    for key, estimator in fits.items():
        peak = peak_bytes(lambda key=key: fits[key].fit(rows[key[1]]))
        report.add(
            f"ours, {key[0]}, {key[1]}",
            times[key],
            peers["float"][0] / times[key],
            "" if former is None else former / times[key],
            round(peak / 1e6),
            _relative_error(estimator.mean_, truth),
        )
        stages = ", ".join(f"{k} {v:.2f}" for k, v in estimator.result_.seconds.items())
        report.notes.append(f"{key[0]}, {key[1]}, last fit: {stages}")
    for noise, (spent, error) in peers.items():
        report.add(f"NumPy, {noise} noise", spent, peers["float"][0] / spent, "", "", error)
    if former is not None:
        report.add("former revision, single", former, peers["float"][0] / former, 1.0, "", "")
    report.notes += [
        f"NumPy: scaled from {peer_clients} clients, whose errors they are; the noise of a client",
        "is the same. MB: peak memory of fit beyond its input.",
    ]
    return report


def sparse_rows(n: int, d: int, compression: float, n_items: int = 20) -> Report:
    """Clients with a few items each: a row costs what its nonzeros cost."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, (n, n_items))
    X = sp.csr_array(
        (np.full(n * n_items, n_items**-0.5), (np.repeat(np.arange(n), n_items), columns.ravel())),
        shape=(n, d),
    )
    X.sum_duplicates()
    estimator = _estimator("auto", compression=compression).fit(X[:30])
    times = seconds_interleaved({"ours": lambda: estimator.fit(X)}, repeats=2)
    former = _former(X, {"compression": compression})
    report = Report(
        f"sparse rows, n = {n:,}, {n_items} items each, d = {d:,}, "
        f"m = {estimator.operator_.shape[0]:,}",
        ["pipeline", "s", "× former", "MB"],
    )
    peak = round(peak_bytes(lambda: estimator.fit(X)) / 1e6)
    report.add("ours", times["ours"], "" if former is None else former / times["ours"], peak)
    if former is not None:
        report.add("former revision", former, 1.0, "")
    stages = ", ".join(f"{k} {v:.2f}" for k, v in estimator.result_.seconds.items())
    report.notes.append(f"last fit: {stages}")
    return report


def _estimator(encoder: str, **options: Any) -> SparseSecAgg:
    return SparseSecAgg(encoder=encoder, **OPTIONS, **options)


def _former(X: Any, options: dict[str, Any]) -> float | None:
    """Return the seconds of the revision that ``FORMER`` names, which knows the count sketch."""
    if "FORMER" not in os.environ:
        return None
    with tempfile.TemporaryDirectory() as folder:
        if sp.issparse(X):
            path = Path(folder) / "rows.npz"
            sp.save_npz(path, X, compressed=False)
        else:
            path = Path(folder) / "rows.npy"
            np.save(path, X)
        former = Path(os.environ["FORMER"]).resolve()
        document = json.dumps({"encoder": "count_sketch", **OPTIONS, **options})
        done = subprocess.run(
            [sys.executable, "-c", FORMER, str(path), document],
            capture_output=True,
            text=True,
            check=True,
            cwd=former,
            env={**os.environ, "PYTHONPATH": str(former)},
        )
    return float(done.stdout.split()[-1])


def _plain_round(X: np.ndarray, estimator: SparseSecAgg, noise: str) -> tuple[float, np.ndarray]:
    """Sketch, rotate, round, add noise and sum client by client; decode the sum."""
    config = estimator.config_
    p = config.mechanism
    sketch = NumpyCountSketch(config.dim, estimator.operator_.n_rows, estimator.operator_.width)
    peer = NumpyPeer(p)
    if noise == "float":  # neither exact nor from a CSPRNG: what a quick experiment would use
        scale = float(p.variance) ** 0.5
        peer.noise = lambda x: np.round(x + peer.rng.normal(scale=scale, size=len(x)))
    server = DiscreteGaussian()
    server.parameters_ = p
    start = time.perf_counter()
    total = np.zeros(p.padded_dim, dtype=np.int64)
    for x in X:
        clipped = x * min(1.0, config.clip_norm / np.linalg.norm(x))
        total = (total + peer.encode(sketch.encode(clipped)).astype(np.int64)) % p.modulus
    mean = sketch.decode(server.decode(total, len(X)))
    return time.perf_counter() - start, mean


def _relative_error(estimate: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sum((estimate - truth) ** 2) / np.sum(truth**2))
