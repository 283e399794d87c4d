"""A header may claim any shape: it is refused with a clear error, and no memory is given to it."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.recordings.format import npy_header
from experiments.recordings.importers import import_array
from experiments.recordings.recording import Recording, RecordingError
from experiments.training.checkpoints import CheckpointError
from experiments.training.loop import TrainingConfig, run_training

SMALL = TrainingConfig(task="digits", rounds=1, clients=5)
#: More than any machine that runs this has.
HUGE = 2**46


def npy(shape, dtype="<f4", data=b"\0" * 64):
    """An array file whose header claims a shape."""
    out = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + data


def with_member(path, name, content, compression=zipfile.ZIP_STORED):
    """Replace one member of an archive."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for each, data in {**members, name: content}.items():
            archive.writestr(each, data)


def refused(error, call, match):
    """Call; expect the error, and less memory than the smallest lie would take."""
    tracemalloc.start()
    try:
        with pytest.raises(error, match=match) as caught:
            call()
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert not isinstance(caught.value, MemoryError)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    output = tmp_path_factory.mktemp("run")
    run_training(SMALL, output=output)
    return (output / "checkpoint.npz").read_bytes()


@pytest.mark.parametrize("name", ["weights", "velocity", "dropped", "document"])
@pytest.mark.parametrize("shape", [(HUGE,), (2**23, 2**23), (2**62, 4)])
def test_a_checkpoint(tmp_path, finished, name, shape):
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(finished)
    with_member(path, f"{name}.npy", npy(shape))
    refused(
        CheckpointError,
        lambda: run_training(SMALL, output=tmp_path, resume=True),
        f"{name}.npy .* declares the shape .*remove it to start anew",
    )


def test_a_checkpoint_that_expands_without_end(tmp_path, finished, monkeypatch):
    monkeypatch.setattr("experiments.datasets.files.ALWAYS_ALLOWED", 2**16)  # for a quick test
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(finished)
    n = 2**22
    with_member(path, "weights.npy", npy((n,), data=bytes(4 * n)), zipfile.ZIP_DEFLATED)
    refused(
        CheckpointError,
        lambda: run_training(SMALL, output=tmp_path, resume=True),
        "at most .* are there to read",
    )


def test_a_checkpoint_without_lies_is_read(tmp_path, finished):
    (tmp_path / "checkpoint.npz").write_bytes(finished)
    again = run_training(SMALL, output=tmp_path, resume=True)
    np.testing.assert_array_equal(again.weights, run_training(SMALL).weights)


def test_a_recorded_round(tmp_path):
    recording = Recording.create(tmp_path / "rec")
    recording.append(0, np.ones((2, 3)))
    manifest = tmp_path / "rec" / "recording.json"
    manifest.write_text(manifest.read_text().replace('"n": 2', f'"n": {HUGE}'))
    refused(RecordingError, lambda: Recording.open(tmp_path / "rec"), "truncated")
    file = tmp_path / "rec" / "round-000000.npy"
    file.write_bytes(npy_header(HUGE, 3) + bytes(24))
    refused(RecordingError, lambda: Recording.open(tmp_path / "rec"), "truncated")


@pytest.mark.parametrize("name", ["data", "indices", "indptr", "shape"])
def test_an_imported_sparse_matrix(tmp_path, name):
    path = tmp_path / "matrix.npz"
    sp.save_npz(path, sp.csr_array(np.eye(3)))
    with_member(path, f"{name}.npy", npy((HUGE,), "<i4"))
    refused(
        RecordingError,
        lambda: import_array(path, tmp_path / "out"),
        f"{name}.npy .* declares the shape",
    )
    assert not (tmp_path / "out").exists()


def test_an_imported_array(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy((HUGE, 1)))
    refused(RecordingError, lambda: import_array(tmp_path / "a.npy", tmp_path / "out"), "readable")
