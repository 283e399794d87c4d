"""Tasks by name: a model, its data split by client, and settings that work.

The paper's settings, where a task is the paper's: one local epoch of batches of 32, server
momentum 0.9, count sketches of 15 rows, adaptive clipping from 0.1 at the median.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from experiments import datasets
from experiments.datasets.files import data_folder
from experiments.models import MLP, Model, WordClassifier

Data = str | os.PathLike[str] | None
#: One round in which nothing is trained: which items clients hold.
HEAVY_HITTERS = "heavy-hitters"


@dataclass(frozen=True)
class Task:
    """Something to train."""

    #: For people.
    name: str
    summary: str
    #: Values of a :class:`~experiments.training.config.TrainingConfig` in place of its own.
    settings: Mapping[str, Any]
    #: From the ``--data`` option to :class:`~experiments.datasets.ClientData`.
    load: Callable[[Data], Any] = field(repr=False)
    model: Callable[[], Model] = field(repr=False)  # returns the model
    files: str = ""  # what the data folder has to hold; nothing where the data are embedded
    extras: tuple[str, ...] = ()  # of pip: what is imported beside the library


def names() -> list[str]:
    """Return the names that :func:`get` accepts."""
    return list(_TASKS)


def get(name: str) -> Task:
    """Return a task by its name.

    Examples
    --------
    >>> from experiments.training import tasks
    >>> tasks.get("mnist").model().n_parameters
    101770
    """
    if name in _TASKS:
        return _TASKS[name]
    close = difflib.get_close_matches(str(name), names(), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if name == HEAVY_HITTERS:
        hint = (
            " Heavy hitters train nothing: sparse-secagg count finds them, and sweep --task "
            f"{HEAVY_HITTERS} compares decoders on them."
        )
    raise ValueError(f"task={name!r} is not known; there are {', '.join(names())}.{hint}")


# -- data ---------------------------------------------------------------------------------------


def _digits(n_clients: int) -> Callable[[Data], datasets.ClientData]:
    return lambda data: datasets.digits(n_clients=n_clients)


def _next_word(words: int, **options: Any) -> Callable[[Data], datasets.ClientData]:
    def load(data: Data) -> datasets.ClientData:
        """Return Stack Exchange where a data folder is known, else Python's own documentation."""
        known = data_folder(data) is not None
        texts = datasets.stack_exchange(data) if known else datasets.python_docstrings()
        return datasets.next_word(texts, vocabulary_size=words, **options)

    return load


def _stack_overflow(data: Data) -> datasets.ClientData:
    """Return Stack Overflow, or Stack Exchange where the folder has that instead."""
    sizes: dict[str, Any] = {"vocabulary_size": 10_000, "max_sentences": 256}
    try:
        return datasets.next_word(datasets.stackoverflow(data), **sizes)
    except datasets.MissingDataError as missing:
        try:
            texts = datasets.stack_exchange(data)
        except datasets.MissingDataError:
            raise missing from None  # it is what should be got
    return datasets.next_word(texts, **sizes, max_test_sentences=2_000)


def _sites(data: Data) -> datasets.ClientData:
    return datasets.word_numbers(datasets.stack_exchange(data), vocabulary_size=20_000)


# -- models -------------------------------------------------------------------------------------


def _cnn(n_classes: int) -> Callable[[], Model]:
    def build() -> Model:
        from experiments.models.torch_models import emnist_cnn_model

        return emnist_cnn_model(n_classes)

    return build


def _lstm(vocabulary: int, embedding: int, hidden: int) -> Callable[[], Model]:
    def build() -> Model:
        from experiments.models.torch_models import NextWordLSTM

        return NextWordLSTM(vocabulary, embedding, hidden)

    return build


# -- the tasks ----------------------------------------------------------------------------------

#: Eight rows hash half as much as the paper's fifteen, and reach the same accuracy here.
_MNIST = {"rounds": 40, "clients": 100, "n_rows": 8}
_EMNIST = {
    "rounds": 1500,
    "clients": 100,
    "client_rate": 0.01,
    "server_rate": 1.0,
    "clip_norm": "adaptive",
}
#: Files in the data folder; docs/datasets.md says where they come from.
_MNIST_FILES = "mnist_by_writer.npz, or qmnist-{train,test}-*.gz"
_EMNIST_FILES = "fed_emnist_train.h5, fed_emnist_test.h5"
_DIGITS = {"rounds": 60, "clients": 50, "batch_size": 16, "n_rows": 8}

_TASKS = {
    task.name: task
    for task in (
        Task(
            "digits",
            "scikit-learn's 8x8 digits among 50 clients of uneven classes; nothing to download",
            _DIGITS,
            _digits(50),
            lambda: MLP(64, 64, 10),
        ),
        Task(
            "digits-small",
            "the same digits, model of 985 parameters: about a fifth of digits'",
            _DIGITS,
            _digits(50),
            lambda: MLP(64, 13, 10),
        ),
        Task(
            "digits-300",
            "the same digits among 300 clients, about five images each",
            {
                "rounds": 30,
                "clients": 300,
                "client_rate": 0.3,
                "batch_size": 4,
                "server_rate": 1.0,
                "clip_norm": 0.3,
                "n_bits": 18,
            },
            _digits(300),
            lambda: MLP(64, 64, 10),
        ),
        Task(
            "mnist",
            "MNIST by writer, dense model of 101,770 parameters",
            _MNIST,
            datasets.mnist_by_writer,
            lambda: MLP(784, 128, 10),
            files=_MNIST_FILES,
        ),
        Task(
            "mnist-small",
            "MNIST by writer, dense model of 10,345 parameters: about a tenth of mnist's",
            _MNIST,
            datasets.mnist_by_writer,
            lambda: MLP(784, 13, 10),
            files=_MNIST_FILES,
        ),
        Task(
            "fashion-mnist",
            "Fashion-MNIST among 500 clients of uneven classes, the model of mnist",
            _MNIST,
            datasets.fashion_mnist,
            lambda: MLP(784, 128, 10),
            files="{train,t10k}-*-ubyte.gz of Fashion-MNIST",
        ),
        Task(
            "emnist-cnn",
            "F-EMNIST, the paper's convolutional network of 1,018,174 parameters (PyTorch)",
            _EMNIST,
            datasets.femnist,
            _cnn(62),
            files=_EMNIST_FILES,
            extras=("hdf5", "torch"),
        ),
        Task(
            "mnist-cnn",
            "MNIST by writer, at most 60 images of each; the network of emnist-cnn with 10 outputs",
            {"rounds": 60, "clients": 50, "n_rows": 8},
            partial(datasets.mnist_by_writer, max_images=60),
            _cnn(10),
            files=_MNIST_FILES,
            extras=("torch",),
        ),
        Task(
            "site",
            "on which of 14 Stack Exchange sites a text was written: logistic regression on 20,000 "
            "words, 280,000 parameters",
            {
                "rounds": 60,
                "clients": 500,
                "client_rate": 5.0,
                "server_rate": 10.0,
                "clip_norm": 1.0,
                "n_rows": 8,
                "n_bits": 18,
            },
            _sites,
            lambda: WordClassifier(20_000, 14),
            files="se_all.json.gz",
        ),
        Task(
            "emnist-dense",
            "F-EMNIST, the paper's dense network of 209,662 parameters",
            _EMNIST,
            datasets.femnist,
            lambda: MLP(784, 200, 200, 62),
            files=_EMNIST_FILES,
            extras=("hdf5",),
        ),
        Task(
            "next-word",
            "next word of Stack Exchange or of Python's documentation, LSTM of 365,588 parameters "
            "(PyTorch)",
            {
                "rounds": 50,
                "clients": 50,
                "client_rate": 1.0,
                "server_rate": 0.5,
                "clip_norm": 1.0,
                "n_bits": 18,
            },
            _next_word(2_000, max_sentences=64, min_sentences=10, max_test_sentences=2_000),
            _lstm(2_004, 64, 128),
            files="se_all.json.gz; without --data none",
            extras=("torch",),
        ),
        Task(
            "next-word-paper",
            "next word of Stack Overflow, the paper's LSTM of 4,050,748 parameters (PyTorch)",
            _EMNIST | {"client_rate": 0.3, "server_rate": 1.78, "n_bits": 18},
            _stack_overflow,
            _lstm(10_004, 96, 670),
            files="stackoverflow_train.h5, stackoverflow_held_out.h5; or se_all.json.gz",
            extras=("hdf5", "torch"),
        ),
    )
}
