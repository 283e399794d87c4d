"""Private counts beside their peers: recall of the true top 100, error of their counts, bytes.

Zipf table (exponent 1, 20 draws per user, duplicates dropped), ε = 1, δ = 1e-6. Peers on the same
table: the unsketched distributed noise, a thresholded histogram under a trusted server (OpenDP),
and local hashing, which needs no secure aggregation. ``COUNTS_OPEN=1`` adds the open domain.
"""

from __future__ import annotations

import math
import os
import resource
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Report
from sparse_secagg import PrivateCounts
from sparse_secagg.mechanisms.base import gaussian_multiplier

EPSILON, DELTA, DRAWS, TOP = 1.0, 1e-6, 20, 100


def zipf_table(n: int, d: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, d + 1)
    items = rng.choice(d, size=(n, DRAWS), p=p / p.sum())
    table = pd.DataFrame({"user": np.repeat(np.arange(n), DRAWS), "item": items.ravel()})
    return table.drop_duplicates().reset_index(drop=True)


def run(quick: bool) -> list[Report]:
    n, d = (2000, 5000) if quick else (50_000, 200_000)
    table = zipf_table(n, d)
    truth = np.bincount(table["item"], minlength=d).astype(float)
    report = Report(
        f"counts of {n:,} users over {d:,} items, epsilon = {EPSILON:g}, delta = {DELTA:g}",
        ["method", "recall of 100", "error of the top 100", "bytes per user", "seconds", "MB"],
    )
    for name, method in METHODS.items():
        start = time.perf_counter()
        estimate, size = method(table, truth, n, d)
        seconds = time.perf_counter() - start
        recall, error = scores(estimate, truth)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        report.add(name, f"{recall:.2f}", f"{error:.4f}", size, f"{seconds:.1f}", f"{memory:.0f}")
    report.notes += [
        "error: squared, over the truth's; before bounding; memory: the most so far",
        "the thresholded histogram needs a trusted server; local hashing needs nobody",
    ]
    reports = [report]
    if quick or os.environ.get("COUNTS_OPEN"):
        reports.append(open_domain((2000,) if quick else (20_000, 50_000), d))
    return reports


def scores(estimate: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    found, top = np.argsort(-estimate)[:TOP], np.argsort(-truth)[:TOP]
    recall = float(np.mean(truth[found] >= truth[top].min()))
    return recall, float(np.sum((estimate[top] - truth[top]) ** 2) / np.sum(truth[top] ** 2))


def sketched(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    counts = PrivateCounts(domain=range(d), epsilon=EPSILON, delta=DELTA)
    counts.fit(table, user="user", item="item")
    return counts.counts_, sum(counts.bytes_per_client_.values())


def unsketched(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    """Return the counts with the noise of d coordinates; the messages would be d long."""
    z, limit = gaussian_multiplier(EPSILON, DELTA, 1), DRAWS
    noise = np.random.default_rng(1).standard_normal(d)
    return truth + z * math.sqrt(limit) * noise, d * 20 // 8


def thresholded(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    """Return OpenDP's counts of the items that pass its threshold."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    # a user moves DRAWS keys by one each
    space = (
        dp.map_domain(dp.atom_domain(T=int), dp.atom_domain(T=int)),
        dp.l01inf_distance(dp.absolute_distance(T=int)),
    )
    bound = (DRAWS, DRAWS, 1)

    def made(scale: float) -> Any:
        threshold = int(1 + scale * math.log(DRAWS / DELTA) + 2)
        return dp.m.make_laplace_threshold(*space, scale=scale, threshold=threshold)

    scale = dp.binary_search(lambda s: made(s).map(bound)[0] <= EPSILON, bounds=(1.0, 1e4))
    while made(scale).map(bound)[1] > DELTA:
        scale *= 1.05
    held = {int(k): int(truth[k]) for k in np.flatnonzero(truth)}
    estimate = np.zeros(d)
    for key, value in made(scale)(held).items():
        estimate[key] = value
    return estimate, 0


def local_hashing(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    """Return the estimates of optimised local hashing, one item per user, ε-LDP."""
    rng = np.random.default_rng(2)
    first = table.sample(frac=1.0, random_state=3).drop_duplicates("user")
    item = first["item"].to_numpy()
    cells = round(math.exp(EPSILON)) + 1
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + cells - 1)
    a, b = rng.integers(1, 2**31, len(item)), rng.integers(0, 2**31, len(item))
    prime = 2**31 - 1

    def hashed(x: Any, rows: Any = slice(None)) -> np.ndarray:
        return ((a[rows] * x + b[rows]) % prime) % cells

    answer = np.where(
        rng.random(len(item)) < keep,
        hashed(item),
        (hashed(item) + rng.integers(1, cells, len(item))) % cells,
    )
    support = np.zeros(d)
    likely = np.argsort(-truth)[: min(d, 2000)]  # all others have no chance; saves time
    for k in likely:
        support[k] = np.sum(hashed(k) == answer)
    estimate = (support - len(item) / cells) / (keep - 1 / cells)
    estimate[np.setdiff1d(np.arange(d), likely)] = -np.inf
    return estimate * len(table) / len(item), 9


METHODS = {
    "PrivateCounts": sketched,
    "unsketched": unsketched,
    "thresholded histogram": thresholded,
    "local hashing": local_hashing,
}


def open_domain(sizes: tuple[int, ...], d: int) -> Report:
    """Return how many items are spelt out that nobody listed."""
    report = Report(
        "open domain, epsilon = 1 in all", ["users", "of top 20", "of top 100", "wrong", "bytes"]
    )
    for n in sizes:
        table = zipf_table(n, d)
        truth = np.bincount(table["item"], minlength=d)
        table["item"] = "item " + table["item"].astype(str)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counts = PrivateCounts(domain="open").fit(table, user="user", item="item")
        top = [f"item {k}" for k in np.argsort(-truth)[:TOP]]
        names = set(counts.names_.values())
        wrong = len(names - set(table["item"]))
        sizes_of = ", ".join(f"{b:,}" for b in counts.bytes_per_client_.values())
        report.add(f"{n:,}", len(names & set(top[:20])), len(names & set(top)), wrong, sizes_of)
    return report
