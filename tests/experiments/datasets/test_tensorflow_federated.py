"""Files of TensorFlow Federated, written here to the published layout, without TensorFlow."""

import pickle

import numpy as np
import pytest

from experiments.datasets import (
    ClientData,
    ClientTexts,
    DataError,
    MissingDataError,
    femnist,
    next_word,
    stackoverflow,
)
from experiments.datasets.tensorflow_federated import _images
from tests.experiments.datasets import writers
from tests.experiments.datasets.writers import little_memory

h5py = pytest.importorskip("h5py")
RNG = np.random.default_rng(0)


def images(n):
    """Return pixels (n, 28, 28) float32 with 1.0 the background, and labels."""
    pixels = np.ones((n, 28, 28), np.float32)
    pixels[:, 8:20, 8:20] = RNG.random((n, 12, 12))
    return pixels, RNG.integers(0, 62, n).astype(np.int32)


TRAIN = {f"f{k:04d}_{k:02d}": images(k + 1) for k in range(6)}
TEST = {client: images(2) for client in TRAIN}


def femnist_hdf5(folder):
    for name, clients in (("train", TRAIN), ("test", TEST)):
        writers.hdf5(
            folder / f"fed_emnist_{name}.h5",
            {client: {"pixels": x, "label": y} for client, (x, y) in clients.items()},
        )
    return folder / "fed_emnist_train.h5"


def expect_femnist(data):
    assert isinstance(data, ClientData)
    assert list(data.clients) == list(TRAIN)
    for client, (pixels, labels) in TRAIN.items():
        x, y = data.clients[client]
        np.testing.assert_array_equal(x, 1 - pixels.reshape(len(pixels), 784))
        np.testing.assert_array_equal(y, labels)
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        assert x.mean() < 0.5  # the background is 0 now
    np.testing.assert_array_equal(data.test[1], np.concatenate([y for _, y in TEST.values()]))
    assert data.test[0].shape == (12, 784)


def test_femnist(tmp_path):
    expect_femnist(femnist(femnist_hdf5(tmp_path)))
    expect_femnist(femnist(tmp_path))


def test_only_what_is_asked_for_is_read(tmp_path):
    path = femnist_hdf5(tmp_path)
    with h5py.File(path, "r+") as file:  # damage the data of the others
        del file["examples/f0003_03/label"]
    data = femnist(tmp_path, max_clients=2)
    assert len(data.clients) == 2
    assert len(data.test[1]) == 4  # of the same two
    [data.clients[client] for client in data.clients]
    with pytest.raises(KeyError):
        data.clients["f0005_05"]
    assert pickle.loads(pickle.dumps(data.clients)).keys() == data.clients.keys()
    with pytest.raises(ValueError, match="max_clients=0"):
        femnist(tmp_path, max_clients=0)


def test_missing_files_say_what_to_get(tmp_path):
    with pytest.raises(MissingDataError, match=r"F-EMNIST not found.*fed_emnist.tar.bz2"):
        femnist(tmp_path)
    femnist_hdf5(tmp_path)
    (tmp_path / "fed_emnist_test.h5").unlink()
    with pytest.raises(MissingDataError, match="fed_emnist_test.h5 there"):
        femnist(tmp_path)


SENTENCES = {"00000001": ["how do i sort a list ?", "use sorted ."], "00000021": ["why ? ünïcode"]}
HELD_OUT = {"00000010": ["what is a tuple ?"]}


def stack_overflow(folder):
    for name, texts in (("train", SENTENCES), ("held_out", HELD_OUT)):
        features = {
            client: {
                "tokens": own,
                "title": ["t"] * len(own),
                "score": np.zeros(len(own), np.int64),
            }
            for client, own in texts.items()
        }
        writers.hdf5(folder / f"stackoverflow_{name}.h5", features)
    return folder


def test_stack_overflow(tmp_path):
    texts = stackoverflow(stack_overflow(tmp_path))
    assert isinstance(texts, ClientTexts)
    assert dict(texts.clients) == SENTENCES
    assert dict(texts.held_out) == HELD_OUT
    data = next_word(texts, vocabulary_size=50)
    assert data.test[0].shape == (1, 20)
    assert len(data.clients["00000001"][0]) == 2


# --- hostile files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pixels", "label", "reason"),
    [
        ([[0.5, 1.5]], [1], "outside 0..1"),
        ([[0.5, float("nan")]], [1], "not a number"),
        ([[0.5, 1.0]], [62], "not in 0..61"),
        ([[0.5, 1.0]], [-1], "not in 0..61"),
        ([[0.5, 1.0]], [1, 2], "one integer an image"),
        ([[0.5, 1.0]], [1.0], "one integer an image"),
        (["png"], [1], "they must be"),
    ],
)
def test_wrong_images_name_file_and_client(tmp_path, pixels, label, reason):
    features = {
        "pixels": pixels if pixels == ["png"] else np.array(pixels),
        "label": np.array(label),
    }
    for name in ("train", "test"):
        writers.hdf5(tmp_path / f"fed_emnist_{name}.h5", {"me": features})
    with pytest.raises(DataError, match=reason) as caught:
        femnist(tmp_path)
    assert "fed_emnist_test.h5: client 'me'" in str(caught.value)


def test_texts_that_are_none(tmp_path):
    stack_overflow(tmp_path)
    with h5py.File(tmp_path / "stackoverflow_train.h5", "r+") as file:
        group = file["examples/00000001"]
        del group["tokens"]
        group["tokens"] = np.zeros(3)
        del file["examples/00000021/tokens"]
        file["examples/00000021"].create_dataset("tokens", data=np.array([b"\xff\xfe"]))
    texts = stackoverflow(tmp_path)
    with pytest.raises(DataError, match="are numbers, not text"):
        texts.clients["00000001"]
    with pytest.raises(DataError, match="not in UTF-8"):
        texts.clients["00000021"]


def test_hostile_hdf5(tmp_path):
    good = {"pixels": np.ones((2, 28, 28), np.float32), "label": np.zeros(2, np.int32)}
    secret = writers.hdf5(tmp_path / "secret.h5", {"you": good})

    def case(name, message, change):
        path = writers.hdf5(tmp_path / f"{name}.h5", {"me": good, "you": good})
        with h5py.File(path, "r+") as file:
            change(file)
        with little_memory(), pytest.raises(DataError, match=message) as caught:
            _images(path, "me")
        assert f"{name}.h5" in str(caught.value)

    def replace(key, make):
        def change(file):
            group = file["examples/me"]
            del group[key]
            make(group, key)

        return change

    external = h5py.ExternalLink(secret, "/examples/you/pixels")
    case("external", "links elsewhere", replace("pixels", lambda g, k: g.__setitem__(k, external)))
    soft = h5py.SoftLink("/examples/you/pixels")
    case("soft", "links elsewhere", replace("pixels", lambda g, k: g.__setitem__(k, soft)))
    case(
        "raw",
        "not a dataset stored in this file",
        replace(
            "pixels",
            lambda g, k: g.create_dataset(
                k, (2, 28, 28), "f4", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)]
            ),
        ),
    )
    case(
        "gigantic",
        "declares the shape",
        replace(
            "pixels", lambda g, k: g.create_dataset(k, (10**9, 28, 28), "f4", chunks=(1, 28, 28))
        ),
    )
    case(
        "unwritten",
        "stores none",
        replace(
            "pixels", lambda g, k: g.create_dataset(k, (10**4, 28, 28), "f4", chunks=(1, 28, 28))
        ),
    )
    case(
        "short", "one integer an image", replace("label", lambda g, k: g.__setitem__(k, [1, 2, 3]))
    )
    case("dtype", "has dtype", replace("label", lambda g, k: g.__setitem__(k, np.zeros(2, "c8"))))
    case("group", "not a dataset", replace("label", lambda g, k: g.create_group(k)))
    case("absent", "has no 'label'", replace("label", lambda g, k: None))
    case("classes", "not in 0..61", replace("label", lambda g, k: g.__setitem__(k, [0, 99])))
    case("no-examples", "has no 'examples'", lambda file: file.__delitem__("examples"))
    (tmp_path / "junk.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\xff" * 100)
    with pytest.raises(DataError, match="junk.h5 cannot be read as HDF5"):
        _images(tmp_path / "junk.h5", "me")


def test_without_h5py_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    (tmp_path / "fed_emnist_train.h5").write_bytes(b"")
    (tmp_path / "fed_emnist_test.h5").write_bytes(b"")
    with pytest.raises(MissingDataError, match=r"sparse-secagg\[hdf5\]"):
        femnist(tmp_path)
