"""HDF5 files of TensorFlow Federated: ``examples/<client>/<feature>``, one file a split.

Needs h5py (extra ``hdf5``). Links to other files and other places are refused, and a dataset is
read only after its declared size was compared with what the file stores for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import DataError, MissingDataError
from experiments.datasets.files import ALWAYS_ALLOWED

if TYPE_CHECKING:
    import h5py


@dataclass(frozen=True)
class Hdf5Split:
    """One file: who is in it, and the features of one client."""

    path: Path

    def names(self, limit: int | None = None) -> list[str]:
        """Return the clients in the order of the file, only so many if a limit is given."""
        with self._inside() as examples:
            return list(islice(examples, limit))

    def features(self, client: str) -> set[str]:
        """Return the names of what the file holds of a client."""
        with self._inside(client) as group:
            return set(group)

    def read(self, client: str, feature: str) -> NDArray[Any] | list[bytes]:
        """Return one feature of a client, a row an example; text as a list."""
        with self._inside(client) as group:
            found = _array(group, feature, self.path)
        return found.reshape(-1).tolist() if found.dtype.kind in "OS" else found

    @contextmanager
    def _inside(self, *names: str) -> Iterator[h5py.Group]:
        """Open the file at ``examples``, or at a client below it."""
        try:
            import h5py
        except ImportError:
            raise MissingDataError(
                f"reading {self.path} needs h5py: pip install 'sparse-secagg[hdf5]', or take the "
                ".sqlite file of the same data."
            ) from None
        try:
            with h5py.File(self.path, "r") as place:
                for name in ("examples", *names):
                    place = _follow(place, name, self.path)
                    if not isinstance(place, h5py.Group):
                        raise DataError(
                            f"{self.path}: {name} is not a group; a TFF file has "
                            "examples/<client>/..."
                        )
                yield place
        except DataError:
            raise
        except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.path} cannot be read as HDF5 ({error}); get it again."
            ) from error


def _follow(parent: h5py.Group, name: str, path: Path) -> Any:
    """Return a child that the file itself holds, right below the parent."""
    import h5py

    # A slash would walk through groups, past the check of the links on the way.
    if "/" in name or name in (".", "..") or name not in parent:
        raise DataError(f"{path} has no {name!r} in {parent.name!r}; is it a TFF file?")
    if not isinstance(parent.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"{path}: {name!r} links elsewhere, which is refused.")
    return parent[name]


def _array(group: h5py.Group, name: str, path: Path) -> NDArray[Any]:
    import h5py

    data = _follow(group, name, path)
    if not isinstance(data, h5py.Dataset) or data.external or data.is_virtual:
        raise DataError(f"{path}: {data.name} is not a dataset stored in this file.")
    text = h5py.check_string_dtype(data.dtype) is not None
    if not text and data.dtype.kind not in "biuf":
        raise DataError(f"{path}: {data.name} has dtype {data.dtype}; numbers or text are read.")
    if data.size * data.dtype.itemsize > ALWAYS_ALLOWED:
        raise DataError(
            f"{path}: {data.name} declares the shape {data.shape}, over {ALWAYS_ALLOWED} bytes, "
            "more than any client holds."
        )
    # Chunks that were never written read as zeros without being there.
    if data.size and not data.id.get_storage_size():
        raise DataError(f"{path}: {data.name} declares {data.size} values and stores none.")
    return np.asarray(data[()])
