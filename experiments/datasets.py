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
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class ClientData:
    """Labelled data split by client.

    Attributes
    ----------
    clients : dict of str to (x, y)
        Training data of each client.
    test : (x, y)
        Test data, of nobody in particular.
    """

    clients: dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]
    test: tuple[NDArray[np.float64], NDArray[np.int64]]


def digits(n_clients: int = 50, concentration: float = 1.0, seed: int = 0) -> ClientData:
    """Return scikit-learn's handwritten digits, split by a Dirichlet distribution over classes.

    Parameters
    ----------
    n_clients : int
        How many clients share the training images.
    concentration : float
        Of the Dirichlet distribution: small values give each client few classes.
    seed : int
        Of the split; a fifth of the images is kept for the test.
    """
    from sklearn.datasets import load_digits

    images = load_digits()
    x, y = images.data / 16.0, images.target.astype(np.int64)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    test, training = np.split(order, [len(y) // 5])
    owners: list[list[int]] = [[] for _ in range(n_clients)]
    for label in range(10):
        mine = training[y[training] == label]
        shares = rng.dirichlet(np.full(n_clients, concentration))
        cuts = (np.cumsum(shares)[:-1] * len(mine)).astype(int)
        for owner, part in zip(owners, np.split(mine, cuts)):
            owner.extend(part)
    clients = {f"client-{i:03d}": (x[owner], y[owner]) for i, owner in enumerate(owners) if owner}
    return ClientData(clients, (x[test], y[test]))


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
