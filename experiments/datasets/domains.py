"""Domains: which column of a presence vector an item has.

A domain is public by construction: a list that was there before the data, or the cells of a public
hash. Which items *occur* is data. A column that exists because one person holds its item gives that
item away as soon as noise lifts it, however much noise there is, so :class:`ObservedItems` says
that it is not public.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.datasets.base import ClientSets, DataError, Domain
from experiments.datasets.files import read_text

__all__ = [
    "DEFAULT_CELLS",
    "OBSERVED",
    "Domain",
    "HashedCells",
    "ObservedItems",
    "PublicItems",
    "check_domain",
    "choose_domain",
    "read_items",
]

#: The word for the items that occur, which is no public domain.
OBSERVED = "observed"
#: Cells where neither a domain is given nor a public list comes with the data.
DEFAULT_CELLS = 2**17
_MOST_CELLS = 2**32
_PUBLIC = "public:"


@dataclass(frozen=True)
class PublicItems:
    """A public list of items, one a column; items outside of it have none.

    Parameters
    ----------
    items : tuple of str
        The items, each once.
    source : str
        Where the list is from.

    Examples
    --------
    >>> PublicItems(("cat", "dog")).columns(["dog", "unicorn"])
    [1, -1]
    """

    items: tuple[str, ...]
    source: str = "a public list"

    def __post_init__(self) -> None:
        if not self.items or len(set(self.items)) < len(self.items):
            raise ValueError("items must name at least one item, and each of them once.")

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def is_public(self) -> bool:
        return True

    @property
    def description(self) -> str:
        return f"{self.size:,} items of {self.source}"

    @cached_property
    def _position(self) -> dict[str, int]:
        return {item: k for k, item in enumerate(self.items)}

    def columns(self, items: Iterable[str]) -> list[int]:
        return [self._position.get(item, -1) for item in items]

    def names(self, columns: Iterable[int], candidates: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(self.items[k] for k in columns)


class ObservedItems(PublicItems):
    """The items that occur in the data: **not public**, for experiments only."""

    @property
    def is_public(self) -> bool:
        return False

    @property
    def description(self) -> str:
        return f"the {self.size:,} items that occur"


@dataclass(frozen=True)
class HashedCells:
    """The cells of a public keyed hash: every item has one, and cells have no names.

    The cell is BLAKE2b(item in UTF-8; key) modulo the number of cells: the same on every platform
    and in every process. A list of candidates, given at any time, names the cells at no cost in
    privacy. It cannot tell apart candidates that share a cell, and a popular item that is not on
    the list may share its cell with one that is: take many times more cells than candidates.

    Parameters
    ----------
    n_cells : int
        Number of cells, at least 2.
    key : int
        Of the hash; public.

    Examples
    --------
    >>> cells = HashedCells(2**20)
    >>> cells.columns(["cat", "dog"])
    [491650, 269331]
    >>> cells.names([491650, 7], candidates=["cat", "dog"])
    ('cat', 'cell 7')
    """

    n_cells: int
    key: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.n_cells <= _MOST_CELLS:
            raise ValueError(
                f"n_cells={self.n_cells} must lie between 2 and {_MOST_CELLS:,}; 2**17 is usual."
            )
        if not 0 <= self.key < 2**64:
            raise ValueError(f"key={self.key} must be an integer from 0 to 2**64 - 1.")

    @property
    def size(self) -> int:
        return self.n_cells

    @property
    def is_public(self) -> bool:
        return True

    @property
    def description(self) -> str:
        return f"{self.n_cells:,} cells of a public hash"

    def columns(self, items: Iterable[str]) -> list[int]:
        keyed = hashlib.blake2b(
            digest_size=8, key=self.key.to_bytes(8, "little"), person=b"item cells"
        )
        return [self._cell(keyed, item) for item in items]

    def _cell(self, keyed: hashlib.blake2b, item: str) -> int:
        digest = keyed.copy()
        digest.update(item.encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest(), "little") % self.n_cells

    def names(self, columns: Iterable[int], candidates: Sequence[str] = ()) -> tuple[str, ...]:
        columns = list(columns)
        wanted: dict[int, list[str]] = {column: [] for column in columns}
        for item, cell in zip(candidates, self.columns(candidates)):
            if cell in wanted:
                wanted[cell].append(item)
        return tuple(" or ".join(wanted[cell]) or f"cell {cell}" for cell in columns)


def read_items(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the items of a text file, one a line, in its order; repetitions count once."""
    if not Path(path).is_file():
        raise DataError(f"{path} is not a file of items, one a line.")
    lines = (line.removesuffix("\r") for line in read_text(Path(path)).split("\n"))
    items = tuple(dict.fromkeys(line for line in lines if line))
    if not items:
        raise DataError(f"{path} holds no items; write one a line.")
    return items


def check_domain(domain: str | int | None) -> None:
    """Raise ValueError for a domain that no data could have, before any of it is read."""
    if domain is None or domain == OBSERVED:
        return
    cells = _cells(domain)
    if cells is not None:
        HashedCells(cells)
    elif not _path(domain).is_file():
        raise ValueError(
            f"domain={domain!r} is neither a file of items, one a line, nor a number of hash "
            f"cells such as 2**17; {OBSERVED!r} takes the items that occur, which is not private."
        )


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
    check_domain(domain)
    if domain is None:
        if data.public_list is not None:
            return PublicItems(data.public_list.read(), data.public_list.source)
        return HashedCells(DEFAULT_CELLS)
    if domain == OBSERVED:
        return ObservedItems(tuple(data.vocabulary))
    cells = _cells(domain)
    if cells is not None:
        return HashedCells(cells)
    path = _path(domain)
    return PublicItems(read_items(path), path.name)


def _path(domain: str | int) -> Path:
    return Path(str(domain).removeprefix(_PUBLIC)).expanduser()


def _cells(domain: str | int) -> int | None:
    """Return the number that a text is, as 1000, 1e6 or 2**20; None for any other text."""
    if isinstance(domain, int):
        return domain
    power = re.fullmatch(r"2(?:\*\*|\^)(\d{1,2})", domain.strip())
    if power:
        return 1 << int(power[1])
    try:
        number = float(domain)
    except ValueError:
        return None
    if not number.is_integer():
        raise ValueError(f"domain={domain!r} must be a whole number of cells, such as 2**17.")
    return int(number)
