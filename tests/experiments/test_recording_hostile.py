"""Recordings may come from anybody: what is wrong is named and refused, and nothing executes."""

import json
import os
import pickle

import numpy as np
import pytest

from experiments.recordings.format import npy_header
from experiments.recordings.recording import Recording, RecordingError

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "recording"
    rec = Recording.create(path, task="t", shapes={"a": (2, 3)})
    rec.append(0, X)
    rec.append(1, X)
    return path


def edit(path, change):
    """Apply ``change`` to the manifest's document."""
    file = path / "recording.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


class TestFiles:
    def test_a_truncated_round_is_named_at_opening(self, path):
        file = path / "round-000001.npy"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(RecordingError, match=r"round-000001\.npy has 223 bytes.*truncated"):
            Recording.open(path)

    def test_a_longer_round_is_named(self, path):
        with (path / "round-000001.npy").open("ab") as file:
            file.write(b"\0")
        with pytest.raises(RecordingError, match=r"round-000001\.npy.*altered"):
            Recording.open(path)

    @pytest.mark.parametrize("position", [128, 150, 223])
    def test_an_altered_byte_is_found_when_the_round_is_read(self, path, position):
        file = path / "round-000001.npy"
        data = bytearray(file.read_bytes())
        data[position] ^= 1
        file.write_bytes(data)
        rec = Recording.open(path)
        np.testing.assert_array_equal(rec[0], X)
        with pytest.raises(RecordingError, match=r"round-000001\.npy differs from its checksum"):
            rec[1]
        with pytest.raises(RecordingError, match=r"round-000001\.npy differs"):
            rec.verify()
        assert Recording.open(path, verify=False)[1].shape == X.shape

    @pytest.mark.parametrize(
        "header",
        [
            npy_header(6, 4),
            npy_header(2, 12),
            npy_header(4, 6).replace(b"<f4", b"<i4"),
            npy_header(4, 6).replace(b"<f4", b">f4"),
            npy_header(4, 6).replace(b"<f4", b"|O "),
            npy_header(4, 6).replace(b"False", b"True "),
            npy_header(4, 6).replace(b"\x01\x00v", b"\x03\x00v"),
            b"\0" * 128,
        ],
    )
    def test_a_header_that_says_something_else_is_refused(self, path, header):
        file = path / "round-000000.npy"
        file.write_bytes(header + file.read_bytes()[128:])
        with pytest.raises(RecordingError, match=r"round-000000\.npy does not begin"):
            Recording.open(path)

    def test_a_missing_round_is_named(self, path):
        (path / "round-000000.npy").unlink()
        with pytest.raises(RecordingError, match=r"round-000000\.npy is missing"):
            Recording.open(path)

    def test_a_link_is_not_followed(self, path, tmp_path):
        file = path / "round-000000.npy"
        file.rename(tmp_path / "elsewhere.npy")
        file.symlink_to(tmp_path / "elsewhere.npy")
        with pytest.raises(RecordingError, match="it is a link"):
            Recording.open(path)

    def test_a_manifest_that_is_a_link_is_not_followed(self, path, tmp_path):
        file = path / "recording.json"
        file.rename(tmp_path / "elsewhere.json")
        file.symlink_to(tmp_path / "elsewhere.json")
        with pytest.raises(RecordingError, match="it is a link"):
            Recording.open(path)

    def test_a_pipe_does_not_hang(self, path):
        (path / "round-000000.npy").unlink()
        os.mkfifo(path / "round-000000.npy")
        with pytest.raises(RecordingError, match="not a regular file"):
            Recording.open(path)

    def test_a_round_that_shrinks_after_opening_is_refused(self, path):
        rec = Recording.open(path)
        os.truncate(path / "round-000000.npy", 130)
        with pytest.raises(RecordingError, match="truncated"):
            rec[0]


class TestManifest:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("file", "../round-000000.npy"),
            ("file", "/etc/passwd"),
            ("file", "sub/round-000000.npy"),
            ("file", "round-000000.npy\0"),
            ("file", "round-000001.npy"),
            ("file", None),
            ("n", -4),
            ("n", 0),
            ("n", 4.0),
            ("n", True),
            ("n", "4"),
            ("n", 10**30),
            ("d", -6),
            ("d", 2**60),
            ("dtype", "object"),
            ("dtype", "float64"),
            ("dtype", "float16"),
            ("sha256", "abc"),
            ("sha256", None),
            ("round", -1),
            ("round", 0.5),
            ("round", True),
            ("clip_norm", -1),
            ("clip_norm", 10**400),
            ("clip_norm", "1"),
        ],
        ids=lambda value: repr(value)[:20],
    )
    def test_a_wrong_entry_is_refused(self, path, key, value):
        edit(path, lambda document: document["rounds"][0].update({key: value}))
        with pytest.raises(RecordingError, match=r"recording\.json does not describe a recording"):
            Recording.open(path)

    @pytest.mark.parametrize("n", [10**6, 2**40])
    def test_a_gigantic_shape_allocates_nothing(self, path, n):
        edit(path, lambda document: document["rounds"][0].update(n=n))
        with pytest.raises(RecordingError, match=r"round-000000\.npy has 224 bytes in place of"):
            Recording.open(path)

    @pytest.mark.parametrize(
        "change",
        [
            lambda d: d.update(format="other"),
            lambda d: d.update(version=2),
            lambda d: d.pop("rounds"),
            lambda d: d.update(rounds={}),
            lambda d: d.update(rounds=[3]),
            lambda d: d["rounds"].reverse(),
            lambda d: d["rounds"].append(d["rounds"][0]),
            lambda d: d.update(layers=3),
            lambda d: d.update(layers=[{"name": "a", "shape": [2, -3]}]),
            lambda d: d.update(layers=[{"name": "a", "shape": [7]}]),
            lambda d: d.update(layers=[{"name": "a", "shape": [3]}] * 2),
            lambda d: d.update(layers=[{"name": 1, "shape": [6]}]),
            lambda d: d.update(seeds={"a": "x"}),
            lambda d: d.update(versions=[1]),
            lambda d: d.update(task=[]),
            lambda d: d.update(notes=3),
        ],
    )
    def test_a_wrong_description_is_refused(self, path, change):
        edit(path, change)
        with pytest.raises(RecordingError, match=r"recording\.json"):
            Recording.open(path)

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"not json",
            b"[" * 100_000,
            b'{"format": ' * 100_000,
            b'{"version": ' + b"9" * 10_000 + b"}",
            b'{"clip_norm": NaN}',
            b'{"format": 1, "format": 2}',
            b"\xff\xfe",
            b"null",
            pickle.dumps({"format": 1}),
        ],
        ids=lambda text: repr(text[:12]),
    )
    def test_what_is_not_json_is_refused(self, path, text):
        (path / "recording.json").write_bytes(text)
        with pytest.raises(RecordingError, match=r"recording\.json"):
            Recording.open(path)

    def test_an_endless_manifest_is_not_read(self, path, monkeypatch):
        os.truncate(path / "recording.json", 2**40)  # sparse: takes no space
        monkeypatch.setattr("experiments.recordings.format.MAX_MANIFEST_BYTES", 2**20)
        with pytest.raises(RecordingError, match="above the limit"):
            Recording.open(path)

    def test_a_file_is_not_a_folder(self, path):
        with pytest.raises(RecordingError, match="unzipped"):
            Recording.open(path / "recording.json")
