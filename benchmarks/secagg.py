"""Secure aggregation: masks against NumPy generators, whole rounds, growth with n, bytes."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Report, seconds_interleaved
from sparse_secagg import IdealSecAgg, MaskedSecAgg
from sparse_secagg.mechanisms import PrivateRandomness
from sparse_secagg.secagg.keys import X25519, new_secret
from sparse_secagg.secagg.masks import MaskSum


def run(quick: bool) -> list[Report]:
    if quick:
        return [
            masking(lengths=[1000], n_pairs=20),
            *rounds([(20, None), (50, 10)], length=1000),
            growth([10, 20, 40], [20, 40, 80], neighbors=10, length=100),
            ideal([(1000, 100)]),
            simulated(n=40, neighbors=10, lengths=[100]),
        ]
    return [
        masking(lengths=[10**3, 10**4, 10**5], n_pairs=100),
        *rounds([(100, None), (1000, 100)], length=10**5),
        growth([20, 40, 80, 160], [100, 200, 400, 800], neighbors=20, length=10**4),
        ideal([(1000, 10**5), (10**5, 1000)]),
        simulated(n=1000, neighbors=100, lengths=[10**4, 10**5]),
    ]


class NumpyMasks:
    """Masks as Flower's published SecAgg+ draws them, in NumPy: one 32-bit seed a pair.

    A generator seeded with an integer of 32 bits, one ``randint`` below M for each coordinate,
    added as int64 and reduced at the end. (As published it never draws M − 1; here it does.)
    """

    def __init__(self, length: int, modulus: int, generator: str) -> None:
        self.modulus, self.length, self.generator = modulus, length, generator
        self.total = np.zeros(length, dtype=np.int64)

    def add(self, seed: int, sign: int) -> None:
        if self.generator == "MT19937":
            values = np.random.RandomState(seed).randint(0, self.modulus, self.length)
        else:
            values = np.random.default_rng(seed).integers(0, self.modulus, self.length)
        if sign > 0:
            self.total += values
        else:
            self.total -= values

    def value(self) -> np.ndarray:
        return self.total % self.modulus


def our_masking(length: int, modulus: int, n_pairs: int) -> np.ndarray:
    total = MaskSum(length, modulus)
    for pair in range(n_pairs):
        total.add(pair.to_bytes(32, "little"), sign=1 - 2 * (pair % 2))
    return total.value()


def numpy_masking(length: int, modulus: int, n_pairs: int, generator: str) -> np.ndarray:
    total = NumpyMasks(length, modulus, generator)
    for pair in range(n_pairs):
        total.add(pair, sign=1 - 2 * (pair % 2))
    return total.value()


def masking(lengths: list[int], n_pairs: int) -> Report:
    report = Report(
        f"masks of {n_pairs} pairs, from seed to sum, µs a pair",
        ["m, M", "ours (AES-256-CTR)", "MT19937", "PCG64", "× MT19937", "× PCG64"],
    )
    for length in lengths:
        for modulus, name in ((2**16, "2^16"), (2**16 - 15, "2^16 − 15"), (2**15 + 3, "2^15 + 3")):
            times = seconds_interleaved(
                {
                    "ours": lambda m=length, M=modulus: our_masking(m, M, n_pairs),
                    "mt": lambda m=length, M=modulus: numpy_masking(m, M, n_pairs, "MT19937"),
                    "pcg": lambda m=length, M=modulus: numpy_masking(m, M, n_pairs, "PCG64"),
                },
                repeats=3,
            )
            ours, mt, pcg = (1e6 * times[k] / n_pairs for k in ("ours", "mt", "pcg"))
            report.add(f"{length:,}, {name}", ours, mt, pcg, mt / ours, pcg / ours)
    report.notes.append(
        "ours: 256-bit keys, a CSPRNG, uniform on all residues; the others: 32-bit seeds"
    )
    return report


def rounds(sizes: list[tuple[int, int | None]], length: int, modulus: int = 2**16) -> list[Report]:
    times_report = Report(
        f"whole rounds, all clients in one process, X25519, m = {length:,}, M = 2^16, 5 % drop out",
        ["n, graph", "round s", "ms a client", "masks s", "MT19937 s", "times faster"],
    )
    bytes_report = Report(
        "the same rounds, bytes of a client that stays",
        ["n, graph", "payload up", "protocol up", "protocol down"],
    )
    for n, neighbors in sizes:
        k = n - 1 if neighbors is None else neighbors
        rows = np.random.default_rng(n).integers(0, modulus, (n, length), dtype=np.uint16)
        dropped = list(range(0, n, 20))
        secagg = MaskedSecAgg(0.6, neighbors, modulus=modulus, random_state=0)
        small = rows[:, :2].copy()
        MaskedSecAgg(0.6, masks="seeded", modulus=modulus).aggregate(small[:5])  # compiles
        start = time.perf_counter()
        result = secagg.aggregate(rows, dropped)
        elapsed = time.perf_counter() - start
        expected = IdealSecAgg(modulus=modulus).aggregate(rows, dropped)
        assert np.array_equal(result.total, expected.total)
        # The masks of all clients are those of n·k ordered pairs; a sample of them is timed.
        sample = min(n * k, 300)
        times = seconds_interleaved(
            {
                "ours": lambda sample=sample: our_masking(length, modulus, sample),
                "mt": lambda sample=sample: numpy_masking(length, modulus, sample, "MT19937"),
            },
            repeats=2,
        )
        ours, mt = (times[name] * n * k / sample for name in ("ours", "mt"))
        name = f"{n}, {'complete' if neighbors is None else f'{k}-regular'}"
        times_report.add(name, elapsed, 1e3 * elapsed / n, ours, mt, mt / ours)
        stayed = n - 1
        bytes_report.add(
            name,
            int(result.payload_up[stayed]),
            int(result.protocol_up[stayed]),
            int(result.protocol_down[stayed]),
        )
    times_report.notes += [
        "every total equals the plain modular sum of the survivors",
        "masks: n·k ordered pairs, both sides of a pair make theirs; scaled from 300 pairs",
    ]
    return [times_report, bytes_report]


def simulated(n: int, neighbors: int, lengths: list[int]) -> Report:
    """Time what a process that plays all parties saves, beside the limits of their cryptography."""
    report = Report(
        f"all parties simulated, n = {n}, k = {neighbors}, M = 2^16, 5 % drop out",
        ["m", "as parties s", "agree once s", "two workers s", "ratio, once", "ratio, workers",
         "X25519 s", "AES s"],
    )  # fmt: skip
    ways: dict[str, dict[str, Any]] = {
        "parties": {"agree_once": False},
        "once": {},
        "workers": {"n_jobs": 2},
    }
    agreement, stream = _limits()
    for length in lengths:
        rows = np.random.default_rng(n).integers(0, 2**16, (n, length), dtype=np.uint16)
        dropped = list(range(0, n, 20))
        runs = {}
        for name, options in ways.items():
            secagg = MaskedSecAgg(0.6, neighbors, modulus=2**16, random_state=0, **options)
            secagg.aggregate(rows[: neighbors + 2, :2].copy())  # compiles, starts the workers
            runs[name] = partial(secagg.aggregate, rows, dropped)
        times = dict.fromkeys(runs, np.inf)
        for _ in range(2):
            for name, run_once in runs.items():
                start = time.perf_counter()
                total = run_once().total
                times[name] = min(times[name], time.perf_counter() - start)
                assert np.array_equal(
                    total, IdealSecAgg(modulus=2**16).aggregate(rows, dropped).total
                )
        n_masks = n * neighbors
        report.add(
            f"{length:,}",
            *times.values(),
            times["parties"] / times["once"],
            times["parties"] / times["workers"],
            2 * n_masks * agreement,
            n_masks * 2 * length * stream,
        )
    report.notes += [
        "as parties: each end of a pair agrees on its keys, as it must where parties are apart;",
        "agree once: the second end is handed what the first found, which this process may do",
        f"limits: {2 * n * neighbors:,} X25519 of {1e6 * agreement:.0f} µs as parties, half of it "
        f"once; AES-256-CTR of {n * neighbors:,} masks at {1e-9 / stream:.1f} GB/s, one thread",
    ]
    return report


def _limits() -> tuple[float, float]:
    """Return the seconds of one X25519 and of one byte of key stream."""
    own, public = X25519(new_secret()), X25519(new_secret()).public
    words, source = np.empty(2**17, np.uint64), PrivateRandomness()
    times = seconds_interleaved(
        {"X25519": lambda: own.agree(public), "AES": lambda: source.fill(words)}, repeats=200
    )
    return times["X25519"], times["AES"] / words.nbytes


def growth(
    complete_sizes: list[int], regular_sizes: list[int], neighbors: int, length: int
) -> Report:
    report = Report(
        f"growth with n, X25519, m = {length:,}, M = 2^16, s a round",
        ["graph", "n", "seconds", "exponent of n (fit)", "protocol up B a client"],
    )
    for name, sizes, k in (
        ("complete", complete_sizes, None),
        (f"{neighbors}-regular", regular_sizes, neighbors),
    ):
        secagg = MaskedSecAgg(0.6, k, modulus=2**16, random_state=0)
        times, sent = [], []
        for n in sizes:
            rows = np.random.default_rng(n).integers(0, 2**16, (n, length), dtype=np.uint16)
            best = np.inf
            for _ in range(2):
                start = time.perf_counter()
                result = secagg.aggregate(rows)
                best = min(best, time.perf_counter() - start)
            times.append(best)
            sent.append(int(result.protocol_up[0]))
        exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        for n, seconds, up in zip(sizes, times, sent):
            report.add(name, n, seconds, f"{exponent:.2f}" if n == sizes[-1] else "", up)
    return report


def ideal(sizes: list[tuple[int, int]]) -> Report:
    report = Report(
        "ideal sum, ms (peer: NumPy, one maximum for the range check, column sums, mod)",
        ["n, m, M", "ours", "NumPy", "times faster"],
    )
    for n, length in sizes:
        for modulus, name in ((2**16, "2^16"), (2**40 - 87, "2^40 − 87")):
            rows = np.random.default_rng(0).integers(0, modulus, (n, length), dtype=np.uint64)
            secagg = IdealSecAgg(modulus=modulus)
            times = seconds_interleaved(
                {
                    "ours": lambda s=secagg, rows=rows: s.aggregate(rows),
                    "numpy": lambda M=modulus, rows=rows: numpy_sum(rows, M),
                },
                repeats=3,
            )
            assert np.array_equal(secagg.aggregate(rows).total, numpy_sum(rows, modulus))
            ours, theirs = times["ours"], times["numpy"]
            report.add(f"{n:,}, {length:,}, {name}", 1e3 * ours, 1e3 * theirs, theirs / ours)
    report.notes.append("NumPy's sum overflows from n·M = 2^64 on; ours is exact up to M = 2^63")
    return report


def numpy_sum(rows: np.ndarray, modulus: int) -> np.ndarray:
    if rows.max() >= modulus:
        raise ValueError("out of range")
    return rows.sum(axis=0) % np.uint64(modulus)
