"""Images by writer and images shared out, from files written here."""

import gzip
import os

import numpy as np
import pytest

from experiments.datasets import (
    DataError,
    MissingDataError,
    dirichlet_split,
    fashion_mnist,
    mnist_by_writer,
)
from experiments.datasets.images import DEBIAN_FASHION_MNIST
from tests.experiments.datasets import writers

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
    data = mnist_by_writer(tmp_path)
    assert list(data.clients) == ["3", "5", "7"]
    x, y = data.clients["3"]
    np.testing.assert_array_equal(y, parts["labels"][[1, 3, 6]])
    np.testing.assert_allclose(x, parts["images"][[1, 3, 6]].reshape(3, 784) / 255, rtol=1e-6)
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(data.test[1], parts["labels"][7:])


def test_a_writer_gives_the_first_images_alone_where_asked(tmp_path):
    np.savez(tmp_path / "mnist_by_writer.npz", **arrays())
    whole, some = mnist_by_writer(tmp_path), mnist_by_writer(tmp_path, max_images=2)
    assert [len(y) for _, y in some.clients.values()] == [2, 1, 2]
    np.testing.assert_array_equal(some.clients["3"][0], whole.clients["3"][0][:2])
    np.testing.assert_array_equal(some.test[0], whole.test[0])


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


def write_idx(folder, name, array, zipped):
    content = writers.idx(array)
    if zipped:
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    else:
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("zipped", [False, True])
def test_writers_from_qmnist(tmp_path, zipped):
    n = {"train": 9, "test": 4}
    images = {part: RNG.integers(0, 256, (n[part], 28, 28), dtype=np.uint8) for part in n}
    labels = {part: RNG.integers(0, 2**20, (n[part], 8)).astype(np.int32) for part in n}
    for part in n:
        labels[part][:, 0] = RNG.integers(0, 10, n[part])
        write_idx(tmp_path, f"qmnist-{part}-images-idx3-ubyte", images[part], zipped)
    labels["train"][:, 2] = [30, 4, 4, 30, 4, 4, 100, 30, 4]
    for part in n:
        write_idx(tmp_path, f"qmnist-{part}-labels-idx2-int", labels[part], zipped)
    data = mnist_by_writer(tmp_path)
    assert list(data.clients) == ["4", "30", "100"]
    x, y = data.clients["30"]
    np.testing.assert_array_equal(y, labels["train"][[0, 3, 7], 0])
    np.testing.assert_allclose(
        x, images["train"][[0, 3, 7]].reshape(3, 784) / 255, rtol=1e-6, atol=0
    )
    np.testing.assert_array_equal(data.test[1], labels["test"][:, 0])
    (tmp_path / f"qmnist-test-labels-idx2-int{'.gz' * zipped}").unlink()
    with pytest.raises(MissingDataError, match="qmnist-test-labels-idx2-int"):
        mnist_by_writer(tmp_path)


def fashion(folder, labels=None, images=None):
    folder.mkdir(exist_ok=True)
    for part, n in (("train", 60), ("t10k", 20)):
        pixels = RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8) if images is None else images
        write_idx(folder, f"{part}-images-idx3-ubyte", pixels, True)
        own = np.arange(n) % 10 if labels is None else labels
        write_idx(folder, f"{part}-labels-idx1-ubyte", own.astype(np.uint8), True)
    return folder


def test_fashion_mnist_is_shared_out_without_loss(tmp_path):
    fashion(tmp_path / "fashion-mnist")
    data = fashion_mnist(tmp_path, n_clients=7, concentration=0.5, seed=3)
    assert len(data.clients) <= 7
    y = np.concatenate([y for _, y in data.clients.values()])
    np.testing.assert_array_equal(np.bincount(y), [6] * 10)
    assert data.test[0].shape == (20, 784)
    again = fashion_mnist(tmp_path, n_clients=7, concentration=0.5, seed=3)
    for name in data.clients:
        np.testing.assert_array_equal(data.clients[name][0], again.clients[name][0])


def test_fashion_mnist_with_wrong_files(tmp_path):
    with pytest.raises(DataError, match="0..9"):
        fashion_mnist(fashion(tmp_path / "a", labels=np.full(60, 10)))
    with pytest.raises(DataError, match="integers, one an image"):
        fashion_mnist(fashion(tmp_path / "b", labels=np.zeros(5)))
    with pytest.raises(DataError, match="must be uint8"):
        fashion_mnist(fashion(tmp_path / "c", images=np.zeros((60, 4, 4), np.float32)))
    with pytest.raises(ValueError, match="concentration=nan"):
        fashion_mnist(fashion(tmp_path / "d"), concentration=np.nan)
    with pytest.raises(ValueError, match="n_clients=0"):
        fashion_mnist(tmp_path / "d", n_clients=0)


@pytest.mark.skipif(not DEBIAN_FASHION_MNIST.exists(), reason="needs dataset-fashion-mnist")
def test_the_debian_package_is_found(monkeypatch):
    monkeypatch.delenv("SPARSE_SECAGG_DATA", raising=False)
    data = fashion_mnist(n_clients=100)
    assert sum(len(y) for _, y in data.clients.values()) == 60_000
    assert data.test[0].shape == (10_000, 784)


@pytest.mark.parametrize(("concentration", "few"), [(0.1, True), (1000.0, False)])
def test_concentration_sets_how_many_classes_a_client_has(concentration, few):
    y = np.repeat(np.arange(10), 200)
    clients = dirichlet_split(y[:, None], y, 20, concentration, np.random.default_rng(0))
    assert sum(len(own) for _, own in clients.values()) == 2000
    classes = np.mean([len(set(own)) for _, own in clients.values()])
    assert classes < 6 if few else classes == 10
    assert all((x[:, 0] == own).all() for x, own in clients.values())
