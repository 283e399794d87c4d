"""The example in Flower's simulation engine: same app, same folders, no SuperNodes."""

import importlib.util
import shutil

import numpy as np
import pytest

pytest.importorskip("flwr")

from sparse_secagg.accounting import Ledger
from sparse_secagg.secagg.budget import Budget
from tests.flower.test_processes import EXAMPLE, ON_CLIENTS, ON_SERVER, N
from tests.flower.test_processes import example as example

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Flower's simulation engine needs ray: pip install 'flwr[simulation]'",
    ),
]
TRAINING = "    trained = task.train(model, pixels, labels)\n"
FAILS = """    if (node["partition-id"], msg.content["config"]["server-round"]) == (3, 2):
        raise RuntimeError("out of memory")
"""


def test_a_node_fails_and_the_sum_of_the_others_is_unmasked_exactly(example, tmp_path):
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app)
    client, server = (app / "private_digits" / f"{side}_app.py" for side in ("client", "server"))
    assert TRAINING in client.read_text()
    client.write_text(client.read_text().replace(TRAINING, FAILS + TRAINING) + ON_CLIENTS)
    server.write_text(server.read_text() + ON_SERVER.replace("FOLDER", str(tmp_path)))
    example.make_nodes(tmp_path, N)
    with example.Simulation(tmp_path, N, app=app) as simulation:
        found = simulation.run(**{"num-server-rounds": 2, "stage-seconds": 60.0})
    assert [found["metrics"][i]["survivors"] for i in ("1", "2")] == [4, 3]
    with np.load(tmp_path / "unmasked.npz") as unmasked:
        total, survivors = unmasked["total"], unmasked["survivors"]
    assert survivors.tolist() == [0, 1, 2]
    messages = [np.load(tmp_path / f"node-{i}" / "released.npy") for i in survivors]
    assert (np.sum(messages, axis=0, dtype=np.uint64) % np.uint64(1 << 24) == total).all()
    charged = [Budget(tmp_path / f"node-{i}" / "budget.sqlite").rounds for i in range(N)]
    assert charged == [2, 2, 2, 1]
    spent = Ledger(1e-5, path=tmp_path / "ledger.sqlite").epsilon()
    assert found["metrics"]["2"]["epsilon-server"] == spent
    assert found["accuracy"][-1] > found["accuracy"][0]
