"""Recordings of what people have: ``.npy`` and ``.npz`` files, sparse matrices.

Files may come from anybody: nothing is unpickled, and a declared shape is compared with the size
of the file before memory is given to it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments.datasets import DataError
from experiments.datasets.arrays import npz_names, read_npz
from experiments.recordings.recording import Recording, RecordingError

_SPARSE = ("data", "indices", "indptr", "shape")  # as scipy.sparse.save_npz calls them


@contextmanager
def opened(path: Path) -> Iterator[Recording]:
    """Open a recording; arrays are imported into a temporary folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; record with sparse-secagg train --record.")
    if path.suffix not in (".npy", ".npz"):
        yield Recording.open(path)
        return
    with tempfile.TemporaryDirectory(prefix="sparse-secagg-") as folder:
        yield import_arrays(path, Path(folder) / path.stem)


def import_arrays(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], **description: Any
) -> Recording:
    """Make a recording of a ``.npy`` or ``.npz`` file.

    Parameters
    ----------
    source : path
        ``.npy``: an (n, d) array is one round, an (R, n, d) array R rounds. ``.npz``: each array is
        taken in the same way, in the order of the numbers in their names; or a sparse matrix as
        ``scipy.sparse.save_npz`` writes it, which is one round.
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
    yield from _rounds(array, str(source))


def _npz_rounds(source: Path) -> Iterator[Any]:
    try:
        names = sorted(npz_names(source), key=_by_number)
        if {*_SPARSE, "format"} <= set(names):
            yield from _rounds(_sparse_matrix(source), str(source))
            return
        if not names:
            raise RecordingError(f"{source} holds no readable arrays.")
        for name in names:  # one in memory at a time
            yield from _rounds(read_npz(source, [name])[0], f"{source}: {name!r}")
    except DataError as error:
        raise RecordingError(str(error)) from None


def _rounds(array: Any, where: str) -> Iterator[Any]:
    """Yield the rounds of an (n, d) or (R, n, d) array."""
    if array.ndim not in (2, 3) or min(array.shape) < 1:
        raise RecordingError(
            f"{where} has shape {array.shape}; a round is (n, d), several rounds (R, n, d)."
        )
    if array.dtype.kind not in "fiub":
        raise RecordingError(f"{where} holds {array.dtype}; updates are real numbers.")
    yield from [array] if array.ndim == 2 else array


def _sparse_matrix(source: Path) -> sp.csr_array:
    data, indices, indptr, shape, kind = read_npz(source, [*_SPARSE, "format"])
    try:
        if kind.item() != b"csr":
            raise ValueError("only matrices in CSR form are read: save matrix.tocsr()")
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)  # an index out of range would read foreign memory
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{source} is not a readable sparse matrix: {error}") from None
    return matrix


def _by_number(name: str) -> list[Any]:
    """Order names as people do: round-2 before round-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
