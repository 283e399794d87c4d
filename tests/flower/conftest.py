"""Nodes of a Flower federation in one process: real messages, a grid that calls the app."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sparse_secagg import AgentPolicy, Roster
from sparse_secagg.flower import PrivateNode, private_mod

N = 4


def make_nodes(folder, n=N, *, max_epsilon=1e5, lifetime_epsilon=1e6, **options):
    """Make the folders of n nodes and enrol them; return their roster."""
    roster = Roster("flowers")
    for i in range(n):
        identity = PrivateNode.create(
            folder / str(i),
            AgentPolicy(max_epsilon, 1e-5),
            lifetime_epsilon=lifetime_epsilon,
            lifetime_delta=1e-5,
            **options,
        )
        roster = roster.add(f"node {i}", identity.public)
    for i in range(n):
        roster.save(folder / str(i) / "roster.json")
    return roster


def make_app(change):
    """Return an app whose training adds ``change(partition, name)`` to every array."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(msg, context):
        assert set(msg.content) == {"arrays", "config"}
        partition = context.node_config["partition-id"]
        arrays = {
            name: Array(np.asarray(a.numpy() + change(partition, name), a.numpy().dtype))
            for name, a in msg.content["arrays"].items()
        }
        metrics = MetricRecord({"num-examples": 1, "loss": 0.5})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=msg)

    @app.evaluate()
    def evaluate(msg, context):
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": 1, "accuracy": 1.0})}),
            reply_to=msg,
        )

    return app


class LoopbackGrid:
    """A grid that hands messages to the app at once; nodes may die, or lie, at a stage."""

    def __init__(self, app, folder, n=N):
        self.app, self.sent = app, []
        self.contexts = {
            100 + i: Context(
                1, 100 + i, {"partition-id": i, "private-node": str(folder / str(i))},
                RecordDict(), {},
            )
            for i in range(n)
        }  # fmt: skip
        self.deaths = {}
        self.change = lambda stage, node, message: message

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            ours = message.content.config_records.get("sparse_secagg")
            stage = None if ours is None else ours["stage"]
            if stage is not None and self.deaths.get(node) == stage:
                self.deaths[node] = "dead"
            if self.deaths.get(node) == "dead":
                continue
            message = self.change(stage, node, message)
            message.metadata.__dict__["_message_id"] = f"{node}-{stage}"
            reply = self.app(message, self.contexts[node])
            self.sent.append((stage, node, reply))
            replies.append(reply)
        return replies


@pytest.fixture
def model():
    """Arrays of all kinds: half, single and double precision, a scalar, counters."""
    return {
        "w": np.zeros((5, 4), np.float32),
        "h": np.ones(3, np.float16),
        "s": np.float64(2.0),
        "steps": np.array([7], np.int64),
        "empty": np.zeros((0, 2), np.float32),
    }


def as_record(model):
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in model.items()})


def read_json(path):
    return json.loads(path.read_text())


@pytest.fixture(autouse=True)
def a_task(monkeypatch):
    """Messages carry the task that sent them; outside Flower's processes there is none."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1, raising=False)
