"""What every loader returns, and the two ways in which loading fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Examples = tuple[NDArray[Any], NDArray[np.int64]]
Value = TypeVar("Value")


class DataError(ValueError):
    """A file does not hold what its format promises; the message names the file and the remedy."""


class MissingDataError(DataError):
    """The data is not on this machine; the message says what to get and where to put it."""


@dataclass(frozen=True)
class ClientSets:
    """Which items of a large domain each client holds.

    Attributes
    ----------
    clients : list of str
        One name a row of ``presence``.
    vocabulary : list of str
        One name a column, in alphabetical order.
    presence : csr_array of shape (n_clients, n_items)
        Rows of Euclidean norm one with equal entries where the client holds the item.
    """

    clients: list[str]
    vocabulary: list[str]
    presence: sp.csr_array

    @classmethod
    def from_sets(cls, sets: Mapping[str, set[str]]) -> ClientSets:
        """Make one row of each client's set; clients that hold nothing are left out."""
        clients = sorted(client for client, items in sets.items() if items)
        if not clients:
            raise ValueError("no client holds any item; there is nothing to count.")
        vocabulary = sorted(set().union(*(sets[client] for client in clients)))
        position = {item: k for k, item in enumerate(vocabulary)}
        indices = [sorted(position[item] for item in sets[client]) for client in clients]
        sizes = np.array([len(row) for row in indices])
        presence = sp.csr_array(
            (
                np.repeat(sizes**-0.5, sizes),
                np.concatenate(indices),
                np.concatenate([[0], np.cumsum(sizes)]),
            ),
            shape=(len(clients), len(vocabulary)),
        )
        return cls(clients, vocabulary, presence)


@dataclass(frozen=True)
class ClientData:
    """Labelled data split by client.

    Attributes
    ----------
    clients : mapping of str to (x, y)
        Training data of each client. Images are float32 rows in [0, 1] with 0 the background,
        labels int64. Large files are read client by client, when the mapping is asked.
    test : (x, y)
        Test data, of nobody in particular.
    """

    clients: Mapping[str, Examples]
    test: Examples


@dataclass(frozen=True)
class ClientTexts:
    """Texts by client, for `client_words` and `next_word`.

    Attributes
    ----------
    clients : mapping of str to list of str
        Texts of each client; large files are read client by client, when the mapping is asked.
    held_out : mapping of str to list of str
        Texts of clients whom the source keeps for testing; empty if it keeps none.
    """

    clients: Mapping[str, list[str]]
    held_out: Mapping[str, list[str]]


class LazyClients(Mapping[str, Value]):
    """A mapping that reads a client's data whenever it is asked for it, and keeps nothing.

    Parameters
    ----------
    names : iterable of str
        The clients.
    read : callable
        Returns the data of a client. Picklable, so that the mapping can go to other processes.
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], Value]) -> None:
        self._names = dict.fromkeys(names)
        self._read = read

    def __getitem__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
