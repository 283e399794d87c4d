"""Tasks by name: a model, its data split by client, and settings that work.

The paper's settings, where a task is the paper's: one local epoch of batches of 32, server
momentum 0.9, count sketches of 15 rows, adaptive clipping from 0.1 at the median.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from experiments import datasets
from experiments.models import MLP, Model

__all__ = ["Settings", "Task", "get", "names"]

Data = str | os.PathLike[str] | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a training run uses where the configuration leaves it open.

    Attributes
    ----------
    rounds, clients : int
        Rounds, and clients in each; all of them where there are fewer.
    client_rate, batch_size : float, int
        Of the clients' gradient descent.
    server_rate, momentum : float
        Of the server's.
    clip_norm : float or "adaptive"
        ℓ₂ clip of an update.
    n_bits : int
        Bits of a coordinate of a message.
    """

    rounds: int
    clients: int
    client_rate: float = 0.1
    batch_size: int = 32
    server_rate: float = 0.3
    momentum: float = 0.9
    clip_norm: float | str = 0.5
    n_bits: int = 16


@dataclass(frozen=True)
class Task:
    """Something to train.

    Attributes
    ----------
    name, summary : str
        For people.
    settings : Settings
        Defaults of a run.
    load : callable
        From the ``--data`` option to :class:`~experiments.datasets.ClientData`.
    build : callable
        Returns the model.
    trains : bool
        False for a task of one round, whose mean itself is wanted.
    """

    name: str
    summary: str
    settings: Settings
    load: Callable[[Data], Any] = field(repr=False)
    build: Callable[[], Model] = field(repr=False)
    trains: bool = True


def names() -> list[str]:
    """Return the names that :func:`get` accepts."""
    return list(_TASKS)


def get(name: str) -> Task:
    """Return a task by its name.

    Examples
    --------
    >>> from experiments import tasks
    >>> tasks.get("mnist").build().n_parameters
    101770
    """
    if name in _TASKS:
        return _TASKS[name]
    close = difflib.get_close_matches(str(name), names(), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"task={name!r} is not known; there are {', '.join(names())}.{hint}")


def _digits(data: Data) -> datasets.ClientData:
    return datasets.digits()


def _mnist(data: Data) -> datasets.ClientData:
    return datasets.mnist_by_writer(data)


_MNIST = Settings(rounds=40, clients=100, clip_norm=0.5)

_TASKS = {
    task.name: task
    for task in (
        Task(
            "digits",
            "scikit-learn's 8x8 digits among 50 clients of uneven classes; nothing to download",
            Settings(rounds=60, clients=50, batch_size=16, clip_norm=0.5),
            _digits,
            lambda: MLP(64, 64, 10),
        ),
        Task(
            "mnist",
            "MNIST by writer, dense model of 101,770 parameters",
            _MNIST,
            _mnist,
            lambda: MLP(784, 128, 10),
        ),
        Task(
            "mnist-small",
            "MNIST by writer, dense model of 10,190 parameters: a tenth of mnist's",
            _MNIST,
            _mnist,
            lambda: MLP(784, 13, 10),
        ),
    )
}
