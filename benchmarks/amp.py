"""Message passing and the automatic choice on large count sketches: time, memory, error, growth.

The problem of the decoder benchmark with s = d/1000, and at d = 10⁷ by message passing alone. The
error is printed beside that of the Lasso.
"""

from __future__ import annotations

import warnings

import solvers
from benchmarks.decoders import NOISE, Problem, measure
from benchmarks.harness import Report


def run(quick: bool) -> list[Report]:
    sizes = [10**4, 10**5] if quick else [10**5, 10**6, 10**7]
    report = Report(
        "message passing on a count sketch, m = d/10, t = 15, s = d/1000",
        ["solver", "d", "seconds", "MB", "error", "iterations", "growth"],
    )
    small = Problem.draw(2000)
    before: dict[str, float] = {}
    for d in sizes:
        problem = Problem.draw(d)
        for name in ("linear", "working_set", "amp", "auto") if d < 10**7 else ("amp",):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                solvers.get(name).fit(small.A, small.y, noise_std=NOISE)  # compile
            found = measure(name, problem)
            growth = f"{found.seconds / before[name]:.1f}" if name in before else ""
            before[name] = found.seconds
            report.add(
                name, f"{d:,}", found.seconds, found.megabytes, found.error, found.n_iter, growth
            )
    report.notes.append("MB is the most that NumPy allocates beyond A, x and y")
    return [report]
