"""What it costs to withstand a server that lies: time and bytes of whole rounds, and graph sizes.

Contenders run in processes of their own and take turns, so that all see the same machine. With
``FORMER=PATH`` in the environment, PATH being a checkout of an earlier revision, its protocol takes
part too. CPU seconds count all threads, and wait for nobody on a machine that is shared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.harness import Report
from sparse_secagg.secagg.quorums import GraphParameters, graph_parameters

#: Plays rounds as it is told, one JSON line each; runs on earlier revisions too.
WORKER = """
import json, sys, time
import numpy as np
from sparse_secagg import MaskedSecAgg
for line in sys.stdin:
    task = json.loads(line)
    n, length = task.pop("n"), task.pop("length")
    rows = np.random.default_rng(n).integers(0, 2**16, (n, length), dtype=np.uint16)
    dropped = list(range(0, n, 20))[: task.pop("dropped")]
    secagg = MaskedSecAgg(modulus=2**16, random_state=0, **task)
    wall, cpu = time.perf_counter(), time.process_time()
    result = secagg.aggregate(rows, dropped)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    kept = np.delete(rows, dropped, axis=0).astype(np.uint64).sum(axis=0) % 2**16
    assert np.array_equal(result.total, kept)
    stayed = n - 1
    sizes = [result.payload_up, result.protocol_up, result.protocol_down]
    print(json.dumps([wall, cpu, *(int(size[stayed]) for size in sizes)]), flush=True)
"""
ROOT = Path(__file__).resolve().parent.parent


def run(quick: bool) -> list[Report]:
    if quick:
        return [*rounds([(20, None, 14)], length=1000, repeats=1), sizes([100, 1000])]
    p = graph_parameters(1000)
    cases = [(100, None, 67), (1000, p.neighbors, p.share_threshold)]
    return [
        *rounds(cases, length=10**5, repeats=2),
        *rounds(cases[:1], length=10**3, repeats=3),
        sizes([10**2, 10**3, 10**4, 10**5, 10**6]),
    ]


class Worker:
    """A process with one revision of the library."""

    def __init__(self, path: Path, **options: object) -> None:
        self.options = options
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=path,
            env={**os.environ, "PYTHONPATH": str(path)},
        )

    def play(self, **task: object) -> list[float]:
        """Return wall seconds, CPU seconds and bytes of one round."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**task, **self.options}) + "\n")
        self.process.stdin.flush()
        return list(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def contenders() -> dict[str, Worker]:
    found = {
        "malicious": Worker(ROOT, security="malicious", agree_once=False),
        "semi_honest": Worker(ROOT, security="semi_honest", agree_once=False),
    }
    if "FORMER" in os.environ:
        found["former"] = Worker(Path(os.environ["FORMER"]).resolve())
    return found


def rounds(cases: list[tuple[int, int | None, int]], length: int, repeats: int) -> list[Report]:
    report = Report(
        f"whole rounds, X25519, m = {length:,}, M = 2^16, 2 % drop out: per client",
        ["n, k, t", "protocol", "wall ms", "×", "CPU ms", "×", "payload", "up", "down"],
    )
    workers = contenders()
    try:
        for n, k, t in cases:
            task = {"n": n, "length": length, "neighbors": k, "share_threshold": t, "threshold": t}
            task["dropped"] = max(1, n // 50)
            if k is not None:
                task["threshold"] = 2 * n // 3
            for worker in workers.values():  # compiles, loads
                worker.play(**{**task, "n": 8, "neighbors": None, "dropped": 0,
                               "share_threshold": 6, "threshold": 6, "length": 10})  # fmt: skip
            played: dict[str, list[list[float]]] = {name: [] for name in workers}
            for _ in range(repeats):
                for name, worker in workers.items():
                    played[name].append(worker.play(**task))
            best = {name: np.min(found, axis=0) for name, found in played.items()}
            last = best[list(workers)[-1]]
            for name, found in best.items():
                wall, cpu = 1e3 * found[:2] / n
                more = found[:2] / last[:2]
                place = f"{n}, {'all' if k is None else k}, {t}"
                report.add(place, name, wall, more[0], cpu, more[1], *map(int, found[2:]))
    finally:
        for worker in workers.values():
            worker.close()
    report.notes += [
        "time of all parties over n, and × that of the last protocol of the case; bytes",
        "every client agrees with all its neighbours itself",
    ]
    return [report]


def sizes(cohorts: list[int]) -> Report:
    report = Report(
        "k and t at 5 % dropped out, failure at most 2^-40 after 2^40 graphs tried",
        ["n", "corrupt", "k", "t", "log2 failure", "log2 abort"],
    )
    for n in cohorts:
        for corrupt in (0.01, 0.05, 0.10):
            p: GraphParameters = graph_parameters(n, corrupt, 0.05)
            report.add(
                f"{n:,}", f"{corrupt:.0%}", p.neighbors, p.share_threshold,
                f"{p.log2_failure:.1f}", f"{p.log2_abort:.1f}",
            )  # fmt: skip
    return report
