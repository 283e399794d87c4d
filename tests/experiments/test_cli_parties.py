"""The commands ``serve`` and ``join``: a round of four clients, each a process of its own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from sparse_secagg import Budget, Identity, Roster

N, DIM = 4, 30
COMMAND = [sys.executable, "-c", "from experiments.cli import app; app()"]


def start(*words):
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.fixture
def group(tmp_path):
    """Files of four clients, their roster, and a round."""
    roster = Roster("group")
    rng = np.random.default_rng(0)
    for i in range(N):
        identity = Identity.new()
        identity.save(tmp_path / f"{i}.json")
        roster = roster.add(f"client {i}", identity.public)
        np.save(tmp_path / f"{i}.npy", rng.standard_normal(DIM) / 10)
        Budget(tmp_path / f"{i}.sqlite", epsilon=50.0, delta=1e-5)
    roster.save(tmp_path / "roster.json")
    spec = {"dim": DIM, "epsilon": 20.0, "encoder": "identity", "n_bits": 24, "decoder": "linear"}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    return tmp_path


def join(folder, i, address, max_epsilon):
    """Return the words of a client's command."""
    return (
        "join", "--server", address, "--identity", folder / f"{i}.json",
        "--roster", folder / "roster.json", "--vector", folder / f"{i}.npy",
        "--budget", folder / f"{i}.sqlite", "--max-epsilon", max_epsilon,
        "--certificate", folder / "server.pem",
    )  # fmt: skip


def test_a_round_between_processes(group):
    """Client 3 first finds the round too dear, then agrees to it; the mean is estimated."""
    server = start(
        "serve", "--round", group / "spec.json", "--roster", group / "roster.json", "--port", 0,
        "--certificate", group / "server.pem", "--key", group / "server.key", "--seconds", 200,
        "--output", group / "mean.npy", "--json",
    )  # fmt: skip
    address = server.stderr.readline().split()[-1]
    stingy = CliRunner().invoke(app, [str(word) for word in join(group, 3, address, 1)])
    assert stingy.exit_code == 1
    assert "above this client's limit 1" in stingy.output
    clients = [start(*join(group, i, address, 25)) for i in range(N)]
    said = [client.communicate(timeout=300) for client in clients]
    out, log = server.communicate(timeout=300)
    assert [client.returncode for client in clients] == [0] * N, said
    assert "of 50 left in this life" in said[0][0]
    values = json.loads(out)
    assert values["survivors"] == list(range(N)), log
    assert 0 < values["epsilon"] <= 20.0 + 1e-6
    mean = np.mean([np.load(group / f"{i}.npy") for i in range(N)], axis=0)
    # noise of the mean at epsilon 20 and clip 1 is about 0.1 in each entry
    assert np.abs(np.load(group / "mean.npy") - mean).max() < 1.0
    assert [Budget(group / f"{i}.sqlite").rounds for i in range(N)] == [1] * N


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["serve", "--round", "none.json", "--roster", "roster.json"], "none.json"),
        (["serve", "--round", "roster.json", "--roster", "roster.json"], "dim"),
        (["serve", "--round", "spec.json", "--roster", "spec.json"], "no roster"),
        (["join", "--server", "here", "--identity", "0.json", "--roster", "roster.json",
          "--vector", "0.npy", "--budget", "0.sqlite", "--max-epsilon", "1"], "HOST:PORT"),
        (["join", "--server", "h:1", "--identity", "0.json", "--roster", "roster.json",
          "--vector", "0.npy", "--budget", "none", "--max-epsilon", "1"], "no budget"),
        (["join", "--server", "h:999999", "--identity", "0.json", "--roster", "roster.json",
          "--vector", "0.npy", "--budget", "0.sqlite", "--max-epsilon", "1"], "HOST:PORT"),
        (["budget", "."], "not a budget"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(group, monkeypatch, words, match):
    monkeypatch.chdir(group)
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert match in done.output


@pytest.mark.parametrize(
    "x",
    [np.ones((2, 2)), np.ones(0), np.array(["a", "b"]), np.ones(3, complex), np.float64(1.0)],
    ids=["matrix", "empty", "text", "complex", "number"],
)
def test_a_file_of_no_vector_is_refused_before_the_round(group, monkeypatch, x):
    """Not in the middle of it, when the client has become one that others count on."""
    monkeypatch.chdir(group)
    np.save("odd.npy", x)
    words = ["join", "--server", "h:1", "--identity", "0.json", "--roster", "roster.json",
             "--vector", "odd.npy", "--budget", "0.sqlite", "--max-epsilon", "1"]  # fmt: skip
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert "vector of numbers" in done.output
