"""Arrays from ``.npz`` and IDX files that nobody vouches for.

Nothing is unpickled, and no memory is set aside on the word of a header: what a header declares is
first compared with the bytes that are there.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import DataError
from experiments.datasets.files import allowed_expansion, open_bytes, read_at_most, stored_bytes

#: Types of IDX files by the third byte of the header.
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the named arrays of an ``.npz`` file: numbers, booleans or fixed-width strings."""
    try:
        with zipfile.ZipFile(path) as archive:
            present = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
            absent = [name for name in names if name not in present]
            if absent:
                raise DataError(
                    f"{path} lacks the array{'s' * (len(absent) > 1)} {', '.join(absent)}; it "
                    f"holds {', '.join(present) or 'nothing'}. Save it as "
                    f"numpy.savez(path, {', '.join(f'{name}=...' for name in names)})."
                )
            return [_read_member(archive, f"{name}.npy", path) for name in names]
    except DataError:
        raise
    except Exception as error:  # zipfile fails on damage in as many ways as there are
        raise DataError(f"{path} cannot be read ({error}); get it again.") from error


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    member = archive.getinfo(name)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{path} is compressed as NumPy does not; save it with numpy.savez.")
    # the archive's own word for the compressed size counts no further than the file is long
    allowed = allowed_expansion(min(member.compress_size, stored_bytes(path)))
    source = f"{name} in {path}"
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            shape, by_column, dtype = _NPY_HEADERS[version](stream)
        except Exception as error:  # damaged headers fail in many ways, TokenError among them
            raise DataError(f"{source} is not a NumPy array; save it with numpy.savez.") from error
        if dtype.kind not in "biufUS" or dtype.itemsize == 0:
            raise DataError(
                f"{source} has dtype {dtype}, which is refused (objects can run code); save "
                "numbers, booleans or fixed-width strings."
            )
        flat = _read(stream, dtype, shape, source, min(member.file_size, allowed))
    return flat.reshape(shape, order="F" if by_column else "C")


def _read(
    stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], source: str, available: int
) -> NDArray[Any]:
    """Return the entries of an array, once there can be as many bytes as its shape declares."""
    if any(not 0 <= size < 1 << 48 for size in shape) or len(shape) > 32:
        raise DataError(f"{source} declares the shape {shape}, which no data can have.")
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes > available:
        raise DataError(
            f"{source} declares the shape {shape} of {dtype}, {n_bytes} bytes, but at most "
            f"{available} are there to read; the file is damaged or not what it says."
        )
    content = read_at_most(stream, n_bytes)
    if len(content) != n_bytes:
        raise DataError(
            f"{source} ends after {len(content)} of {n_bytes} bytes of data; get it again."
        )
    return np.frombuffer(content, dtype=dtype)


def read_idx(path: Path) -> NDArray[Any]:
    """Return the array of an IDX file, plain or gzipped, in the machine's byte order."""
    with open_bytes(path) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_TYPES or not start[3]:
            raise DataError(
                f"{path} does not start as an IDX file does (two zero bytes, a type, the number "
                "of dimensions); get the file named *-idx*-* and leave it as it is."
            )
        sizes = stream.read(4 * start[3])
        if len(sizes) < 4 * start[3]:
            raise DataError(f"{path} ends within its header; get it again.")
        shape = struct.unpack(f">{start[3]}I", sizes)
        available = allowed_expansion(stored_bytes(path))
        if path.suffix != ".gz":
            available = min(available, path.stat().st_size - 4 - len(sizes))
        dtype = np.dtype(_IDX_TYPES[start[2]])
        array = _read(stream, dtype, shape, str(path), available).reshape(shape)
        if stream.read(1):
            raise DataError(
                f"{path} goes on after the {array.nbytes} bytes that its header declares; it is "
                "damaged or not what it says."
            )
    return array.astype(dtype.newbyteorder("="), copy=False)
