"""Message passing beside its limit: heavy hitters, tables of users and items, priors, two rounds.

The limit is state evolution with the same denoiser, averaged over 30 draws. Heavy hitters are the
words that Stack Exchange users write where ``SPARSE_SECAGG_DATA`` names its folder, else the
identifiers in Python's standard library: unit-norm presence vectors, noise 4.05/n on each
coordinate of the mean sketch, which is (1, 1e-5)-DP. ``LIMITS_PARTS=heavy,tables`` runs some of
the parts: heavy, tables, predictions, rows, rounds, time; and ``recorded``, the last round of the
recording that ``LIMITS_RECORDING`` names, which is not among them by default.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import solvers
from benchmarks.harness import Report
from sparse_secagg import CountSketchEncoder, GaussianEncoder, HadamardEncoder

Z = 4.05
ENSEMBLES: dict[str, Any] = {
    "count t=8": CountSketchEncoder(n_rows=8),
    "count t=15": CountSketchEncoder(n_rows=15),
    "Hadamard": HadamardEncoder(),
}
COMPRESSIONS = (10, 50, 200)


def run(quick: bool) -> list[Report]:
    draws = 3 if quick else 20
    parts: dict[str, Callable[[], Report]] = {
        "heavy": lambda: heavy_hitters(draws, quick),
        "tables": lambda: tables(draws=2 if quick else 50, n_items=5000 if quick else 50_000),
        "predictions": lambda: predictions(5 if quick else 30, draws=4 if quick else 100),
        "rows": lambda: rows_of_embeddings(2 if quick else 10),
        "rounds": lambda: two_rounds(draws, quick),
        "time": lambda: time_of_scores(10**5 if quick else 10**6, repeats=2 if quick else 5),
    }
    chosen = os.environ.get("LIMITS_PARTS", ",".join(parts)).split(",")
    parts["recorded"] = lambda: recorded_round(1 if quick else 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [parts[name]() for name in chosen]


def relative_error(estimate: np.ndarray, x: np.ndarray) -> float:
    return float(np.sum((estimate - x) ** 2) / np.sum(x**2))


def operator(encoder: Any, d: int, m: int, seed: int) -> Any:
    return encoder.set_params(n_components=m, random_state=seed).fit_dimension(d).operator_


def limit(x: np.ndarray, noise: float, m: int, name: str, **params: Any) -> Any:
    """Return the state evolution of message passing with these parameters."""
    ensemble = "hadamard" if name == "Hadamard" else "independent"
    return solvers.state_evolution(x, noise, m, ensemble=ensemble, **params)


# --- heavy hitters


def heavy_hitter_mean(quick: bool) -> tuple[np.ndarray, int, list[str], str]:
    """Return the mean, the number of clients, the items and what they are."""
    from experiments import datasets

    if os.environ.get("SPARSE_SECAGG_DATA") and not quick:
        data = datasets.client_words(datasets.stack_exchange())
        what = "words of Stack Exchange users"
    else:
        data = datasets.python_identifiers(max_files=100 if quick else None)
        what = "identifiers of Python's standard library"
    users = (data.presence > 0).sum(axis=0)
    kept = np.sort(np.argsort(-users, kind="stable")[:50_000])  # that most of them hold
    items = [data.vocabulary[j] for j in kept]
    presence = data.on(datasets.ListedItems(tuple(items)))
    return np.asarray(presence.mean(axis=0)).ravel(), presence.shape[0], items, what


def heavy_hitters(draws: int, quick: bool) -> Report:
    """With no prior, with the ranks of words in Python's documentation, and with random scores."""
    from experiments.datasets import public_word_scores

    x, n, items, what = heavy_hitter_mean(quick)
    d, noise = len(x), Z / n
    random = np.random.default_rng(11).permutation(d)
    priors = {
        "none": None,
        "docstrings": solvers.priors.Scores(public_word_scores(items)),
        "random": solvers.priors.Scores(random),
    }
    report = Report(
        f"heavy hitters: {what}, {n:,} clients, d = {d:,}, {draws} draws",
        ["prior, r, ensemble", "limit", "mean", "ratio", "least", "most", "top", "sure"],
    )
    top = np.argsort(-x)[:100]
    for prior_name, prior in priors.items():
        for r in COMPRESSIONS:
            for name, encoder in ENSEMBLES.items():
                bound = limit(x, noise, d // r, name, denoiser="positive", prior=prior)
                errors, found, trusted = [], [], 0
                for seed in range(draws):
                    A = operator(encoder, d, d // r, 500 + seed)
                    rng = np.random.default_rng([21, seed])
                    y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
                    solver = solvers.get("amp", denoiser="positive", prior=prior)
                    solver.fit(A, y, noise_std=noise)
                    errors.append(relative_error(solver.coef_, x))
                    found.append(np.isin(top, np.argsort(-solver.coef_)[:100]).mean())
                    trusted += solver.trusted_
                report.add(
                    f"{prior_name}, {r}, {name}",
                    bound.relative_error,
                    float(np.mean(errors)),
                    float(np.mean(errors)) / bound.relative_error,
                    min(errors),
                    max(errors),
                    f"{np.mean(found):.0%}",
                    f"{trusted}/{draws}",
                )
    report.notes.append("top: recall of the 100 largest; sure: draws that the solver trusts")
    return report


# --- tables of users and items


def table_mean(n_items: int, per_user: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the mean of 50 000 users who hold items by Zipf's law, as vectors of norm 1."""
    n_users = 50_000
    law = 1.0 / np.arange(1, n_items + 1)
    holds = -np.expm1(per_user * np.log1p(-law / law.sum()))
    return rng.permutation(rng.binomial(n_users, holds)) / (n_users * np.sqrt(per_user))


def tables(draws: int, n_items: int) -> Report:
    report = Report(
        f"tables by Zipf's law, 50 000 users, {n_items:,} items, {draws} draws",
        ["items, r, rows", "limit", "mean", "most", "above 1.5", "and trusted"],
    )
    noise = Z / 50_000
    for per_user in (10, 20):
        for r in (10, 50):
            for t in (8, 15):
                limits, errors, trusted = [], [], []
                for seed in range(1000, 1000 + draws):
                    rng = np.random.default_rng([31, seed])
                    x = table_mean(n_items, per_user, rng)
                    A = operator(CountSketchEncoder(n_rows=t), n_items, n_items // r, seed)
                    y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
                    solver = solvers.get("amp", denoiser="positive").fit(A, y, noise_std=noise)
                    if len(limits) < 3:  # tables of the same law have the same limit
                        limits.append(limit(x, noise, n_items // r, "", denoiser="positive"))
                    errors.append(relative_error(solver.coef_, x))
                    trusted.append(solver.trusted_)
                bound = float(np.mean([each.relative_error for each in limits]))
                ratios = np.array(errors) / bound
                report.add(
                    f"{per_user}, {r}, {t}",
                    bound,
                    float(np.mean(errors)),
                    float(ratios.max()),
                    int(np.sum(ratios > 1.5)),
                    int(np.sum((ratios > 1.5) & np.array(trusted))),
                )
    report.notes.append("most: the largest error of a draw over the limit")
    return report


# --- state evolution as a prediction


def problems(n: int) -> Iterator[tuple[str, np.ndarray, float, int, str]]:
    """Yield varied problems: kind, mean, noise, measurements and ensemble.

    Each has three measurements for a nonzero entry, or more. A control comes after them, one that
    was drawn with two: it lies on the phase transition, where a draw either recovers the mean or
    does not, so that no error is typical.
    """
    kinds = ["20-sparse", "100-sparse", "300-sparse", "k^-2", "k^-1", "k^-0.7", "Laplace", "dense"]
    ensembles = ["count t=8", "count t=15", "Hadamard", "Gaussian"]
    control = None
    for k in range(n):
        rng = np.random.default_rng([41, k])
        d = int(rng.choice([3000, 6000, 10_000]))
        x = signal(kinds[k % len(kinds)], d, rng)
        noise = 1.1e-3 * float(rng.choice([0.5, 1.0, 3.0]))
        m = d // int(rng.choice([3, 5, 10]))
        nonzero = int(np.count_nonzero(x))
        if nonzero < d and m < 3 * nonzero:
            control = (f"control: {kinds[k % len(kinds)]}", x, noise, m, ensembles[k % 4])
            m = 3 * nonzero
        yield kinds[k % len(kinds)], x, noise, m, ensembles[k % 4]
    if control is not None:
        yield control


def signal(kind: str, d: int, rng: np.random.Generator) -> np.ndarray:
    from benchmarks.accuracy import signal as draw

    return draw(kind, d, rng)


def predictions(n: int, draws: int) -> Report:
    report = Report(
        f"state evolution as a prediction: mean error of {draws} draws",
        ["mean, ensemble, d, m", "predicted", "measured", "ratio", "std err"],
    )
    encoders = {**ENSEMBLES, "Gaussian": GaussianEncoder()}
    ratios = []
    for kind, x, noise, m, name in problems(n):
        errors = []
        for seed in range(draws):
            A = operator(encoders[name], len(x), m, seed)
            rng = np.random.default_rng([42, seed])
            y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
            errors.append(relative_error(solvers.get("amp").fit(A, y, noise_std=noise).coef_, x))
        bound = limit(x, noise, A.shape[0], name, n_draws=2 * draws).relative_error
        ratio = float(np.mean(errors)) / bound
        if not kind.startswith("control"):
            ratios.append(ratio)
        report.add(
            f"{kind}, {name}, {len(x)}, {m}",
            bound,
            float(np.mean(errors)),
            ratio,
            float(np.std(errors, ddof=1) / np.sqrt(draws)) / bound,
        )
    report.notes.append(
        f"within 5 %: {np.mean(np.abs(np.array(ratios) - 1) <= 0.05):.0%}; "
        f"from {min(ratios):.3f} to {max(ratios):.3f}"
    )
    return report


# --- rows that are active together


def rows_of_embeddings(draws: int) -> Report:
    """4000 rows of 50 entries, 100 of them active: error and debiased τ with groups by row."""
    shape, active = (4000, 50), 100
    report = Report(
        f"{shape[0]} rows of {shape[1]}, {active} active, {draws} draws",
        ["r, ensemble", "plain", "groups", "ratio", "τ plain", "τ groups"],
    )
    d = shape[0] * shape[1]
    noise = 1.1e-3
    for r in (10, 50):
        for name, encoder in ENSEMBLES.items():
            values = []
            for seed in range(draws):
                rng = np.random.default_rng([51, seed])
                x = np.zeros(shape)
                rows = rng.choice(shape[0], active, replace=False)
                x[rows] = rng.standard_normal((active, shape[1])) * rng.gamma(1.0, size=(active, 1))
                x = 0.3 * x.ravel() / np.linalg.norm(x)
                A = operator(encoder, d, d // r, seed)
                y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
                plain = solvers.get("amp").fit(A, y, noise_std=noise)
                groups = solvers.get("amp", prior=solvers.priors.Groups(shapes=[shape]))
                groups.fit(A, y, noise_std=noise)
                values.append(
                    [
                        relative_error(plain.coef_, x),
                        relative_error(groups.coef_, x),
                        plain.effective_noise_,
                        groups.effective_noise_,
                    ]
                )
            mean = np.mean(values, axis=0)
            report.add(f"{r}, {name}", mean[0], mean[1], mean[1] / mean[0], mean[2], mean[3])
    return report


def recorded_round(draws: int) -> Report:
    """Decode an update of a network at z = 0.1: groups by row, low rank, the choice by layer."""
    from experiments.recording import Recording

    recording = Recording.open(os.environ["LIMITS_RECORDING"])
    number, shapes = recording.rounds[-1], list(recording.shapes.values())
    clip = recording.clip_norm(number) or 1.0
    X = np.asarray(recording[number], dtype=np.float64)
    X *= np.minimum(1.0, clip / np.linalg.norm(X, axis=1))[:, None]
    x, noise = X.mean(axis=0), 0.1 * clip / len(X)
    groups = solvers.priors.Groups(shapes=shapes)
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "groups by row": {"prior": groups},
        "low rank": {"denoiser": "low_rank", "shapes": shapes},
        "auto, by layer": {"denoiser": "auto", "shapes": shapes},
    }
    report = Report(
        f"recorded round {number}: {recording.metadata.model}, {len(X)} clients, d = {len(x):,}",
        ["r, decoder", "error", "error of debiased", "τ", "sure"],
    )
    for r in (10, 50):
        for kind, params in kinds.items():
            values = []
            for seed in range(draws):
                A = operator(CountSketchEncoder(n_rows=8), len(x), len(x) // r, seed)
                rng = np.random.default_rng([101, seed])
                y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
                found = solvers.get("amp", **params).fit(A, y, noise_std=noise)
                unbiased = solvers.get("amp", debias=True, **params).fit(A, y, noise_std=noise)
                errors = [relative_error(each.coef_, x) for each in (found, unbiased)]
                values.append([*errors, found.effective_noise_, found.trusted_])
            mean = np.mean(values, axis=0)
            report.add(f"{r}, {kind}", *map(float, mean[:3]), f"{mean[3]:.0%}")
    report.notes.append(f"noise {noise:.4g} on each coordinate; count sketch of 8 rows")
    return report


# --- two rounds


def two_rounds(draws: int, quick: bool) -> Report:
    """Decode halves of the users, each in a round of its own, alone and together."""
    x, n, _, what = heavy_hitter_mean(quick)
    d, noise = len(x), Z / (n / 2)
    report = Report(
        f"two rounds of half the users each: {what}, {draws} draws",
        ["r, ensemble", "alone", "joint", "limit of both", "to limit", "below the better"],
    )
    for r in (10, 50):
        for name, encoder in ENSEMBLES.items():
            m = d // r
            bound = solvers.state_evolution(
                x,
                [noise, noise],
                [m, m],
                ensemble="hadamard" if name == "Hadamard" else "independent",
                denoiser="positive",
            )
            alone, joint, below = [], [], 0
            for seed in range(draws):
                rng = np.random.default_rng([61, seed])
                rounds = []
                for half in range(2):
                    A = operator(encoder, d, m, 2 * seed + half)
                    y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
                    rounds.append((A, y, noise))
                own = [
                    relative_error(
                        solvers.get("amp", denoiser="positive").fit(A, y, noise_std=noise).coef_, x
                    )
                    for A, y, noise in rounds
                ]
                both = solvers.decode_jointly(rounds, denoiser="positive").coef
                alone.append(min(own))
                joint.append(relative_error(both, x))
                below += joint[-1] < alone[-1]
            report.add(
                f"{r}, {name}",
                float(np.mean(alone)),
                float(np.mean(joint)),
                bound.relative_error,
                float(np.mean(joint)) / bound.relative_error,
                f"{below}/{draws}",
            )
    report.notes.append("alone: the better of the two rounds")
    return report


# --- time


def time_of_scores(d: int, repeats: int) -> Report:
    """Seconds with scores and without, in turns, on power laws and sparse means."""
    report = Report(
        f"time with scores, d = {d:,}, m = {d // 10:,}",
        ["mean, ensemble", "plain s", "scores s", "ratio", "of processor time", "iterations"],
    )
    for kind in ("power law", "sparse"):
        for name, encoder in ENSEMBLES.items():
            rng = np.random.default_rng([71, 0])
            size = 1.0 / np.arange(1, d + 1) if kind == "power law" else np.arange(d) < d // 1000
            x = rng.permutation(size.astype(float))
            x *= 0.3 / np.linalg.norm(x)
            scores = np.log(x + 1e-4) + rng.standard_normal(d)
            A = operator(encoder, d, d // 10, 0)
            noise = 1.1e-4
            y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
            # making the groups is part of the price
            calls: dict[str, Callable[[], Any]] = {
                "plain": lambda: solvers.get("amp").fit(A, y, noise_std=noise),  # noqa: B023
                "scores": lambda: solvers.get(
                    "amp",
                    prior=solvers.priors.Scores(scores),  # noqa: B023
                ).fit(A, y, noise_std=noise),  # noqa: B023
            }
            fitted = {key: call() for key, call in calls.items()}
            times: dict[str, list[tuple[float, float]]] = {key: [] for key in calls}
            for _ in range(repeats):
                for key, call in calls.items():
                    start = time.perf_counter(), time.process_time()
                    call()
                    stop = time.perf_counter(), time.process_time()
                    times[key].append((stop[0] - start[0], stop[1] - start[1]))
            plain, told = (np.min(times[key], axis=0) for key in ("plain", "scores"))
            report.add(
                f"{kind}, {name}",
                float(plain[0]),
                float(told[0]),
                *map(float, told / plain),
                f"{fitted['plain'].n_iter_}, {fitted['scores'].n_iter_}",
            )
    report.notes.append("least of the repeats, in turns; making the groups is included")
    return report
