"""Datasets of TensorFlow Federated, F-EMNIST and Stack Overflow, read without TensorFlow.

In F-EMNIST 1.0 is the background: images are returned as 1 - pixels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import ClientData, ClientTexts, DataError, Examples, LazyClients
from experiments.datasets.files import find
from experiments.datasets.splits import hold_out, pooled
from experiments.datasets.tensorflow_federated.hdf5 import Hdf5Split
from experiments.datasets.tensorflow_federated.sqlite import SqliteSplit, split_names

N_CLASSES = 62  # digits, upper case, lower case
Split = SqliteSplit | Hdf5Split
_HELD_OUT = ("heldout", "held_out", "test")  # other people first, later texts else


def femnist(data: str | os.PathLike[str] | None = None, **options: Any) -> ClientData:
    """Return F-EMNIST by writer from a file of TensorFlow Federated; options as of `tff`."""
    found = _named("F-EMNIST", "emnist_all", "fed_emnist_train.h5", data, options)
    if not isinstance(found, ClientData):
        raise DataError("the file of F-EMNIST holds texts, not images; give its own path.")
    return found


def stackoverflow(data: str | os.PathLike[str] | None = None, **options: Any) -> ClientTexts:
    """Return Stack Overflow by user from a file of TensorFlow Federated; options as of `tff`."""
    found = _named("Stack Overflow", "stackoverflow", "stackoverflow_train.h5", data, options)
    if not isinstance(found, ClientTexts):
        raise DataError("the file of Stack Overflow holds images, not the texts; give its path.")
    return found


def _named(what: str, stem: str, hdf5: str, data: Any, options: Any) -> ClientData | ClientTexts:
    names = [f"{stem}.sqlite", f"{stem}.sqlite.lzma", hdf5]
    remedy = (
        f"Get https://storage.googleapis.com/tff-datasets-public/{names[1]}, expand it with unlzma "
        f"and put {names[0]} there, or {hdf5} and its test file."
    )
    return tff(find(names, data, what=what, remedy=remedy), **options)


def tff(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    max_clients: int | None = None,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> ClientData | ClientTexts:
    """Return a dataset of TensorFlow Federated; clients are read when asked for.

    Parameters
    ----------
    path : path
        ``.sqlite``, or the training file of a pair such as
        ``fed_emnist_train.h5`` and ``fed_emnist_test.h5``.
    split : str, optional
        Training split of a SQLite file; default ``train`` or ``all_train``. F-EMNIST also has
        ``digits_only_train``.
    max_clients : int, optional
        Only so many, in the order of the file, and as many for the test.
    test_fraction, seed : float, int
        If the file has no test data: which share of the clients is held out, and the draw.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    if max_clients is not None and max_clients < 1:
        raise ValueError(f"max_clients={max_clients}: at least one client must be read.")
    source: Split
    test: Split | None
    if path.suffix in (".h5", ".hdf5"):
        if split is not None:
            raise ValueError(f"split={split!r}: an HDF5 file is one split; give its path instead.")
        source, test = _hdf5_splits(path)
    else:
        source, test = _sqlite_splits(path, split)
    names = source.names(max_clients)
    if not names:
        raise DataError(f"{path} has no clients.")
    if "tokens" in source.features(names[0]):
        texts = LazyClients(names, _Texts(source))
        others = test.names(max_clients) if test else []
        return ClientTexts(texts, LazyClients(others, _Texts(test)) if test else {})
    images = LazyClients(names, _Images(source))
    if test is None:
        return hold_out(images, test_fraction, seed)
    known = set(test.names())
    reader = _Images(test)
    parts = [reader(name) for name in names if name in known]
    if not parts:
        parts = [reader(name) for name in test.names(max_clients)]
    return ClientData(images, pooled(parts))


def _hdf5_splits(path: Path) -> tuple[Hdf5Split, Hdf5Split | None]:
    siblings = [path.with_name(path.name.replace("train", other)) for other in _HELD_OUT]
    test = [other for other in siblings if other != path and other.is_file()]
    return Hdf5Split(path), Hdf5Split(test[0]) if test else None


def _sqlite_splits(path: Path, split: str | None) -> tuple[SqliteSplit, SqliteSplit | None]:
    if path.suffix == ".lzma":
        raise DataError(f"{path} is compressed; expand it once: unlzma --keep {path}")
    present = split_names(path)
    wanted = ["train", "all_train"] if split is None else [split]
    training = next((name for name in wanted if name in present), None)
    if training is None:
        raise DataError(
            f"{path} has no split {' or '.join(wanted)}; it has {', '.join(present) or 'none'}: "
            "choose with split=..."
        )
    others = [training.replace("train", other) for other in _HELD_OUT]
    test = next((name for name in others if name in present and name != training), None)
    return SqliteSplit(path, training), SqliteSplit(path, test) if test else None


@dataclass(frozen=True)
class _Images:
    """Reads the images of a client."""

    source: Split

    def __call__(self, client: str) -> Examples:
        where = f"{self.source.path}: client {client!r}"
        pixels, labels = (self.source.read(client, name) for name in ("pixels", "label"))
        if isinstance(pixels, list) or isinstance(labels, list):
            raise DataError(
                f"{where} has text in place of numbers; images (pixels, label) and texts (tokens) "
                "are understood."
            )
        return _checked(pixels, labels, where)


def _checked(pixels: NDArray[Any], labels: NDArray[Any], where: str) -> Examples:
    """Return 1 - pixels as rows, and labels, once both are what F-EMNIST's are."""
    if pixels.ndim < 2 or pixels.dtype.kind not in "fiu" or 0 in pixels.shape:
        raise DataError(
            f"{where} has pixels of shape {pixels.shape} and dtype {pixels.dtype}; they must be "
            "(n, 28, 28) numbers."
        )
    if labels.dtype.kind not in "iu" or labels.size != len(pixels):
        raise DataError(
            f"{where} has {len(pixels)} images, but labels of shape {labels.shape} and dtype "
            f"{labels.dtype}; one integer an image is needed."
        )
    x = pixels.reshape(len(pixels), -1).astype(np.float32)
    y = labels.reshape(-1).astype(np.int64)
    if not (x.min() >= 0 and x.max() <= 1):  # a NaN fails, too
        raise DataError(f"{where} has pixels outside 0..1 or not a number; get the file again.")
    if not (y.min() >= 0 and y.max() < N_CLASSES):
        raise DataError(f"{where} has labels from {y.min()} to {y.max()}, not in 0..61.")
    return 1 - x, y


@dataclass(frozen=True)
class _Texts:
    """Reads the texts of a client: one sentence an example, its tokens separated by spaces."""

    source: Split

    def __call__(self, client: str) -> list[str]:
        where = f"{self.source.path}: client {client!r}"
        found = self.source.read(client, "tokens")
        if not isinstance(found, list):
            raise DataError(f"{where} has tokens that are numbers, not text.")
        try:
            return [text.decode("utf-8") for text in found]
        except UnicodeDecodeError as error:
            raise DataError(f"{where} has tokens that are not UTF-8 ({error}).") from error
