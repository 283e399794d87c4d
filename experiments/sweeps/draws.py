"""One private round of a cell, and what is measured of it with each decoder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.decoders import parse_decoder
from experiments.recordings.prepared import run_round
from experiments.results.compressibility import layer_slices
from experiments.results.metrics import cosine, relative_error, top_support
from experiments.spec import RoundSpec
from experiments.sweeps.cell import Measured
from experiments.sweeps.theory import predict
from sparse_secagg import SparseSecAgg, ThresholdFeedback

__all__ = ["Clients", "RoundDraw", "draw_round", "measure_round"]


@dataclass(frozen=True)
class Clients:
    """Who takes part in a round.

    Attributes
    ----------
    rows : array, sparse matrix or what makes blocks of rows, of shape (n, d)
        Their vectors, before clipping.
    mean : ndarray of shape (d,)
        What decoders estimate: the mean of the clipped vectors.
    shapes : mapping of str to tuple of int
        Layers by name; empty where not known.
    sparsity : int or None
        Nonzero entries of the mean, where the theory may know.
    """

    rows: Any
    mean: NDArray[np.float64]
    shapes: Mapping[str, tuple[int, ...]]
    sparsity: int | None = None


@dataclass(frozen=True)
class RoundDraw:
    """A round that was run, to be decoded as often as wanted."""

    fitted: SparseSecAgg
    clients: Clients
    plain: bool


@dataclass(frozen=True)
class RoundMetrics:
    """What is measured of one decoded round."""

    relative_error: float
    cosine: float
    squared_error: float
    squared_norm: float
    precision: float
    recall: float
    epsilon: float
    noise_std: float
    n_components: int
    bits_per_client: int
    bits_per_parameter: float
    clipped: float


def draw_round(
    clients: Clients, spec: RoundSpec, seed: int, *, threshold: float = 0.0, layers: str = "whole"
) -> RoundDraw:
    """Run one private round.

    Parameters
    ----------
    clients : Clients
        Who takes part.
    spec : RoundSpec
        The round.
    seed : int
        Of sketch and simulated noise.
    threshold : float
        Share of the sketch's entries, the smallest, that is set to zero before decoding.
    layers : {"whole", "separate"}
        Sketch the whole vector, or each layer by itself.
    """
    plain = layers == "whole" and not threshold
    if threshold:
        spec = replace(spec, feedback=ThresholdFeedback(threshold))
    if layers == "separate":
        whole = {"vector": slice(0, len(clients.mean))}
        spec = replace(spec, layers=layer_slices(clients.shapes) or whole)
    return RoundDraw(run_round(clients.rows, spec, seed), clients, plain)


def measure_round(draw: RoundDraw, spec: RoundSpec, *, top: int) -> Measured:
    """Decode a round and compare with the truth; largest ``top`` entries for precision, recall."""
    fitted, clients = draw.fitted, draw.clients
    solver = parse_decoder(spec.decoder, clients.shapes)
    start = time.perf_counter()
    estimate = fitted.decode(solver)
    seconds = time.perf_counter() - start
    d, truth = len(clients.mean), clients.mean
    squared_norm = float(truth @ truth)
    precision, recall = top_support(estimate, truth, top)
    measured = RoundMetrics(
        relative_error=relative_error(estimate, truth),
        cosine=cosine(estimate, truth),
        squared_error=float(np.sum((estimate - truth) ** 2)),
        squared_norm=squared_norm,
        precision=precision,
        recall=recall,
        epsilon=float(fitted.epsilon_),
        noise_std=float(fitted.noise_std_),
        n_components=int(fitted.operator_.shape[0]),
        bits_per_client=int(fitted.bits_per_client_),
        bits_per_parameter=float(fitted.bits_per_parameter_),
        clipped=fitted.diagnostics_.n_clipped / fitted.config_.mechanism.n_clients,
    )
    sketched = "identity" if spec.compression == 1 else spec.encoder
    theory = predict(
        encoder=sketched if draw.plain else None,
        d=d,
        m=measured.n_components,
        noise_std=measured.noise_std,
        central_std=fitted.config_.clip_norm
        * fitted.config_.mechanism.noise_multiplier
        / fitted.config_.mechanism.n_clients,
        norm=float(np.sqrt(squared_norm)),
        bits=measured.bits_per_client,
        sparsity=clients.sparsity,
    )
    return Measured({**asdict(measured), **asdict(theory), **_layers(estimate, clients)}, seconds)


def _layers(estimate: NDArray[np.floating], clients: Clients) -> dict[str, float]:
    """Return the relative error of each layer, where there are several."""
    parts = layer_slices(clients.shapes)
    if len(parts) < 2:
        return {}
    return {
        f"error of {name}": relative_error(estimate[part], clients.mean[part])
        for name, part in parts.items()
    }
