"""Which loader reads a path, by what the path is called and holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.datasets.arrays import npz_names
from experiments.datasets.base import ClientData, ClientSets, ClientTexts, DataError
from experiments.datasets.corpora import stack_exchange, text_folder
from experiments.datasets.files import data_folder, open_bytes
from experiments.datasets.images import fashion_mnist, mnist_by_writer
from experiments.datasets.leaf_json import leaf
from experiments.datasets.tables import npz
from experiments.datasets.tensorflow_federated import tff


def load_path(
    path: Path, data: str | os.PathLike[str] | None, known: list[str], **options: Any
) -> ClientData | ClientSets | ClientTexts:
    """Return the dataset at a path, itself or below the data folder."""
    folder = data_folder(data)
    places = [path] if folder is None else [path, folder / path]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        looked = f" (nor in {folder})" if folder is not None else ""
        raise DataError(
            f"{path} is neither a dataset's name nor a file or folder{looked}. "
            f"Names: {', '.join(known)}."
        )
    loader = _folder_loader(found) if found.is_dir() else _file_loader(found)
    loaded: ClientData | ClientSets | ClientTexts = loader(found, **options)
    return loaded


def _folder_loader(folder: Path) -> Callable[..., Any]:
    if any(folder.glob("*.json")) or any((folder / "train").glob("*.json")):
        return leaf
    if any(folder.glob("qmnist-train-images-idx3-ubyte*")):
        return mnist_by_writer
    if any(folder.glob("train-images-idx3-ubyte*")):
        return fashion_mnist
    return text_folder


def _file_loader(path: Path) -> Callable[..., Any]:
    name = path.name.lower()
    if name.endswith(".npz"):
        return mnist_by_writer if {"images", "writer"} <= set(npz_names(path)) else npz
    if name.endswith((".json", ".json.gz")):
        return stack_exchange if _first_sign(path) == b"[" else leaf
    if name.endswith((".sqlite", ".sqlite3", ".db", ".sqlite.lzma", ".h5", ".hdf5")):
        return tff
    raise DataError(
        f"{path} has no known ending; known: .npz, .json, .json.gz, .sqlite, .h5, or "
        "a folder of text files."
    )


def _first_sign(path: Path) -> bytes:
    with open_bytes(path) as stream:
        return stream.read(4096).lstrip()[:1]
