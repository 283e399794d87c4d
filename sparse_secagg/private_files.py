"""Files that only their owner may read: recordings, checkpoints and results hold clients' data."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

__all__ = ["check_file", "make_folder", "open_private", "replacing", "write_text"]

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_folder(path: Path) -> None:
    """Create a folder that only its owner may enter; one that is there stays as it is."""
    missing = []
    place = path.absolute()
    while not place.exists():
        missing.append(place)
        place = place.parent
    for folder in reversed(missing):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    path.mkdir(parents=True, exist_ok=True)  # says so if something else is in the way


def open_private(path: Path, mode: str = "wb", **options: Any) -> IO[Any]:
    """Open a file as :func:`open` does; where it is new, only its owner may read it.

    The mode is given when the file is made, so there is no moment at which others could open it.
    """
    return open(path, mode, opener=_private, **options)


def check_file(path: Path) -> None:
    """Raise OSError unless a file of this name can be written; nothing of the attempt stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = path.exists()
    path.open("ab").close()
    if not there:
        path.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace the contents of a file; afterwards only its owner may read it."""
    with open_private(path, "w", encoding="utf-8") as file:
        os.chmod(file.fileno() if os.chmod in os.supports_fd else path, FILE_MODE)
        file.write(text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open what takes the place of a file at the end: a crash leaves the old one or the new one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
    try:
        with open_private(draft, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    if os.name == "posix":  # the renaming itself
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
