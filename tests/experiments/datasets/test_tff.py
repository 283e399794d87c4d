"""Files of TensorFlow Federated, written here to the published layout, without TensorFlow."""

import pickle
import sqlite3
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import datasets
from experiments.datasets import ClientData, ClientTexts, DataError, tff
from experiments.datasets.base import MissingDataError
from experiments.datasets.tensorflow_federated.hdf5 import Hdf5Split
from tests.experiments.datasets import writers
from tests.experiments.datasets.writers import little_memory

RNG = np.random.default_rng(0)


def images(n):
    """Return pixels (n, 28, 28) float32 with 1.0 the background, and labels."""
    pixels = np.ones((n, 28, 28), np.float32)
    pixels[:, 8:20, 8:20] = RNG.random((n, 12, 12))
    return pixels, RNG.integers(0, 62, n).astype(np.int32)


TRAIN = {f"f{k:04d}_{k:02d}": images(k + 1) for k in range(6)}
TEST = {client: images(2) for client in TRAIN}


def messages(pixels, labels):
    return [
        writers.example({"label": [int(y)], "pixels": [float(v) for v in x.ravel()]})
        for x, y in zip(pixels, labels)
    ]


def femnist_sqlite(path, train="all_train", test="all_test"):
    return writers.sqlite(
        path,
        {
            train: {client: messages(*own) for client, own in TRAIN.items()},
            test: {client: messages(*own) for client, own in TEST.items()},
        },
    )


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


def test_femnist_from_sqlite(tmp_path):
    expect_femnist(tff(femnist_sqlite(tmp_path / "emnist_all.sqlite")))
    expect_femnist(datasets.load("femnist", tmp_path))


def test_a_compressed_file_is_not_expanded_at_every_start(tmp_path):
    (tmp_path / "emnist_all.sqlite.lzma").write_bytes(b"]")
    with pytest.raises(DataError, match=r"unlzma --keep .*emnist_all\.sqlite\.lzma"):
        datasets.load("femnist", tmp_path)


def test_femnist_from_hdf5(tmp_path):
    pytest.importorskip("h5py")
    path = femnist_hdf5(tmp_path)
    expect_femnist(tff(path))
    expect_femnist(datasets.load("femnist", tmp_path))


def test_digits_only_is_a_split_of_its_own(tmp_path):
    path = femnist_sqlite(tmp_path / "a.sqlite", "digits_only_train", "digits_only_test")
    with pytest.raises(DataError, match=r"no split train or all_train.*digits_only_train.*split="):
        tff(path)
    expect_femnist(tff(path, split="digits_only_train"))


def test_only_what_is_asked_for_is_read(tmp_path):
    path = femnist_sqlite(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as connection:  # damage the data of the others
        connection.execute(
            "UPDATE examples SET serialized_example_proto = x'ff' WHERE client_id > 'f0002'"
        )
    data = tff(path, max_clients=2)
    assert len(data.clients) == 2
    assert len(data.test[1]) == 4  # of the same two
    [data.clients[client] for client in data.clients]
    with pytest.raises(KeyError):
        data.clients["f0005_05"]
    assert pickle.loads(pickle.dumps(data.clients)).keys() == data.clients.keys()


def test_without_test_data_clients_are_held_out(tmp_path):
    path = writers.sqlite(
        tmp_path / "a.sqlite", {"train": {client: messages(*own) for client, own in TRAIN.items()}}
    )
    data = tff(path, test_fraction=0.3, seed=1)
    assert len(data.clients) == 4
    total = sum(len(y) for _, y in data.clients.values()) + len(data.test[1])
    assert total == sum(len(y) for _, y in TRAIN.values())


SENTENCES = {"00000001": ["how do i sort a list ?", "use sorted ."], "00000021": ["why ? ünïcode"]}
HELD_OUT = {"00000010": ["what is a tuple ?"]}


def posts(texts):
    return {
        client: [
            writers.example(
                {
                    "creation_date": [b"2016-01-01 00:00:00 UTC"],
                    "score": [5],
                    "tags": [b"python|list"],
                    "title": [b"sorting"],
                    "tokens": [text.encode()],
                    "type": [b"question"],
                }
            )
            for text in own
        ]
        for client, own in texts.items()
    }


def test_stack_overflow_from_sqlite(tmp_path):
    writers.sqlite(
        tmp_path / "stackoverflow.sqlite",
        {"train": posts(SENTENCES), "heldout": posts(HELD_OUT), "test": posts({"x": ["later"]})},
    )
    texts = datasets.load("stackoverflow", tmp_path)
    assert isinstance(texts, ClientTexts)
    assert dict(texts.clients) == SENTENCES
    assert dict(texts.held_out) == HELD_OUT
    data = datasets.next_word(texts, vocabulary_size=50)
    assert data.vocabulary.decode(data.test[0][0]) == "<bos> <oov> <oov> a <oov> ? <eos>"
    assert len(data.clients["00000001"][0]) == 2


def test_stack_overflow_from_hdf5(tmp_path):
    pytest.importorskip("h5py")
    for name, texts in (("train", SENTENCES), ("held_out", HELD_OUT)):
        features = {
            client: {
                "tokens": own,
                "title": ["t"] * len(own),
                "score": np.zeros(len(own), np.int64),
            }
            for client, own in texts.items()
        }
        writers.hdf5(tmp_path / f"stackoverflow_{name}.h5", features)
    texts = datasets.load("stackoverflow", tmp_path)
    assert dict(texts.clients) == SENTENCES
    assert dict(texts.held_out) == HELD_OUT


# --- hostile files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (writers.example({"pixels": [0.5, 1.5], "label": [1]}), "outside 0..1"),
        (writers.example({"pixels": [0.5, float("nan")], "label": [1]}), "not a number"),
        (writers.example({"pixels": [0.5, 1.0], "label": [62]}), "not in 0..61"),
        (writers.example({"pixels": [0.5, 1.0], "label": [-1]}), "not in 0..61"),
        (writers.example({"pixels": [0.5, 1.0], "label": [1, 2]}), "one integer an image"),
        (writers.example({"pixels": [0.5, 1.0], "label": [1.0]}), "one integer an image"),
        (writers.example({"pixels": [0.5, 1.0]}), "has an example of pixels"),
        (writers.example({"pixels": [b"png"], "label": [1]}), "images .pixels, label. and texts"),
        (writers.example({}), "has an example of nothing"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\x0f", "not a tf.train.Example: .* left; get"),
        ("text", "not bytes"),
    ],
    ids=range(11),
)
def test_wrong_examples_name_file_and_client(tmp_path, message, reason):
    path = writers.sqlite(tmp_path / "a.sqlite", {"train": {"me": [message], "you": [message]}})
    with pytest.raises(DataError, match=reason) as caught:
        tff(path).clients["me"]
    assert "a.sqlite" in str(caught.value)


def test_texts_that_are_not_utf8(tmp_path):
    bad = writers.example({"tokens": [b"\xff\xfe"]})
    path = writers.sqlite(tmp_path / "a.sqlite", {"train": {"me": [bad]}})
    with pytest.raises(DataError, match="'me' has tokens that are not UTF-8"):
        tff(path).clients["me"]


def test_images_of_different_sizes(tmp_path):
    bad = [writers.example({"pixels": [0.5] * n, "label": [1]}) for n in (4, 5)]
    path = writers.sqlite(tmp_path / "a.sqlite", {"train": {"a": bad, "b": bad}})
    with pytest.raises(DataError, match="different sizes"):
        tff(path)


def test_not_sqlite_not_tff_or_damaged(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(DataError, match=r"a.sqlite cannot be read as SQLite"):
        tff(path)
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match=r"a.sqlite cannot be read as SQLite"):
        tff(path)
    path.unlink()
    writers.sqlite(path, {}, metadata=False)
    with pytest.raises(DataError, match="no table client_metadata"):
        tff(path)
    with pytest.raises(DataError, match="no such|not a file"):
        tff(tmp_path / "absent.sqlite")
    empty = writers.sqlite(tmp_path / "empty.sqlite", {})
    with pytest.raises(DataError, match="it has none"):
        tff(empty)


def test_a_view_in_place_of_a_table_is_refused(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE VIEW client_metadata AS WITH RECURSIVE n(client_id, split_name, num_examples) "
            "AS (SELECT '0', 'train', 1 UNION ALL SELECT client_id || '0', 'train', 1 FROM n) "
            "SELECT * FROM n"
        )
        connection.execute(
            "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
    with pytest.raises(DataError, match="no table client_metadata"):
        tff(path)


def test_a_gigantic_blob_is_refused_before_memory_is_taken(tmp_path):
    path = writers.sqlite(tmp_path / "a.sqlite", {"train": {"me": [b""]}})
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE examples SET serialized_example_proto = zeroblob(60000000)")
    with little_memory(), pytest.raises(DataError, match="too big"):
        tff(path)


def test_client_names_are_never_paths(tmp_path):
    evil = ["../../etc/passwd", "/etc/passwd", "'; DROP TABLE examples; --", "a\0b"]
    one = messages(*images(1))
    path = writers.sqlite(tmp_path / "a.sqlite", {"train": dict.fromkeys(evil, one)})
    data = tff(path, test_fraction=0.25)
    assert len(data.clients) == 3
    for client in data.clients:
        assert len(data.clients[client][1]) == 1


def test_hostile_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    good = {"pixels": np.ones((2, 28, 28), np.float32), "label": np.zeros(2, np.int32)}
    secret = writers.hdf5(tmp_path / "secret.h5", {"you": good})

    def case(name, message, change):
        path = writers.hdf5(tmp_path / f"{name}.h5", {"me": good, "you": good})
        with h5py.File(path, "r+") as file:
            change(file)
        with little_memory(), pytest.raises(DataError, match=message) as caught:
            tff(path).clients["me"]
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
        tff(tmp_path / "junk.h5")


def test_without_h5py_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    (tmp_path / "a.h5").write_bytes(b"")
    with pytest.raises(MissingDataError, match=r"sparse-secagg\[hdf5\]"):
        Hdf5Split(tmp_path / "a.h5").names()


def test_wrong_options(tmp_path):
    path = femnist_sqlite(tmp_path / "a.sqlite")
    with pytest.raises(ValueError, match="max_clients=0"):
        tff(path, max_clients=0)
    with pytest.raises(DataError, match="not the texts"):
        datasets.stackoverflow(path)


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_one_changed_byte_of_a_database_is_refused_or_harmless(tmp_path, position, value):
    path = tmp_path / "good.sqlite"
    if not path.exists():
        writers.sqlite(path, {"train": posts(SENTENCES), "heldout": posts(HELD_OUT)})
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    changed = tmp_path / "changed.sqlite"
    changed.write_bytes(content)
    with suppress(DataError):
        texts = tff(changed)
        dict(texts.clients), dict(texts.held_out)
