"""One whole round at d = 10⁶: time and memory of ``fit``, against the same steps in plain NumPy."""

from __future__ import annotations

import time
import warnings

import numpy as np
import opendp.prelude as dp

from benchmarks.encode import NumpyPeer
from benchmarks.encoders import NumpyCountSketch
from benchmarks.harness import Report, peak_bytes
from sparse_secagg import DiscreteGaussian, PrivacyWarning, SparseSecAgg


def run(quick: bool) -> list[Report]:
    dp.enable_features("contrib")
    d, n = (10**4, 10) if quick else (10**6, 100)
    return [whole_round(d, n, peer_clients=2 if quick else 4)]


def whole_round(d: int, n: int, peer_clients: int) -> Report:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    estimator = SparseSecAgg(epsilon=4.0, n_bits=16, decoder="linear", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        estimator.fit(X[:2])  # kernels compile here, outside the clock
    start = time.perf_counter()
    estimator.fit(X)
    ours = time.perf_counter() - start
    stages = ", ".join(f"{k} {v:.2f}" for k, v in estimator.result_.seconds.items())
    report = Report(
        f"one round, d = {d:,}, n = {n}, r = 10, b = 16, ideal secure aggregation",
        ["pipeline", "ms a client", "times slower", "‖μ̂−μ‖²/‖μ‖²"],
    )
    truth = X.mean(axis=0, dtype=np.float64)
    expected = _relative_error(estimator.mean_, truth)
    report.add("ours, CSPRNG and exact noise", 1e3 * ours / n, 1.0, expected)
    for noise in ("float", "opendp"):
        seconds, mean = _plain_round(X[:peer_clients], estimator, noise)
        error = _relative_error(mean, X[:peer_clients].mean(axis=0, dtype=np.float64))
        report.add(
            f"plain NumPy, {noise} noise ({peer_clients} clients timed)",
            1e3 * seconds / peer_clients,
            seconds / peer_clients / (ours / n),
            error,
        )
    peak = peak_bytes(lambda: estimator.fit(X[: min(n, 64)]))
    report.notes += [
        f"ours, whole fit: {ours:.2f} s; by stage: {stages}",
        f"peak memory of fit beyond its input: {peak / 1e6:.0f} MB",
        "errors of the peers are those of their few clients; the noise per client is the same",
    ]
    return report


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
