"""Data split by client: embedded sets, and loaders for the files people have.

``load(name_or_path)`` finds the loader; each can be called by itself too. Every failure is a
`DataError` that names the file and the remedy; no loader runs anything that a file holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.datasets.base import (
    ClientData,
    ClientSets,
    ClientTexts,
    DataError,
    LazyClients,
    MissingDataError,
    PublicList,
)
from experiments.datasets.corpora import python_docstrings, stack_exchange, text_folder
from experiments.datasets.domains import (
    Domain,
    HashedItems,
    ListedItems,
    ObservedItems,
    choose_domain,
    read_items,
)
from experiments.datasets.embedded import digits, public_names, python_identifiers
from experiments.datasets.formats import load_path
from experiments.datasets.images import fashion_mnist, mnist_by_writer
from experiments.datasets.leaf_json import leaf
from experiments.datasets.splits import dirichlet_split
from experiments.datasets.tables import npz
from experiments.datasets.tensorflow_federated import femnist, stackoverflow, tff
from experiments.datasets.text import (
    NextWordData,
    Vocabulary,
    client_words,
    next_word,
    public_word_scores,
    public_words,
    word_numbers,
)

__all__ = [
    "ClientData",
    "ClientSets",
    "ClientTexts",
    "DataError",
    "Domain",
    "HashedItems",
    "LazyClients",
    "ListedItems",
    "MissingDataError",
    "NextWordData",
    "ObservedItems",
    "PublicList",
    "Vocabulary",
    "choose_domain",
    "client_words",
    "digits",
    "dirichlet_split",
    "fashion_mnist",
    "femnist",
    "leaf",
    "load",
    "mnist_by_writer",
    "names",
    "next_word",
    "npz",
    "public_names",
    "public_word_scores",
    "public_words",
    "python_docstrings",
    "python_identifiers",
    "read_items",
    "stack_exchange",
    "stackoverflow",
    "text_folder",
    "tff",
    "word_numbers",
]

_EMBEDDED: dict[str, Callable[..., ClientData | ClientSets | ClientTexts]] = {
    "digits": digits,
    "python-docstrings": python_docstrings,
    "python-identifiers": python_identifiers,
}
_FROM_FOLDER: dict[str, Callable[..., ClientData | ClientSets | ClientTexts]] = {
    "fashion-mnist": fashion_mnist,
    "femnist": femnist,
    "mnist-by-writer": mnist_by_writer,
    "stack-exchange": stack_exchange,
    "stackoverflow": stackoverflow,
}


def names() -> list[str]:
    """Return the names that `load` knows."""
    return sorted({**_EMBEDDED, **_FROM_FOLDER})


def load(
    name_or_path: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    **options: Any,
) -> ClientData | ClientSets | ClientTexts:
    """Return a dataset by its name, or by the path of a file or folder in a known format.

    Parameters
    ----------
    name_or_path : str or path
        One of `names`, or a path: ``.npz``; LEAF ``.json`` or folder; ``.sqlite``
        or ``.h5`` of TensorFlow Federated; a folder of text files. A relative
        path is also looked for in the data folder.
    data : path, optional
        Folder of what is not embedded; by default the one that SPARSE_SECAGG_DATA names.
    **options
        Of the loader.

    Examples
    --------
    >>> data = load("digits", n_clients=20)
    >>> len(data.clients), data.test[0].shape
    (20, (359, 64))
    """
    name = str(name_or_path).replace("_", "-")
    if name in _EMBEDDED:
        return _EMBEDDED[name](**options)
    if name in _FROM_FOLDER:
        return _FROM_FOLDER[name](data, **options)
    return load_path(Path(name_or_path), data, names(), **options)
