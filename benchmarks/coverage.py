"""Coverage of 95 % intervals, and false discoveries, of every unbiased decoder.

Part "noise": the level of a private round's noise alone. Part "round": clients, clipping,
distributed discrete Gaussian and modular sums, at (1, 1e-5)- and (4, 1e-5)-DP. Part "kinds":
weighted rounds, dropouts, layers, float32. ``COVERAGE_PARTS=noise`` runs one of them,
``COVERAGE_JOBS=2`` uses so many processes, ``COVERAGE_DRAWS=10`` so many draws, and
``COVERAGE_EPSILONS=1`` only that level.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import solvers
from benchmarks.accuracy import signal
from benchmarks.harness import Report
from sparse_secagg import (
    BlockEncoder,
    CountSketchEncoder,
    GaussianEncoder,
    HadamardEncoder,
    IdentityEncoder,
    SparseSecAgg,
)

D, N_CLIENTS, CLIP, DELTA = 5000, 500, 0.7, 1e-5
MEANS = ("100-sparse", "k^-1", "Laplace", "dense", "heavy")
ENSEMBLES = ("count t=4", "count t=8", "count t=15", "Hadamard", "Gaussian")
COMPRESSIONS = (5, 10, 50)
DECODERS = {
    "amp": solvers.get("amp", debias=True),
    "lasso": solvers.get("working_set", debias=True, tol=1e-5),
    "linear": solvers.get("linear"),
    "median": solvers.get("median"),
}
#: What one decoding tells: shares of intervals that cover, of false discoveries, of entries found.
COLUMNS = ("all", "largest", "at once", "selected", "false", "power")


def run(quick: bool) -> list[Report]:
    jobs = int(os.environ.get("COVERAGE_JOBS", "1"))
    epsilons = tuple(float(e) for e in os.environ.get("COVERAGE_EPSILONS", "1,4").split(","))

    def draws(full: int) -> int:
        return int(os.environ.get("COVERAGE_DRAWS", "2" if quick else str(full)))

    parts = {
        "noise": lambda: grid("noise", draws(200), jobs, (1.0,)),
        "round": lambda: grid("round", draws(40), jobs, epsilons),
        "kinds": lambda: [kinds_of_rounds(draws(40))],
    }
    chosen = os.environ.get("COVERAGE_PARTS", ",".join(parts)).split(",")
    return [report for name in chosen for report in parts[name]()]


# --- means and clients


def mean_of(kind: str, d: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a mean of norm 0.3; "heavy" is a table of users and items."""
    if kind != "heavy":
        return signal(kind, d, rng)
    x = rng.permutation(rng.poisson(20_000 / np.arange(1, d + 1))).astype(float)
    return 0.3 * x / np.linalg.norm(x)


def clients_of(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw clients within the clip whose mean is the given one."""
    apart = rng.standard_normal((N_CLIENTS, len(mean))) * (0.5 / np.sqrt(len(mean)))
    return mean + apart - apart.mean(axis=0)


def encoder_of(name: str) -> Any:
    if name == "Hadamard":
        return HadamardEncoder()
    if name == "Gaussian":
        return GaussianEncoder()
    return CountSketchEncoder(n_rows=int(name.partition("=")[2]))


# --- one decoding


def measured(solver: Any, x: np.ndarray, m: int, shrink: float = 1.0) -> list[float]:
    """Return the shares of COLUMNS for a fitted solver; nan where they say nothing."""
    estimate, std_err = solver.coef_, shrink * np.asarray(solver.std_err_)
    inside = _inside(solvers.confidence_interval(estimate, std_err), x)
    together = solvers.confidence_interval(estimate, std_err, simultaneous=True, n_measurements=m)
    found = solvers.discoveries(estimate, std_err, fdr=0.05, n_measurements=m)
    widened = solvers.selected_intervals(estimate, std_err, found, n_measurements=m)
    adjusted = _inside(widened, x[found])
    null = x == 0
    return [
        inside.mean(),
        inside[np.argsort(-np.abs(x))[:100]].mean(),
        float(_inside(together, x).all()),
        adjusted.mean() if len(found) else 1.0,  # nothing said, nothing missed
        (null[found].mean() if len(found) else 0.0) if null.any() else np.nan,
        np.isin(np.argsort(-np.abs(x))[:100], found).mean(),
    ]


def _inside(intervals: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (intervals[:, 0] <= x) & (x <= intervals[:, 1])


# --- the grid


def cell(part: str, kind: str, name: str, r: int, draws: int, epsilon: float) -> dict[str, Any]:
    """Return the mean over the draws of what each decoder tells."""
    found: dict[str, list[list[float]]] = {key: [] for key in DECODERS}
    for seed in range(draws):
        rng = np.random.default_rng([81, seed])
        x = mean_of(kind, D, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            A, y, noise = sketched(part, x, name, r, epsilon, seed, rng)
            for key, solver in DECODERS.items():
                if key == "median" and not hasattr(A, "row_estimates"):
                    continue
                solver.fit(A, y, noise_std=noise)
                found[key].append(measured(solver, x, A.shape[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {key: np.nanmean(rows, axis=0) for key, rows in found.items() if rows}


def sketched(
    part: str, x: np.ndarray, name: str, r: int, epsilon: float, seed: int, rng: Any
) -> tuple[Any, np.ndarray, float]:
    """Return operator, sketch and noise level of a private round, or of its noise level alone."""
    encoder = encoder_of(name).set_params(n_components=len(x) // r, random_state=seed)
    if part == "noise":
        A = encoder.fit_dimension(len(x)).operator_
        noise = {1.0: 4.05, 4.0: 1.17}[epsilon] * CLIP / N_CLIENTS
        return A, A.matvec(x) + noise * rng.standard_normal(A.shape[0]), noise
    estimator = SparseSecAgg(
        encoder, epsilon=epsilon, delta=DELTA, clip_norm=CLIP, decoder="linear", random_state=seed,
        simulation_seed=seed,
    ).fit(clients_of(x, rng))  # fmt: skip
    return estimator.operator_, estimator.sketch_, estimator.noise_std_


def grid(part: str, draws: int, jobs: int, epsilons: tuple[float, ...]) -> Iterator[Report]:
    for epsilon in epsilons:
        yield grid_at(part, draws, jobs, epsilon)


def grid_at(part: str, draws: int, jobs: int, epsilon: float) -> Report:
    what = "whole private rounds" if part == "round" else "noise level alone"
    report = Report(
        f"95 % intervals, d = {D}, n = {N_CLIENTS}, epsilon = {epsilon:g}: {what}, {draws} draws",
        ["decoder, ensemble, r", *COLUMNS],
    )
    keys = [(name, r, kind) for name in ENSEMBLES for r in COMPRESSIONS for kind in MEANS]
    cells = Parallel(n_jobs=jobs)(
        delayed(cell)(part, kind, name, r, _draws(name, draws), epsilon) for name, r, kind in keys
    )
    table = dict(zip(keys, cells))
    for decoder in DECODERS:
        for name in ENSEMBLES:
            for r in COMPRESSIONS:
                rows = [table[name, r, kind].get(decoder) for kind in MEANS]
                if rows[0] is not None:
                    report.add(f"{decoder}, {name}, {r}", *_ranges(np.array(rows)))
    report.notes += [
        "least and most over the means " + ", ".join(MEANS) + "; in per cent",
        "selected: adjusted intervals of the discoveries at a false discovery rate of 5 %; false: "
        "the rate; power: of the 100 largest",
    ]
    return report


def _draws(name: str, draws: int) -> int:
    return max(draws // 4, 2) if name == "Gaussian" else draws  # a matrix of its own for each


def _ranges(rows: np.ndarray) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        least, most = 100 * np.nanmin(rows, axis=0), 100 * np.nanmax(rows, axis=0)
    return [f"{a:.1f}–{b:.1f}" if np.isfinite(a) else "" for a, b in zip(least, most)]


# --- other rounds


def kinds_of_rounds(draws: int) -> Report:
    """Weighted clients, dropouts, layers and float32, each with debiased message passing."""
    layers = {"a": slice(0, 3500), "b": slice(3500, 4900), "c": slice(4900, D)}
    encoders = {"a": CountSketchEncoder(compression=10, n_rows=8)}
    encoders |= {"b": HadamardEncoder(compression=4), "c": IdentityEncoder()}
    whole = CountSketchEncoder(compression=10, n_rows=8)
    report = Report(
        f"95 % intervals of other rounds, epsilon = 1, {draws} draws", ["round, decoder", *COLUMNS]
    )
    for name in ("plain", "weighted", "dropouts", "layers", "float32"):
        found: dict[str, list[list[float]]] = {"amp": [], "lasso": [], "linear": []}
        for seed in range(draws):
            rng = np.random.default_rng([91, seed])
            X = clients_of(mean_of("k^-1", D, rng), rng)
            options: dict[str, Any] = {}
            x = X.mean(axis=0)
            if name == "weighted":
                weights = rng.uniform(0.2, 1.0, N_CLIENTS)
                options["sample_weight"], x = weights, weights @ X / weights.sum()
            if name == "dropouts":
                gone = rng.choice(N_CLIENTS, 100, replace=False).tolist()
                options["dropouts"], x = gone, np.delete(X, gone, axis=0).mean(axis=0)
            encoder = BlockEncoder(layers, encoder=encoders) if name == "layers" else whole
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator = SparseSecAgg(
                    encoder, epsilon=1.0, delta=DELTA, clip_norm=_clip(name), decoder="linear",
                    random_state=seed, simulation_seed=seed,
                ).fit(X.astype(np.float32) if name == "float32" else X, **options)  # fmt: skip
                for key, rows in found.items():
                    solver = DECODERS[key].fit(
                        estimator.operator_, estimator.sketch_, noise_std=estimator.noise_std_
                    )
                    rows.append(measured(solver, x, estimator.operator_.shape[0]))
                    if name == "layers":
                        inside = _inside(
                            solvers.confidence_interval(solver.coef_, solver.std_err_), x
                        )
                        rows[-1][-1] = min(inside[where].mean() for where in layers.values())
        for key, rows in found.items():
            mean = np.array(rows).mean(axis=0)
            report.add(f"{name}, {key}", *[f"{100 * value:.1f}" for value in mean])
    report.notes.append("layers: in place of power, the layer that is covered least")
    return report


def _clip(name: str) -> float:
    # layers are clipped one by one: none of them may be cut here
    return 2.0 if name == "layers" else CLIP
