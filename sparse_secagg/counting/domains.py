"""Domains: which column of a user's vector an item has.

A domain is public by construction: a list that was there before the data, or the cells of a public
hash. Which items *occur* is data: a column that exists because one person holds its item gives that
item away as soon as noise lifts it, however much noise there is.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.counting.tables import text_of

__all__ = [
    "OPEN",
    "OPEN_CELLS",
    "Domain",
    "HashedItems",
    "ListedItems",
    "make_domain",
]

#: The word for domains that nobody can list.
OPEN = "open"
#: Hash cells of an open domain. From 4,000 coordinates message passing failed on 2²⁰ cells in 12 of
#: 20 draws (Zipf table, 50,000 users, ε = 1).
OPEN_CELLS = 2**17
_MOST_CELLS = 2**31 - 1

_CHOICES = (
    "domain=[...] (or a file, one item per line): a public list of the items to count; "
    "domain=2**17: cells of a public hash, which candidates name afterwards; domain='open': items "
    "that nobody can list, found in two rounds"
)


class Domain(Protocol):
    """Columns of items."""

    @property
    def size(self) -> int:
        """Number of columns."""
        ...

    @property
    def description(self) -> str:
        """What the columns are, in words."""
        ...

    def columns(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Return the column of each item; −1 for those that have none."""
        ...

    def names(self, columns: Iterable[int]) -> list[str]:
        """Return what columns are called."""
        ...


@dataclass(frozen=True)
class ListedItems:
    """A public list of items, one per column; items outside of it are not counted.

    Examples
    --------
    >>> ListedItems(("cat", "dog")).columns(["dog", "unicorn"]).tolist()
    [1, -1]
    """

    items: tuple[str, ...] = field(repr=False)
    source: str = "a public list"

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def description(self) -> str:
        """What the columns are, in words."""
        return f"{self.size:,} items of {self.source}"

    @cached_property
    def _position(self) -> dict[str, int]:
        return {item: k for k, item in enumerate(self.items)}

    def columns(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Return the place of each item in the list; −1 for others."""
        find = self._position.get
        return np.fromiter((find(item, -1) for item in items), np.int64, len(items))

    def names(self, columns: Iterable[int]) -> list[str]:
        """Return the items."""
        return [self.items[k] for k in columns]


@dataclass(frozen=True)
class HashedItems:
    """The cells of a public hash: every item has one, and cells have no names.

    The cell is BLAKE2b(item in UTF-8; key) modulo the number of cells: the same on every platform
    and in every process. Items that share a cell are counted together; take many times more cells
    than there are common items.

    Examples
    --------
    >>> cells = HashedItems(2**20)
    >>> cells.columns(["cat", "dog"]).tolist()
    [491650, 269331]
    >>> cells.names([7])
    ['cell 7']
    """

    n_cells: int
    key: int = 0

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.n_cells

    @property
    def description(self) -> str:
        """What the columns are, in words."""
        return f"{self.n_cells:,} cells of a public hash"

    def columns(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Return the cell of each item."""
        keyed = hashlib.blake2b(
            digest_size=8, key=self.key.to_bytes(8, "little"), person=b"item cells"
        )
        return np.fromiter((self._cell(keyed, item) for item in items), np.int64, len(items))

    def _cell(self, keyed: hashlib.blake2b, item: str) -> int:
        digest = keyed.copy()
        digest.update(item.encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest(), "little") % self.n_cells

    def names(self, columns: Iterable[int]) -> list[str]:
        """Return the numbers of the cells."""
        return [f"cell {k}" for k in columns]


def make_domain(domain: Any) -> Domain:
    """Return the domain that ``domain`` of :class:`~sparse_secagg.PrivateCounts` stands for."""
    if domain is None:
        raise ValueError(
            "domain=None: which items are counted must not depend on the data. Choose one of "
            f"three: {_CHOICES}."
        )
    if isinstance(domain, ListedItems | HashedItems):
        return domain
    if isinstance(domain, bool | float | bytes):
        raise ValueError(f"domain={domain!r} is none of the choices: {_CHOICES}.")
    if isinstance(domain, int | np.integer):
        return _cells(int(domain))
    if isinstance(domain, str | os.PathLike):
        return _named(str(domain))
    if hasattr(domain, "columns"):
        raise ValueError("domain is a table; give one of its columns.")
    if not isinstance(domain, Iterable):
        raise ValueError(f"domain={domain!r} is none of the choices: {_CHOICES}.")
    items = [text_of(item, "domain") for item in domain]
    # a set has another order in every process, and columns must be the same for all parties
    return _listed(sorted(items) if isinstance(domain, Set) else items, "a public list")


def _named(domain: str) -> Domain:
    if domain == OPEN:
        return HashedItems(OPEN_CELLS)
    power = re.fullmatch(r"2(?:\*\*|\^)(\d{1,2})", domain.strip())
    if power:
        return _cells(2 ** int(power[1]))
    number = _number(domain)
    if number is not None and number.is_integer():
        return _cells(int(number))
    path = Path(domain).expanduser()
    if not path.is_file():
        raise ValueError(f"domain={domain!r} is no file; choose one of three: {_CHOICES}.")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"domain={domain!r} is not a text file in UTF-8: {error}.") from None
    items = dict.fromkeys(line.removesuffix("\r") for line in lines)
    return _listed(filter(None, items), path.name)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cells(n: int) -> HashedItems:
    if not 2 <= n <= _MOST_CELLS:
        raise ValueError(f"domain={n} must be a number of cells from 2 to {_MOST_CELLS:,}.")
    return HashedItems(n)


def _listed(items: Iterable[str], source: str) -> ListedItems:
    listed = tuple(items)
    if not listed or "" in listed:
        raise ValueError(
            f"domain ({source}) names no item, or an empty one; give at least one, in a file one "
            "per line."
        )
    if len(set(listed)) < len(listed):
        raise ValueError("domain names an item twice; give each of them once.")
    return ListedItems(listed, source)
