"""
A private Flower app
====================

Two lines make a Flower app private: one mod on the client, one strategy on the server. The
server then sees the sum of masked, noisy updates, and every node keeps its own key, limits and
lifetime budget. The nodes here live in one process; ``examples/flower`` starts real ones.
"""

import logging
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from loopback import LoopbackGrid
from sklearn.datasets import load_digits

from sparse_secagg import AgentPolicy, Roster, RoundSpec
from sparse_secagg.flower import PrivateFedAvg, PrivateNode, private_mod

logging.getLogger("flwr").setLevel(logging.ERROR)
N, ROUNDS = 4, 3
pixels, labels = load_digits(return_X_y=True)
pixels = pixels / 16

# %%
# The client: Flower's usual training function. Only ``mods=[private_mod]`` is new.
app = ClientApp(mods=[private_mod])


@app.train()
def train(msg, context):
    mine = slice(context.node_config["partition-id"], 1400, N)
    weights = msg.content["arrays"]["weights"].numpy().copy()
    for _ in range(20):
        scores = np.exp(pixels[mine] @ weights)
        error = scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[labels[mine]]
        weights -= 0.5 * pixels[mine].T @ error / len(error)
    arrays = ArrayRecord({"weights": Array(weights)})
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


# %%
# Every node makes a folder with its key, its limits and its budget, once; whoever keeps the
# roster enrols it. With four nodes the noise of a defensible ε would drown what they know, so ε
# is large here.
folder = Path(tempfile.mkdtemp())
roster = Roster("digits")
for i in range(N):
    node = PrivateNode.create(
        folder / str(i), AgentPolicy(1e4, 1e-5), lifetime_epsilon=1e5, lifetime_delta=1e-5
    )
    roster = roster.add(f"node {i}", node.public)
for i in range(N):
    roster.save(folder / str(i) / "roster.json")

# %%
# The server: ``PrivateFedAvg`` in place of ``FedAvg``.
accuracy = []


def evaluate(server_round, arrays):
    found = (pixels[1400:] @ arrays["weights"].numpy()).argmax(axis=1)
    accuracy.append(float(np.mean(found == labels[1400:])))
    return MetricRecord({"accuracy": accuracy[-1]})


spec = RoundSpec(epsilon=200.0, clip_norm=2.0, encoder="identity", n_bits=24)
strategy = PrivateFedAvg(spec, roster, rounds=ROUNDS, random_state=0)
nodes = [{"partition-id": i, "private-node": str(folder / str(i))} for i in range(N)]
grid = LoopbackGrid(app, nodes)
start = ArrayRecord({"weights": Array(np.zeros((64, 10)))})
result = strategy.start(grid, start, num_rounds=ROUNDS, evaluate_fn=evaluate)

# %%
# Each round reports what it has cost so far, for every observer.
metrics = result.train_metrics_clientapp
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.plot(range(ROUNDS + 1), accuracy, "o-")
left.set(xlabel="round", ylabel="test accuracy")
right.plot(list(metrics), [m["epsilon-server"] for m in metrics.values()], "o-", color="C1")
right.set(xlabel="round", ylabel="ε against the server", xticks=list(metrics))
plt.show()
print(f"{metrics[ROUNDS]['bytes-per-client']:,} bytes per node in the last round")
