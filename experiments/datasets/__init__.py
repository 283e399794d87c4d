"""Data split by client: embedded sets, and loaders for the files people have.

``load(name_or_path)`` finds the loader; each can be called by itself too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from experiments.datasets.base import ClientData, ClientSets, DataError, MissingDataError
from experiments.datasets.embedded import digits, python_identifiers
from experiments.datasets.images import mnist_by_writer
from experiments.datasets.splits import dirichlet_split

__all__ = [
    "ClientData",
    "ClientSets",
    "DataError",
    "MissingDataError",
    "digits",
    "dirichlet_split",
    "load",
    "mnist_by_writer",
    "names",
    "python_identifiers",
]

_EMBEDDED: dict[str, Callable[..., Any]] = {
    "digits": digits,
    "python-identifiers": python_identifiers,
}
_FROM_FOLDER: dict[str, Callable[..., Any]] = {"mnist-by-writer": mnist_by_writer}


def names() -> list[str]:
    """Return the names that `load` knows."""
    return sorted({**_EMBEDDED, **_FROM_FOLDER})


def load(
    name_or_path: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Return a dataset by its name, or by the path of a file in a known format.

    Parameters
    ----------
    name_or_path : str or path
        One of `names`, or a path.
    data : path, optional
        Folder of the named sets that are not embedded; default: SPARSE_SECAGG_DATA.
    **options
        Of the loader.
    """
    name = str(name_or_path).replace("_", "-")
    if name in _EMBEDDED:
        return _EMBEDDED[name](**options)
    if name in _FROM_FOLDER:
        return _FROM_FOLDER[name](data, **options)
    raise ValueError(f"no dataset is called {name_or_path!r}; known: {', '.join(names())}.")
