"""LEAF JSON in its several shapes."""

import gzip
import json

import numpy as np
import pytest

from experiments.datasets import ClientData, ClientTexts, DataError, leaf, load


def content(users):
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def write(path, users):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content(users)))
    return path


PIXELS = {f"f{k}": ([[k / 10, 1.0, 0.0]] * (k + 1), [k] * (k + 1)) for k in range(5)}


def test_train_and_test_folders(tmp_path):
    write(tmp_path / "train" / "a.json", dict(list(PIXELS.items())[:2]))
    write(tmp_path / "train" / "b.json", dict(list(PIXELS.items())[2:]))
    write(tmp_path / "test" / "a.json", {"f0": ([[0.5, 0.5, 0.5]], [61])})
    for data in (leaf(tmp_path), load(tmp_path)):
        assert isinstance(data, ClientData)
        assert list(data.clients) == list(PIXELS)
        x, y = data.clients["f3"]
        np.testing.assert_array_equal(x, np.float32([[0.3, 1, 0]] * 4))
        np.testing.assert_array_equal(y, [3, 3, 3, 3])
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(data.test[1], [61])
    inverted = leaf(tmp_path, invert=True)
    np.testing.assert_array_equal(inverted.clients["f3"][0], 1 - leaf(tmp_path).clients["f3"][0])


def test_one_file_holds_out_clients(tmp_path):
    data = load(write(tmp_path / "all.json", PIXELS), test_fraction=0.4)
    assert len(data.clients) == 3
    assert sum(len(y) for _, y in data.clients.values()) + len(data.test[1]) == 15


def test_files_beyond_the_limit_are_not_opened(tmp_path):
    write(tmp_path / "a.json", PIXELS)
    (tmp_path / "b.json").write_text("damaged")
    assert len(leaf(tmp_path, max_clients=4, test_fraction=0.5).clients) == 2
    with pytest.raises(DataError, match="b.json is not valid JSON"):
        leaf(tmp_path)


def test_windows_of_a_play_are_put_together(tmp_path):
    text = "To be, or not to be"
    windows = [(text[k : k + 5], text[k + 5]) for k in range(len(text) - 5)]
    second = [("Again", "!")]
    x, y = map(list, zip(*(windows + second)))
    texts = load(write(tmp_path / "a.json", {"HAMLET": (x, y)}))
    assert isinstance(texts, ClientTexts)
    assert texts.clients["HAMLET"] == [text, "Again!"]


def test_fields_and_tokens_as_texts(tmp_path):
    tweet = ["1467", "Mon Apr 06", "NO_QUERY", "me", "good morning", "x"]
    path = write(tmp_path / "a.json", {"me": ([tweet], [1]), "you": ([["a", ["b", "c"]]], [0])})
    assert leaf(path).clients["you"] == ["a b c"]
    with pytest.raises(DataError, match="text_field=4"):
        leaf(path, text_field=4)
    only = write(tmp_path / "b.json", {"me": ([tweet], [1])})
    assert leaf(only, text_field=4).clients["me"] == ["good morning"]


def test_only_other_people_are_held_out(tmp_path):
    write(tmp_path / "train" / "a.json", {"a": (["hello"], ["x1"]), "b": (["there"], ["x1"])})
    write(tmp_path / "test" / "a.json", {"a": (["later"], ["x1"]), "c": (["other"], ["x1"])})
    assert dict(load(tmp_path).held_out) == {"c": ["other"]}


GOOD = content(PIXELS)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ([1, 2], "not LEAF JSON"),
        ({"users": []}, "not LEAF JSON"),
        (GOOD | {"users": "f0"}, "not LEAF JSON"),
        (GOOD | {"users": ["nobody"] * 5}, "'nobody' lacks user_data"),
        (GOOD | {"users": [["f0"]] * 5}, "lacks user_data"),
        (GOOD | {"num_samples": [-1] * 5}, "num_samples says -1"),
        (GOOD | {"num_samples": [1]}, "as long as users, 5"),
        (GOOD | {"num_samples": 10**12}, "as long as users, 5"),
        (content({"a": ([[1.0], [1.0, 2.0]], [0, 1])}), "rows of numbers of one length"),
        (content({"a": ([[1.0]], [0]), "b": ([[1.0, 2.0]], [0])}), "different lengths"),
        (content({"a": ([[1.0]], [-3])}), "labels go from -3"),
        (content({"a": ([[1.0]], [10**12])}), "labels go from 1000000000000"),
        (content({"a": ([[1.0]], [0.5])}), "one whole number a row"),
        (content({"a": ([[1.0]], ["x"])}), "one whole number a row"),
        (content({"a": ([[float("nan")]], [0])}), "not finite"),
        (content({"a": ([[1e300]], [0])}), "not finite|rows of numbers"),
        (content({"a": ([[{}]], [0])}), "rows of numbers"),
        (content({"a": (["text", 5], ["y", "z"])}), "int where text was expected"),
        (content({"a": ([], [])}), "holds no LEAF data"),
    ],
    ids=range(19),
)
def test_wrong_content_is_named(tmp_path, damage, message):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(damage))
    with pytest.raises(DataError, match=message) as caught:
        leaf(path)
    assert "data.json" in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[" * 10**6, "nested too deeply"),
        (b'{"users": ' * 10**5, "nested too deeply"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"users": [1' + b"0" * 5000 + b"]}", "not valid JSON"),
        (b"", "not valid JSON"),
        (b'{"users"', "not valid JSON"),
    ],
    ids=range(6),
)
def test_hostile_json(tmp_path, raw, message):
    path = tmp_path / "data.json"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=f"data.json.*{message}"):
        leaf(path)


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.datasets.files.ALWAYS_ALLOWED", 10**6)
    path = tmp_path / "data.json.gz"
    path.write_bytes(gzip.compress(b'{"users": ' + b" " * 3 * 10**6))
    with pytest.raises(DataError, match="expands to more than 1000000 bytes"):
        load(path)
