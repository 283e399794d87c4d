"""Encoders against NumPy and SciPy: count sketch, Walsh–Hadamard, memory, growth with d."""

from __future__ import annotations

import numpy as np
import scipy.fft

from benchmarks.harness import Report, peak_bytes, seconds, seconds_interleaved
from sparse_secagg import CountSketchEncoder, HadamardEncoder
from sparse_secagg.walsh_hadamard import fwht


class NumpyCountSketch:
    """The count sketch as one writes it in NumPy: ``bincount`` to encode, a gather to decode.

    Hashes are drawn anew for every product, as ours are, by NumPy's default generator: faster
    than any counter-based hash written in NumPy.
    """

    def __init__(self, d: int, n_rows: int, width: int) -> None:
        self.d, self.n_rows, self.width = d, n_rows, width

    def _hashes(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([7, row])
        return rng.integers(0, self.width, self.d), 2.0 * rng.integers(0, 2, self.d) - 1.0

    def encode(self, x: np.ndarray) -> np.ndarray:
        table = np.empty((self.n_rows, self.width))
        for row in range(self.n_rows):
            buckets, signs = self._hashes(row)
            table[row] = np.bincount(buckets, signs * x, self.width)
        return table.ravel() / np.sqrt(self.n_rows)

    def decode(self, y: np.ndarray) -> np.ndarray:
        x = np.zeros(self.d)
        table = y.reshape(self.n_rows, self.width)
        for row in range(self.n_rows):
            buckets, signs = self._hashes(row)
            x += signs * table[row, buckets]
        return x / np.sqrt(self.n_rows)


def run(quick: bool) -> list[Report]:
    return [
        count_sketch(d=10**5 if quick else 10**6),
        walsh_hadamard([16] if quick else [20, 22]),
        growth([10**4, 10**5] if quick else [10**4, 10**5, 10**6, 10**7]),
    ]


def count_sketch(d: int, n_rows: int = 15, compression: int = 10, batch: int = 32) -> Report:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((batch, d))
    encoder = CountSketchEncoder(compression=compression, n_rows=n_rows, random_state=0).fit(X)
    S = encoder.operator_
    peer = NumpyCountSketch(d, n_rows, encoder.width_)
    x, y = X[0], S @ X[0]
    times = seconds_interleaved(
        {
            "encode": lambda: S.matvec(x),
            "encode, NumPy": lambda: peer.encode(x),
            "decode": lambda: S.rmatvec(y),
            "decode, NumPy": lambda: peer.decode(y),
            "batch": lambda: S.matmat(X.T),
        },
        repeats=7,
    )
    agreement = np.linalg.norm(peer.decode(peer.encode(x)) - x) / np.linalg.norm(x)
    ours = np.linalg.norm(S.rmatvec(y) - x) / np.linalg.norm(x)
    report = Report(
        f"count sketch, d = {d:,}, t = {n_rows}, r = {compression}",
        ["work", "ours ms", "peer ms", "times faster"],
    )
    for work in ("encode", "decode"):
        mine, theirs = times[work], times[f"{work}, NumPy"]
        report.add(f"{work} (peer: NumPy)", 1e3 * mine, 1e3 * theirs, theirs / mine)
    per_client = times["batch"] / batch
    report.add(
        f"encode in a batch of {batch}, per client (peer: ours, alone)",
        1e3 * per_client,
        1e3 * times["encode"],
        times["encode"] / per_client,
    )
    extra = peak_bytes(lambda: S.matvec(x))
    report.notes += [
        f"relative error of unsketch(sketch(x)): ours {ours:.4f}, NumPy {agreement:.4f}, "
        f"theory {np.sqrt((d - 1) / S.shape[0]):.4f}",
        f"peak extra memory of encode: {extra / 1e6:.2f} MB = {extra / (8 * (S.shape[0] + d)):.3f}"
        " × 8(m + d) bytes; index arrays of all rows would take "
        f"{16 * n_rows * d / 1e6:.0f} MB",
    ]
    return report


def walsh_hadamard(log2_lengths: list[int]) -> Report:
    report = Report(
        "Walsh–Hadamard transform",
        ["length", "ours ms", "rfft ms", "rfft, 2 workers ms", "times faster than rfft"],
    )
    for log2_length in log2_lengths:
        x = np.random.default_rng(0).standard_normal(2**log2_length)
        work = x.copy()
        times = seconds_interleaved(
            {
                "ours": lambda work=work: fwht(work),
                "rfft": lambda x=x: scipy.fft.rfft(x),
                "rfft2": lambda x=x: scipy.fft.rfft(x, workers=2),
            },
            repeats=15,
        )
        error = np.abs(fwht(fwht(x.copy())) - x).max()
        report.add(
            f"2^{log2_length}",
            *[1e3 * times[name] for name in ("ours", "rfft", "rfft2")],
            times["rfft"] / times["ours"],
        )
        report.notes.append(f"2^{log2_length}: largest error of H(Hx) − x: {error:.1e}")
    return report


def growth(dimensions: list[int]) -> Report:
    report = Report(
        "growth with d (r = 10), ms",
        ["d", "count sketch encode", "decode", "Hadamard encode", "decode"],
    )
    for d in dimensions:
        x = np.random.default_rng(0).standard_normal(d)
        cells = []
        for encoder in (CountSketchEncoder(random_state=0), HadamardEncoder(random_state=0)):
            S = encoder.fit_dimension(d).operator_
            y = S.matvec(x)
            cells.append(1e3 * seconds(lambda S=S, x=x: S.matvec(x), repeats=3))
            cells.append(1e3 * seconds(lambda S=S, y=y: S.rmatvec(y), repeats=3))
        report.add(f"{d:,}", *cells)
    return report
