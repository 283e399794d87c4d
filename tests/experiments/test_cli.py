import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import datasets
from experiments.cli.app import app
from experiments.training import tasks as tasks_module
from experiments.training.loop import load_data


@pytest.fixture
def small(monkeypatch):
    data = datasets.python_identifiers(max_files=60)
    task = tasks_module.get("digits-300")
    short = replace(task, settings={**task.settings, "rounds": 3})
    get = tasks_module.get
    monkeypatch.setattr(datasets, "python_identifiers", lambda: data)
    monkeypatch.setattr(tasks_module, "get", lambda name: short if name == task.name else get(name))
    load_data.cache_clear()
    yield data
    load_data.cache_clear()


def test_demo_prints_json_and_writes_a_page_and_a_picture(tmp_path, small):
    run = CliRunner().invoke(app, ["demo", "--output", str(tmp_path), "--json"])
    assert run.exit_code == 0, run.output
    result = json.loads(run.stdout)
    for name in result.pop("files"):
        assert Path(name).stat().st_size > 0
    assert result == json.loads((tmp_path / "demo.json").read_text())
    assert result["not_private"] is True
    assert len(result["train"]["private"]) == 3
    assert 3.9 < result["train"]["epsilon"] <= 4
    assert 0.9 * len(small.clients) < result["count"]["n"] <= len(small.clients)
    assert 0.99 < result["count"]["epsilon"] <= 1
    assert all(row["low"] <= row["count"] <= row["high"] for row in result["count"]["top"])
    errors = {(r["decoder"], r["sparsity"]): r["relative_error"] for r in result["decode"]}
    assert errors["amp", 20] < 0.1 * errors["linear", 20]
    assert errors["amp", 1280] > errors["amp", 20]
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo.html").read_text()
    assert page.count("data:image/svg+xml") == 1
    assert "nothing here is private" in page


@pytest.mark.slow
def test_the_demos_private_training_is_nearly_as_good(tmp_path):
    run = CliRunner().invoke(app, ["demo", "--seed", "1", "--output", str(tmp_path), "--json"])
    accuracy = json.loads(run.stdout)["train"]
    assert accuracy["plain"][-1] > 0.92
    assert accuracy["private"][-1] > accuracy["plain"][-1] - 0.06


def test_a_negative_seed_is_refused(tmp_path):
    run = CliRunner().invoke(app, ["demo", "--seed", "-1", "--output", str(tmp_path)])
    assert run.exit_code == 2
    assert not (tmp_path / "demo.json").exists()
