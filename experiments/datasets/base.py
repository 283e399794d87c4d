"""What every loader returns, and the two ways in which loading fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sparse_secagg.counting.domains import OPEN, Domain, ListedItems, make_domain

Examples = tuple[NDArray[Any], NDArray[np.int64]]
Value = TypeVar("Value")


class DataError(ValueError):
    """A file does not hold what its format promises; the message names the file and the remedy."""


class MissingDataError(DataError):
    """The data is not on this machine; the message says what to get and where to put it."""


@dataclass(frozen=True)
class PublicList:
    """A list of items that does not depend on the clients, read when it is asked for."""

    source: str  # where it is from
    read: Callable[[], tuple[str, ...]]  # returns the items, each once


@dataclass(frozen=True)
class ClientSets:
    """Which items each client holds."""

    clients: list[str]  # one name for each row of ``presence``
    #: The items that occur, in alphabetical order, one for each column. This list is data of the
    #: clients, so a private round takes the columns of a public domain instead: see :meth:`on`.
    vocabulary: list[str]
    #: Rows of norm one with equal entries where the client holds the item; a client that holds
    #: nothing has a row of zeros, since the number of clients is public.
    presence: sp.csr_array
    public_list: PublicList | None = None  # the usual domain of this data

    @classmethod
    def from_sets(
        cls, sets: Mapping[str, set[str]], *, public_list: PublicList | None = None
    ) -> ClientSets:
        """Make one row of each client's set."""
        clients = sorted(sets)
        vocabulary = sorted(set().union(*sets.values()))
        if not vocabulary:
            raise ValueError("no client holds any item; there is nothing to count.")
        position = {item: k for k, item in enumerate(vocabulary)}
        columns = [[position[item] for item in sets[client]] for client in clients]
        presence = _unit_rows(columns, len(vocabulary))
        return cls(clients, vocabulary, presence, public_list)

    def on(self, domain: Domain) -> sp.csr_array:
        """Return the clients' rows over the columns of a domain, of norm one again or zero.

        Items that the domain leaves out are dropped; items that share a column count once.
        """
        of_item = np.array(domain.columns(self.vocabulary), dtype=np.int64)
        held = np.split(of_item[self.presence.indices], self.presence.indptr[1:-1])
        return _unit_rows([row[row >= 0] for row in held], domain.size)


def _unit_rows(columns: Sequence[Any], size: int) -> sp.csr_array:
    """Return one row of norm one for each list of columns, with equal entries."""
    rows = [np.unique(np.asarray(row, dtype=np.int64)) for row in columns]
    counts = np.array([len(row) for row in rows])
    entries = np.repeat(np.maximum(counts, 1) ** -0.5, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_array((entries, np.concatenate(rows), starts), shape=(len(rows), size))


#: Cells where neither a domain is given nor a public list comes with the data.
DEFAULT_CELLS = 2**17


def choose_domain(domain: str | int | None, data: ClientSets) -> Domain:
    """Return the domain that an option stands for.

    A file of items, one per line; a number of hash cells, as 131072 or "2**17"; None for the public
    list that comes with the data, or 2**17 cells where none does.
    """
    if domain == OPEN:
        raise ValueError("domain='open' takes two rounds: use sparse-secagg count.")
    if domain is None and data.public_list is not None:
        return ListedItems(data.public_list.read(), data.public_list.source)
    return make_domain(DEFAULT_CELLS if domain is None else domain)


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
    held_out: Mapping[str, list[str]] = field(default_factory=dict)


class LazyClients(Mapping[str, Value]):
    """A mapping that reads a client's data whenever it is asked for it, and keeps nothing.

    ``read`` returns the data of a client; it is picklable, so that the mapping can go to other
    processes.
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
