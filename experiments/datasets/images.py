"""Handwritten digits by writer, and images without an owner shared out at random."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import ClientData, DataError
from experiments.datasets.files import find, read_npz
from experiments.datasets.splits import split_by_client


def mnist_by_writer(data: str | os.PathLike[str] | None = None) -> ClientData:
    """Return MNIST split by the person who wrote each digit, with other writers' for the test.

    Parameters
    ----------
    data : path, optional
        Folder that holds ``mnist_by_writer.npz`` with ``images`` uint8 (n, 28, 28), ``labels``,
        ``writer`` and ``is_test``; by default the one that SPARSE_SECAGG_DATA names.
    """
    path = find(
        ["mnist_by_writer.npz"],
        data,
        what="MNIST by writer",
        remedy="Put mnist_by_writer.npz (arrays images, labels, writer, is_test) there.",
    )
    images, labels, writer, is_test = read_npz(path, ["images", "labels", "writer", "is_test"])
    check_images(images, labels, path)
    for name, array in (("writer", writer), ("is_test", is_test)):
        if array.shape != labels.shape:
            raise DataError(
                f"{path}: {name} has the shape {array.shape}, but there are {len(labels)} labels."
            )
    test = is_test.astype(bool)
    x, y = scaled(images), labels.astype(np.int64)
    return ClientData(split_by_client(x[~test], y[~test], writer[~test]), (x[test], y[test]))


def scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images as rows of float32 in [0, 1]."""
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def check_images(images: NDArray[Any], labels: NDArray[Any], path: Path) -> None:
    """Raise unless there is one byte a pixel and one class in 0..9 an image."""
    if images.dtype != np.uint8 or images.ndim != 3:
        raise DataError(
            f"{path}: images have dtype {images.dtype} and shape {images.shape}; they must be "
            "uint8 of shape (n, height, width)."
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
        raise DataError(
            f"{path}: labels have dtype {labels.dtype} and shape {labels.shape}; they must be "
            f"{len(images)} integers, one an image."
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() <= 9):
        raise DataError(
            f"{path}: labels go from {labels.min()} to {labels.max()}; they must be in 0..9."
        )
