"""Images by writer and images shared out, from files written here."""

import os

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import DataError, MissingDataError, mnist_by_writer

RNG = np.random.default_rng(0)


def arrays(n=12):
    return {
        "images": RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8),
        "labels": RNG.integers(0, 10, n).astype(np.uint8),
        "writer": np.array([7, 3, 7, 3, 7, 5, 3, 9, 9, 8, 8, 8][:n], np.int16),
        "is_test": np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1][:n], bool),
    }


def test_writers_keep_their_images_in_order(tmp_path):
    parts = arrays()
    np.savez_compressed(tmp_path / "mnist_by_writer.npz", **parts)
    data = datasets.load("mnist-by-writer", tmp_path)
    assert list(data.clients) == ["3", "5", "7"]
    x, y = data.clients["3"]
    np.testing.assert_array_equal(y, parts["labels"][[1, 3, 6]])
    np.testing.assert_allclose(x, parts["images"][[1, 3, 6]].reshape(3, 784) / 255, rtol=1e-6)
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(data.test[1], parts["labels"][7:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((12, 28, 28))}, "float64.*must be uint8"),
        ({"labels": np.full(12, 11)}, "0..9"),
        ({"labels": np.full(12, -1)}, "0..9"),
        ({"labels": np.zeros(11, int)}, "12 integers"),
        ({"writer": np.zeros(11, int)}, "writer has the shape"),
        ({"writer": np.array([object()] * 12)}, "objects can run code"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, change, message):
    np.savez(tmp_path / "mnist_by_writer.npz", **(arrays() | change))
    with pytest.raises(DataError, match=message):
        mnist_by_writer(tmp_path)


def test_missing_data_says_what_to_get_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSE_SECAGG_DATA", raising=False)
    with pytest.raises(MissingDataError, match="mnist_by_writer.npz"):
        mnist_by_writer(tmp_path)
    with pytest.raises(MissingDataError, match=r"--data DIR.*SPARSE_SECAGG_DATA"):
        mnist_by_writer()
    monkeypatch.setenv("SPARSE_SECAGG_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(MissingDataError, match="nowhere does not exist"):
        mnist_by_writer()


@pytest.mark.skipif("SPARSE_SECAGG_DATA" not in os.environ, reason="needs the real files")
def test_real_writers():
    data = mnist_by_writer()
    assert len(data.clients) == 539
    assert sum(len(y) for _, y in data.clients.values()) == 60_000
    assert data.test[0].shape == (10_000, 784)
