"""The hook for training loops and the importer of NumPy files."""

import io
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.recordings.importers import import_arrays
from experiments.recordings.recorder import Recorder
from experiments.recordings.recording import Recording, RecordingError

RNG = np.random.default_rng(0)
WEIGHTS = {"weight": RNG.standard_normal((3, 4)), "bias": RNG.standard_normal(4)}
UPDATES = RNG.standard_normal((2, 5, 16))


def trained(update):
    """Return the weights of a client that adds ``update``."""
    return {
        "weight": WEIGHTS["weight"] + update[:12].reshape(3, 4),
        "bias": WEIGHTS["bias"] + update[12:],
    }


class TestRecorder:
    def test_differences_are_recorded_in_the_order_of_the_layers(self, tmp_path):
        with Recorder(tmp_path / "r", task="t", clip_norm=1.0) as record:
            for number, updates in enumerate(UPDATES):
                record.start(number, WEIGHTS)
                for update in updates:
                    record.client(dict(reversed(trained(update).items())))
        rec = Recording.open(tmp_path / "r")
        assert rec.shapes == {"weight": (3, 4), "bias": (4,)}
        assert (rec.metadata.task, rec.metadata.clip_norm) == ("t", 1.0)
        np.testing.assert_allclose(np.array(list(rec)), UPDATES, atol=1e-6)

    def test_the_start_is_copied_so_training_in_place_does_no_harm(self, tmp_path):
        weights = {"w": np.zeros(3)}
        with Recorder(tmp_path / "r") as record:
            record.start(0, weights)
            weights["w"] += 1
            record.client(weights)
        np.testing.assert_array_equal(record.recording[0], np.ones((1, 3)))

    def test_lists_of_arrays_and_single_arrays(self, tmp_path):
        with Recorder(tmp_path / "a") as record:
            record.start(0, [np.zeros((2, 2)), np.float64(0)])
            record.client([np.ones((2, 2)), np.float64(2)])
        assert record.recording.shapes == {"layer_0": (2, 2), "layer_1": (1,)}
        np.testing.assert_array_equal(record.recording[0], [[1, 1, 1, 1, 2]])
        with Recorder(tmp_path / "b") as record:
            record.start(0, np.zeros(5))
            record.client(np.arange(5.0))
        np.testing.assert_array_equal(record.recording[0], [np.arange(5)])

    def test_an_interrupted_round_is_dropped_and_recording_can_go_on(self, tmp_path):
        def interrupted():
            with Recorder(tmp_path / "r") as record:
                for number in range(2):
                    record.start(number, WEIGHTS)
                    record.client(WEIGHTS)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert Recording.open(tmp_path / "r").rounds == [0]
        with Recorder(tmp_path / "r") as record:
            record.start(1, WEIGHTS)
            record.client(WEIGHTS)
        assert Recording.open(tmp_path / "r").rounds == [0, 1]
        assert sorted(os.listdir(tmp_path / "r"))[0] == "recording.json"

    def test_what_is_wrong_is_named(self, tmp_path):
        record = Recorder(tmp_path / "r")
        with pytest.raises(RuntimeError, match="call start"):
            record.client(WEIGHTS)
        with pytest.raises(ValueError, match="none of steps holds floating-point"):
            record.start(0, {"steps": np.arange(3)})
        with record:
            record.start(0, WEIGHTS)
            with pytest.raises(ValueError, match="layer 'bias' has shape missing"):
                record.client({"weight": WEIGHTS["weight"]})
            with pytest.raises(ValueError, match=r"layer 'weight' has shape \(4, 3\)"):
                record.client({**WEIGHTS, "weight": WEIGHTS["weight"].T})
            record.client(WEIGHTS)
        with pytest.raises(ValueError, match="shapes"):
            Recorder(tmp_path / "r").start(1, {"other": np.ones(3)})

    def test_torch_modules(self, tmp_path):
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).bfloat16()
        with Recorder(tmp_path / "r") as record:
            record.start(0, model.state_dict())
            before = {k: v.clone() for k, v in model.state_dict().items()}
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.5
            model[1].num_batches_tracked += 1  # an integer, and no weight
            record.client(model.state_dict())
        shapes = record.recording.shapes
        assert "1.num_batches_tracked" not in shapes
        assert shapes["0.weight"] == (4, 3)
        expected = [
            (model.state_dict()[name].double() - before[name].double()).ravel().numpy()
            for name in shapes
        ]
        np.testing.assert_array_equal(record.recording[0][0], np.concatenate(expected))


class TestArrays:
    @pytest.mark.parametrize("array", [UPDATES[0], UPDATES, UPDATES[0].astype(np.float16)])
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
    def test_numpy_files(self, tmp_path, array, order, save):
        source = tmp_path / f"updates.{'npy' if save is np.save else 'npz'}"
        save(source, np.asarray(array, order=order))
        rec = import_arrays(source, tmp_path / "r", task="t", shapes={"a": (4, 4)})
        expected = array.astype(np.float32).reshape(-1, 5, 16)
        np.testing.assert_array_equal(np.array(list(rec)), expected)
        assert rec.shapes == {"a": (4, 4)}

    def test_archives_in_the_order_of_their_numbers(self, tmp_path):
        np.savez(tmp_path / "x.npz", **{f"round_{k}": np.full((2, 3), k) for k in (10, 9, 1)})
        rec = import_arrays(tmp_path / "x.npz", tmp_path / "r")
        assert [updates[0, 0] for updates in rec] == [1, 9, 10]

    @pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
    def test_sparse_matrices(self, tmp_path, form):
        X = form(sp.random_array((6, 30), density=0.2, rng=0))
        sp.save_npz(tmp_path / "x.npz", X)
        rec = import_arrays(tmp_path / "x.npz", tmp_path / "r")
        np.testing.assert_array_equal(rec[0], X.toarray().astype(np.float32))

    @pytest.mark.parametrize("suffix", ["npy", "npz"])
    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.ones(3), "has shape"),
            (np.ones((0, 3)), "has shape"),
            (np.ones((1, 1, 1, 3)), "has shape"),
            (np.ones((2, 3)) * 1j, "complex128"),
            (np.array([["a"]]), "holds <U1"),
            (np.full((2, 3), None), "readable NumPy array|dtype object"),
        ],
    )
    def test_wrong_arrays_are_refused(self, tmp_path, suffix, array, message):
        source = tmp_path / f"x.{suffix}"
        (np.save if suffix == "npy" else np.savez)(source, array)
        with pytest.raises(RecordingError, match=message):
            import_arrays(source, tmp_path / "r")
        assert not (tmp_path / "r").exists()

    @pytest.mark.parametrize("shape", ["(2, 10**0)", "(1000000000, 1000000000)", "(-2, -3)"])
    @pytest.mark.parametrize("suffix", ["npy", "npz"])
    def test_gigantic_and_negative_shapes_are_refused(self, tmp_path, suffix, shape):
        buffer = io.BytesIO()
        np.save(buffer, np.ones((2, 3)))
        data = bytearray(buffer.getvalue())
        begin = data.index(b"(2, 3), }")
        data[begin : begin + 40] = f"{shape}, }}".encode().ljust(40)
        source = tmp_path / f"x.{suffix}"
        if suffix == "npy":
            source.write_bytes(data)
        else:
            with zipfile.ZipFile(source, "w") as archive:
                archive.writestr("x.npy", bytes(data))
        with pytest.raises(RecordingError):
            import_arrays(source, tmp_path / "r")
        assert not (tmp_path / "r").exists()

    def test_an_index_out_of_range_does_not_reach_foreign_memory(self, tmp_path):
        X = sp.csr_array(np.eye(3))
        X.indices[1] = 10**6
        sp.save_npz(tmp_path / "x.npz", X)
        with pytest.raises(RecordingError, match="sparse matrix"):
            import_arrays(tmp_path / "x.npz", tmp_path / "r")

    @pytest.mark.parametrize("data", [b"", b"PK", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00" * 9])
    @pytest.mark.parametrize("suffix", ["npy", "npz"])
    def test_garbage_is_refused(self, tmp_path, data, suffix):
        (tmp_path / f"x.{suffix}").write_bytes(data)
        with pytest.raises(RecordingError, match="readable"):
            import_arrays(tmp_path / f"x.{suffix}", tmp_path / "r")

    def test_missing_and_unknown_files(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="is not there"):
            import_arrays(tmp_path / "x.npy", tmp_path / "r")
        with pytest.raises(ValueError, match="must be a .npy or .npz"):
            import_arrays(tmp_path / "x.pkl", tmp_path / "r")
