"""Exact discrete Gaussian samples per second over σ from 0.5 to 10⁴, peers and limits beside.

Ours (by inversion, and by rejection on one thread) and OpenDP draw from a cryptographic generator
and are exact; NumPy's normal numbers are floats from a fast generator. Accuracy is printed beside:
the distance of the sample variance from the true one, in standard errors.
"""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from functools import partial
from importlib import metadata

import numpy as np
import opendp.prelude as dp

from benchmarks.harness import Report, seconds, seconds_interleaved
from solvers.parallel import n_threads
from sparse_secagg.mechanisms import PrivateRandomness
from sparse_secagg.mechanisms.inversion import build_table, table_of
from sparse_secagg.mechanisms.poisson import skellam
from sparse_secagg.mechanisms.rejection import fill_by_rejection, prepare
from sparse_secagg.mechanisms.sampling import discrete_gaussian, round_up_variance
from sparse_secagg.mechanisms.tail_sums import Gaussian

SIGMAS = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1e3, 5e3, 1e4)
_MILLION = 1e6


def run(quick: bool) -> list[Report]:
    dp.enable_features("contrib")
    sigmas = SIGMAS[::5] if quick else SIGMAS
    size, repeats = (200_000, 2) if quick else (4_000_000, 7)
    # As the mechanisms call it: a rational a little above the wish.
    variances = [round_up_variance(sigma * sigma * (1 + 1e-6)) for sigma in sigmas]
    return [speed(variances, size, repeats), tables(variances[-5:])]


def speed(variances: list[Fraction], size: int, repeats: int) -> Report:
    report = Report(
        "Exact discrete Gaussian, million samples per second",
        ["σ", "ours", "1 thread", "reject", "normal", "OpenDP", "×OpenDP", "×reject", "var, SE"],
    )
    normal = np.random.default_rng(0).standard_normal
    sizes = {"ours": size, "1 thread": size, "reject": size // 20, "normal": size}
    sizes["OpenDP"] = size // 1000
    for variance in variances:
        times = seconds_interleaved(
            {
                "ours": partial(discrete_gaussian, variance, size),
                "1 thread": partial(_by_table, variance, size),
                "reject": partial(_by_rejection, variance, sizes["reject"]),
                "normal": partial(normal, size),
                "OpenDP": partial(_opendp(variance), [0] * sizes["OpenDP"]),
            },
            repeats,
        )
        rates = {name: sizes[name] / times[name] / _MILLION for name in sizes}
        report.add(
            f"{math.sqrt(variance):g}"[:6],
            *[float(f"{rate:.3g}") for rate in rates.values()],
            round(rates["ours"] / rates["OpenDP"]),
            round(rates["1 thread"] / rates["reject"], 1),
            f"{_deviation(variance, size):+.1f}",
        )
    ratios = {column: [row[k] for row in report.rows] for k, column in enumerate(report.columns)}
    against_normals = [a / b for a, b in zip(ratios["1 thread"], ratios["normal"])]
    report.notes = [
        f"ours: {n_threads()} threads over disjoint AES-256-CTR streams, key stream included",
        f"reject: by rejection, one thread; normal: NumPy {np.__version__}, standard_normal",
        f"OpenDP {metadata.version('opendp')}: one vector call (it has no threads)",
        _summary("two threads / OpenDP", ratios["×OpenDP"]),
        _summary("one thread / rejection", ratios["×reject"]),
        _summary("one thread / NumPy's normal numbers", against_normals),
        *_limits(size),
    ]
    return report


def tables(variances: list[Fraction]) -> Report:
    report = Report("Tables, made once for a variance", ["σ", "ms", "MB", "thresholds"])
    for variance in variances:
        make = partial(build_table, Gaussian(variance))
        table = make()
        report.add(
            f"{math.sqrt(variance):g}"[:6],
            1e3 * seconds(make, repeats=3),
            table.n_bytes / 1e6,
            len(table.thresholds),
        )
    return report


def _opendp(variance: Fraction):
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=math.sqrt(variance))


def _by_table(variance: Fraction, size: int) -> None:
    table_of(Gaussian(variance)).fill(np.empty(size, dtype=np.int64), PrivateRandomness())


def _by_rejection(variance: Fraction, size: int) -> None:
    fill_by_rejection(np.empty(size, dtype=np.int64), prepare(variance), PrivateRandomness())


def _summary(what: str, ratios: list[float]) -> str:
    median, smallest = (
        f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        for value in (statistics.median(ratios), min(ratios))
    )
    return f"{what}: median {median}, smallest {smallest}"


def _limits(size: int) -> list[str]:
    """Return what no sampler of one word for each sample can beat, on one thread."""
    words, other, source = np.empty(size, np.uint64), np.empty(size, np.uint64), PrivateRandomness()
    times = seconds_interleaved(
        {
            "AES": lambda: source.fill(words),
            "copy": lambda: np.copyto(other, words),
            "Skellam": lambda: skellam(Fraction(200), size, source),
        },
        repeats=5,
    )
    rates = {name: size / time / _MILLION for name, time in times.items()}
    return [
        f"limits, one thread, million words per second: AES-256-CTR {rates['AES']:.0f}, "
        f"copy {rates['copy']:.0f}",
        f"Skellam noise of variance 200, {n_threads()} threads: {rates['Skellam']:.0f}",
    ]


def _deviation(variance: Fraction, size: int) -> float:
    """Distance of the sample variance from the exact one, in standard errors."""
    sigma = math.sqrt(variance)
    k = np.arange(-math.ceil(20 * sigma) - 3, math.ceil(20 * sigma) + 4, dtype=np.float64)
    pmf = np.exp(-(k**2) / (2 * float(variance)))
    pmf /= pmf.sum()
    second, fourth = float((pmf * k**2).sum()), float((pmf * k**4).sum())
    sample = discrete_gaussian(variance, size).astype(np.float64)
    return (float((sample**2).mean()) - second) / math.sqrt((fourth - second**2) / size)
