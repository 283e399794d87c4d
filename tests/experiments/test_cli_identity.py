"""The commands ``identity`` and ``budget``."""

import json

import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from sparse_secagg import Budget, DiscreteGaussian, Identity, Roster


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


def test_a_roster_is_made_and_changed_member_by_member(tmp_path):
    path = tmp_path / "group.json"
    keys = [Identity.new().public for _ in range(3)]
    assert "version 2, 1 members" in run("identity", "enrol", path, "ann", keys[0].hex()).output
    assert "version 3, 2 members" in run("identity", "enrol", path, "bob", keys[1].hex()).output
    assert "version 4, 2 members" in run("identity", "enrol", path, "bob", keys[2].hex()).output
    assert run("identity", "enrol", path, "bob", keys[1].hex()).exit_code == 2  # revoked
    assert run("identity", "enrol", path, "eve", "not a key").exit_code == 2
    assert "version 5, 1 members" in run("identity", "revoke", path, "bob").output
    assert run("identity", "revoke", path, "bob").exit_code == 2
    assert [member.name for member in Roster.load(path).members] == ["ann"]


def test_a_budget_is_made_by_its_lifetime(tmp_path):
    path = tmp_path / "b.sqlite"
    assert "0 rounds" in run("budget", path, "--epsilon", 3, "--delta", 1e-5).output
    assert Budget(path).epsilon == 3.0
    assert run("budget", path, "--epsilon", 5).exit_code == 2
