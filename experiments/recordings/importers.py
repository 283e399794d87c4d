"""Recordings of what people have: ``.npy`` files, and sparse matrices of SciPy.

Files may come from anybody: nothing is unpickled, and a declared shape is compared with the size
of the file before memory is given to it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments.datasets.arrays import read_npz
from experiments.recordings.recording import Recording, RecordingError


@contextmanager
def opened(path: Path) -> Iterator[Recording]:
    """Open a recording; arrays are imported into a temporary folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; record with sparse-secagg train --record.")
    if path.suffix not in (".npy", ".npz"):
        yield Recording.open(path)
        return
    with tempfile.TemporaryDirectory(prefix="sparse-secagg-") as folder:
        yield import_array(path, Path(folder) / path.stem)


def import_array(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], **description: Any
) -> Recording:
    """Make a recording of an array.

    Parameters
    ----------
    source : path
        ``.npy``: an (n, d) array is one round, an (R, n, d) array R rounds. ``.npz``: a matrix in
        CSR form as ``scipy.sparse.save_npz`` writes it, which is one round.
    destination : path
        A new folder.
    **description
        ``task``, ``model``, ``shapes``, ``clip_norm``, ``seeds`` and ``notes`` of
        :meth:`Recording.create`.
    """
    read = {".npy": _dense, ".npz": _sparse}.get(Path(source).suffix)
    if read is None:
        raise ValueError(f"{source} must be a .npy or .npz file.")
    array = read(Path(source))  # what is wrong with it is said before anything is created
    if array.ndim not in (2, 3) or min(array.shape) < 1 or array.dtype.kind not in "fiub":
        raise RecordingError(
            f"{source} holds {array.dtype} of shape {array.shape}; a round is (n, d), several are "
            "(R, n, d), of real numbers."
        )
    recording = Recording.create(destination, **description)
    for number, updates in enumerate([array] if array.ndim == 2 else array):
        recording.append(number, updates)
    return recording


def _dense(source: Path) -> Any:
    try:
        # a memory map is refused where the file is shorter than its header says
        return np.load(source, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, OverflowError) as error:
        raise RecordingError(f"{source} is not a readable NumPy array: {error}") from None


def _sparse(source: Path) -> sp.csr_array:
    try:
        names = ("data", "indices", "indptr", "shape", "format")
        data, indices, indptr, shape, form = read_npz(source, names)
        if form.item() != b"csr":
            raise ValueError("only matrices in CSR form are read: save matrix.tocsr()")
        matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)  # an index out of range would read foreign memory
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{source} is not a readable sparse matrix: {error}") from None
    return matrix
