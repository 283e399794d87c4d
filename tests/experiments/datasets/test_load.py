"""Datasets by name or path, plain .npz files, and what is said when nothing is there."""

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import (
    ClientData,
    ClientSets,
    ClientTexts,
    DataError,
    MissingDataError,
    npz,
)

FROM_FOLDER = {
    "fashion-mnist": "train,t10k",
    "femnist": "emnist_all.sqlite.lzma",
    "mnist-by-writer": "mnist_by_writer.npz",
    "stack-exchange": "se_all.json.gz",
    "stackoverflow": "stackoverflow.sqlite",
}


def test_every_name_is_documented_here():
    embedded = {"digits", "python-docstrings", "python-identifiers"}
    assert set(datasets.names()) == embedded | set(FROM_FOLDER)


@pytest.mark.parametrize(("name", "file"), FROM_FOLDER.items())
def test_missing_data_says_what_to_get_and_where_to_put_it(tmp_path, monkeypatch, name, file):
    monkeypatch.setattr("experiments.datasets.images.DEBIAN_FASHION_MNIST", tmp_path / "none")
    monkeypatch.delenv("SPARSE_SECAGG_DATA", raising=False)
    with pytest.raises(MissingDataError) as caught:
        datasets.load(name)
    for part in (file, "--data", "SPARSE_SECAGG_DATA"):
        assert part in str(caught.value)
    with pytest.raises(MissingDataError) as caught:
        datasets.load(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    monkeypatch.setenv("SPARSE_SECAGG_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(MissingDataError, match="elsewhere does not exist"):
        datasets.load(name)


def test_unknown_names_and_endings(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARSE_SECAGG_DATA", raising=False)
    with pytest.raises(DataError, match="neither a dataset's name nor a file.*digits"):
        datasets.load("cifar")
    (tmp_path / "a.pkl").write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    with pytest.raises(DataError, match=r"no known ending; known: .npz"):
        datasets.load(tmp_path / "a.pkl")


ROWS = {
    "x": np.arange(24, dtype=np.float64).reshape(6, 2, 2),
    "y": np.array([0, 1, 2, 0, 1, 2]),
    "client": np.array(["b", "a", "b", "c", "a", "../d"]),
}


def test_rows_by_client(tmp_path):
    path = tmp_path / "data.npz"
    is_test = np.array([0, 0, 0, 0, 0, 1], bool)
    np.savez(path, **ROWS, is_test=is_test)
    data = datasets.load(path)
    assert isinstance(data, ClientData)
    assert list(data.clients) == ["a", "b", "c"]
    np.testing.assert_array_equal(data.clients["a"][0], ROWS["x"].reshape(6, 4)[[1, 4]])
    assert data.clients["a"][0].dtype == np.float32
    np.testing.assert_array_equal(data.test[1], [2])
    np.savez(path, **ROWS)
    data = npz(path, test_fraction=0.5)
    assert len(data.clients) == 2
    assert set(data.clients) < {"a", "b", "c", "../d"}


def test_bytes_are_pixels(tmp_path):
    np.savez(tmp_path / "a.npz", **(ROWS | {"x": np.full((6, 3), 51, np.uint8)}))
    data = npz(tmp_path / "a.npz")
    np.testing.assert_allclose(data.test[0], 0.2, rtol=1e-6)


def test_items_and_texts_by_client(tmp_path):
    client = np.array([2, 1, 2, 2])
    np.savez(tmp_path / "items.npz", client=client, item=np.array(["x", "y", "x", "z"]))
    sets = datasets.load(tmp_path / "items.npz")
    assert isinstance(sets, ClientSets)
    np.testing.assert_allclose(sets.presence.toarray(), [[0, 1, 0], [0.5**0.5, 0, 0.5**0.5]])
    np.savez(tmp_path / "texts.npz", client=client, text=np.array(["a b", "c", "d", "é"]))
    texts = datasets.load("texts.npz", tmp_path)
    assert isinstance(texts, ClientTexts)
    assert texts.clients == {"1": ["c"], "2": ["a b", "d", "é"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((6, 2), complex)}, "refused"),
        ({"x": np.zeros(6)}, "x has the shape"),
        ({"x": np.zeros((0, 2))}, "x has the shape"),
        ({"x": np.full((6, 2), np.inf)}, "not finite"),
        ({"x": np.full((6, 2), np.nan)}, "not finite"),
        ({"x": np.full((6, 2), 1e300)}, "not finite"),
        ({"y": np.zeros(5, int)}, "y has the shape"),
        ({"y": np.zeros(6)}, "class number"),
        ({"y": np.full(6, -1)}, "y goes from -1"),
        ({"y": np.full(6, 2**40)}, "y goes from 1099511627776"),
        ({"client": np.zeros((6, 1), int)}, "client has the shape"),
        ({"client": np.zeros(6)}, "client has the shape"),
        ({"client": np.zeros(6, int)}, "one client alone"),
        ({"is_test": np.ones(6, bool)}, "is_test must mark some"),
        ({"client": np.array([None] * 6)}, "objects can run code"),
        ({"item": np.zeros(5, int)}, "item has the shape"),
        ({"text": np.zeros(6)}, "text has the shape"),
    ],
    ids=range(17),
)
def test_wrong_arrays_are_named(tmp_path, change, message):
    path = tmp_path / "data.npz"
    np.savez(path, **(ROWS | change))
    with pytest.raises(ValueError, match=message):
        npz(path)


def test_arrays_that_are_absent_are_listed(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), labels=np.zeros(2))
    with pytest.raises(DataError, match=r"lacks the arrays y, client.*numpy.savez\(path, x="):
        npz(tmp_path / "a.npz")
