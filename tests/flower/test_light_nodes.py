"""Flower starts a process for every message to a node; it loads what the message needs."""

import os
import pickle
import subprocess
import sys

import pytest

pytest.importorskip("flwr")

import sparse_secagg.flower
from tests.flower.conftest import LoopbackGrid, make_app, make_nodes
from tests.flower.test_private_rounds import change, run

HEAVY = ("sklearn", "pandas", "joblib", "scipy.optimize", "scipy.stats", "scipy.fft")
#: Not even these, where NumPy's kernels are used.
BARE = ("sklearn", "scipy", "numba", "joblib", "pandas")

#: What a SuperNode's process does with one message; the last words name what must not be loaded.
ANSWER = """
import pickle, sys
import numpy as np
from flwr.supercore.task_identity import TaskIdentity
TaskIdentity._run_id = TaskIdentity._task_id = TaskIdentity._node_id = 1
from sparse_secagg.flower import private_mod
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp(mods=[private_mod])

@app.train()
def train(msg, context):
    model = {name: array.numpy() for name, array in msg.content["arrays"].items()}
    arrays = {name: Array(np.asarray(a + 0.1, a.dtype)) for name, a in model.items()}
    return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=msg)

file, *suspects = sys.argv[1:]
with open(file, "rb") as held:
    message, context = pickle.load(held)
reply = app(message, context)
with open(file, "wb") as held:
    pickle.dump((reply, context), held)
print([name for name in suspects if name in sys.modules])
"""


class ProcessGrid(LoopbackGrid):
    """A grid on which some nodes answer every message in a process of its own."""

    def __init__(self, app, folder):
        super().__init__(lambda message, context: self.answer(app, message, context), folder)
        self.file, self.kernels, self.loaded = folder / "message", {}, []

    def answer(self, app, message, context):
        node = message.metadata.dst_node_id
        if node not in self.kernels:
            return app(message, context)
        self.file.write_bytes(pickle.dumps((message, context)))
        suspects = BARE if self.kernels[node] == "numpy" else HEAVY
        environment = {**os.environ, "SPARSE_SECAGG_KERNELS": self.kernels[node]}
        done = subprocess.run(
            [sys.executable, "-c", ANSWER, self.file, *suspects],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.loaded.append((node, done.stdout.strip()))
        reply, self.contexts[node] = pickle.loads(self.file.read_bytes())
        return reply


def test_no_stage_of_a_round_loads_scikit_learn(tmp_path, model):
    roster = make_nodes(tmp_path)
    grid = ProcessGrid(make_app(change), tmp_path)
    grid.kernels = {100: "numpy", 101: "numba"}
    strategy, result, _ = run(tmp_path, model, grid=grid, roster=roster)
    assert strategy.aggregate_.survivors.tolist() == [0, 1, 2, 3]
    assert sorted(grid.loaded) == [(100, "[]")] * 5 + [(101, "[]")] * 5
    moved = result.arrays["w"].numpy()
    mean = (0.1 + 0.1 + 0.3 + 0.4) / 4
    assert abs(moved - mean).max() < 6 * strategy.aggregate_.noise_std


def test_the_mod_does_not_load_the_servers_half():
    code = (
        "from sparse_secagg.flower import private_mod, PrivateNode\nimport sys\n"
        f"suspects = {(*BARE, 'sparse_secagg.flower.strategy')!r}\n"
        "print([name for name in suspects if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_names_are_there():
    for name in sparse_secagg.flower.__all__:
        assert getattr(sparse_secagg.flower, name).__name__ == name
    assert set(sparse_secagg.flower.__all__) <= set(dir(sparse_secagg.flower))
    with pytest.raises(AttributeError, match="PublicFedAvg"):
        _ = sparse_secagg.flower.PublicFedAvg
