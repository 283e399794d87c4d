"""Encoders against NumPy and SciPy: count sketch, Walsh–Hadamard, memory."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse as sp

from benchmarks.harness import Report, peak_bytes, seconds_interleaved
from solvers.parallel import for_each, n_threads
from sparse_secagg import CountSketchEncoder
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
        walsh_hadamard([10, 16] if quick else [10, 12, 14, 16, 18, 20, 22]),
        walsh_hadamard([16] if quick else [14, 20], np.float32),
    ]


def count_sketch(d: int, n_rows: int = 15, compression: int = 10, batch: int = 32) -> Report:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((batch, d))
    encoder = CountSketchEncoder(compression=compression, n_rows=n_rows, random_state=0).fit(X)
    S = encoder.operator_
    peer = NumpyCountSketch(d, n_rows, encoder.width_)
    x, y = X[0], S @ X[0]
    stored = _stored(peer)
    stored_back = stored.T.tocsr()
    times = seconds_interleaved(
        {
            "encode": lambda: S.matvec(x),
            "encode, NumPy": lambda: peer.encode(x),
            "encode, stored": lambda: stored @ x,
            "decode": lambda: S.rmatvec(y),
            "decode, NumPy": lambda: peer.decode(y),
            "decode, stored": lambda: stored_back @ y,
            "batch": lambda: S.matmat(X.T),
            "copy": lambda: np.copyto(X[1], x),
        },
        repeats=7,
    )
    agreement = np.linalg.norm(peer.decode(peer.encode(x)) - x) / np.linalg.norm(x)
    ours = np.linalg.norm(S.rmatvec(y) - x) / np.linalg.norm(x)
    report = Report(
        f"count sketch, d = {d:,}, t = {n_rows}, r = {compression}",
        ["work (peer)", "ours ms", "peer ms", "times faster"],
    )
    for work in ("encode", "decode"):
        for name, kind in (("NumPy", "NumPy"), ("SciPy, CSR stored", "stored")):
            mine, theirs = times[work], times[f"{work}, {kind}"]
            report.add(f"{work} ({name})", 1e3 * mine, 1e3 * theirs, theirs / mine)
    per_client = times["batch"] / batch
    report.add(
        f"encode, each of {batch} (ours, alone)",
        1e3 * per_client,
        1e3 * times["encode"],
        times["encode"] / per_client,
    )
    extra = peak_bytes(lambda: S.matvec(x))
    gigabytes = 16 * d / times["copy"] / 1e9
    report.notes += [
        f"SciPy: made beforehand and kept, {(stored.data.nbytes + stored.indices.nbytes) / 1e6:.0f}"
        f" MB each way; ours keeps nothing. Limit: a copy of x takes {1e3 * times['copy']:.2f} ms, "
        f"{gigabytes:.0f} GB/s",
        f"relative error of unsketch(sketch(x)): ours {ours:.4f}, NumPy {agreement:.4f}, "
        f"theory {np.sqrt((d - 1) / S.shape[0]):.4f}",
        f"peak extra memory of encode: {extra / 1e6:.2f} MB = {extra / (8 * (S.shape[0] + d)):.3f}"
        " × 8(m + d) bytes; index arrays of all rows would take "
        f"{16 * n_rows * d / 1e6:.0f} MB",
    ]
    return report


def _stored(peer: NumpyCountSketch) -> sp.csr_array:
    """Return the matrix of a sketch, which its users would make once and keep."""
    columns = np.arange(peer.d)
    blocks = []
    for row in range(peer.n_rows):
        buckets, signs = peer._hashes(row)
        entries = signs / np.sqrt(peer.n_rows), (buckets, columns)
        blocks.append(sp.csr_array(entries, shape=(peer.width, peer.d)))
    return sp.vstack(blocks, format="csr")


def walsh_hadamard(log2_lengths: list[int], dtype: type = np.float64) -> Report:
    ffht = _ffht()
    peers = ["before", "rfft", *ffht]
    report = Report(
        f"Walsh–Hadamard transform, {dtype.__name__}, µs",
        ["length", "ours", "1 thread", *peers, "copy", *(f"×{peer}" for peer in peers)],
    )
    for log2_length in log2_lengths:
        x = np.random.default_rng(0).standard_normal(2**log2_length).astype(dtype)
        work = x.copy()
        times = seconds_interleaved(
            {
                "ours": partial(fwht, work),
                "1 thread": partial(_on_one_thread, fwht, work),
                "before": partial(_former_fwht, work),
                "rfft": partial(scipy.fft.rfft, x, workers=2),
                **{name: partial(transform, work) for name, transform in ffht.items()},
                "copy": partial(np.copyto, work, x),
            },
            repeats=max(40, 2**22 // len(x)),
            warm=True,
        )
        report.add(
            f"2^{log2_length}",
            *[1e6 * seconds for seconds in times.values()],
            *[times[peer] / times["ours"] for peer in peers],
        )
    error = np.abs(fwht(fwht(x.copy())) - x).max()
    extra = peak_bytes(lambda: fwht(work)) / work.nbytes
    report.notes = [
        f"ours and before (two stages at a time): {n_threads()} threads; rfft: SciPy, two workers",
        "each right after a call of the same: what others left in the caches is no matter",
        "FFHT (C, AVX), where it is installed: one thread, its product left unscaled",
        f"2^{log2_lengths[-1]}: largest error of H(Hx) − x {error:.0e}, "
        f"extra memory {extra:.0e} of the array",
    ]
    return report


def _ffht() -> dict[str, Callable[[np.ndarray], Any]]:
    """Return FFHT, which ``pip install pybind11 && pip install FFHT-unofficial`` compiles."""
    if not importlib.util.find_spec("ffht"):
        return {}
    import ffht

    return {"FFHT": ffht.fht_}


def _on_one_thread(function: Callable, x: np.ndarray) -> None:
    before = os.environ.get("NUMBA_NUM_THREADS")
    os.environ["NUMBA_NUM_THREADS"] = "1"
    try:
        function(x)
    finally:
        del os.environ["NUMBA_NUM_THREADS"]
        if before is not None:
            os.environ["NUMBA_NUM_THREADS"] = before


def _former_fwht(vector: np.ndarray) -> None:
    """Transform rows, then columns in strips, as the package did before."""
    from benchmarks._former_kernels import transform_rows, transform_strip

    D, one = len(vector), vector.dtype.type(1)
    scale = vector.dtype.type(D**-0.5)
    if D < 2**14:
        return transform_rows(vector.reshape(1, D), scale)
    n_columns = 1 << (D.bit_length() // 2)
    X = vector.reshape(-1, n_columns)
    chunks = np.array_split(X, n_threads())
    for_each(lambda i: transform_rows(chunks[i], one), len(chunks))
    width = int(np.clip(2**17 // len(X), 8, 64))
    n_tasks = min(n_threads(), n_columns // width)

    def transform_strips(task: int) -> None:
        buffer = np.empty(len(X) * width, dtype=X.dtype)
        for start in range(task * width, n_columns, n_tasks * width):
            transform_strip(X, start, width, scale, buffer)

    for_each(transform_strips, n_tasks)
