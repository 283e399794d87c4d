"""Federated averaging through the private pipeline.

Each round a cohort of clients trains the server's model on its own data for one epoch; the server
learns the noisy mean sketch of their clipped updates, decodes it and takes a step with momentum:

    u_i = local training from w;   û ≈ mean of clip(u_i);   v ← βv + û;   w ← w + ηv.

All randomness is a function of (seed, round, client), so that a run that was stopped goes on to
exactly the weights it would have reached.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import NDArray

from experiments.datasets import ClientData
from experiments.models import Model
from experiments.models.base import Examples
from experiments.sweeps.workers import connect
from experiments.training import tasks
from experiments.training.aggregation import Aggregator, training_decoder
from experiments.training.callbacks import Callback, Progress, Recorder, Round, Run
from experiments.training.checkpoints import Checkpoints
from experiments.training.config import TrainingConfig
from experiments.training.records import RoundRecord, TrainingResult, TrainingState
from experiments.training.seeds import ClientRandomness
from solvers.parallel import one_blas_thread
from sparse_secagg.privacy import Ledger


def run_training(
    config: TrainingConfig,
    *,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    record: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Any = None,
    checkpoint_every: int = 1,
    callbacks: Sequence[Callback] = (),
) -> TrainingResult:
    """Train, and return the curve of accuracies and what the rounds cost.

    Parameters
    ----------
    config : TrainingConfig
        What to train and how.
    output : path, optional
        Folder of the checkpoint, written after every ``checkpoint_every`` rounds.
    resume : bool
        Go on from the checkpoint in ``output``, which must be of the same configuration.
    record : path, optional
        Folder in which the clients' updates, before clipping, are recorded.
    jobs : int
        Threads of the local training. The result does not depend on it.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers train the clients and encode their updates in
        place of these threads. The result is the same.
    progress : callable, optional
        Called with each :class:`RoundRecord` and the configuration.
    checkpoint_every : int
        Rounds between checkpoints.
    callbacks : sequence of Callback
        One's own, after those that the other arguments ask for.

    Returns
    -------
    TrainingResult
        Every round's accuracy and privacy, and the final weights.

    See Also
    --------
    TrainingConfig : What is trained and how.

    Examples
    --------
    >>> from experiments import TrainingConfig, run_training
    >>> result = run_training(TrainingConfig(task="digits", rounds=1, clients=5))
    >>> len(result.accuracy)
    1
    """
    model = tasks.get(config.task).model()
    if scheduler is not None and model.sparse:
        raise ValueError(
            f"scheduler={scheduler!r}: clusters train models with dense updates, which "
            f"task={config.task!r} does not have; leave it out."
        )
    # a decoder that does not exist must not cost the loading of the data
    training_decoder(config.spec.decoder, debias=config.debias, shapes=model.shapes)
    if resume and output is None:
        raise ValueError("resume needs output, the folder of the run to go on with.")
    hooks: list[Callback] = [Progress(progress)] if progress is not None else []
    if output is not None:
        hooks += [Checkpoints(Path(output), resume=resume, every=checkpoint_every)]
    hooks += [Recorder(record)] if record is not None else []
    run = Run(config, model, TrainingState.start(model.n_parameters))
    with nullcontext() if scheduler is None else connect(scheduler) as cluster:
        return _train(run, jobs, cluster, [*hooks, *callbacks])


def _train(run: Run, jobs: int, cluster: Any, callbacks: Sequence[Callback]) -> TrainingResult:
    config, model = run.config, run.model
    data = load_data(config.task, config.data)  # first: without data no file is touched
    for callback in callbacks:
        callback.before_training(run)
    state = run.state
    aggregator = Aggregator(config, model.architecture, len(data.clients), state, ledger=run.ledger)
    for current in training_rounds(
        config, model, data, state, jobs=jobs, cluster=cluster, aggregator=aggregator
    ):
        state = current.state
        # a checkpoint stands for what recorders have seen, and progress tells what is saved
        stops = [callback.after_round(current) for callback in reversed(callbacks)]
        if any(stops):
            break
    result = TrainingResult(
        config=config,
        history=state.history,
        weights=state.weights,
        bits_per_parameter=aggregator.bits_per_parameter,
        n_parameters=model.n_parameters,
        population=len(data.clients),
        unconverged=state.unconverged,
        not_private=not config.private_noise or config.spec.noise_multiplier == 0,
        observer=aggregator.observer,
    )
    for callback in callbacks:
        callback.after_training(result)
    return result


def training_rounds(
    config: TrainingConfig,
    model: Model,
    data: ClientData,
    state: TrainingState | None = None,
    *,
    jobs: int = 1,
    cluster: Any = None,
    ledger: Ledger | None = None,
    aggregator: Aggregator | None = None,
) -> Iterator[Round]:
    """Yield the rounds of a run, from ``state`` on; :func:`run_training` keeps and reports them.

    ``jobs`` threads train the clients, or the workers of ``cluster``, a ``distributed.Client``,
    train and encode them. Each round charges the ledger before its sum is opened: the
    one given, or that of the aggregator, or one in memory.
    """
    state = TrainingState.start(model.n_parameters) if state is None else state
    randomness = ClientRandomness(config.seed)
    population = len(data.clients)
    if aggregator is None:
        aggregator = Aggregator(config, model.architecture, population, state, ledger=ledger)
    weights, velocity = state.weights, state.velocity
    if state.rounds == 0:
        weights = model.initial(randomness.initial)
    here = cluster is None and not model.sparse
    rows = np.empty((aggregator.n_clients if here else 0, model.n_parameters), np.float32)
    for number in range(state.rounds, config.spec.rounds):
        start = time.perf_counter()
        cohort = randomness.cohort(
            number, population, aggregator.n_clients, secret=aggregator.sampling.secret
        )
        local = _Local(model, weights, config, number)
        if cluster is None:
            updates = local.in_threads(data, cohort, rows, jobs)
        else:
            updates = local.on_cluster(data, cohort, cluster)
        clip_norm = aggregator.clip_norm
        mean = aggregator.mean(updates, number)
        velocity = (config.momentum * velocity + mean).astype(np.float32)
        weights = (weights + config.server_rate * velocity).astype(np.float32)
        with one_blas_thread():
            accuracy = model.accuracy(weights, *data.test)
        record = RoundRecord(
            number=number + 1,
            accuracy=accuracy,
            privacy=aggregator.spent,
            clip_norm=clip_norm,
            seconds=time.perf_counter() - start,
        )
        state = TrainingState(
            weights=weights,
            velocity=velocity,
            history=(*state.history, record),
            clip_norm=aggregator.clip_norm,
            unconverged=aggregator.unconverged,
            dropped=aggregator.dropped,
        )
        yield Round(record, state, updates, aggregator)


@dataclass(frozen=True)
class _Local:
    """The local training of one round: in threads here, or on a cluster."""

    model: Model
    weights: NDArray[np.float32]  # where every client starts
    config: TrainingConfig
    number: int  # of the round

    def update(self, client: int, examples: Examples, out: Any = None) -> Any:
        """Return one client's update, written to ``out`` where that is given."""
        return self.model.local_update(
            self.weights,
            examples,
            learning_rate=self.config.client_rate,
            batch_size=self.config.batch_size,
            rng=ClientRandomness(self.config.seed).local(self.number, client),
            out=out,
        )

    def block(self, members: Sequence[tuple[int, Examples]]) -> NDArray[np.float32]:
        """Return the updates of some clients, given by number and data, one a row."""
        with one_blas_thread():
            return np.stack([self.update(client, examples) for client, examples in members])

    def in_threads(
        self, data: ClientData, cohort: NDArray[np.int64], updates: NDArray[np.float32], jobs: int
    ) -> Any:
        """Return the updates of the cohort, one a row: in ``updates``, or as a sparse matrix."""
        names, sparse = list(data.clients), self.model.sparse

        def train(start: int, stop: int) -> list[Any]:
            return [
                self.update(client, data.clients[names[client]], None if sparse else updates[row])
                for row, client in enumerate(cohort[start:stop].tolist(), start)
            ]

        with one_blas_thread():
            # threads: the products release the interpreter lock, and nothing is copied
            parts = _parts(len(cohort), 4 * jobs if jobs > 0 else len(cohort))
            made = Parallel(n_jobs=jobs, prefer="threads")(delayed(train)(*part) for part in parts)
        return sp.csr_array(sp.vstack(list(itertools.chain(*made)))) if sparse else updates

    def on_cluster(self, data: ClientData, cohort: NDArray[np.int64], client: Any) -> Any:
        """Return a Dask array whose blocks are trained by the workers that encode them.

        A block's data go to its worker; the model and its weights to each worker once.
        """
        import dask.array as da
        from dask.delayed import delayed as lazily

        names = list(data.clients)
        local = lazily(self, name=f"local-training-{secrets.token_hex(8)}")
        blocks = []
        for start, stop in _parts(len(cohort), 4 * sum(client.nthreads().values())):
            members = [(i, data.clients[names[i]]) for i in cohort[start:stop].tolist()]
            shape = (stop - start, self.model.n_parameters)
            rows = da.from_delayed(local.block(members), shape, dtype=np.float32)  # type: ignore[no-untyped-call]
            blocks.append(rows)
        return da.concatenate(blocks)  # type: ignore[no-untyped-call]


def _parts(n: int, count: int) -> list[tuple[int, int]]:
    """Return the ends of at most ``count`` runs that n rows fall into."""
    ends = np.linspace(0, n, max(1, min(n, count)) + 1).astype(int).tolist()
    return list(itertools.pairwise(ends))


@lru_cache(maxsize=1)
def load_data(task: str, data: str | None) -> Any:
    """Return the data of a task; the last is kept, since a sweep trains on it many times."""
    return tasks.get(task).load(data)
