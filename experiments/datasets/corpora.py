"""Texts by author: Stack Exchange, folders of text files, and Python's own documentation."""

from __future__ import annotations

import os
import re
from pathlib import Path

from experiments.datasets.base import ClientTexts, DataError
from experiments.datasets.embedded import library_files
from experiments.datasets.files import find, read_json, read_text

_DOCSTRING = re.compile(r'^\s*[rRuU]?"""(.*?)"""', re.DOTALL | re.MULTILINE)


def stack_exchange(data: str | os.PathLike[str] | None = None) -> ClientTexts:
    """Return posts and comments of Stack Exchange, a client an author on a site.

    Parameters
    ----------
    data : path, optional
        Folder that holds ``se_all.json.gz`` or ``se_all.json``, or the file: a list of objects
        with ``site``, ``user`` and ``text``; by default the folder that SPARSE_SECAGG_DATA names.
    """
    path = find(
        ["se_all.json.gz", "se_all.json"],
        data,
        what="Stack Exchange by user",
        remedy="Put se_all.json.gz there: a list of objects with site, user and text, made from "
        "the data dump at https://archive.org/details/stackexchange.",
    )
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} is not a list of posts; each is an object with site, user, text.")
    clients: dict[str, list[str]] = {}
    for k, entry in enumerate(entries):
        fields = entry if isinstance(entry, dict) else {}
        site, user, text = (fields.get(name) for name in ("site", "user", "text"))
        # bool is an int, and no author
        known = isinstance(user, int | str) and not isinstance(user, bool)
        if not (isinstance(site, str) and known and isinstance(text, str)):
            raise DataError(f"{path}: entry {k} lacks a site, a user or a text.")
        clients.setdefault(f"{site}/{user}", []).append(text)
    return ClientTexts(dict(sorted(clients.items())))


def text_folder(path: str | os.PathLike[str]) -> ClientTexts:
    """Return the ``.txt`` files of a folder: each subfolder is a client, and each file beside."""
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder of text files.")
    clients: dict[str, list[str]] = {}
    for file in sorted(root.rglob("*.txt")):
        if not file.is_file():
            continue
        if not file.resolve().is_relative_to(root.resolve()):
            raise DataError(f"{file} is a link out of the folder, which is refused; copy the file.")
        inside = file.relative_to(root).parts
        client = inside[0] if len(inside) > 1 else file.stem
        clients.setdefault(client, []).append(read_text(file))
    if not clients:
        raise DataError(
            f"{root} has no files *.txt; put one file, or one subfolder of files, a client."
        )
    return ClientTexts(clients)


def python_docstrings(max_files: int | None = None) -> ClientTexts:
    """Return the documentation inside the source files of Python's standard library, by file.

    Embedded: every machine with Python has it, though some installations leave parts out.

    Parameters
    ----------
    max_files : int, optional
        Take only so many files, evenly spread over the library.
    """
    found = {
        name: _DOCSTRING.findall(path.read_text(encoding="utf-8", errors="replace"))
        for name, path in library_files(max_files).items()
    }
    return ClientTexts({name: texts for name, texts in found.items() if texts})
