"""F-EMNIST and Stack Overflow as TensorFlow Federated publishes them, read without TensorFlow.

A file of HDF5 is one split, ``examples/<client>/<feature>``; h5py reads it (extra ``hdf5``). Links
to other places are refused, and a dataset is read only after its declared size was compared with
what the file stores for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import (
    ClientData,
    ClientTexts,
    DataError,
    Examples,
    LazyClients,
    MissingDataError,
)
from experiments.datasets.files import ALWAYS_ALLOWED, find
from experiments.datasets.splits import pooled

if TYPE_CHECKING:
    import h5py

N_CLASSES = 62  # digits, upper case, lower case


def femnist(
    data: str | os.PathLike[str] | None = None, max_clients: int | None = None
) -> ClientData:
    """Return F-EMNIST by writer, tested on other images of the same writers.

    In the files 1.0 is the background: images are returned as 1 - pixels.

    Parameters
    ----------
    data : path, optional
        Folder with ``fed_emnist_train.h5`` and ``fed_emnist_test.h5``, or the first of them; by
        default the folder that SPARSE_SECAGG_DATA names.
    max_clients : int, optional
        Only so many, in the order of the file.
    """
    training, test = _pair("F-EMNIST", "fed_emnist", "test", data)
    names = _clients(training, max_clients)
    tested = pooled([_images(test, name) for name in names])
    return ClientData(LazyClients(names, partial(_images, training)), tested)


def stackoverflow(
    data: str | os.PathLike[str] | None = None, max_clients: int | None = None
) -> ClientTexts:
    """Return Stack Overflow by user, a sentence a text, with other users held out.

    Parameters
    ----------
    data : path, optional
        Folder with ``stackoverflow_train.h5`` and ``stackoverflow_held_out.h5``, or the first of
        them; by default the folder that SPARSE_SECAGG_DATA names.
    max_clients : int, optional
        Only so many, in the order of each file.
    """
    training, held_out = (
        LazyClients(_clients(path, max_clients), partial(_texts, path))
        for path in _pair("Stack Overflow", "stackoverflow", "held_out", data)
    )
    return ClientTexts(training, held_out)


def _pair(what: str, stem: str, other: str, data: Any) -> tuple[Path, Path]:
    """Return the training file and its sibling."""
    names = f"{stem}_train.h5", f"{stem}_{other}.h5"
    remedy = (
        f"Get https://storage.googleapis.com/tff-datasets-public/{stem}.tar.bz2, unpack it and "
        f"put {' and '.join(names)} there."
    )
    found = find(names[:1], data, what=what, remedy=remedy)
    return found, find(names[1:], found.parent, what=what, remedy=remedy)


def _clients(path: Path, limit: int | None) -> list[str]:
    if limit is not None and limit < 1:
        raise ValueError(f"max_clients={limit}: at least one client must be read.")
    with _inside(path) as examples:
        names = list(islice(examples, limit))
    if not names:
        raise DataError(f"{path} has no clients.")
    return names


def _images(path: Path, client: str) -> Examples:
    """Return 1 - pixels as rows, and labels, once both are what F-EMNIST's are."""
    with _inside(path, client) as group:
        pixels, labels = (_array(group, name, path) for name in ("pixels", "label"))
    where = f"{path}: client {client!r}"
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


def _texts(path: Path, client: str) -> list[str]:
    with _inside(path, client) as group:
        found = _array(group, "tokens", path)
    if found.dtype.kind not in "OS":
        raise DataError(f"{path}: client {client!r} has tokens that are numbers, not text.")
    try:
        return [text.decode("utf-8") for text in found.reshape(-1).tolist()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: client {client!r} has tokens not in UTF-8 ({error}).") from error


@contextmanager
def _inside(path: Path, *names: str) -> Iterator[h5py.Group]:
    """Open a file at ``examples``, or at a client below it."""
    try:
        import h5py
    except ImportError:
        raise MissingDataError(
            f"reading {path} needs h5py: pip install 'sparse-secagg[hdf5]'."
        ) from None
    try:
        with h5py.File(path, "r") as place:
            for name in ("examples", *names):
                place = _follow(place, name, path)
                if not isinstance(place, h5py.Group):
                    raise DataError(f"{path}: {name} is not a group; is it one of TFF's files?")
            yield place
    except DataError:
        raise
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{path} cannot be read as HDF5 ({error}); get it again.") from error


def _follow(parent: h5py.Group, name: str, path: Path) -> Any:
    """Return a child that the file itself holds, right below the parent."""
    import h5py

    # a slash would walk through groups, past the check of the links on the way
    if "/" in name or name in (".", "..") or name not in parent:
        raise DataError(f"{path} has no {name!r} in {parent.name!r}; is it one of TFF's files?")
    if not isinstance(parent.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"{path}: {name!r} links elsewhere, which is refused.")
    return parent[name]


def _array(group: h5py.Group, name: str, path: Path) -> NDArray[Any]:
    import h5py

    data = _follow(group, name, path)
    if not isinstance(data, h5py.Dataset) or data.external or data.is_virtual:
        raise DataError(f"{path}: {data.name} is not a dataset stored in this file.")
    if h5py.check_string_dtype(data.dtype) is None and data.dtype.kind not in "biuf":
        raise DataError(f"{path}: {data.name} has dtype {data.dtype}; numbers or text are read.")
    if data.size * data.dtype.itemsize > ALWAYS_ALLOWED:
        raise DataError(
            f"{path}: {data.name} declares the shape {data.shape}, over {ALWAYS_ALLOWED} bytes, "
            "more than any client holds."
        )
    # chunks that were never written read as zeros without being there
    if data.size and not data.id.get_storage_size():
        raise DataError(f"{path}: {data.name} declares {data.size} values and stores none.")
    return np.asarray(data[()])
