import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.cli.sweeping import SweepRequest, make_grid
from experiments.recordings.recording import Recording
from experiments.sweeps.axes import AXES, parse_axis
from experiments.sweeps.presets import PRESETS
from experiments.sweeps.store import Store

SMALL = ["--dim", "200", "--clients", "10", "--compression", "4", "--n-rows", "5", "--jobs", "1"]


def sweep(*arguments, code=0):
    run = CliRunner().invoke(app, ["sweep", *map(str, arguments)], env={"COLUMNS": "200"})
    assert run.exit_code == code, run.output + str(run.exception)
    return run


def test_a_sweep_prints_a_table_and_writes_pictures_a_report_and_results(tmp_path):
    out = tmp_path / "out"
    arguments = [
        "--axis", "sparsity=3,30", *SMALL, "--decoder", "linear", "--decoder", "amp",
        "--seeds", 2, "--output", out,
    ]  # fmt: skip
    run = sweep(*arguments)
    assert "nonzero entries s" in run.stdout
    assert "winner" in run.stdout
    assert "Best relative error" in run.stdout
    for name in (
        "results.sqlite",
        "sweep.png",
        "sweep.svg",
        "report.html",
        "sweep.csv",
        "sweep.tex",
        "sweep.pdf",
    ):
        assert (out / name).stat().st_size > 0
    report = (out / "report.html").read_text()
    for name in ("numpy", "revision", "dim", "clip_norm", "Best relative error"):
        assert name in report
    with (out / "sweep-cells.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 8
    again = sweep(*arguments)
    assert "8 of 8 cells were done before" in again.stdout


def test_several_values_come_by_commas_or_repetition(tmp_path):
    run = sweep(
        "--axis", "compression=2,4", "--axis", "n_bits=14,16", "--decoder", "linear,ridge",
        "--seeds", 2, "--backend", "sequential", "--json",
        "--dim", "200", "--clients", "10", "--n-rows", "5", "--output", tmp_path,
    )  # fmt: skip
    (made,) = json.loads(run.stdout)["sweeps"]
    assert len(made["results"]) == 16


def test_a_recording_can_be_swept(tmp_path):
    rng = np.random.default_rng(0)
    rec = Recording.create(tmp_path / "rec", shapes={"a": (10, 15), "b": (50,)})
    rec.append(0, 0.1 + 0.01 * rng.standard_normal((12, 200)))
    run = sweep(
        "--axis", "compression=2,5", "--recording", tmp_path / "rec", "--seeds", 2, "--jobs", 1,
        "--set", "per_layer=True", "--decoder", "linear,ridge", "--noise-multiplier", 0.5,
        "--n-rows", 2, "--output", tmp_path,
    )  # fmt: skip
    assert "compression, rec" in run.stdout
    with Store(tmp_path / "results.sqlite", read_only=True) as store:
        assert [result.status for result in store.results()] == ["done"] * 8


def test_a_task_can_be_swept(tmp_path):
    run = sweep(
        "--axis", "compression=1,10", "--task", "digits", "--rounds", 2, "--seeds", 2,
        "--noise-multiplier", 0.3, "--set", "server_rate=0.5", "--jobs", 1, "--output", tmp_path,
    )  # fmt: skip
    assert "accuracy" in run.stdout
    with Store(tmp_path / "results.sqlite", read_only=True) as store:
        results = list(store.results())
    assert len(results) == 4
    assert {result.cell.config.server_rate for result in results} == {0.5}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_makes_grids_of_means_and_tasks(preset):
    assert make_grid(SweepRequest(preset=preset)).cells()
    if preset != "phase":  # trains nothing
        assert make_grid(SweepRequest(preset=preset, task="mnist")).cells()


def test_presets_are_listed():
    out = sweep("--preset", "list").stdout
    assert all(name in out for name in (*PRESETS, "reproduce list"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--axis or --preset says what varies"),
        (["--axis", "sparsit"], "did you mean 'sparsity'?"),
        (["--axis", "n_bits=4,x"], "'x' is not a whole number; write for example n_bits=10,12,14"),
        (["--axis", "nbits=4"], "did you mean 'n_bits'?"),
        (["--axis", "n_bits", "--dim", "1e2.5"], "must be a whole number"),
        (["--axis", "n_bits", "--dim", "10.5"], "must be a whole number"),
        (["--axis", "n_bits=4.5"], "'4.5' is not a whole number"),
        (["--axis", "epsilon=1,1"], "has a value twice"),
        (["--axis", "epsilon=0"], "epsilon=0.0 must be a finite positive number"),
        (["--axis", "n_bits", "--n-bits", "16"], "is an axis and has a fixed value"),
        (
            ["--axis", "n_bits", "--set", "colour=3"],
            "colour=3: synthetic means have no such parameter",
        ),
        (["--axis", "n_bits", "--mean", "x", "--task", "digits"], "exclude each other"),
        (["--axis", "n_bits", "--recording", "nowhere"], "nowhere is not there; record with"),
        (["--axis", "n_bits", "--decoder", "amq"], "no solver 'amq'"),
        (["--axis", "n_bits", "--backend", "dask"], "belong together"),
        (["--axis", "n_bits", "--slack", "-1"], "must be a number of at least 0"),
        (["--axis", "compression", "--task", "digits", "--set", "x"], "must be NAME=VALUE"),
        (
            ["--axis", "compression", "--task", "digits", "--set", "x=1"],
            "training runs have no such parameter",
        ),
        (["--preset", "sparsitty"], "did you mean 'sparsity'?"),
        (["--preset", "claims"], "sparse-secagg reproduce NAME"),
        (
            ["--axis", "n_rows", "--task", "digits"],
            "are the same computation in every cell",
        ),
        (
            ["--axis", "clients=50,100", "--task", "digits", "--compression", "5"],
            "a cohort is at most the population",
        ),
    ],
)
def test_bad_requests_are_refused_before_any_work(arguments, words, tmp_path):
    output = " ".join(
        sweep(*arguments, "--output", tmp_path, code=2).output.replace("│", " ").split()
    )
    assert words in output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(
        "experiments.sweeps.engine.evaluate", lambda *args: pytest.fail("work was spent")
    )
    run = sweep("--axis", "n_bits", "--output", tmp_path / "file" / "out", code=2)
    assert "--output" in run.output


def test_axes_are_read_from_text():
    assert parse_axis("sparsity=5,1e2") == ("sparsity", (5, 100))
    assert parse_axis("noise-multiplier=0.5") == ("noise_multiplier", (0.5,))
    for name, axis in AXES.items():
        assert parse_axis(name) == (name, axis.values)
