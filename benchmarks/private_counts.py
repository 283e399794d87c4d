"""Private counts beside their peers: recall of the true top 100, error of their counts, bytes.

Zipf table (exponent 1, 20 draws per user, duplicates dropped), ε = 1, δ = 1e-6. Peers on the same
table: the unsketched distributed noise, a thresholded histogram under a trusted server (OpenDP),
and optimised local hashing, which needs no secure aggregation. Many draws, open domains and long
files: :mod:`benchmarks.count_draws`.
"""

from __future__ import annotations

import math
import resource
import time
from typing import Any

import numpy as np
import pandas as pd
from numba import njit

from benchmarks.harness import Report
from sparse_secagg import PrivateCounts

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
        ["method", "recall", "error", "bytes", "seconds", "MB"],
    )
    for name, method in METHODS.items():
        start = time.perf_counter()
        estimate, size = method(table, truth, n, d)
        seconds = time.perf_counter() - start
        recall, error = scores(estimate, truth)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        report.add(name, f"{recall:.2f}", f"{error:.4f}", size, f"{seconds:.1f}", f"{memory:.0f}")
    report.notes += [
        "recall and error: of the 100 most common items; squared error over the truth's squares",
        "bytes: what a user sends; MB: the most memory so far",
        "the thresholded histogram needs a trusted server; local hashing needs nobody",
        "unsketched: the noise that ddg is calibrated to at this size, drawn from the normal law",
    ]
    return [report, through_ddg(*((500, 2000) if quick else (20_000, 20_000)))]


def scores(estimate: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    found, top = np.argsort(-estimate)[:TOP], np.argsort(-truth)[:TOP]
    recall = float(np.mean(truth[found] >= truth[top].min()))
    return recall, float(np.sum((estimate[top] - truth[top]) ** 2) / np.sum(truth[top] ** 2))


def sketched(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    counts = PrivateCounts(domain=range(d), epsilon=EPSILON, delta=DELTA)
    counts.fit(table, user="user", item="item")
    return counts.counts_, sum(counts.bytes_per_client_.values())


def unsketched(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    """Return the exact counts with the noise that ddg is calibrated to for d coordinates.

    Drawing d integers for each of n users takes an hour at full size; :func:`through_ddg` does it
    where that is short, and shows that the noise is what is drawn here.
    """
    counts = PrivateCounts(
        domain=range(d), epsilon=EPSILON, delta=DELTA, max_items=DRAWS, compression=1
    )
    (stage,) = counts.specs(n)
    config = stage.spec.config(d, n)
    mechanism = stage.spec.make_mechanism(n)
    mechanism.parameters_ = config.mechanism
    noise = np.random.default_rng(1).standard_normal(d)
    return truth + n * mechanism.noise_std() * noise, config.mechanism.bits_per_client // 8


def through_ddg(n: int, d: int) -> Report:
    """Return the unsketched counts as ddg really gives them, beside the noise it promises."""
    table = zipf_table(n, d)
    truth = np.bincount(table["item"], minlength=d).astype(float)
    start = time.perf_counter()
    counts = PrivateCounts(
        domain=range(d), epsilon=EPSILON, delta=DELTA, max_items=DRAWS, compression=1
    ).fit(table, user="user", item="item")
    seconds = time.perf_counter() - start
    recall, error = scores(counts.counts_, truth)
    spread = float(np.std(counts.counts_ - truth) / counts.std_err_[0])
    report = Report(
        f"unsketched, every message through ddg: {n:,} users, {d:,} items",
        ["recall", "error", "noise over promised", "bytes", "seconds"],
    )
    size = sum(counts.bytes_per_client_.values())
    report.add(f"{recall:.2f}", f"{error:.4f}", f"{spread:.3f}", size, f"{seconds:.1f}")
    return report


def thresholded(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    """Return OpenDP's counts of the items that pass its threshold, with Gaussian noise.

    Half of δ goes into the noise, the other half into the threshold.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = (
        dp.map_domain(dp.atom_domain(T=int), dp.atom_domain(T=int)),
        dp.l02inf_distance(dp.absolute_distance(T=float)),
    )
    bound = (DRAWS, math.sqrt(DRAWS), 1.0)  # a user moves DRAWS keys by one each

    def made(scale: float, threshold: int) -> Any:
        return dp.m.make_gaussian_threshold(*space, scale=scale, threshold=threshold)

    def epsilon(scale: float) -> float:
        curve, _ = dp.c.make_zCDP_to_approxDP(made(scale, 10**6)).map(bound)
        return float(curve.epsilon(DELTA / 2))

    scale = dp.binary_search(lambda s: epsilon(s) <= EPSILON, bounds=(1.0, 1e4))
    threshold = dp.binary_search(
        lambda t: made(scale, t).map(bound)[1] <= DELTA / 2, bounds=(2, 10**6)
    )
    held = {int(k): int(truth[k]) for k in np.flatnonzero(truth)}
    estimate = np.zeros(d)
    for key, value in made(scale, threshold)(held).items():
        estimate[key] = value
    return estimate, 0


def local_hashing(table: pd.DataFrame, truth: np.ndarray, n: int, d: int) -> tuple[Any, int]:
    """Return the estimates of optimised local hashing, ε-LDP, over the whole list.

    Each user draws one of DRAWS places; an empty place is an item that nobody asks about. So all
    estimates are multiplied by DRAWS, and nothing about the sizes is revealed.
    """
    rng = np.random.default_rng(2)
    order = rng.permutation(len(table))
    user, item = table["user"].to_numpy()[order], table["item"].to_numpy()[order]
    first = np.unique(user, return_index=True)[1]
    filled = rng.random(n) < np.bincount(user, minlength=n) / DRAWS
    held = np.where(filled, item[first], d + rng.integers(0, d, n))
    cells = round(math.exp(EPSILON)) + 1
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + cells - 1)
    a, b = rng.integers(0, 2**64, (2, n), dtype=np.uint64)
    answer = np.array([_cell(a[i], b[i], np.uint64(held[i]), cells) for i in range(n)])
    lie = rng.random(n) >= keep
    answer = np.where(lie, (answer + rng.integers(1, cells, n)) % cells, answer)
    support = _support(a, b, answer.astype(np.int64), d, cells)
    estimate = (support - n / cells) / (keep - 1 / cells)
    return DRAWS * estimate, 17  # a seed of the hash and the cell


@njit(cache=True)
def _cell(a: Any, b: Any, x: Any, cells: int) -> Any:
    """Return the cell of x in a hash of the user's own: 32 well-mixed bits, scaled."""
    mixed = (a | np.uint64(1)) * (x + b)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(cells)) >> np.uint64(32))


@njit(cache=True)
def _support(a: Any, b: Any, answer: Any, d: int, cells: int) -> Any:
    support = np.zeros(d)
    for i in range(len(answer)):
        for x in range(d):
            support[x] += _cell(a[i], b[i], np.uint64(x), cells) == answer[i]
    return support


METHODS = {
    "PrivateCounts": sketched,
    "unsketched": unsketched,
    "thresholded histogram": thresholded,
    "local hashing": local_hashing,
}
