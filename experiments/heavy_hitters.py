"""Heavy hitters: which items of a large domain many clients hold, from one private round.

No model and no training. A client's vector says which items it has; the mean over clients is truly
sparse, which is where sparse recovery pays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.aggregation import Aggregator
from experiments.datasets import ClientSets
from experiments.federated import RoundRecord, TrainingResult
from experiments.metrics import relative_error
from experiments.models.architectures import Architecture
from experiments.recording import Recording
from experiments.seeds import ClientRandomness

if TYPE_CHECKING:
    from experiments.training_config import TrainingConfig

__all__ = ["N_TOP", "HeavyHittersResult", "hits", "one_round"]

#: Items that are looked for.
N_TOP = 100


@dataclass(frozen=True, kw_only=True)
class HeavyHittersResult(TrainingResult):
    """One private estimate of how common each item is; ``accuracy`` is the recall.

    Attributes
    ----------
    relative_error : float
        ‖μ̂ − μ‖²/‖μ‖².
    precision, recall : float
        Of the reported items, at most :data:`N_TOP`, against the truly most common.
    top : tuple of str
        The reported items, the most common first.
    """

    relative_error: float
    precision: float
    recall: float
    top: tuple[str, ...]


def one_round(
    config: TrainingConfig,
    data: ClientSets,
    *,
    record: str | os.PathLike[str] | None = None,
    progress: Callable[[RoundRecord, TrainingConfig], None] | None = None,
) -> HeavyHittersResult:
    """Estimate the clients' mean once, and compare its largest entries with the truth.

    Parameters
    ----------
    config : TrainingConfig
        As resolved.
    data : ClientSets
        Who holds what.
    record : path, optional
        Folder in which the clients' vectors are recorded.
    progress : callable, optional
        Called with the round and the configuration.
    """
    n, d = data.presence.shape
    layers = Architecture(f"presence of {d:,} items", {"items": (d,)})
    aggregator = Aggregator(config, layers, n, dense=False)
    start = time.perf_counter()
    cohort = ClientRandomness(config.seed).cohort(
        0, n, aggregator.n_clients, secret=aggregator.sampling.secret
    )
    rows = data.presence[cohort]
    if record is not None:
        recording = Recording.create(
            record, task=config.task, model=layers.name, shapes=layers.shapes, clip_norm=1.0
        )
        recording.append(0, rows, clip_norm=aggregator.clip_norm)
    estimate = aggregator.mean(rows, 0)
    truth = np.asarray(data.presence.mean(axis=0)).ravel()
    found = reported(estimate)
    precision, recall = hits(found, truth)
    result = RoundRecord(
        number=1,
        accuracy=recall,
        privacy=aggregator.spent,
        clip_norm=aggregator.clip_norm,
        seconds=time.perf_counter() - start,
    )
    if progress is not None:
        progress(result, config)
    return HeavyHittersResult(
        config=config,
        history=(result,),
        weights=estimate.astype(np.float32),
        bits_per_parameter=aggregator.bits_per_parameter,
        n_parameters=d,
        population=n,
        unconverged=aggregator.unconverged,
        not_private=not config.private_noise or config.noise_multiplier == 0,
        observer=aggregator.observer,
        relative_error=relative_error(estimate, truth),
        precision=precision,
        recall=recall,
        top=tuple(data.vocabulary[j] for j in found),
    )


def reported(estimate: NDArray[np.floating], k: int = N_TOP) -> NDArray[np.int64]:
    """Return the k largest entries that are above zero, in decreasing order."""
    order = np.argsort(-estimate, kind="stable")[:k]
    return order[estimate[order] > 0]


def hits(
    found: NDArray[np.int64], truth: NDArray[np.floating], k: int = N_TOP
) -> tuple[float, float]:
    """Return precision and recall of ``found`` against the k most common items.

    An item as common as the k-th counts as right, since which of them is the k-th is chance.
    """
    k = min(k, int(np.count_nonzero(truth)))
    least = np.sort(truth)[-k]
    right = int(np.sum(truth[found] >= least))
    return right / len(found) if len(found) else 0.0, min(right / k, 1.0)
