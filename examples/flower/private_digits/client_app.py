"""The client: Flower's usual training function, and one mod that makes it private."""

import os
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from private_digits import task
from sparse_secagg.flower import private_mod

private = os.environ.get("PRIVATE_DIGITS", "yes") == "yes"  # "no" compares with plain FedAvg
app = ClientApp(mods=[private_mod] if private else [])


@app.train()
def train(msg, context):
    """Train on this client's digits."""
    model = {name: array.numpy() for name, array in msg.content["arrays"].items()}
    node = context.node_config
    pixels, labels = task.load(node["partition-id"], node["num-partitions"])
    trained = task.train(model, pixels, labels)
    if stalls_at := node.get("stalls-at"):  # so that run.py can kill this node in mid-round
        Path(stalls_at).touch()
        time.sleep(600)
    arrays = ArrayRecord({name: Array(array) for name, array in trained.items()})
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)
