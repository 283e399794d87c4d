"""Exact discrete Gaussian samples per second, against OpenDP's, over σ from 0.5 to 10⁴.

Both draw from a cryptographic generator and both are exact. Accuracy is printed beside: the
distance of the sample variance from the true one, in standard errors.
"""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from functools import partial
from importlib import metadata

import numpy as np
import opendp.prelude as dp

from benchmarks.harness import Report, seconds_interleaved
from solvers._threads import n_threads
from sparse_secagg.mechanisms import PrivateRandomness
from sparse_secagg.mechanisms.sampling import _fill, discrete_gaussian, prepare, round_up_variance

SIGMAS = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1e3, 5e3, 1e4)


def run(quick: bool) -> list[Report]:
    dp.enable_features("contrib")
    ours_size, theirs_size = (200_000, 2_000) if quick else (4_000_000, 20_000)
    report = Report(
        "Exact discrete Gaussian, samples per second",
        ["sigma", "ours", "ours, 1 thread", "OpenDP", "ratio", "ratio, 1 thread", "variance, SE"],
    )
    ratios, single_ratios = [], []
    for sigma in SIGMAS:
        # As the mechanisms call it: a rational a little above the wish.
        variance = round_up_variance(sigma * sigma * (1 + 1e-6))
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        peer = dp.m.make_gaussian(*space, scale=math.sqrt(variance))
        times = seconds_interleaved(
            {
                "ours": partial(discrete_gaussian, variance, ours_size),
                "single": partial(_single, variance, ours_size // 4),
                "peer": partial(peer, [0] * theirs_size),
            },
            repeats=3,
        )
        ours, single = ours_size / times["ours"], (ours_size // 4) / times["single"]
        theirs = theirs_size / times["peer"]
        ratios.append(ours / theirs)
        single_ratios.append(single / theirs)
        report.add(
            sigma,
            ours,
            single,
            theirs,
            ratios[-1],
            single_ratios[-1],
            _deviation(variance, ours_size),
        )
    report.notes = [
        f"ours: {n_threads()} threads over disjoint AES-256-CTR streams, key stream included; "
        f"OpenDP {metadata.version('opendp')}: one vector call (it has no threads).",
        f"ratio: median {statistics.median(ratios):.0f}, smallest {min(ratios):.0f}; "
        f"with one thread: median {statistics.median(single_ratios):.0f}, "
        f"smallest {min(single_ratios):.0f}.",
    ]
    return [report]


def _single(variance: Fraction, size: int) -> None:
    _fill(np.empty(size, dtype=np.int64), prepare(variance), PrivateRandomness())


def _deviation(variance: Fraction, size: int) -> float:
    """Distance of the sample variance from the exact one, in standard errors."""
    sigma = math.sqrt(variance)
    k = np.arange(-math.ceil(20 * sigma) - 3, math.ceil(20 * sigma) + 4, dtype=np.float64)
    pmf = np.exp(-(k**2) / (2 * float(variance)))
    pmf /= pmf.sum()
    second, fourth = float((pmf * k**2).sum()), float((pmf * k**4).sum())
    sample = discrete_gaussian(variance, size).astype(np.float64)
    return (float((sample**2).mean()) - second) / math.sqrt((fourth - second**2) / size)
