"""The planner: bits against brute force and the paper's scheme, and plans carried out."""

from __future__ import annotations

import time
import warnings

import numpy as np

from benchmarks.harness import Report
from sparse_secagg import InfeasibleError, PrivacyWarning, SparseSecAgg, plan
from sparse_secagg.planner import Plan


def schemes(quick: bool) -> Report:
    """Show what is chosen, from d ≪ n²ε² to d ≫ n²ε², and what the paper's scheme needs."""
    report = Report(
        "plans (z = 1, twice the best error)",
        ["d", "n", "scheme", "m", "b", "error", "bits", "paper's", "ms"],
    )
    for d in (10**2, 10**4, 10**6) if quick else [10**k for k in range(2, 8)]:
        for n in (100, 1000, 10_000):
            start = time.perf_counter()
            p = plan(d, n, noise_multiplier=1.0)
            elapsed = 1e3 * (time.perf_counter() - start)
            report.add(
                f"{d:.0e}",
                n,
                p.encoder,
                p.n_components,
                p.n_bits,
                p.relative_error,
                p.bits_per_client,
                _papers_bits(d, n, p.relative_error),
                round(elapsed),
            )
    report.notes.append("error: relative to answering zero")
    report.notes.append("paper's: bits of a count sketch of 15 rows clipped at 1.1c for this error")
    return report


def _papers_bits(d: int, n: int, error: float) -> str:
    try:
        paper = plan(
            d,
            n,
            noise_multiplier=1.0,
            encoder="count_sketch",
            sketch_clip="jl",
            target_error=error,
        )
    except InfeasibleError:
        return "-"
    return f"{paper.bits_per_client:,}"


def measured(quick: bool) -> Report:
    """Compare predicted errors with those of rounds that were run."""
    report = Report(
        "plans carried out: all clients hold one vector as long as the clip",
        ["d", "n", "scheme", "decoder", "m", "b", "predicted", "measured", "ratio"],
    )
    requests = [
        {"d": 2000, "n_clients": 100, "epsilon": 1.0},
        {"d": 600, "n_clients": 300, "epsilon": 4.0, "colluders": 50},
        {"d": 4000, "n_clients": 30, "epsilon": 3.0, "encoder": "count_sketch"},
        {"d": 1000, "n_clients": 40, "encoder": "gaussian", "sketch_clip": "spectral"},
        {"d": 10_000, "n_clients": 200, "epsilon": 4.0, "sparsity": 150},
        {"d": 8000, "n_clients": 250, "epsilon": 6.0, "sparsity": 120, "decoder": "lasso"},
    ]
    for request in requests[::2] if quick else requests:
        p = plan(**request)  # type: ignore[arg-type]
        error = np.mean([_run(p, seed) for seed in range(3 if quick else 12)])
        report.add(
            p.d,
            p.n_clients,
            p.encoder,
            p.decoder,
            p.n_components,
            p.n_bits,
            p.predicted_mse,
            float(error),
            float(error) / p.predicted_mse,
        )
    return report


def _run(p: Plan, seed: int) -> float:
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal(p.d)
    if p.sparsity is not None:
        mean[rng.permutation(p.d)[p.sparsity :]] = 0
    mean *= p.clip_norm / np.linalg.norm(mean)
    estimator = SparseSecAgg.from_plan(p, random_state=seed, simulation_seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        estimator.fit(np.broadcast_to(mean, (p.n_clients, p.d)))
    return float(np.sum((estimator.mean_ - mean) ** 2))


def clips(quick: bool) -> Report:
    """Compare a tight clip of the sketches with the paper's."""
    report = Report(
        "clips: 200 clients of norm 1, d = 10,000, m = 1000, ε = 4",
        ["encoder", "data", "decoder", "noise²", "tight", "jl"],
    )
    draws = 2 if quick else 6
    rng = np.random.default_rng(0)
    same = np.zeros((200, 10_000))
    same[:, :20] = 20**-0.5
    spread = rng.standard_normal(10_000) / np.arange(1, 10_001) + 0.005 * rng.standard_normal(
        same.shape
    )
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    for encoder in ("count_sketch", "hadamard"):
        for name, X in [("same items", same), ("power law", spread)]:
            found = {clip: _errors(X, encoder, clip, draws) for clip in ("tight", "jl")}
            ratio = (found["tight"][1] / found["jl"][1]) ** 2
            for k, decoder in enumerate(("linear", "amp")):
                report.add(
                    encoder,
                    name,
                    decoder,
                    f"{100 * (ratio - 1):+.0f} %",
                    *(float(found[clip][0][k]) for clip in ("tight", "jl")),
                )
    return report


def _errors(X: np.ndarray, encoder: str, clip: str, draws: int) -> tuple[np.ndarray, float]:
    errors = []
    for seed in range(draws):
        estimator = SparseSecAgg(
            encoder,
            epsilon=4.0,
            n_bits=20,
            sketch_clip=clip,
            random_state=seed,
            simulation_seed=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            estimator.fit(X)
        means = estimator.decode("linear"), estimator.mean_
        errors.append([np.sum((mean - X.mean(axis=0)) ** 2) for mean in means])
    return np.mean(errors, axis=0), estimator.noise_std_


def run(quick: bool) -> list[Report]:
    return [schemes(quick), measured(quick), clips(quick)]
