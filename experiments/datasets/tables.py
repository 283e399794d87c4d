"""Plain ``.npz`` files: a row an example, an item or a text, and a column that says whose it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.arrays import npz_names, read_npz
from experiments.datasets.base import ClientData, ClientSets, ClientTexts, DataError
from experiments.datasets.leaf_json import MAX_CLASSES
from experiments.datasets.splits import hold_out, split_by_client


def npz(
    path: str | os.PathLike[str], *, test_fraction: float = 0.1, seed: int = 0
) -> ClientData | ClientSets | ClientTexts:
    """Return a plain ``.npz`` file, as its arrays say.

    Parameters
    ----------
    path : path
        With ``x``, ``y``, ``client`` (rows, classes, whose; optionally ``is_test``): `ClientData`.
        With ``item``, ``client``: `ClientSets`. With ``text``, ``client``: `ClientTexts`.
    test_fraction, seed : float, int
        For rows without ``is_test``: which share of the clients is held out, and the draw.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    present = set(npz_names(path))
    if present >= {"client", "item"}:
        item, client = _columns(path, ["item", "client"])
        return ClientSets.from_sets({k: set(own) for k, own in _grouped(item, client).items()})
    if present >= {"client", "text"}:
        text, client = _columns(path, ["text", "client"])
        return ClientTexts(_grouped(text, client), {})
    return _rows(path, "is_test" in present, test_fraction, seed)


def _columns(path: Path, names: list[str]) -> list[NDArray[Any]]:
    """Return one-dimensional arrays of one length, as text."""
    arrays = read_npz(path, names)
    for name, array in zip(names, arrays):
        if array.ndim != 1 or len(array) != len(arrays[-1]) or array.dtype.kind not in "iuU":
            raise DataError(
                f"{path}: {name} has the shape {array.shape} and dtype {array.dtype}; it must be "
                "one string or integer an entry of client."
            )
    return [array.astype(str) for array in arrays]


def _grouped(values: NDArray[Any], client: NDArray[Any]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in zip(client.tolist(), values.tolist()):
        groups.setdefault(name, []).append(value)
    return dict(sorted(groups.items()))


def _rows(path: Path, has_test: bool, test_fraction: float, seed: int) -> ClientData:
    x, y, client, *rest = read_npz(path, ["x", "y", "client", *["is_test"] * has_test])
    if x.ndim < 2 or x.dtype.kind not in "fiub" or 0 in x.shape:
        raise DataError(
            f"{path}: x has the shape {x.shape} and dtype {x.dtype}; it must be (n, ...) numbers."
        )
    for name, array, kinds in (
        ("y", y, "iu"),
        ("client", client, "iuU"),
        *(("is_test", array, "biu") for array in rest),
    ):
        if array.shape != (len(x),) or array.dtype.kind not in kinds:
            raise DataError(
                f"{path}: {name} has the shape {array.shape} and dtype {array.dtype}; it must "
                f"have one entry for each of the {len(x)} rows of x"
                f"{', a class number' if name == 'y' else ''}."
            )
    if not (y.min() >= 0 and y.max() < MAX_CLASSES):
        raise DataError(
            f"{path}: y goes from {y.min()} to {y.max()}; classes count from 0 up to "
            f"{MAX_CLASSES} at most."
        )
    x = _features(x, path)
    labels = y.astype(np.int64)
    if not rest:
        return hold_out(split_by_client(x, labels, client), test_fraction, seed)
    test = rest[0].astype(bool)
    if test.all() or not test.any():
        raise DataError(f"{path}: is_test must mark some rows and leave others for training.")
    clients = split_by_client(x[~test], labels[~test], client[~test])
    return ClientData(clients, (x[test], labels[test]))


def _features(x: NDArray[Any], path: Path) -> NDArray[np.float32]:
    """Return rows of float32; bytes are taken as pixels and scaled to [0, 1]."""
    with np.errstate(over="ignore"):  # infinite then, and refused below
        rows = x.reshape(len(x), -1).astype(np.float32)
    if not np.isfinite(rows).all():
        raise DataError(f"{path}: x has values that are not finite numbers.")
    return rows / np.float32(255) if x.dtype == np.uint8 else rows
