"""The documentation's own solver and encoder, from the command line, in every kind of worker."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import solvers
from experiments import Grid, MeanCell, run_sweep
from experiments.cli.app import app

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sweeps.md"
(PARTS,) = re.findall(r"```python file=my_parts.py\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
FAILING = """

class Failing(solvers.Solver):
    def _solve(self, A, y, noise_std, x0):
        raise FloatingPointError("seven is not prime enough")
"""
SMALL = (
    "--axis compression=2,5 --dim 200 --clients 10 --sparsity 5 --seeds 2 --noise-multiplier 0.1"
)
OWN = "--decoder linear --decoder my_parts:HardThreshold --encoder my_parts:Signs"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_parts.py").write_text(PARTS + FAILING)
    return tmp_path


def sweep(folder, words, code=0):
    """Run the command in a process whose current folder has the parts; workers start elsewhere."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments.cli", "sweep", *words.split(), "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(DOCUMENT.parents[1]), str(folder)])},
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)["sweeps"][0], done.stderr


def errors(found):
    assert {row["status"] for row in found["results"]} == {"done"}
    return [row["relative_error"] for row in found["results"]]


def test_the_documentations_parts_run_under_loky_and_dask_alike(folder):
    distributed = pytest.importorskip("distributed")
    expected = errors(sweep(folder, f"{SMALL} {OWN} --backend sequential --output one")[0])
    assert len(expected) == 8
    assert expected == errors(sweep(folder, f"{SMALL} {OWN} --jobs 2 --output two")[0])
    # the workers of the cluster start here, where there is no my_parts
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        there = f"--backend dask --scheduler {cluster.scheduler_address}"
        assert expected == errors(sweep(folder, f"{SMALL} {OWN} {there} --output three")[0])


def test_a_solver_that_raises_is_reported_as_such(folder):
    words = f"{SMALL} --decoder linear --decoder my_parts:Failing --jobs 2 --output out"
    found, told = sweep(folder, words, code=1)
    failed = [row for row in found["results"] if row["decoder"] == "my_parts:Failing"]
    assert {row["status"] for row in failed} == {"failed"}
    assert {row["message"] for row in failed} == {"FloatingPointError: seven is not prime enough"}
    assert len([row for row in found["results"] if row["status"] == "done"]) == 4
    assert "4 cells failed: FloatingPointError: seven is not prime enough" in told
    assert "decoder=my_parts:Failing" in told
    assert "failed" in (folder / "out" / "sweep.csv").read_text()
    assert "seven is not prime enough" in (folder / "out" / "report.html").read_text()


def test_a_registered_solver_reaches_workers_that_never_heard_of_it(monkeypatch):
    monkeypatch.setattr("solvers.registry._REGISTERED", {})

    class Zero(solvers.Solver):
        def _solve(self, A, y, noise_std, x0):
            return solvers.Solution(coef=A.rmatvec(0 * y))

    solvers.register("nothing_at_all", Zero)
    base = MeanCell(dim=100, clients=4, sparsity=3, compression=2)
    grid = Grid({"compression": (2,)}, base, decoders=["nothing_at_all", Zero()], seeds=2)
    assert {cell.spec.decoder for cell in grid.cells()} == {"nothing_at_all"}
    for backend in ("loky", "multiprocessing"):
        table = run_sweep(grid, jobs=2, backend=backend)
        assert [r.metrics.get("relative_error") for r in table.results] == [1.0] * 2, table.results


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--decoder no_such_module:Solver", "Is the folder of 'no_such_module' on the Python path"),
        ("--decoder json:JSONDecoder,linear", "give several decoders one by one"),
        ("--decoder json:JSONDecoder", "must be a class that derives from Solver"),
        ("--encoder json:JSONDecoder", "must be a class that derives from LinearEncoder"),
    ],
)
def test_a_part_that_is_none_is_refused_before_any_work(words, message, tmp_path):
    run = CliRunner().invoke(app, ["sweep", *f"{SMALL} {words} --output {tmp_path / 'o'}".split()])
    assert run.exit_code == 2
    assert message in " ".join(run.output.replace("│", " ").split())
    assert not (tmp_path / "o").exists()
