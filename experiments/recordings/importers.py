"""Recordings of what people have: NumPy files, sparse matrices, folders of PyTorch differences.

Files may come from anybody: nothing is unpickled, and a declared shape is compared with the size
of the file before memory is given to it.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.arrays import check_npz
from experiments.recordings.recorder import as_arrays, flatten, layer_shapes
from experiments.recordings.recording import Recording, RecordingError

__all__ = ["import_arrays", "import_state_dicts", "opened"]

_BLOCK_BYTES = 2**25
_TORCH_SUFFIXES = (".pt", ".pth")

#: Deflate cannot shrink by more than this factor, so a member that claims more is lying.
_MOST_COMPRESSED = 1100


@contextmanager
def opened(path: Path) -> Iterator[Recording]:
    """Open a recording in any form; files are unpacked into a temporary folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; record with sparse-secagg train --record.")
    if path.is_dir():
        yield Recording.open(path)
        return
    with tempfile.TemporaryDirectory(prefix="sparse-secagg-") as folder:
        place = Path(folder) / path.stem
        if path.suffix in (".npy", ".npz"):
            yield import_arrays(path, place)
        else:
            yield Recording.unpack(path, place)


def import_arrays(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    **description: Any,
) -> Recording:
    """Make a recording of a ``.npy`` or ``.npz`` file.

    Parameters
    ----------
    source : path
        ``.npy``: an (n, d) array is one round, an (R, n, d) array R rounds. ``.npz``: each array is
        taken in the same way, in the order of the numbers in their names; or a sparse matrix as
        ``scipy.sparse.save_npz`` writes it, which is one round. Read in blocks.
    destination : path
        A new folder.
    **description
        ``task``, ``model``, ``shapes``, ``clip_norm``, ``seeds`` and ``notes`` of
        :meth:`Recording.create`.
    """
    source = Path(source)
    if source.suffix not in (".npy", ".npz"):
        raise ValueError(f"{source} must be a .npy or .npz file.")
    if not source.is_file():
        raise FileNotFoundError(f"{source} is not there.")
    rounds = _npy_rounds(source) if source.suffix == ".npy" else _npz_rounds(source)
    first = next(rounds)  # what is wrong with the source is said before anything is created
    recording = Recording.create(destination, **description)
    recording.append(0, first)
    for number, updates in enumerate(rounds, start=1):
        recording.append(number, updates)
    return recording


def _npy_rounds(source: Path) -> Iterator[Any]:
    try:
        # a memory map is refused where the file is shorter than its header says
        array = np.load(source, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, OverflowError) as error:
        raise RecordingError(f"{source} is not a readable NumPy array: {error}") from None
    yield from _split(array, str(source))


def _split(array: NDArray[Any], where: str) -> Iterator[NDArray[Any]]:
    _check_array(array.shape, array.dtype, where)
    yield from [array] if array.ndim == 2 else array


def _check_array(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> None:
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise RecordingError(
            f"{where} has shape {shape}; a round is (n, d), several rounds (R, n, d)."
        )
    if dtype.kind not in "fiub":
        raise RecordingError(f"{where} holds {dtype}; updates are real numbers.")


def _npz_rounds(source: Path) -> Iterator[Any]:
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile as error:
        raise RecordingError(f"{source} is not a readable .npz file: {error}.") from None
    with archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if {"format", "shape", "data", "indices", "indptr"} <= set(members):
            yield _sparse_matrix(source, members)
            return
        if not members:
            raise RecordingError(f"{source} holds no arrays.")
        for name in sorted(members, key=_by_number):
            try:
                with archive.open(members[name]) as member:
                    yield from _member_rounds(member, members[name], f"{source}: {name!r}")
            except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
                raise RecordingError(f"{source}: {name!r} is damaged: {error}.") from None


def _member_rounds(member: IO[bytes], info: zipfile.ZipInfo, where: str) -> Iterator[Any]:
    try:
        version = np.lib.format.read_magic(member)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran_order, dtype = read(member)
    except (ValueError, KeyError) as error:
        raise RecordingError(f"{where} is not a NumPy array: {error}.") from None
    _check_array(shape, dtype, where)
    size = math.prod(shape) * dtype.itemsize
    if info.file_size - member.tell() != size or size > _MOST_COMPRESSED * info.compress_size:
        raise RecordingError(
            f"{where} declares {shape} {dtype}, {size:,} bytes, and holds "
            f"{info.file_size - member.tell():,} in {info.compress_size:,} compressed ones."
        )
    if fortran_order:
        data = np.frombuffer(_read(member, size), dtype)
        yield from _split(data.reshape(shape[::-1]).transpose(), where)
        return
    n, d = shape[-2:]
    for _ in range(shape[0] if len(shape) == 3 else 1):
        yield _member_rows(member, n, d, dtype)


def _member_rows(member: IO[bytes], n: int, d: int, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    step = max(1, _BLOCK_BYTES // (d * dtype.itemsize))
    for start in range(0, n, step):
        rows = min(step, n - start)
        yield np.frombuffer(_read(member, rows * d * dtype.itemsize), dtype).reshape(rows, d)


def _read(member: IO[bytes], size: int) -> bytes:
    data = member.read(size)
    if len(data) < size:
        raise EOFError("it ends early")
    return data


def _sparse_matrix(source: Path, members: dict[str, zipfile.ZipInfo]) -> Any:
    import scipy.sparse as sp

    for name, info in members.items():
        if info.file_size > _MOST_COMPRESSED * info.compress_size + 1000:
            raise RecordingError(f"{source}: {name!r} declares more than it can hold.")
    try:
        check_npz(source)  # SciPy would set aside whatever memory a header asks for
        matrix = sp.csr_array(sp.load_npz(source))
        matrix.check_format(full_check=True)  # an index out of range would read foreign memory
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise RecordingError(f"{source} is not a readable sparse matrix: {error}") from None
    _check_array(matrix.shape, matrix.dtype, str(source))
    return matrix


def import_state_dicts(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], **description: Any
) -> Recording:
    """Make a recording of a folder of PyTorch ``state_dict`` differences. Needs PyTorch.

    Parameters
    ----------
    source : path
        A folder with one ``.pt`` or ``.pth`` file a client, a mapping of names to tensors that says
        what the client adds to the weights; or one such folder for each round, in the order of the
        numbers in their names. Loaded with ``weights_only=True``, one client at a time.
    destination : path
        A new folder. Names and shapes of the layers are kept; tensors that are not floating
        point are left out.
    **description
        ``task``, ``model``, ``clip_norm``, ``seeds`` and ``notes`` of :meth:`Recording.create`.
    """
    rounds = _client_files(Path(source))
    shapes = layer_shapes(_state_dict(rounds[0][0]))
    recording = Recording.create(destination, shapes=shapes, **description)
    for number, files in enumerate(rounds):
        recording.append(number, (_flat(file, shapes) for file in files))
    return recording


def _client_files(source: Path) -> list[list[Path]]:
    if not source.is_dir():
        raise FileNotFoundError(
            f"{source} is not a folder of {' or '.join(_TORCH_SUFFIXES)} files."
        )

    def clients(folder: Path) -> list[Path]:
        found = (path for path in folder.iterdir() if path.suffix in _TORCH_SUFFIXES)
        return sorted(found, key=lambda path: _by_number(path.name))

    if here := clients(source):
        return [here]
    folders = sorted(filter(Path.is_dir, source.iterdir()), key=lambda path: _by_number(path.name))
    rounds = [files for folder in folders if (files := clients(folder))]
    if not rounds:
        raise FileNotFoundError(
            f"{source} holds no {' or '.join(_TORCH_SUFFIXES)} files, one a client, nor folders of "
            "them, one a round."
        )
    return rounds


def _state_dict(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            'reading .pt files needs PyTorch: pip install "sparse-secagg[torch]".'
        ) from error
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged and hostile files fail in many ways
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecordingError(f"{path} is not a readable file of tensors: {reason}") from None
    tensors = isinstance(found, dict) and found
    if not tensors or not all(hasattr(value, "detach") for value in found.values()):
        raise RecordingError(f"{path} does not hold a mapping of names to tensors.")
    return as_arrays(found)


def _flat(path: Path, shapes: dict[str, tuple[int, ...]]) -> NDArray[np.float64]:
    try:
        return flatten(_state_dict(path), shapes)
    except ValueError as error:
        raise RecordingError(f"{path}: {error}") from None


def _by_number(name: str) -> list[Any]:
    """Order names as people do: client-2 before client-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
