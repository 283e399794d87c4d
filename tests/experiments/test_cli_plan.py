"""``sparse-secagg plan``."""

import json

from typer.testing import CliRunner

from experiments.cli import app

run = CliRunner().invoke


def test_plan_explains_itself():
    result = run(app, ["plan", "--dim", "1e5", "--clients", "100", "--epsilon", "1"])
    assert result.exit_code == 0
    assert "bits per client" in result.output
    assert "Lower bounds" in result.output


def test_plan_as_json():
    arguments = ["plan", "--dim", "1e4", "--clients", "50", "--compression", "10", "--json"]
    result = run(app, arguments)
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert document["n_components"] == 990
    assert document["parameters"]["n_clients"] == 50


def test_an_infeasible_request_names_the_remedy():
    arguments = ["plan", "--dim", "1e4", "--clients", "1000", "--n-bits", "5", "--epsilon", "0.1"]
    result = run(app, arguments)
    assert result.exit_code != 0
    assert "smallest" in result.output
