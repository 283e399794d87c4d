"""One round of secure aggregation on the complete graph of 1000 clients. It takes minutes."""

from __future__ import annotations

from benchmarks.harness import Report
from benchmarks.secagg import rounds


def run(quick: bool) -> list[Report]:
    return rounds([(30, None)], length=1000) if quick else rounds([(1000, None)], length=10**5)
