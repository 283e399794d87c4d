"""Softmax regression on scikit-learn's handwritten digits, in NumPy."""

import numpy as np

N_CLASSES, N_PIXELS, N_TEST = 10, 64, 397


def load(partition=None, n_partitions=4):
    """Return the pixels and labels of one client, or of the test set."""
    from sklearn.datasets import load_digits  # here, for most messages need no data

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[:N_TEST], order[N_TEST:]
    rows = test if partition is None else train[partition::n_partitions]
    return pixels[rows].astype(np.float32) / 16, labels[rows]


def new_model():
    """Return the model that training starts from."""
    return {
        "weights": np.zeros((N_PIXELS, N_CLASSES), np.float32),
        "bias": np.zeros(N_CLASSES, np.float32),
    }


def train(model, pixels, labels, epochs=5, rate=0.5):
    """Return the model after some epochs of gradient descent."""
    weights, bias = model["weights"].copy(), model["bias"].copy()
    wanted = np.eye(N_CLASSES, dtype=np.float32)[labels]
    for _ in range(epochs):
        error = (_probabilities(weights, bias, pixels) - wanted) / len(labels)
        weights -= rate * pixels.T @ error
        bias -= rate * error.sum(axis=0)
    return {"weights": weights, "bias": bias}


def accuracy(model, pixels, labels):
    """Return the fraction of digits that are recognised."""
    found = _probabilities(model["weights"], model["bias"], pixels).argmax(axis=1)
    return float(np.mean(found == labels))


def _probabilities(weights, bias, pixels):
    scores = pixels @ weights + bias
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
