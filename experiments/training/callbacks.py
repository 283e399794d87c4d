"""What happens around the rounds of a training run: recording, progress, early stop.

A callback sees the run before its first round, every round after it, and the result. Checkpoints
are one, too; users add their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from experiments.models import Model
from experiments.recordings.recording import Recording
from experiments.training.aggregation import Aggregator
from experiments.training.config import TrainingConfig
from experiments.training.records import RoundRecord, TrainingResult, TrainingState
from sparse_secagg.privacy import Ledger
from sparse_secagg.round.dask_rows import is_dask_array


@dataclass
class Run:
    """A run before its first round; callbacks may set where it starts and what it charges."""

    config: TrainingConfig  # what is trained and how
    model: Model  # what is trained
    state: TrainingState  # where the run starts
    #: Charged by each round before its sum is opened; None for one in memory.
    ledger: Ledger | None = None


@dataclass(frozen=True)
class Round:
    """One round as it happened."""

    record: RoundRecord  # accuracy, ε so far, clip and time
    state: TrainingState  # the state after it
    #: What the clients sent, before clipping, one a row, sparse where the model's updates are;
    #: overwritten by the next round. On a cluster an array of Dask, which trains again where it is
    #: computed.
    updates: Any = field(repr=False)
    aggregator: Aggregator  # what made the private mean


class Callback:
    """Base of callbacks; each method may be left as it is.

    See Also
    --------
    EarlyStop : One that ends a training.
    run_training : Takes callbacks.

    Examples
    --------
    >>> from experiments.training.callbacks import Callback
    >>> class Norms(Callback):
    ...     def __init__(self):
    ...         self.found = []
    ...     def after_round(self, current):
    ...         self.found.append(float(abs(current.updates).max()))
    """

    def before_training(self, run: Run) -> None:
        """See the run before its first round."""

    def after_round(self, current: Round) -> bool | None:
        """See a round; return True to end the training after it."""

    def after_training(self, result: TrainingResult) -> None:
        """See the result."""


class Recorder(Callback):
    """Records the clients' updates, before clipping, in a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def before_training(self, run: Run) -> None:
        clip = run.config.spec.clip_norm
        self.recording = Recording.create(
            self.path,
            task=run.config.task,
            model=run.model.architecture.name,
            shapes=run.model.shapes,
            clip_norm=float(clip) if isinstance(clip, int | float) else None,
            seeds={"training": run.config.seed},
            exist_ok=run.state.rounds > 0,
        )

    def after_round(self, current: Round) -> bool | None:
        number = current.record.number - 1
        if number not in self.recording.rounds:
            clip, updates = current.record.clip_norm, current.updates
            if is_dask_array(updates):
                updates = updates.compute()
            self.recording.append(number, updates, clip_norm=clip)
        return None


class Progress(Callback):
    """Calls a function with each round's record and the configuration."""

    def __init__(self, tell: Callable[[RoundRecord, TrainingConfig], Any]) -> None:
        self.tell = tell

    def before_training(self, run: Run) -> None:
        self.config = run.config

    def after_round(self, current: Round) -> bool | None:
        self.tell(current.record, self.config)
        return None


class EarlyStop(Callback):
    """Ends the training when the test accuracy has not risen for so many rounds.

    Parameters
    ----------
    patience : int
        Rounds without a new best accuracy.

    See Also
    --------
    Callback : Its base.

    Notes
    -----
    The accuracy is measured on held-out data that is taken to be public.

    Examples
    --------
    >>> from experiments import EarlyStop, TrainingConfig, run_training
    >>> config = TrainingConfig(task="digits", rounds=2, clients=5)
    >>> len(run_training(config, callbacks=[EarlyStop(5)]).history)
    2
    """

    def __init__(self, patience: int) -> None:
        if not patience >= 1:
            raise ValueError(f"patience={patience!r} must be a whole number of at least 1.")
        self.patience = patience

    def after_round(self, current: Round) -> bool | None:
        accuracy = [record.accuracy for record in current.state.history]
        best = max(range(len(accuracy)), key=lambda k: accuracy[k])
        return len(accuracy) - 1 - best >= self.patience
