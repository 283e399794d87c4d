"""Domains of heavy hitters: which column of a presence vector an item has.

Lists and hash cells are those of :class:`~sparse_secagg.PrivateCounts`, public by construction.
Which items *occur* is data: a column that exists because one person holds its item gives that item
away as soon as noise lifts it, however much noise there is. :class:`ObservedItems` is not public.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.datasets.base import ClientSets, DataError
from experiments.datasets.files import read_text
from sparse_secagg.counting.domains import OPEN, Domain, HashedItems, ListedItems, make_domain

__all__ = ["Domain", "HashedItems", "ListedItems", "ObservedItems", "choose_domain", "read_items"]

#: The word for the items that occur, which is no public domain.
OBSERVED = "observed"
#: Cells where neither a domain is given nor a public list comes with the data.
DEFAULT_CELLS = 2**17


class ObservedItems(ListedItems):
    """The items that occur in the data: **not public**, for experiments only."""

    @property
    def description(self) -> str:
        return f"the {self.size:,} items that occur"


def is_public(domain: Domain) -> bool:
    """Return whether the columns are the same whatever the clients hold."""
    return not isinstance(domain, ObservedItems)


def name_columns(
    domain: Domain, columns: Iterable[int], candidates: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the names of columns; a public list of candidates names hash cells at no cost.

    It cannot tell apart candidates that share a cell, and a popular item that is not on the list
    may share its cell with one that is: take many times more cells than candidates.
    """
    columns = list(columns)
    wanted: dict[int, list[str]] = {column: [] for column in columns}
    if isinstance(domain, HashedItems):
        for item, cell in zip(candidates, domain.columns(candidates).tolist()):
            if cell in wanted:
                wanted[cell].append(item)
    own = domain.names(columns)
    return tuple(" or ".join(wanted[column]) or name for column, name in zip(columns, own))


def read_items(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the items of a text file, one per line, in its order; repetitions count once."""
    if not Path(path).is_file():
        raise DataError(f"{path} is not a file of items, one per line.")
    text = read_text(Path(path)).removeprefix("\ufeff")
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    items = tuple(dict.fromkeys(line for line in lines if line))
    if not items:
        raise DataError(f"{path} holds no items; write one per line.")
    return items


def check_domain(domain: str | int | None) -> None:
    """Raise ValueError for a domain that no data could have, before any of it is read."""
    if domain is not None and domain != OBSERVED:
        _given(domain)


def choose_domain(domain: str | int | None, data: ClientSets) -> Domain:
    """Return the domain that an option stands for.

    Parameters
    ----------
    domain : str, int or None
        A file of items, optionally after ``public:``; a number of hash cells, as 131072 or "2**17";
        "observed", which is not public; None for the public list that comes with the data, or
        2**17 cells where none does.
    data : ClientSets
        Asked for its public list, and for what occurs only if that is wanted.
    """
    if domain is None and data.public_list is not None:
        return ListedItems(data.public_list.read(), data.public_list.source)
    if domain == OBSERVED:
        return ObservedItems(tuple(data.vocabulary))
    return _given(DEFAULT_CELLS if domain is None else domain)


def _given(domain: str | int) -> Domain:
    text = str(domain).removeprefix("public:")
    if text == OPEN:
        raise ValueError("domain='open' takes two rounds: use sparse-secagg count.")
    try:
        cells = float(text)
    except ValueError:
        return make_domain(text)
    if not cells.is_integer():
        raise ValueError(f"domain={domain!r} must be a whole number of cells, such as 2**17.")
    return make_domain(int(cells))
