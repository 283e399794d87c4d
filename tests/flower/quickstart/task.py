"""quickstart: a model and its data, a line through points."""

import numpy as np


def load_model(arrays=None):
    """Return the model's arrays: weights and a bias."""
    return [np.zeros(3), np.zeros(1)] if arrays is None else [np.array(a) for a in arrays]


def load_data(partition_id=0, num_partitions=1):
    """Return the inputs and outputs of one client, or all of them."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((400, 3))
    outputs = inputs @ [0.5, -0.25, 0.25] + 0.125
    return inputs[partition_id::num_partitions], outputs[partition_id::num_partitions]


def train_fn(model, data, epochs, lr):
    """Change the model by some steps of gradient descent; return its loss."""
    weights, bias = model
    inputs, outputs = data
    for _ in range(epochs):
        error = inputs @ weights + bias - outputs
        weights -= lr * inputs.T @ error / len(error)
        bias -= lr * error.mean()
    return test_fn(model, data)


def test_fn(model, data):
    """Return the mean squared error."""
    weights, bias = model
    return float(np.mean((data[0] @ weights + bias - data[1]) ** 2))


test_fn.__test__ = False  # not a test of ours, whatever its name
