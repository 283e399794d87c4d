"""Where data files are, and how to read files that nobody vouches for."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from experiments.datasets.base import DataError, MissingDataError

VARIABLE = "SPARSE_SECAGG_DATA"
#: A compressed file may expand to this many bytes, or to EXPANSION times its size if that is more.
ALWAYS_ALLOWED = 1 << 28
EXPANSION = 100


def data_folder(data: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder given, else the one that SPARSE_SECAGG_DATA names, else None."""
    chosen = data if data is not None else os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else None


def find(
    names: Sequence[str], data: str | os.PathLike[str] | None, *, what: str, remedy: str
) -> Path:
    """Return the first of the named files that the data folder, or ``data``, holds.

    If there is none, the error says what the file is and how to get it.
    """
    folder = data_folder(data)
    if folder is not None and folder.is_file():
        return folder
    for name in names:
        if folder is not None and (folder / name).is_file():
            return folder / name
    raise missing(what, remedy, folder)


def missing(what: str, remedy: str, folder: Path | None) -> MissingDataError:
    """Return the error that says what was looked for, where, and what to do."""
    if folder is None:
        where = f"no data folder is set: pass --data DIR (data=DIR) or set {VARIABLE}=DIR"
    elif folder.exists():
        where = f"{folder} does not hold it (another folder: --data DIR, data=DIR or {VARIABLE})"
    else:
        where = f"the data folder {folder} does not exist (--data DIR, data=DIR or {VARIABLE})"
    return MissingDataError(f"{what} not found: {where}. {remedy}")


def read_at_most(stream: IO[bytes], limit: int) -> bytes:
    """Return up to ``limit`` bytes; memory grows with what is there, not with the limit."""
    parts, left = [], limit
    while left and (part := stream.read(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def allowed_expansion(compressed: int) -> int:
    """Return how many bytes so many compressed bytes may become before it is called a bomb."""
    return max(ALWAYS_ALLOWED, EXPANSION * compressed)


def stored_bytes(path: Path) -> int:
    """Return how much of a file is on disk: a sparse file costs nothing and reads as zeros."""
    status = path.stat()
    return min(status.st_size, getattr(status, "st_blocks", status.st_size) * 512)


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, expanded if its name ends in ``.gz``; failures name the file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield cast(IO[bytes], stream)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); get it again.") from error


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, expanded within limits if its name ends in ``.gz``."""
    allowed = allowed_expansion(stored_bytes(path))
    with open_bytes(path) as stream:
        content = read_at_most(stream, allowed + 1)
    if len(content) > allowed:
        raise DataError(
            f"{path} expands to more than {allowed} bytes, over {EXPANSION} times its size on "
            "disk; if that is meant, expand it with gunzip first."
        )
    return content


def read_text(path: Path) -> str:
    """Return a text file, which must be UTF-8."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}); convert it, e.g. with iconv.") from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, plain or gzipped."""
    try:
        return json.loads(read_text(path))
    except RecursionError:
        raise DataError(f"{path} is nested too deeply to be a dataset.") from None
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}); get it again.") from error
