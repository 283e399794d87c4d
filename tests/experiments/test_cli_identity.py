"""The commands ``identity`` and ``budget``."""

import json

import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from sparse_secagg import Budget, DiscreteGaussian, Identity


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_identity_is_made_once_and_shown(tmp_path):
    path = tmp_path / "ann.json"
    made = run("identity", "new", path)
    assert made.exit_code == 0
    assert made.output.strip() == Identity.load(path).public.hex()
    assert run("identity", "show", path).output == made.output
    assert run("identity", "new", path).exit_code == 2
    assert run("identity", "show", tmp_path / "none").exit_code == 2


def test_a_budget_says_what_is_left(tmp_path):
    budget = Budget(tmp_path / "b.sqlite", epsilon=4.0, delta=1e-5)
    mechanism = DiscreteGaussian(epsilon=1.0, n_bits=20)
    mechanism.calibrate(n_clients=10, dim=20)
    budget.charge("a round", mechanism.privacy())
    values = json.loads(run("budget", budget.path, "--json").output)
    assert values["rounds"] == 1
    assert values["spent"] == pytest.approx(1.0, abs=1e-6)
    assert values["left"] == pytest.approx(3.0, abs=1e-6)
    assert "1 rounds: epsilon 1 of 4 spent, 3 left" in run("budget", budget.path).output
    assert run("budget", tmp_path / "none").exit_code == 2
