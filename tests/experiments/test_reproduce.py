"""The paper's figures by name: what there is, what is refused, and verdicts on small runs."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli import app
from experiments.reproduce.entries import ENTRIES
from experiments.reproduce.entry import Setting
from experiments.reproduce.theory import exponent, jackknife, tail_bound
from experiments.results.statistics import Interval
from experiments.results.verdicts import FAILS, HOLDS, OPEN, Law, judge_laws
from experiments.sweeps.cell import NO_INPUTS
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.grid import Grid


def reproduce(*arguments, code=0):
    run = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert run.exit_code == code, run.output
    return run


def test_everything_is_listed_with_its_claim():
    listed = json.loads(reproduce("list", "--json").stdout)
    assert [row["name"] for row in listed] == [
        "compression-vs-noise", "bits-vs-compression", "cohort", "model-size", "sketch-length",
        "per-layer", "thresholding", "noise-to-epsilon", "theorem-main", "theorem-sparse", "lemmas",
        "lower-bounds",
    ]  # fmt: skip
    assert all(row["claim"] and row["minutes"] for row in listed)


@pytest.mark.parametrize("entry", [e for e in ENTRIES.values() if e.sweeps], ids=lambda e: e.name)
def test_no_entry_runs_a_computation_twice_on_embedded_data(entry):
    for asked in entry.sweeps(Setting(task=(*entry.tasks, "")[0], quick=True, seeds=1)):
        cells = asked.grid.cells()
        computed = {repr(sorted(c.computation(NO_INPUTS, "clients").items())) for c in cells}
        assert len(computed) == len(cells) > 1
        if entry.tasks:
            assert max(cell.noise_multiplier for cell in cells) > 0


def test_a_figure_is_run_drawn_and_judged(tmp_path):
    run = reproduce(
        "compression-vs-noise", "--task", "digits", "--rounds", 1, "--seeds", 2, "--jobs", 1,
        "--output", tmp_path, "--json",
    )  # fmt: skip
    found = json.loads(run.stdout)
    (verdict,) = found["claims"]
    assert verdict["outcome"] in (HOLDS, FAILS, OPEN)
    assert verdict["evidence"]
    made = {path.name for path in tmp_path.iterdir()}
    assert {"report.html", "results.sqlite", "compression-vs-noise-1.png"} <= made
    assert "Stack Overflow" in (tmp_path / "report.html").read_text()


def test_the_claim_about_noise_holds_on_means(tmp_path):
    run = reproduce(
        "compression-vs-noise", "--task", "means", "--jobs", 1, "--output", tmp_path,
        "--json",
    )  # fmt: skip
    (verdict,) = json.loads(run.stdout)["claims"]
    assert verdict["outcome"] == HOLDS


def test_findings_without_a_sweep_are_written_too(tmp_path):
    run = reproduce("lemmas", "--output", tmp_path)
    assert "HOLDS" in run.stdout
    assert "8d/m" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cohorts"], "did you mean 'cohort'?"),
        (["cohort", "--scale", "big"], "must be quick or full"),
        (["lemmas", "--task", "digits"], "it trains nothing"),
        (["per-layer", "--task", "means"], "is none of per-layer"),
        (["sketch-length", "--set", "compression=1"], "are the same computation in every cell"),
    ],
)
def test_bad_requests_are_refused_before_any_work(arguments, words, tmp_path):
    output = reproduce(*arguments, "--output", tmp_path, code=2).output
    assert words in " ".join(output.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_an_axis_that_reaches_no_result_is_refused():
    with pytest.raises(ValueError, match="n_rows=10 and n_rows=20 are the same computation"):
        Grid({"n_rows": (10, 20)}, MeanCell(compression=1))
    assert Grid({"n_rows": (10, 20), "compression": (1, 5)}, MeanCell()).cells()


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(0.96, 1.04, HOLDS), (1.06, 1.2, FAILS), (0.9, 1.04, OPEN)]
)
def test_a_law_holds_where_its_whole_interval_is_allowed(low, high, outcome):
    law = Law("exponent", Interval((low + high) / 2, low, high, 5), 0.95, 1.05)
    assert law.outcome == outcome
    assert judge_laws("theorem", [law]).outcome == outcome


def test_exponents_and_their_jackknife_know_a_power_law():
    rng = np.random.default_rng(0)
    curve = {
        x: {(0, k): 3 * x**-2 * math.exp(0.05 * rng.standard_normal()) for k in range(20)}
        for x in (1.0, 2.0, 4.0, 8.0)
    }
    found = jackknife(exponent, curve)
    assert found.low < -2 < found.high
    assert found.high - found.low < 0.1
    assert tail_bound(0.2, 400) == pytest.approx(math.exp(-2))
