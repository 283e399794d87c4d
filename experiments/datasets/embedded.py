"""What every machine with this package has: scikit-learn's digits, Python's own source files."""

from __future__ import annotations

import keyword
import os
import re
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

from experiments.datasets.base import ClientData, ClientSets, PublicList
from experiments.datasets.splits import dirichlet_split

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_STRING_OR_COMMENT = re.compile(
    r"""(?:\b[rbfu]{1,2})?                     # prefix of a string literal
        (?: ("{3}|'{3}) .*? (?<!\\)\1          # in triple quotes
          | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
      | \#[^\n]*""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)


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
    x, y = (images.data / 16).astype(np.float32), images.target.astype(np.int64)
    rng = np.random.default_rng(seed)
    test, training = np.split(rng.permutation(len(y)), [len(y) // 5])
    clients = dirichlet_split(x[training], y[training], n_clients, concentration, rng)
    return ClientData(clients, (x[test], y[test]))


def python_identifiers(max_files: int | None = None) -> ClientSets:
    """Return which identifiers each source file of Python's standard library uses.

    One client a file, one item a name used outside strings and comments, keywords aside; about 1800
    files and 70 000 names where Python's own test suite is installed, fewer elsewhere. The public
    list that comes with them is `public_names`.

    Parameters
    ----------
    max_files : int, optional
        Take only so many files, evenly spread over the library.
    """
    return ClientSets.from_sets(
        {name: _identifiers(path) for name, path in library_files(max_files).items()},
        public_list=PublicList("NumPy's and scikit-learn's source code", public_names),
    )


@cache
def public_names() -> tuple[str, ...]:
    """Return the identifiers in the sources of NumPy and scikit-learn, the most common first.

    Code that everybody can read and every installation has, by other people than the standard
    library: a public list of what identifiers may be.
    """
    import sklearn

    files = [path for package in (np, sklearn) for path in source_files(package.__path__[0])]
    used = Counter(name for path in files for name in _identifiers(path))
    return tuple(sorted(used, key=lambda name: (-used[name], name)))


def library_files(max_files: int | None) -> dict[str, Path]:
    """Return the source files of Python's standard library, or so many spread evenly over it.

    By their place in the library.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [
        path
        for path in source_files(root)
        if not {"site-packages", "dist-packages"} & set(path.parts)
    ]
    if max_files is not None and len(files) > max_files:
        files = [files[k] for k in np.linspace(0, len(files) - 1, max_files).astype(int)]
    return {path.relative_to(root).as_posix(): path for path in files}


def source_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the Python files below a folder, in the order of their names."""
    return sorted(Path(folder).rglob("*.py"))


def _identifiers(path: Path) -> set[str]:
    code = _STRING_OR_COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    return {name for name in _IDENTIFIER.findall(code) if not keyword.iskeyword(name)}
