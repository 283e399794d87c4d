"""The server: federated averaging, private or plain, tested on digits that nobody trained on."""

import json
import time
from itertools import pairwise
from pathlib import Path

from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from private_digits import task
from sparse_secagg import RoundSpec
from sparse_secagg.flower import PrivateFedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    """Run all rounds, and write what was seen to a file."""
    run = context.run_config
    rounds = int(run["num-server-rounds"])
    pixels, labels = task.load()
    times = []

    def evaluate(server_round, arrays):
        times.append(time.time())
        model = {name: array.numpy() for name, array in arrays.items()}
        return MetricRecord({"accuracy": task.accuracy(model, pixels, labels)})

    if run["private"]:
        spec = RoundSpec(
            epsilon=run["epsilon"], encoder="identity", n_bits=24, clip_norm=1.5, min_survivors=3
        )
        strategy = PrivateFedAvg(
            spec, run["roster"], rounds=rounds, ledger=run["ledger"],
            stage_seconds=run["stage-seconds"], random_state=run["seed"],
        )  # fmt: skip
    else:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=3)
    start = ArrayRecord({name: Array(array) for name, array in task.new_model().items()})
    result = strategy.start(
        grid, start, num_rounds=rounds, timeout=run["stage-seconds"], evaluate_fn=evaluate
    )
    Path(str(run["results"])).write_text(
        json.dumps(
            {
                "accuracy": [m["accuracy"] for m in result.evaluate_metrics_serverapp.values()],
                "metrics": {i: dict(m) for i, m in result.train_metrics_clientapp.items()},
                "seconds": [later - sooner for sooner, later in pairwise(times)],
            }
        )
    )
