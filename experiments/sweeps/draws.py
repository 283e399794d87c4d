"""One private round of a cell, and what is measured of it with each decoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import solvers
from experiments.models.architectures import layer_slices
from experiments.results.metrics import cosine, relative_error, top_support
from experiments.sweeps.cell import Measured
from experiments.sweeps.theory import message_passing_limit, predict
from sparse_secagg import Aggregate, RoundSpec, ThresholdFeedback, plan
from sparse_secagg.counting.domains import Domain
from sparse_secagg.decoder_texts import parse_decoder
from sparse_secagg.planner import Plan

#: Start of the name of a metric that is the error of one layer.
LAYER = "error of "

#: Noise that rounding may add when the bits are chosen, and bits at which it adds none.
_BITS_SLACK = 0.02
_MORE_BITS = 12
#: Bits of a round without noise, where the planner has no noise to hide the rounding in.
_BITS_WITHOUT_NOISE = 24


@dataclass(frozen=True)
class Clients:
    """Who takes part in a round."""

    rows: Any  # their vectors, before clipping
    mean: NDArray[np.float64]  # what decoders estimate: the mean of the clipped vectors
    shapes: Mapping[str, tuple[int, ...]]  # layers by name; empty where not known
    sparsity: int | None = None  # nonzero entries of the mean, where the theory may know
    domain: Domain | None = None  # what the entries are, where they are items


@dataclass(frozen=True)
class RoundDraw:
    """A round that was run: its clients, and what a server learns."""

    aggregate: Aggregate  # to be decoded as often as wanted
    clients: Clients  # who took part
    #: Encoder of the whole vector; None where layers or thresholds come between, for which the
    #: linear decoder's error has no closed form.
    sketched_by: str | None


def draw_round(
    clients: Clients, spec: RoundSpec, seed: int, *, threshold: float = 0.0, per_layer: bool = False
) -> RoundDraw:
    """Run one private round; ``seed`` is of sketch and simulated noise.

    At compression 1 nothing is sketched, whatever the encoder; the decoder is not used. Of the
    sketch's entries the smallest, a share ``threshold``, are set to zero before decoding.
    """
    n, d = clients.rows.shape
    encoder = "identity" if spec.compression == 1 else spec.encoder
    n_bits = enough_bits(spec, d, n) if spec.n_bits is None else spec.n_bits
    spec = spec.replace(encoder=encoder, n_bits=n_bits, decoder="linear", sparsity=None)
    if threshold:
        spec = spec.replace(feedback=ThresholdFeedback(threshold))
    if per_layer:
        spec = spec.replace(layers=layer_slices(clients.shapes) or {"vector": slice(0, d)})
    aggregate = spec.run(clients.rows, random_state=seed, simulation_seed=seed, diagnostics=True)
    return RoundDraw(aggregate, clients, None if threshold or per_layer else encoder)


def measure_round(draw: RoundDraw, decoder: str, *, top: int) -> Measured:
    """Decode a round and compare with the truth."""
    aggregate, clients = draw.aggregate, draw.clients
    solver = parse_decoder(decoder, clients.shapes, clients.domain)
    start = time.perf_counter()
    fitted = aggregate.fitted(solver)
    estimate = fitted.coef_
    seconds = time.perf_counter() - start
    truth = clients.mean
    squared_norm = float(truth @ truth)
    precision, recall = top_support(estimate, truth, top)
    m = int(aggregate.operator.shape[0])
    mechanism, seen = aggregate.config.mechanism, aggregate.diagnose(estimate)
    noise_std, n = float(aggregate.noise_std), int(mechanism.n_clients)
    metrics: dict[str, float | None] = {
        "relative_error": relative_error(estimate, truth),
        "cosine": cosine(estimate, truth),
        "squared_error": float(np.sum((estimate - truth) ** 2)),
        "squared_norm": squared_norm,
        "precision": precision,
        "recall": recall,
        "epsilon": float(aggregate.epsilon),
        "noise_std": noise_std,
        "n_components": m,
        "message_bits": int(mechanism.n_bits),
        "bits_per_client": int(aggregate.bits_per_client),
        "bits_per_parameter": float(aggregate.bits_per_parameter),
        "clipped": (seen.n_clipped if seen else 0) / n,
        "dim": len(truth),
        "n_clients": n,
    }
    metrics |= predict(
        encoder=draw.sketched_by,
        d=len(truth),
        m=m,
        noise_std=noise_std,
        central_std=aggregate.config.clip_norm * mechanism.noise_multiplier / n,
        norm=float(np.sqrt(squared_norm)),
        bits=int(aggregate.bits_per_client),
        sparsity=clients.sparsity,
    )
    metrics["theory_limit"] = message_passing_limit(fitted, truth, noise_std, m, draw.sketched_by)
    metrics |= {**_layers(estimate, clients), **_intervals(fitted, truth)}
    return Measured(metrics, seconds)


def _intervals(fitted: Any, truth: NDArray[np.float64]) -> dict[str, float]:
    """Return the share of 95 % intervals that cover, and their width, of unbiased decoders."""
    if getattr(fitted, "std_err_", None) is None:
        return {}
    low, high = solvers.confidence_interval(fitted.coef_, fitted.std_err_, 0.95).T
    return {
        "covered": float(np.mean((low <= truth) & (truth <= high))),
        "interval_width": float(np.mean(high - low)),
    }


def _layers(estimate: NDArray[np.floating], clients: Clients) -> dict[str, float]:
    """Return the relative error of each layer, where there are several."""
    parts = layer_slices(clients.shapes)
    if len(parts) < 2:
        return {}
    return {
        f"{LAYER}{name}": relative_error(estimate[part], clients.mean[part])
        for name, part in parts.items()
    }


def enough_bits(spec: RoundSpec, d: int, n: int) -> int:
    """Return the fewest bits at which rounding adds at most 2 % to the noise of the sketch.

    The planner looks at the error of a mean as long as the clip, where much noise hides behind the
    compression; what is compared here is mostly shorter.
    """
    if spec.noise_multiplier == 0:
        return _BITS_WITHOUT_NOISE
    compression = 1.0 if spec.encoder == "identity" else spec.compression
    known = spec.encoder if spec.encoder in ("count_sketch", "gaussian", "hadamard") else "hadamard"
    settled: Callable[..., Plan] = partial(
        plan,
        d,
        n,
        epsilon=spec.epsilon or 1.0,
        delta=spec.delta,
        noise_multiplier=spec.noise_multiplier,
        compression=compression,
        encoder="identity" if compression == 1 else known,
        mechanism=spec.mechanism if spec.mechanism in ("ddg", "skellam") else "ddg",
    )
    least = settled().n_bits

    def noise(n_bits: int) -> float:
        made = settled(n_bits=n_bits)
        return float(made.sigma**2 + made.gamma**2 / 4)

    most = least + _MORE_BITS
    floor = noise(most)
    return next(b for b in range(least, most + 1) if noise(b) <= (1 + _BITS_SLACK) * floor)
