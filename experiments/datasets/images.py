"""Handwritten digits by writer, and images without an owner shared out at random."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.arrays import read_idx, read_npz
from experiments.datasets.base import ClientData, DataError
from experiments.datasets.files import data_folder, find, missing
from experiments.datasets.splits import dirichlet_split, split_by_client

#: Where Debian's package dataset-fashion-mnist puts its files.
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_QMNIST_WRITER = 2  # column of the extended labels
_MNIST_TEST = 10_000  # QMNIST's test file goes on after the images that MNIST tests with


def mnist_by_writer(
    data: str | os.PathLike[str] | None = None, max_images: int | None = None
) -> ClientData:
    """Return MNIST split by the person who wrote each digit, with other writers' for the test.

    Parameters
    ----------
    data : path, optional
        Folder that holds ``mnist_by_writer.npz`` (``images`` uint8 (n, 28, 28), ``labels``,
        ``writer``, ``is_test``) or the files of QMNIST (``qmnist-train-images-idx3-ubyte``,
        ``qmnist-train-labels-idx2-int`` and the same for ``test``, plain or ``.gz``); by default
        the folder that SPARSE_SECAGG_DATA names.
    max_images : int, optional
        Of a writer, the first so many.
    """
    folder = data_folder(data)
    if folder is not None and not folder.is_file() and _idx_file(folder, _qmnist("train")[0]):
        found = _from_qmnist(folder)
    else:
        found = _from_arrays(data)
    first = slice(max_images)
    clients = {name: (x[first], y[first]) for name, (x, y) in found.clients.items()}
    return ClientData(clients, found.test)


def _from_arrays(data: str | os.PathLike[str] | None) -> ClientData:
    path = find(
        ["mnist_by_writer.npz"],
        data,
        what="MNIST by writer",
        remedy="Put there mnist_by_writer.npz (arrays images, labels, writer, is_test), or from "
        "https://github.com/facebookresearch/qmnist the files qmnist-{train,test}-"
        "images-idx3-ubyte.gz and qmnist-{train,test}-labels-idx2-int.gz.",
    )
    images, labels, writer, is_test = read_npz(path, ["images", "labels", "writer", "is_test"])
    _check_images(images, labels, path)
    for name, array in (("writer", writer), ("is_test", is_test)):
        if array.shape != labels.shape:
            raise DataError(
                f"{path}: {name} has the shape {array.shape}, but there are {len(labels)} labels."
            )
    test, x, y = is_test.astype(bool), _scaled(images), labels.astype(np.int64)
    return ClientData(split_by_client(x[~test], y[~test], writer[~test]), (x[test], y[test]))


def _qmnist(part: str) -> tuple[str, str]:
    return f"qmnist-{part}-images-idx3-ubyte", f"qmnist-{part}-labels-idx2-int"


def _from_qmnist(folder: Path) -> ClientData:
    (x, labels), (x_test, test_labels) = (
        _idx_pair(folder, *_qmnist(part), "QMNIST") for part in ("train", "test")
    )
    clients = split_by_client(x, labels[:, 0], labels[:, _QMNIST_WRITER])
    return ClientData(clients, (x_test[:_MNIST_TEST], test_labels[:_MNIST_TEST, 0]))


def fashion_mnist(
    data: str | os.PathLike[str] | None = None,
    n_clients: int = 500,
    concentration: float = 1.0,
    seed: int = 0,
) -> ClientData:
    """Return Fashion-MNIST, shared among clients by a Dirichlet distribution over classes.

    Parameters
    ----------
    data : path, optional
        Folder with ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-...``
        and ``t10k-labels-...``, plain or ``.gz``, in it or in its subfolder ``fashion-mnist``;
        by default the one that SPARSE_SECAGG_DATA names, then that of Debian's package
        ``dataset-fashion-mnist``.
    n_clients, concentration, seed : int, float, int
        Of the split; see `dirichlet_split`.
    """
    folder = data_folder(data)
    candidates = [folder / "fashion-mnist", folder] if folder is not None else []
    for place in [*candidates, DEBIAN_FASHION_MNIST]:
        if _idx_file(place, "train-images-idx3-ubyte"):
            break
    else:
        raise missing(
            "Fashion-MNIST",
            "Install Debian's package dataset-fashion-mnist, or put there the four files "
            "{train,t10k}-images-idx3-ubyte.gz and {train,t10k}-labels-idx1-ubyte.gz from "
            "https://github.com/zalandoresearch/fashion-mnist.",
            folder,
        )
    (x, y), test = (
        _idx_pair(place, f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte", "Fashion-MNIST")
        for part in ("train", "t10k")
    )
    rng = np.random.default_rng(seed)
    return ClientData(dirichlet_split(x, y, n_clients, concentration, rng), test)


def _idx_file(folder: Path, name: str) -> Path | None:
    paths: Sequence[Path] = (folder / name, folder / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)


def _idx_pair(
    folder: Path, images_name: str, labels_name: str, what: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return images as rows in [0, 1], and labels: one column, or QMNIST's eight."""
    paths = [_idx_file(folder, name) for name in (images_name, labels_name)]
    for path, name in zip(paths, (images_name, labels_name)):
        if path is None:
            raise missing(f"{what}'s file {name}", f"Put {name}.gz there.", folder)
    images, labels = (read_idx(path) for path in paths if path is not None)
    extended = labels_name.endswith("idx2-int")
    if extended and not (labels.ndim == 2 and labels.shape[1] > _QMNIST_WRITER):
        raise DataError(
            f"{paths[1]}: extended labels have the shape {labels.shape}; they must have a row an "
            "image with the class first and the writer third."
        )
    _check_images(images, labels[:, 0] if extended else labels, folder)
    return _scaled(images), labels.astype(np.int64)


def _scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def _check_images(images: NDArray[Any], labels: NDArray[Any], path: Path) -> None:
    """Raise unless there is one byte a pixel and one class in 0..9 an image."""
    if images.dtype != np.uint8 or images.ndim != 3 or 0 in images.shape:
        raise DataError(
            f"{path}: images have dtype {images.dtype} and shape {images.shape}; they must be "
            "uint8 of shape (n, height, width)."
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
        raise DataError(
            f"{path}: labels have dtype {labels.dtype} and shape {labels.shape}; they must be "
            f"{len(images)} integers, one an image."
        )
    if not (labels.min() >= 0 and labels.max() <= 9):
        raise DataError(
            f"{path}: labels go from {labels.min()} to {labels.max()}; they must be in 0..9."
        )
