"""How time grows: encode, noise, decode, message passing and fit with d; fit with n.

One axis at a time, everything else fixed. What is measured is processor time on one thread, so that
neither a second thread, which only large sizes use, nor other programs bend the slope: that of log
time on log size over the second half of the sizes, where fixed costs no longer show. 1 is
proportional.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import solvers
from benchmarks.harness import Report
from solvers.parallel import one_thread
from sparse_secagg import CountSketchEncoder, HadamardEncoder, PrivacyWarning, SparseSecAgg
from sparse_secagg.mechanisms.sampling import discrete_gaussian

#: Above this many coordinates message passing takes minutes, and a fit gigabytes.
LARGEST = {"message passing": 10**7, "fit, n = 10": 10**7}


def run(quick: bool) -> list[Report]:
    warnings.simplefilter("ignore", PrivacyWarning)
    dimensions = [10**k for k in ((3, 4, 5) if quick else (4, 5, 6, 7, 8))]
    clients = [10**k for k in ((1, 2, 3) if quick else (2, 3, 4, 5))]
    return [with_dimension(dimensions), with_clients(clients)]


def with_dimension(dimensions: list[int]) -> Report:
    report = Report(
        "growth with d (r = 10), ms of one processor",
        ["work", *[f"10^{len(str(d)) - 1}" for d in dimensions]],
    )
    report.columns.append("slope")
    works: dict[str, Callable[[int], Callable[[], Any]]] = {
        "count sketch, encode": lambda d: _products(CountSketchEncoder(random_state=0), d)[0],
        "count sketch, decode": lambda d: _products(CountSketchEncoder(random_state=0), d)[1],
        "Hadamard, encode": lambda d: _products(HadamardEncoder(random_state=0), d)[0],
        "Hadamard, decode": lambda d: _products(HadamardEncoder(random_state=0), d)[1],
        "noise, σ = 10, d draws": lambda d: lambda: discrete_gaussian(Fraction(100), d),
        "message passing": _message_passing,
        "fit, n = 10": lambda d: _fit(10, d),
    }
    for name, make in works.items():
        sizes = [d for d in dimensions if d <= LARGEST.get(name, d)]
        _add(report, name, sizes, make, len(dimensions))
    return report


def with_clients(clients: list[int]) -> Report:
    report = Report(
        "growth with n (d = 1000, r = 10), ms of one processor",
        ["work", *[f"10^{len(str(n)) - 1}" for n in clients], "slope"],
    )
    _add(report, "fit", clients, lambda n: _fit(n, 1000), len(clients))
    return report


def _add(
    report: Report,
    name: str,
    sizes: list[int],
    make: Callable[[int], Callable[[], Any]],
    n_columns: int,
) -> None:
    with one_thread():
        times = [_processor_seconds(make(size), repeats=4 if size < 10**7 else 1) for size in sizes]
    half = max(2, len(sizes) // 2 + 1)
    slope = np.polyfit(np.log(sizes[-half:]), np.log(times[-half:]), 1)[0]
    empty = [""] * (n_columns - len(sizes))
    report.add(name, *[1e3 * t for t in times], *empty, f"{slope:.2f}")


def _processor_seconds(function: Callable[[], Any], repeats: int) -> float:
    """Return the least time; the first of several runs compiles, or warms what large sizes use."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def _products(encoder: Any, d: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    x = np.random.default_rng(0).standard_normal(d, dtype=np.float32)
    S = encoder.fit_dimension(d).operator_
    y = S.matvec(x)
    return lambda: S.matvec(x), lambda: S.rmatvec(y)


def _message_passing(d: int) -> Callable[[], Any]:
    x = np.zeros(d)
    x[:: max(1, d // max(10, d // 1000))] = 1.0
    S = CountSketchEncoder(random_state=0).fit_dimension(d).operator_
    y = S.matvec(x) + 0.01 * np.random.default_rng(1).standard_normal(S.shape[0])
    return lambda: solvers.get("amp").fit(S, y, noise_std=0.01)


def _fit(n: int, d: int) -> Callable[[], Any]:
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    X /= np.sqrt(np.float32(d))
    estimator = SparseSecAgg(epsilon=4.0, n_bits=24, decoder="linear", random_state=0)
    return lambda: estimator.fit(X)
