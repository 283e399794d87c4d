"""Recordings hold what was appended, say what it is of, and read as data of the estimator."""

import json
import os
import shutil
import warnings
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.recordings.recording import Recording, RecordingError
from sparse_secagg import PrivacyWarning, SparseSecAgg

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 12))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording"


class TestAppendingAndReading:
    def test_rounds_come_back_in_order_as_32_bit_floats(self, path):
        rec = Recording.open(path)
        assert len(rec) == 0
        assert not path.exists()
        rec.append(0, X)
        rec.append(5, -X[:3])
        for again in (rec, Recording.open(path)):
            assert again.rounds == [0, 5]
            assert len(again) == 2
            first, second = again
            assert isinstance(first, np.memmap)
            assert first.dtype == np.float32
            np.testing.assert_array_equal(first, X.astype(np.float32))
            np.testing.assert_array_equal(second, -X[:3].astype(np.float32))
            np.testing.assert_array_equal(again[-1], second)

    def test_numpy_reads_the_files(self, path):
        Recording.open(path).append(0, X)
        loaded = np.load(path / "round-000000.npy", mmap_mode="r", allow_pickle=False)
        np.testing.assert_array_equal(loaded, X.astype(np.float32))
        assert loaded.flags.c_contiguous

    @pytest.mark.parametrize(
        "updates",
        [
            X,
            X.astype(np.float32),
            np.asfortranarray(X),
            X[::1, ::-1][:, ::-1],
            sp.csr_array(X),
            sp.csc_matrix(X),
            sp.coo_array(X),
            list(X),
            [X[:2], sp.csr_array(X[2:5]), X[5], X[6:]],
            (row for row in X),
            X.tolist(),
        ],
        ids=lambda updates: type(updates).__name__,
    )
    def test_updates_come_in_many_forms(self, path, updates):
        rec = Recording.open(path)
        rec.append(0, updates)
        np.testing.assert_array_equal(rec[0], X.astype(np.float32))

    def test_memory_maps_and_integers(self, path, tmp_path):
        np.save(tmp_path / "x.npy", X)
        rec = Recording.open(path)
        rec.append(0, np.load(tmp_path / "x.npy", mmap_mode="r"))
        rec.append(1, np.arange(24).reshape(2, 12))
        np.testing.assert_array_equal(rec[0], X.astype(np.float32))
        np.testing.assert_array_equal(rec[1], np.arange(24).reshape(2, 12))

    def test_blocks_larger_than_the_buffer_are_split(self, path, monkeypatch):
        monkeypatch.setattr("experiments.recordings.recording._BLOCK_BYTES", 100)
        rec = Recording.open(path)
        rec.append(0, X)
        rec.append(1, sp.csr_array(X))
        np.testing.assert_array_equal(rec[0], rec[1])
        rec.verify()

    def test_nan_and_infinity_are_kept_for_the_pipeline_to_handle(self, path):
        bad = X.copy()
        bad[0, 0], bad[1, 1] = np.nan, np.inf
        rec = Recording.open(path)
        rec.append(0, bad)
        np.testing.assert_array_equal(rec[0], bad.astype(np.float32))
        fitted = _fit(rec[0], diagnostics=True)
        assert fitted.diagnostics_.n_nonfinite == 2

    def test_numbers_beyond_32_bits_are_refused(self, path):
        rec = Recording.open(path)
        with pytest.raises(ValueError, match="round 0 has finite values beyond 3.4e38"):
            rec.append(0, np.full((1, 12), 1e39))
        assert len(Recording.open(path)) == 0

    def test_arrays_are_read_only(self, path):
        rec = Recording.open(path)
        rec.append(0, X)
        with pytest.raises(ValueError, match="read-only"):
            rec[0][0, 0] = 1

    def test_an_index_out_of_range_says_what_there_is(self, path):
        rec = Recording.open(path)
        with pytest.raises(IndexError, match="holds 0 rounds; rec"):
            rec[0]
        rec.append(10, X)
        with pytest.raises(IndexError, match="holds 1 rounds, numbered 10 to 10; rec"):
            rec[10]


class TestAppendOnly:
    def test_a_recorded_round_is_never_overwritten(self, path):
        rec = Recording.open(path)
        rec.append(4, X)
        with pytest.raises(ValueError, match="round 4 is already in .* append-only"):
            rec.append(4, X)
        with pytest.raises(ValueError, match="round 3 comes after round 4.* increasing order"):
            rec.append(3, X)
        for wrong in (-1, 1.5, 10**9):
            with pytest.raises(ValueError, match="must be an integer from 0"):
                rec.append(wrong, X)
        assert Recording.open(path).rounds == [4]

    def test_two_handles_see_each_others_rounds(self, path):
        first, second = Recording.open(path), Recording.open(path)
        first.append(0, X)
        with pytest.raises(ValueError, match="already"):
            second.append(0, X)
        second.append(1, X)
        assert second.rounds == [0, 1]

    def test_a_second_writer_at_the_same_time_is_refused(self, path):
        first, second = Recording.open(path), Recording.open(path)

        def rows():
            yield X
            with pytest.raises(RecordingError, match="another process is recording"):
                second.append(1, X)

        first.append(0, rows())
        assert Recording.open(path).rounds == [0]

    @pytest.mark.parametrize(
        ("updates", "message"),
        [
            (np.ones((2, 11)), "length 11"),
            ([X[:2], X[:, :5]], "length 5"),
            (np.ones(12), "shape \\(12,\\)"),
            (np.ones((0, 12)), "n and d >= 1"),
            (np.ones((2, 2, 12)), "shape \\(2, 2, 12\\)"),
            ([], "has no rows"),
            ({"weight": X}, "updates is a dict"),
            (None, "updates is a NoneType"),
            ("text", "updates is a str"),
            (X * 1j, "dtype complex128"),
            (np.full((1, 12), None), "dtype object"),
            ([np.ones((2, 2, 2))], "shape \\(2, 2, 2\\)"),
        ],
    )
    def test_what_is_wrong_is_refused_and_leaves_the_recording_alone(self, path, updates, message):
        rec = Recording.open(path)
        rec.append(0, X)
        before = sorted(os.listdir(path))
        with pytest.raises(ValueError, match=message):
            rec.append(1, updates)
        assert sorted(os.listdir(path)) == before
        assert Recording.open(path).rounds == [0]

    def test_an_iterator_that_fails_leaves_nothing_behind(self, path):
        def rows():
            yield X
            raise KeyboardInterrupt

        rec = Recording.open(path)
        rec.append(0, X)
        with pytest.raises(KeyboardInterrupt):
            rec.append(1, rows())
        assert sorted(os.listdir(path)) == ["recording.json", "round-000000.npy"]
        rec.append(1, X)
        assert rec.rounds == [0, 1]

    def test_a_folder_that_cannot_be_written_to_is_refused_at_once(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match="cannot record into"):
            Recording.create(tmp_path / "file" / "recording")

    @pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
    def test_a_read_only_folder_is_refused_at_once(self, path):
        path.mkdir(mode=0o500)
        with pytest.raises(PermissionError, match="cannot record into"):
            Recording.create(path)


class TestDescription:
    SHAPES: ClassVar = {"hidden.weight": (3, 3), "hidden.bias": (3,)}

    def test_metadata_survives(self, path):
        Recording.create(
            path,
            task="digits",
            model="mlp",
            shapes=self.SHAPES,
            clip_norm=0.5,
            seeds={"data": 1, "weights": 2},
            notes={"words": ["a", "ü"], "rate": 0.1},
        ).append(0, X, clip_norm=0.25)
        rec = Recording.open(path)
        assert rec.shapes == self.SHAPES
        meta = rec.metadata
        assert (meta.task, meta.model, meta.clip_norm) == ("digits", "mlp", 0.5)
        assert meta.seeds == {"data": 1, "weights": 2}
        assert meta.notes == {"words": ["a", "ü"], "rate": 0.1}
        assert set(meta.versions) >= {"python", "numpy", "sparse-secagg"}
        assert rec.clip_norm(0) == 0.25
        rec.append(1, X)
        assert rec.clip_norm(1) == 0.5
        assert "digits: 2 rounds, 7 x 12" in repr(rec)

    def test_the_manifest_is_plain_json_with_checksums(self, path):
        import hashlib

        Recording.create(path, shapes=self.SHAPES).append(0, X)
        document = json.loads((path / "recording.json").read_text())
        assert document["layers"][0] == {"name": "hidden.weight", "shape": [3, 3]}
        (entry,) = document["rounds"]
        assert (entry["n"], entry["d"], entry["dtype"]) == (7, 12, "float32")
        data = (path / "round-000000.npy").read_bytes()[128:]
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()

    def test_updates_must_fit_the_layers(self, path):
        rec = Recording.create(path, shapes={"weight": (4, 4)})
        with pytest.raises(ValueError, match="length 12, but .* is of length 16"):
            rec.append(0, X)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"shapes": {"weight": (3, -1)}},
            {"shapes": {"weight": (0,)}},
            {"clip_norm": -1.0},
            {"clip_norm": float("nan")},
            {"notes": {"x": float("inf")}},
            {"notes": {"x": object()}},
            {"task": 3},
        ],
    )
    def test_a_wrong_description_is_refused_before_anything_is_created(self, path, wrong):
        with pytest.raises(ValueError, match="clip_norm|refused"):
            Recording.create(path, **wrong)
        assert not path.exists()

    def test_creating_twice_is_refused_unless_it_is_the_same(self, path):
        Recording.create(path, task="a").append(0, X)
        with pytest.raises(FileExistsError, match="already holds a recording"):
            Recording.create(path, task="a")
        assert Recording.create(path, task="a", exist_ok=True).rounds == [0]
        with pytest.raises(ValueError, match="task='a', not of task='b'"):
            Recording.create(path, task="b", exist_ok=True)

    def test_other_peoples_folders_are_left_alone(self, path):
        path.mkdir()
        mine = path / "round-000000.npy"
        np.save(mine, X)
        for make in (Recording.open, Recording.create):
            with pytest.raises(RecordingError, match="is not a recording"):
                make(path)
        assert mine.exists()


def _fit(data, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return SparseSecAgg(
            compression=2, decoder="linear", random_state=0, simulation_seed=0, **params
        ).fit(data)


class TestAsData:
    def test_a_round_is_data_of_the_estimator(self, path):
        rec = Recording.open(path)
        rec.append(0, X)
        expected = _fit(X.astype(np.float32)).mean_
        np.testing.assert_array_equal(_fit(rec[0]).mean_, expected)
        np.testing.assert_array_equal(_fit(rec).mean_, expected)

    def test_a_recording_of_one_round_is_an_array(self, path):
        rec = Recording.open(path)
        rec.append(0, X)
        assert (rec.shape, rec.dtype, rec.ndim) == (X.shape, np.float32, 2)
        view = np.asarray(rec)
        assert not view.flags.owndata
        np.testing.assert_array_equal(view, X.astype(np.float32))
        assert np.asarray(rec, dtype=np.float64).dtype == np.float64

    def test_of_several_rounds_one_must_be_named(self, path):
        rec = Recording.open(path)
        for k in range(2):
            rec.append(k, X)
        with pytest.raises(ValueError, match="holds 2 rounds.* Use rec\\[k\\]"):
            _fit(rec)
        with pytest.raises(ValueError, match="holds 2 rounds"):
            np.asarray(rec)


def test_an_archive_of_the_folder_is_a_recording_again(path, tmp_path):
    rec = Recording.create(path, task="t", shapes={"a": (3, 4)}, clip_norm=2.0, notes={"k": 1})
    rec.append(0, X)
    rec.append(2, sp.random_array((50, 12), density=0.1, rng=0), clip_norm=0.5)
    shutil.unpack_archive(shutil.make_archive(tmp_path / "shared", "zip", path), tmp_path / "again")
    again = Recording.open(tmp_path / "again")
    assert (again.metadata, again.entries) == (rec.metadata, rec.entries)
    again.verify()
    for a, b in zip(rec, again):
        np.testing.assert_array_equal(a, b)
