"""A Flower federation of real processes on loopback, one node killed while the others mask."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from sparse_secagg.accounting import Ledger

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
def federation(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import run as example

    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app)
    with open(app / "private_digits" / "client_app.py", "a") as file:
        file.write(ON_CLIENTS)
    with open(app / "private_digits" / "server_app.py", "a") as file:
        file.write(ON_SERVER.replace("FOLDER", str(tmp_path)))
    example.make_nodes(tmp_path, N)
    with example.Federation(tmp_path, N, kill=N - 1, app=app) as started:
        yield started
    del sys.modules["run"]


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
