"""Data split by client. What is embedded here needs no download."""

from __future__ import annotations

import keyword
import re
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_STRING_OR_COMMENT = re.compile(
    r"""(?:\b[rbfu]{1,2})?                     # prefix of a string literal
        (?: ("{3}|'{3}) .*? (?<!\\)\1          # in triple quotes
          | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
      | \#[^\n]*""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)


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


def python_identifiers(max_files: int | None = None) -> ClientSets:
    """Return which identifiers each source file of Python's standard library uses.

    One client a file, one coordinate a name used outside strings and comments, keywords aside;
    about 1800 files and 70 000 names where Python's own test suite is installed, fewer elsewhere.

    Parameters
    ----------
    max_files : int, optional
        Take only so many files, evenly spread over the library.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [
        path
        for path in sorted(root.rglob("*.py"))
        if not {"site-packages", "dist-packages"} & set(path.parts)
    ]
    if max_files is not None and len(files) > max_files:
        files = [files[k] for k in np.linspace(0, len(files) - 1, max_files).astype(int)]
    return ClientSets.from_sets(
        {path.relative_to(root).as_posix(): _identifiers(path) for path in files}
    )


def _identifiers(path: Path) -> set[str]:
    code = _STRING_OR_COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    return {name for name in _IDENTIFIER.findall(code) if not keyword.iskeyword(name)}
