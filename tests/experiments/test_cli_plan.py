"""``sparse-secagg plan``."""

import json

import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.report.plan_figure import draw_plan
from sparse_secagg import plan

run = CliRunner().invoke


def test_plan_explains_itself():
    result = run(app, ["plan", "--dim", "1e5", "--clients", "1e2", "--epsilon", "1"])
    assert result.exit_code == 0
    assert "bits per client" in result.output
    assert "Lower bounds" in result.output
    assert result.output.startswith("Of no use")


def test_plan_as_json():
    arguments = ["plan", "--dim", "1e4", "--clients", "50", "--compression", "10", "--json"]
    result = run(app, arguments)
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert (document["encoder"], document["n_components"]) == ("hadamard", 1000)
    assert document["parameters"]["n_clients"] == 50


def test_every_option_reaches_the_planner():
    options = {
        "dim": "2e3", "clients": "1e2", "delta": "1e-6", "clip-norm": "2", "sparsity": "2e1",
        "encoder": "count_sketch", "decoder": "lasso", "colluders": "5", "secagg": "masked",
        "error-slack": "0.5", "rounds": "3", "mechanism": "skellam", "n-rows": "8",
        "sketch-clip": "1.05", "epsilon": "6",
    }  # fmt: skip
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = run(app, ["plan", "--json", *arguments])
    assert result.exit_code == 0, result.output
    expected = plan(
        2000, 100, delta=1e-6, clip_norm=2.0, sparsity=20, encoder="count_sketch", decoder="lasso",
        colluders=5, secagg="masked", error_slack=0.5, rounds=3, mechanism="skellam", n_rows=8,
        sketch_clip=1.05, epsilon=6.0,
    )  # fmt: skip
    found, wanted = json.loads(result.output), json.loads(expected.to_json())
    for document in (found, wanted):
        document["parameters"].pop("seed")
    assert found == wanted
    result = run(
        app, ["plan", "--dim", "1e3", "--clients", "1e3", "--target-error", ".5", "--json"]
    )
    assert json.loads(result.output)["relative_error"] <= 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--clients", "1000", "--n-bits", "5", "--epsilon", "0.1"], "smallest"),
        (["--clients", "10.5"], "10.5 must be a whole number"),
        (["--clients", "10", "--encoder", "fourier"], "fourier"),
        (["--clients", "10", "--plot", "picture.jpeg"], "picture.jpeg"),
        (["--clients", "100", "--target-error", "1e-9"], "--target-error 1e-09"),
    ],
)
def test_what_cannot_be_names_the_remedy(words, message):
    result = run(app, ["plan", "--dim", "1e4", *words])
    assert result.exit_code != 0
    assert message in result.output


@pytest.mark.parametrize(
    ("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_picture_in_the_format_of_its_suffix(tmp_path, suffix, begins):
    path = tmp_path / "deep" / f"plan.{suffix}"
    words = ["--dim", "500", "--clients", "1e2", "--secagg", "masked", "--plot", str(path)]
    result = run(app, ["plan", *words])
    assert result.exit_code == 0, result.output
    assert path.read_bytes().startswith(begins)


def test_the_picture_says_what_it_shows(tmp_path):
    """Text of an SVG is text if fonts are not drawn as paths."""
    import matplotlib

    request = {"d": 800, "n_clients": 300, "sparsity": 30, "epsilon": 3.0, "encoder": "hadamard"}
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_plan(plan(**request), request).savefig(tmp_path / "plan.svg")
    text = (tmp_path / "plan.svg").read_text()
    for words in ("d = 800, n = 300, ε = 3", "30 nonzeros", "chosen: Hadamard", "answering zero",
                  "lower bound", "bytes per client", "message passing decoder"):  # fmt: skip
        assert words in text
