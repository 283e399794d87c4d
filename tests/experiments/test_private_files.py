"""Whatever holds clients' data, or was measured on it, is readable for its owner alone."""

import os
import stat
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.recordings.recording import Recording
from experiments.results.table import SweepTable
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.store import Result, Store
from experiments.training.loop import TrainingConfig, run_training
from sparse_secagg.private_files import make_folder, write_text

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")


@pytest.fixture(autouse=True)
def open_umask():
    """The umask that would let everybody read: what is closed must be closed on purpose."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    return {
        path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def assert_private(folder, *names):
    found = modes(folder)
    assert set(names) <= set(found)
    for name, mode in found.items():
        expected = 0o700 if (folder / name).is_dir() else 0o600
        assert mode == expected, f"{name} has {mode:o}"


def test_recordings(tmp_path):
    recording = Recording.create(tmp_path / "a" / "rec", clip_norm=1.0)
    recording.append(0, np.ones((2, 3)))
    assert_private(tmp_path / "a", "rec/recording.json", "rec/round-000000.npy")


def test_checkpoints_and_results_of_training(tmp_path):
    options = ["--rounds", "1", "--clients", "5", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["train", *options, "--record", str(tmp_path / "rec")])
    assert done.exit_code == 0, done.output
    assert_private(tmp_path / "out", "checkpoint.npz", "training.json", "training.png")
    assert_private(tmp_path / "rec", "round-000000.npy")


def test_results_of_sweeps_and_comparisons(tmp_path):
    recording = Recording.create(tmp_path / "rec", clip_norm=1.0)
    recording.append(0, np.random.default_rng(0).normal(size=(20, 40)))
    commands = {
        "compare": f"compare {tmp_path / 'rec'} --epsilon 50 --compression 2 --decoder linear",
        "sweep": f"sweep --recording {tmp_path / 'rec'} --axis compression=2 --seeds 1 --jobs 1 "
        "--backend sequential",
    }
    for name, text in commands.items():
        out = tmp_path / name
        done = CliRunner().invoke(app, [*text.split(), "--output", str(out)])
        assert done.exit_code == 0, done.output
    assert_private(
        tmp_path / "compare", "results.sqlite", "compare.png", "compare.svg", "compare.pdf"
    )
    assert_private(tmp_path / "sweep", "results.sqlite", "results.sqlite.lock", "report.html")
    assert_private(tmp_path / "sweep", "sweep-cells.csv", "sweep.csv", "sweep.tex", "sweep.png")


def test_a_store_and_its_journal(tmp_path):
    with Store(tmp_path / "new" / "r.sqlite") as store:
        store._db.execute("BEGIN")
        store._db.execute("CREATE TABLE t (x)")  # a journal is beside it now
        assert_private(tmp_path / "new", "r.sqlite", "r.sqlite-journal")
        store._db.execute("ROLLBACK")
    SweepTable([Result(MeanCell(), "done", {})], ()).export(tmp_path / "table" / "r.csv")
    assert_private(tmp_path / "table", "r.csv")


def test_folders_that_are_there_keep_their_mode_and_old_files_are_closed(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    make_folder(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    make_folder(shared / "a" / "b")
    assert modes(shared)["a/b"] == modes(shared)["a"] == 0o700
    (shared / "old.json").write_text("{}")
    write_text(shared / "old.json", "[]")
    assert modes(shared)["old.json"] == 0o600
    assert (shared / "old.json").read_text() == "[]"
    with pytest.raises(OSError, match="old.json"):
        make_folder(shared / "old.json")


def test_a_checkpoint_stays_private_when_it_is_replaced(tmp_path):
    run_training(TrainingConfig(task="digits", rounds=2, clients=5), output=tmp_path / "out")
    assert_private(tmp_path / "out", "checkpoint.npz")
