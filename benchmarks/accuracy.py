"""Relative error of the decoders: a grid of means, ensembles and noise; layers; heavy hitters.

One private mean each: n = 1000 clients, ‖mean‖ = 0.3 of the clip, noise of standard deviation
1.1/(nε) on each coordinate of the sketch (ε-zCDP in the sense ε²/2), d = 10 000, m = 2000.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import solvers
from benchmarks.harness import Report
from sparse_secagg import CountSketchEncoder, GaussianEncoder, HadamardEncoder

NORM, N_CLIENTS = 0.3, 1000
SIGNALS = ["20-sparse", "100-sparse", "300-sparse", "k^-2", "k^-1", "k^-0.7", "Laplace", "dense"]
ENCODERS: dict[str, Any] = {
    "Gaussian": GaussianEncoder(),
    "Hadamard": HadamardEncoder(),
    "count t=4": CountSketchEncoder(n_rows=4),
    "count t=8": CountSketchEncoder(n_rows=8),
    "count t=15": CountSketchEncoder(n_rows=15),
}
DRAWS = 5
DECODERS = ["linear", "ridge", "working_set", "amp", "auto"]


def run(quick: bool) -> list[Report]:
    d, m = (2000, 400) if quick else (10_000, 2000)
    encoders = ["count t=15"] if quick else list(ENCODERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [
            *[grid(epsilon, d, m, encoders, 1 if quick else DRAWS) for epsilon in (1.0, 0.2)],
            layer((98, 32) if quick else (784, 128)),
            heavy_hitters(max_files=100 if quick else None),
        ]


def relative_error(estimate: np.ndarray, x: np.ndarray) -> float:
    return float(np.sum((estimate - x) ** 2) / np.sum(x**2))


# --- the grid


def grid(epsilon: float, d: int, m: int, encoders: list[str], draws: int) -> Report:
    noise = 1.1 / (N_CLIENTS * epsilon)
    report = Report(
        f"mean relative error of {draws} draws, d = {d:,}, m = {m:,}, zCDP ε = {epsilon:g}",
        ["mean, encoder", *DECODERS, "choice", "support", "Bayes", "to support", "to best"],
    )
    to_best, near, linear = [], [], []
    for name in encoders:
        operators = [
            ENCODERS[name].set_params(n_components=m, random_state=seed).fit_dimension(d).operator_
            for seed in range(draws)
        ]
        for kind in SIGNALS:
            rows, choices = [], []
            for seed, A in enumerate(operators):
                rng = np.random.default_rng([2, seed])
                x = signal(kind, d, rng)
                y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
                fitted = {name: solvers.get(name).fit(A, y, noise_std=noise) for name in DECODERS}
                errors = {name: relative_error(each.coef_, x) for name, each in fitted.items()}
                to_best.append(errors["amp"] / min(errors["linear"], errors["working_set"]))
                near.append(errors["auto"] <= 1.1 * min(errors.values()))
                linear.append(errors["auto"] / errors["linear"])
                choices.append(str(fitted["auto"].choice_))
                sparse = kind.endswith("-sparse")
                limits = (on_support(A, y, x), bayes(x, noise, rng)) if sparse else (np.nan, np.nan)
                rows.append([*errors.values(), *limits, to_best[-1]])
            *mean, support, optimum, _ = np.mean(rows, axis=0)
            amp = mean[DECODERS.index("amp")]
            report.add(
                f"{kind}, {name}",
                *mean,
                max(set(choices), key=choices.count),
                *([support, optimum, amp / support] if np.isfinite(support) else ["", "", ""]),
                max(row[-1] for row in rows),
            )
    report.notes += [
        "working_set is the Lasso with alpha from the known noise; choice: what auto mostly chose",
        "support: least squares on the true support; Bayes: the best estimate of x from x + noise, "
        "with no other coordinate in the way, given sparsity and variance; to support: amp over "
        "support",
        "to best: amp over the better of linear and Lasso, worst draw; largest of the table: "
        f"{max(to_best):.3f}",
        f"auto within 10 % of the best decoder: {np.mean(near):.1%} of the draws; at most "
        f"{max(linear):.3f} times the linear decoder",
    ]
    return report


def bayes(x: np.ndarray, noise: float, rng: np.random.Generator) -> float:
    """Return the error of E[x | x + noise] for s normal entries in d, s and their size known."""
    z = x + noise * rng.standard_normal(len(x))
    s, v, w = np.count_nonzero(x), NORM**2 / np.count_nonzero(x), noise**2
    exponent = 0.5 * z**2 * (1 / w - 1 / (v + w)) + 0.5 * np.log(w / (v + w))
    active = 1 / (1 + (len(x) - s) / s * np.exp(-np.minimum(exponent, 700)))
    return relative_error(active * v / (v + w) * z, x)


def signal(kind: str, d: int, rng: np.random.Generator) -> np.ndarray:
    if kind.endswith("-sparse"):
        s = int(kind.split("-")[0])
        x = np.zeros(d)
        x[rng.choice(d, s, replace=False)] = rng.standard_normal(s)
    elif kind.startswith("k^"):
        x = rng.permutation(np.arange(1, d + 1) ** float(kind[2:])) * rng.choice([-1, 1], d)
    else:
        x = rng.laplace(size=d) if kind == "Laplace" else rng.standard_normal(d)
    return NORM * x / np.linalg.norm(x)


def on_support(A: Any, y: np.ndarray, x: np.ndarray) -> float:
    support = np.flatnonzero(x)
    estimate = np.zeros(len(x))
    estimate[support] = np.linalg.lstsq(A.columns(support), y, rcond=None)[0]
    return relative_error(estimate, x)


# --- a layer of low rank


def layer(shape: tuple[int, int], rank: int = 10, noise: float = 1.1e-3) -> Report:
    """Rank 10 with 95 % of the energy plus a small full-rank part, as in a first training round."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((shape[0], rank)))[0] * np.exp(-0.3 * np.arange(rank))
    low = U @ np.linalg.qr(rng.standard_normal((shape[1], rank)))[0].T
    full = rng.standard_normal(shape)
    x = np.sqrt(0.95) * low / np.linalg.norm(low) + np.sqrt(0.05) * full / np.linalg.norm(full)
    x = 0.45 * x.ravel()
    encoder = CountSketchEncoder(compression=10, n_rows=8, random_state=0)
    A = encoder.fit_dimension(len(x)).operator_
    y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
    report = Report(
        f"{shape[0]}×{shape[1]} layer, rank {rank} plus 5 % full rank, count sketch t=8, r=10",
        ["decoder", "relative error", "cosine"],
    )
    decoders: dict[str, Any] = {
        "linear": solvers.get("linear"),
        "ridge": solvers.get("ridge"),
        "amp, sparse": solvers.get("amp"),
        "amp, low_rank": solvers.get("amp", denoiser="low_rank", shapes=[shape]),
        "amp, auto": solvers.get("amp", denoiser="auto", shapes=[shape]),
    }
    for name, decoder in decoders.items():
        found = decoder.fit(A, y, noise_std=noise).coef_
        cosine = float(found @ x / (np.linalg.norm(found) * np.linalg.norm(x) or 1))
        report.add(name, relative_error(found, x), cosine)
    report.add("zero vector", 1.0, 0.0)
    report.notes.append(f"auto chose: {decoders['amp, auto'].choice_}")
    return report


# --- heavy hitters


def heavy_hitters(max_files: int | None, z: float = 4.05, compression: int = 10) -> Report:
    """Which identifiers Python's standard library uses, one client a source file."""
    from experiments.datasets import python_identifiers
    from solvers.denoisers import Sparse

    data = python_identifiers(max_files=max_files)
    n, d = data.presence.shape
    x = np.asarray(data.presence.mean(axis=0)).ravel()
    top = set(np.argsort(-x)[:100])
    noise = z * 1.1 / n
    rng = np.random.default_rng(0)
    encoder = CountSketchEncoder(compression=compression, n_rows=8, random_state=0)
    A = encoder.fit_dimension(d).operator_
    y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
    report = Report(
        f"heavy hitters: identifiers of Python's standard library, {n:,} clients, {d:,} names, "
        f"r = {compression}, z = {z}",
        ["decoder", "relative error", "recall of the top 100"],
    )

    def row(name: str, estimate: np.ndarray) -> None:
        recall = len(top & set(np.argsort(-estimate)[:100])) / 100
        report.add(name, relative_error(estimate, x), f"{recall:.0%}")

    decoders: dict[str, Any] = {name: solvers.get(name) for name in ["median", *DECODERS]}
    decoders["amp, positive"] = solvers.get("amp", denoiser=Sparse(positive=True))
    for name, decoder in decoders.items():
        row(name, decoder.fit(A, y, noise_std=noise).coef_)
    row("no compression, central noise", x + z / n * rng.standard_normal(d))
    report.notes += [
        f"auto chose {decoders['auto'].choice_}: {decoders['auto'].choice_.reason}",
        f"noise per sketch coordinate {noise:.3g}, Gaussian; z = 4.05 is (1, 1e-5)-DP",
    ]
    return report
