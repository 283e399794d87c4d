"""quickstart: a client as Flower's first tutorial has it, with a model that needs NumPy only."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from quickstart.task import load_data, load_model, test_fn, train_fn

# Flower ClientApp
app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = load_model(msg.content["arrays"].to_numpy_ndarrays())
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train_fn(model, data, context.run_config["local-epochs"], msg.content["config"]["lr"])

    arrays = ArrayRecord(model)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[0])})
    content = RecordDict({"arrays": arrays, "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = load_model(msg.content["arrays"].to_numpy_ndarrays())
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    metrics = MetricRecord({"eval_loss": test_fn(model, data), "num-examples": len(data[0])})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
