"""One client's message, all steps: clip, rotate, round conditionally, check, noise, modulo.

The peer is the same pipeline in plain NumPy with OpenDP's exact noise. Both messages are decoded
and their errors, in units of the planned noise, are printed beside.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import opendp.prelude as dp

from benchmarks.harness import Report, seconds_interleaved
from solvers.parallel import n_threads
from sparse_secagg.mechanisms import DiscreteGaussian, MechanismParameters
from sparse_secagg.mechanisms.rotation import Rotation


def run(quick: bool) -> list[Report]:
    dp.enable_features("contrib")
    report = Report(
        "Encode one client, b = 16, milliseconds",
        ["m", "rotation", "ours", "NumPy + OpenDP", "ratio", "error, ours", "error, peer"],
    )
    n_clients = 100
    for m in (10_000,) if quick else (10_000, 100_000):
        y = np.random.default_rng(0).normal(size=m)
        y /= np.linalg.norm(y)
        for rotation in ("dft", "hadamard"):
            mechanism = DiscreteGaussian(epsilon=1.0, n_bits=16, rotation=rotation, random_state=0)
            parameters = mechanism.calibrate(n_clients, m)
            peer = NumpyPeer(parameters)
            times = seconds_interleaved(
                {"ours": partial(mechanism.encode, y), "peer": partial(peer.encode, y)}, repeats=3
            )
            report.add(
                m,
                rotation,
                1e3 * times["ours"],
                1e3 * times["peer"],
                times["peer"] / times["ours"],
                _error(mechanism, mechanism.encode(y), y),
                _error(mechanism, peer.encode(y), y),
            )
    report.notes = [
        f"ours: {n_threads()} threads; a fresh key for the client and every chunk of noise "
        "included. The peer uses NumPy's PCG64 for rounding and OpenDP's exact noise.",
        "error: root mean square of one decoded message over the planned noise; 1 is exact.",
    ]
    return [report]


def _error(mechanism: DiscreteGaussian, message: np.ndarray, y: np.ndarray) -> float:
    decoded = mechanism.decode(message, 1)
    return float(np.sqrt(((decoded - y) ** 2).mean())) / mechanism.noise_std(1)


class NumpyPeer:
    """Algorithm "detailed" written down directly."""

    def __init__(self, p: MechanismParameters) -> None:
        self.p = p
        self.rng = np.random.default_rng()
        self.rotation = Rotation(p.rotation, p.dim, p.seed)
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        self.noise = dp.m.make_gaussian(*space, scale=math.sqrt(p.variance))

    def encode(self, y: np.ndarray) -> np.ndarray:
        p = self.p
        clipped = y * min(1.0, p.clip_norm / np.linalg.norm(y))
        x = self.rotation.forward(clipped[None])[0] / p.gamma
        floor = np.floor(x)
        while True:
            rounded = (floor + (self.rng.random(len(x)) < x - floor)).astype(np.int64)
            if int((rounded * rounded).sum()) <= p.squared_bound:
                break
        noisy = np.array(self.noise(rounded.tolist()), dtype=np.int64)
        return (noisy % p.modulus).astype(np.uint64)
