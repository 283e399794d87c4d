"""A Flower federation of real processes on loopback, one node killed while the others mask."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from sparse_secagg.accounting import Ledger
from tests.flower.conftest import LoopbackGrid

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower"
N = 4
#: What the app's copies write down, for the test to add up in clear.
ON_CLIENTS = """
import numpy as np
from sparse_secagg.agent import ClientAgent
_release = ClientAgent.release
def release(self, document, x):
    found = _release(self, document, x)
    np.save(Path(self.budget.path).parent / "released.npy", found)
    return found
ClientAgent.release = release
"""
ON_SERVER = """
import numpy as np
from sparse_secagg.secagg.server import ServerSession
_total = ServerSession.total
def total(self):
    found = _total(self)
    np.savez("FOLDER/unmasked.npz", total=found, survivors=self.survivors)
    return found
ServerSession.total = total
"""


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("run")
    for name in [n for n in sys.modules if n.partition(".")[0] in ("run", "private_digits")]:
        del sys.modules[name]


@pytest.fixture
def federation(example, tmp_path):
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app)
    with open(app / "private_digits" / "client_app.py", "a") as file:
        file.write(ON_CLIENTS)
    with open(app / "private_digits" / "server_app.py", "a") as file:
        file.write(ON_SERVER.replace("FOLDER", str(tmp_path)))
    example.make_nodes(tmp_path, N)
    with example.Federation(tmp_path, N, kill=N - 1, app=app) as started:
        yield started


def test_the_sum_of_the_survivors_is_unmasked_exactly(federation, tmp_path):
    found = federation.run(**{"num-server-rounds": 1, "stage-seconds": 60.0})
    with np.load(tmp_path / "unmasked.npz") as unmasked:
        total, survivors = unmasked["total"], unmasked["survivors"]
    assert survivors.tolist() == [0, 1, 2]
    metrics = found["metrics"]["1"]
    assert metrics["survivors"] == 3
    messages = [np.load(tmp_path / f"node-{i}" / "released.npy") for i in survivors]
    modulus = np.uint64(1 << 24)
    assert (np.sum(messages, axis=0, dtype=np.uint64) % modulus == total).all()
    assert metrics["epsilon-server"] == Ledger(1e-5, path=tmp_path / "ledger.sqlite").epsilon()
    assert found["accuracy"][1] > found["accuracy"][0]


def in_one_process(example, folder, settings):
    """Run the example's app without Flower's processes; return what its server wrote."""
    folder.mkdir()
    example.make_nodes(folder, N)
    grid = LoopbackGrid(importlib.import_module("private_digits.client_app").app, folder)
    for i, context in enumerate(grid.contexts.values()):
        context.node_config["num-partitions"] = N
        context.node_config["private-node"] = str(folder / f"node-{i}")
    files = {"roster": "roster.json", "ledger": "ledger.sqlite", "results": "results.json"}
    settings = settings | {name: str(folder / file) for name, file in files.items()}
    server = importlib.import_module("private_digits.server_app").app
    server(grid, Context(1, 0, {}, RecordDict(), settings))
    return json.loads((folder / "results.json").read_text())


@pytest.mark.slow
def test_processes_learn_what_one_process_learns(example, tmp_path):
    settings = {"num-server-rounds": 3, "epsilon": 1000.0, "stage-seconds": 120.0}
    example.make_nodes(tmp_path, N)
    with example.Federation(tmp_path, N) as federation:
        found = federation.run(**settings)
    settings |= {"private": True, "seed": 0}
    alone = [in_one_process(example, tmp_path / f"alone-{k}", settings) for k in range(3)]
    assert found["metrics"] == alone[0]["metrics"]  # ε, survivors and bytes, of every round
    # the noise is never the same: accuracies of single runs differ by 0.014 (standard deviation)
    accuracies = [run["accuracy"][-1] for run in alone]
    assert abs(found["accuracy"][-1] - np.mean(accuracies)) < 5 * 0.014 * np.sqrt(4 / 3)
    assert min(accuracies) > 0.7
