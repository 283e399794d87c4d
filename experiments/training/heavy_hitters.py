"""Heavy hitters: which items of a large domain many clients hold, from one private round.

No model and no training. A client's vector says which items it has; the mean over clients is truly
sparse, which is where sparse recovery pays. The columns are those of a public domain; what is
released are the columns that the private estimate puts first, and their names. Errors against the
exact data are kept apart as :class:`Evaluation`, since nothing charges for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from experiments.datasets import ClientSets, Domain, HashedItems, choose_domain
from experiments.datasets.domains import is_public, name_columns
from experiments.models.architectures import Architecture
from experiments.recordings.recording import Recording
from experiments.results.metrics import relative_error
from experiments.training.aggregation import Aggregator
from experiments.training.config import TrainingConfig
from experiments.training.records import RoundRecord, TrainingResult
from experiments.training.seeds import ClientRandomness
from sparse_secagg.privacy import Ledger

#: Items that are looked for.
N_TOP = 100


@dataclass(frozen=True)
class Evaluation:
    """How good the estimate is, from the exact data: **not private**, no part of the release."""

    relative_error: float  # ‖μ̂ − μ‖²/‖μ‖² over the columns of the domain
    #: Of the released columns, at most :data:`N_TOP`, against the truly most common.
    precision: float
    recall: float
    columns: tuple[int, ...]  # the truly most common columns
    top: tuple[str, ...]
    outside: float  # share of all (client, item) pairs whose item the domain leaves out


@dataclass(frozen=True, kw_only=True)
class HeavyHittersResult(TrainingResult):
    """One private estimate of how common each item is.

    ``accuracy`` is the recall, which is not private: see ``evaluation``.
    """

    domain: Domain  # what the columns are
    columns: tuple[int, ...]  # the released columns, the most common first
    top: tuple[str, ...]
    evaluation: Evaluation

    def named(self, candidates: Sequence[str]) -> HeavyHittersResult:
        """Return the result with hash cells named by a public list; this costs no privacy."""
        exact = self.evaluation
        return replace(
            self,
            top=name_columns(self.domain, self.columns, candidates),
            evaluation=replace(exact, top=name_columns(self.domain, exact.columns, candidates)),
        )


def one_round(
    config: TrainingConfig,
    data: ClientSets,
    *,
    record: str | os.PathLike[str] | None = None,
    progress: Callable[[RoundRecord, TrainingConfig], None] | None = None,
    ledger: Ledger | None = None,
) -> HeavyHittersResult:
    """Estimate the clients' mean once, and name its largest entries.

    The clients' vectors are recorded in the folder ``record``; the ledger is charged before the sum
    is opened, and ε is that of all it holds.
    """
    domain = choose_domain(config.domain, data)
    presence = data.on(domain)
    n, d = presence.shape
    layers = Architecture(f"presence of {d:,} items", {"items": (d,)})
    aggregator = Aggregator(config, layers, n, dense=False, ledger=ledger, domain=domain)
    start = time.perf_counter()
    cohort = ClientRandomness(config.seed).cohort(
        0, n, aggregator.n_clients, secret=aggregator.sampling.secret
    )
    rows = presence[cohort]
    if record is not None:
        recording = Recording.create(
            record, task=config.task, model=layers.name, shapes=layers.shapes, clip_norm=1.0
        )
        recording.append(0, rows, clip_norm=aggregator.clip_norm)
    estimate = aggregator.mean(rows, 0)
    found = reported(estimate)
    # a list that comes with the data names the cells of a hash; a public list has its own names
    known = data.public_list
    candidates = known.read() if known and isinstance(domain, HashedItems) else ()
    evaluation = _evaluate(estimate, found, presence, data, domain, candidates)
    result = RoundRecord(
        number=1,
        accuracy=evaluation.recall,
        privacy=aggregator.spent,
        clip_norm=aggregator.clip_norm,
        seconds=time.perf_counter() - start,
    )
    if progress is not None:
        progress(result, config)
    simulated = not config.private_noise or config.spec.noise_multiplier == 0
    return HeavyHittersResult(
        config=config,
        history=(result,),
        weights=estimate.astype(np.float32),
        bits_per_parameter=aggregator.bits_per_parameter,
        n_parameters=d,
        population=n,
        unconverged=aggregator.unconverged,
        not_private=simulated or not is_public(domain),
        observer=aggregator.observer,
        domain=domain,
        columns=tuple(found.tolist()),
        top=name_columns(domain, found.tolist(), candidates),
        evaluation=evaluation,
    )


def _evaluate(
    estimate: NDArray[np.floating],
    found: NDArray[np.int64],
    presence: sp.csr_array,
    data: ClientSets,
    domain: Domain,
    candidates: Sequence[str],
) -> Evaluation:
    """Compare an estimate with the exact mean of all clients."""
    truth = np.asarray(presence.mean(axis=0)).ravel()
    precision, recall = hits(found, truth)
    exact = tuple(reported(truth).tolist())
    column = np.array(domain.columns(data.vocabulary))
    return Evaluation(
        relative_error=relative_error(estimate, truth),
        precision=precision,
        recall=recall,
        columns=exact,
        top=name_columns(domain, exact, candidates),
        outside=float(np.mean(column[data.presence.indices] < 0)),
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
    if k == 0:
        return 0.0, 0.0
    least = np.sort(truth)[-k]
    right = int(np.sum(truth[found] >= least))
    return right / len(found) if len(found) else 0.0, min(right / k, 1.0)
