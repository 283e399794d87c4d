"""The paper's theorems, measured: how the error grows with n, ε, d, m and s.

ε is ``zcdp_epsilon`` = 1/z throughout, clients are aligned (all hold μ) and ‖μ‖ = c = 1, the worst
case of the main scheme's bound.
"""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.harness import Report
from sparse_secagg import CountSketchEncoder, GaussianEncoder, PrivacyWarning, SparseSecAgg

N_BITS = 30  # bits are not the subject here


def error(mu: np.ndarray, n: int, *, encoder, epsilon: float, seeds: range, **parameters) -> float:
    """Mean of ‖μ̂ − μ‖² over fresh sketches and noise."""
    X = np.broadcast_to(mu, (n, len(mu)))
    errors = []
    for seed in seeds:
        estimator = SparseSecAgg(
            encoder,
            noise_multiplier=0.0 if np.isinf(epsilon) else 1 / epsilon,
            n_bits=N_BITS,
            random_state=seed,
            simulation_seed=seed,
            **{"decoder": "linear", **parameters},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            errors.append(np.sum((estimator.fit(X).mean_ - mu) ** 2))
    return float(np.mean(errors))


def main_scheme(
    d: int, n: int, epsilon: float, seeds: range, m: float | None = None, sketch_clip: str = "jl"
) -> float:
    """Error of count sketch, the paper's clip and linear decoder at m = n²ε² (or as given)."""
    m = n**2 * epsilon**2 if m is None else m
    mu = np.random.default_rng(d).standard_normal(d)
    encoder = CountSketchEncoder(n_components=round(m), n_rows=10)
    return error(
        mu / np.linalg.norm(mu),
        n,
        encoder=encoder,
        epsilon=epsilon,
        seeds=seeds,
        sketch_clip=sketch_clip,
    )


def sparse_scheme(d: int, s: int, seeds: range, m: int = 600, n: int = 50) -> float:
    """Error of Gaussian ensemble and Lasso at alpha from the noise, for s equal entries."""
    mu = np.zeros(d)
    mu[np.random.default_rng(s).choice(d, s, replace=False)] = s**-0.5
    encoder = GaussianEncoder(n_components=m)
    return error(mu, n, encoder=encoder, epsilon=2.0, seeds=seeds, decoder="working_set")


def slope(x: list[float], y: list[float]) -> float:
    """Fitted exponent of y as a power of x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def measure(quick: bool) -> dict[str, tuple[float, float]]:
    """Return {claim: (measured, expected)}."""
    seeds = range(4 if quick else 12)
    scale = 1 if quick else 2
    ns = [20 * scale, 40 * scale, 80 * scale]
    epsilons = [0.25, 0.5, 1.0]
    ds = [2000, 4000, 8000]
    ms = [100, 400, 1600]
    d, n = 2000 * scale**2, 40 * scale
    by_n = [main_scheme(d, k, 0.5, seeds) for k in ns]
    plain = error(np.eye(d)[0], n, encoder="identity", epsilon=0.5, seeds=seeds)
    dims, sparsities = [1000, 4000], [5, 20]
    by_d = [sparse_scheme(k, 10, seeds) for k in dims]
    by_s = [sparse_scheme(2000, s, seeds) for s in sparsities]
    return {
        "slope in n at m = n²ε²": (slope(ns, by_n), -2.0),
        "slope in ε at m = n²ε²": (
            slope(epsilons, [main_scheme(d, n, e, seeds) for e in epsilons]),
            -2.0,
        ),
        "slope in d at m = n²ε²": (slope(ds, [main_scheme(k, 40, 1.0, seeds) for k in ds]), 1.0),
        "slope in m without noise": (
            slope(ms, [main_scheme(4000, 4, np.inf, seeds, m=m) for m in ms]),
            -1.0,
        ),
        "error over that without compression": (by_n[1] / plain, 2.21),
        "the same with a tight clip": (
            main_scheme(d, n, 0.5, seeds, sketch_clip="tight") / plain,
            2.0,
        ),
        "sparse scheme: error at 4d over error at d": (
            by_d[1] / by_d[0],
            np.log(4000) / np.log(1000),
        ),
        "sparse scheme: slope in s": (slope(sparsities, by_s), 1.0),
    }


def run(quick: bool) -> list[Report]:
    report = Report("the theorems, measured (ε is zcdp_epsilon)", ["claim", "measured", "expected"])
    for claim, (measured, expected) in measure(quick).items():
        report.add(claim, measured, float(expected))
    report.notes.append(
        "1/m of compression and 1.1² of the sketch clip: 1 + 1.21 = 2.21; clipped tightly, 2"
    )
    return [report]
