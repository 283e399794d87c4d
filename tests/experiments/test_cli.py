import json

import numpy as np
import pytest
from typer.testing import CliRunner

import solvers
from experiments import datasets
from experiments.cli import app
from experiments.recording import Recording


@pytest.fixture
def small(monkeypatch):
    data = datasets.python_identifiers(max_files=60)
    monkeypatch.setattr("experiments.demo.python_identifiers", lambda: data)
    monkeypatch.setattr("experiments.demo.ROUNDS", 3)
    return data


def test_demo_prints_json_and_writes_tables_and_a_picture(tmp_path, small):
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "out"), "--json"])
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    assert result == json.loads((tmp_path / "out" / "demo.json").read_text())
    assert result["n_clients"] == len(small.clients)
    assert len(result["accuracy"]["private"]) == 3
    assert {row["decoder"] for row in result["recorded"]} == set(solvers.names())
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    recording = Recording.open(tmp_path / "out" / "recording-0")
    assert recording[0].shape[1] == 4810
    assert sum(np.prod(shape) for shape in recording.shapes.values()) == 4810


def test_demo_prints_tables(tmp_path, small):
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "working_set" in run.stdout
    assert "Heavy hitters" in run.stdout


def test_a_negative_seed_is_refused(tmp_path):
    run = CliRunner().invoke(app, ["demo", "--seed", "-1", "--output", str(tmp_path)])
    assert run.exit_code == 2
    assert not (tmp_path / "demo.json").exists()
