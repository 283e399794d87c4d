"""Where data files are, and how to read arrays from files that nobody vouches for.

Nothing is unpickled, and no memory is set aside on the word of a header: what a header declares is
compared with the bytes that are there first.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

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
    """Return the first of the named files that the data folder holds, or say what is missing.

    Parameters
    ----------
    names : sequence of str
        File names, the preferred first.
    data : path, optional
        The folder, or the file itself; by default the folder that SPARSE_SECAGG_DATA names.
    what, remedy : str
        What the file is and how to get it, for the message.
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


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the named arrays of an ``.npz`` file, none of which can hold Python objects."""
    try:
        with zipfile.ZipFile(path) as archive:
            present = {Path(name).stem: name for name in archive.namelist()}
            absent = [name for name in names if name not in present]
            if absent:
                raise DataError(
                    f"{path} lacks the array{'s' * (len(absent) > 1)} {', '.join(absent)}; it "
                    f"holds {', '.join(sorted(present)) or 'nothing'}. Save it as "
                    f"numpy.savez(path, {', '.join(f'{name}=...' for name in names)})."
                )
            return [_read_member(archive, present[name], path) for name in names]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DataError(f"{path} is not a readable .npz file ({error}); get it again.") from error


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    member = archive.getinfo(name)
    allowed = max(ALWAYS_ALLOWED, EXPANSION * member.compress_size)
    with archive.open(member) as stream:
        return read_npy(stream, f"{name} in {path}", min(member.file_size, allowed))


def read_npy(stream: IO[bytes], source: str, available: int) -> NDArray[Any]:
    """Return the array of an ``.npy`` stream of which ``available`` bytes may be read."""
    try:
        version = np.lib.format.read_magic(stream)
        header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran_order, dtype = header(stream)
    except (ValueError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise DataError(f"{source} is not a NumPy array; save it with numpy.save.") from error
    if dtype.hasobject or dtype.fields is not None:
        raise DataError(
            f"{source} has dtype {dtype}, which loaders refuse (objects can run code); save plain "
            "numbers or fixed-width strings."
        )
    if any(size < 0 for size in shape):
        raise DataError(f"{source} declares the shape {shape}, with a negative size.")
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes > available:
        raise DataError(
            f"{source} declares the shape {shape} of {dtype}, {n_bytes} bytes, but at most "
            f"{available} are there to read; the file is damaged or not what it says."
        )
    content = stream.read(n_bytes)
    if len(content) != n_bytes:
        raise DataError(
            f"{source} ends after {len(content)} of {n_bytes} bytes of data; get it again."
        )
    flat = np.frombuffer(content, dtype=dtype) if dtype.itemsize else np.zeros(shape, dtype)
    return flat.reshape(shape, order="F" if fortran_order else "C")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, expanded if its name ends in ``.gz``, within limits."""
    if path.suffix != ".gz":
        return path.read_bytes()
    allowed = max(ALWAYS_ALLOWED, EXPANSION * path.stat().st_size)
    try:
        with gzip.open(path) as stream:
            content = stream.read(allowed + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a readable gzip file ({error}); get it again.") from error
    if len(content) > allowed:
        raise DataError(
            f"{path} expands to more than {allowed} bytes, {EXPANSION} times its size; if that is "
            "meant, expand it with gunzip first."
        )
    return content


def open_bytes(path: Path) -> IO[bytes]:
    """Return the content of a file as a stream, expanded as `read_bytes` does."""
    return io.BytesIO(read_bytes(path)) if path.suffix == ".gz" else path.open("rb")
