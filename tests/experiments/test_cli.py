import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import solvers
from experiments import datasets
from experiments.cli.app import app
from experiments.cli.demo_run import run_demo
from experiments.recordings.recording import Recording
from experiments.training import tasks as tasks_module
from experiments.training.loop import load_data
from sparse_secagg.accounting import rdp_to_dp


@pytest.fixture
def small(monkeypatch):
    data = datasets.python_identifiers(max_files=60)
    tasks = {
        name: replace(tasks_module.get(name), settings=settings, load=load)
        for name, load in (
            ("heavy-hitters", lambda _: data),
            ("digits-300", tasks_module.get("digits-300").load),
        )
        for settings in [replace(tasks_module.get(name).settings, rounds=3)]
    }
    tasks["heavy-hitters"] = replace(
        tasks["heavy-hitters"], settings=replace(tasks["heavy-hitters"].settings, rounds=1)
    )
    get = tasks_module.get
    monkeypatch.setattr(tasks_module, "get", lambda name: tasks.get(name) or get(name))
    load_data.cache_clear()
    yield data
    load_data.cache_clear()


def test_demo_prints_json_and_writes_tables_and_a_picture(tmp_path, small):
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "out"), "--json"])
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    assert result.pop("files")
    assert result == json.loads((tmp_path / "out" / "demo.json").read_text())
    assert result["heavy_hitters"]["n_clients"] == len(small.clients)
    assert len(result["training"]["accuracy"]["private"]) == 3
    measured = result.pop("evaluation")
    assert measured["not_private"] is True
    assert {row["decoder"] for row in measured["recorded"]} == set(solvers.names())
    assert result["not_private"] is True
    assert "error" not in json.dumps(result)
    assert "recall" not in json.dumps(result)
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    recording = Recording.open(tmp_path / "out" / "recording-0")
    assert recording[0].shape[1] == 4810
    assert sum(np.prod(shape) for shape in recording.shapes.values()) == 4810


def test_epsilon_in_total_is_that_of_all_rounds_composed(tmp_path, small):
    """From the noise multiplier alone: Gaussian curves add up, and convert to at most ε = 4."""
    found, _ = run_demo(tmp_path, seed=0, console=Console(file=io.StringIO()))
    training = found.document()["training"]
    orders = np.array([*range(2, 129), 256])
    for rounds, claimed in ((3, training["epsilon"]), (1, training["epsilon_per_round"])):
        gaussian = rounds * orders / (2 * training["noise_multiplier"] ** 2)
        assert claimed == pytest.approx(rdp_to_dp(orders, gaussian, 1e-5), rel=0.02)
    assert 3.9 < training["epsilon"] <= 4
    assert 0.99 < found.document()["heavy_hitters"]["epsilon"] <= 1


def test_demo_says_what_it_costs_before_what_it_found(tmp_path, small):
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)], env={"COLUMNS": "200"})
    assert run.exit_code == 0, run.output
    released, measured = run.stdout.split("Not private, for evaluation")
    for part in ("training on digits", "heavy hitters"):
        (line,) = [line for line in released.splitlines() if line.strip(" │").startswith(part)]
        assert line.strip(" │").split()[-1] == ("4.00" if "training" in part else "1.00")
    assert "ε = 4 in total" in released
    assert "held-out test data, which is taken to be public" in released
    assert "Not private as it ran" in released
    assert "working_set" in measured
    assert "working_set" not in released


@pytest.mark.slow
def test_the_demos_private_training_is_nearly_as_good(tmp_path):
    found, _ = run_demo(tmp_path, seed=1, console=Console(file=io.StringIO()))
    result = found.document()
    plain, private = (result["training"]["accuracy"][name][-1] for name in ("plain", "private"))
    assert plain > 0.92
    assert private > plain - 0.06
    assert result["training"]["epsilon"] <= 4
    amp = next(row for row in result["evaluation"]["hitters"] if row["decoder"] == "amp")
    assert amp["relative_error"] < 0.2
    assert amp["recall"] > 0.75


def test_a_negative_seed_is_refused(tmp_path):
    run = CliRunner().invoke(app, ["demo", "--seed", "-1", "--output", str(tmp_path)])
    assert run.exit_code == 2
    assert not (tmp_path / "demo.json").exists()
