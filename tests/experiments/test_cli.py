import json

from typer.testing import CliRunner

from experiments import datasets
from experiments.cli import app


def test_demo_prints_json_and_writes_table_and_picture(tmp_path, monkeypatch):
    small = datasets.python_identifiers(max_files=40)
    monkeypatch.setattr("experiments.demo.python_identifiers", lambda: small)
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "out"), "--json"])
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    assert result == json.loads((tmp_path / "out" / "demo.json").read_text())
    assert result["n_clients"] == len(small.clients)
    for row in result["encoders"]:
        assert 0.5 < row["relative_error"] / row["predicted_error"] < 2
    assert (tmp_path / "out" / "heavy_hitters.png").read_bytes().startswith(b"\x89PNG")


def test_demo_prints_a_table(tmp_path, monkeypatch):
    small = datasets.python_identifiers(max_files=40)
    monkeypatch.setattr("experiments.demo.python_identifiers", lambda: small)
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "Hadamard" in run.stdout


def test_a_negative_seed_is_refused(tmp_path):
    run = CliRunner().invoke(app, ["demo", "--seed", "-1", "--output", str(tmp_path)])
    assert run.exit_code == 2
    assert not (tmp_path / "demo.json").exists()
