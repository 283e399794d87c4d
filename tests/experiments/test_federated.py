"""The model's gradient is right and training learns, with and without the private pipeline."""

import warnings

import numpy as np
import pytest

from experiments.datasets import digits
from experiments.federated import MLP, local_update, train
from sparse_secagg import PrivacyWarning, SparseSecAgg

MODEL = MLP(64, 16, 10)


def loss(weights, x, y):
    W1, b1, W2, b2 = MODEL.split(weights)
    scores = np.maximum(x @ W1 + b1, 0) @ W2 + b2
    return np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y])


def test_gradient_equals_finite_differences():
    rng = np.random.default_rng(0)
    weights = MODEL.initial(0) + 0.01 * rng.standard_normal(MODEL.n_parameters)
    x, y = rng.random((7, 64)), rng.integers(0, 10, 7)
    gradient = MODEL.gradient(weights, x, y)
    for direction in rng.standard_normal((5, len(weights))):
        step = 1e-6 * direction
        slope = (loss(weights + step, x, y) - loss(weights - step, x, y)) / 2e-6
        assert gradient @ direction == pytest.approx(slope, rel=1e-5)


def test_split_covers_the_vector_in_order():
    parts = MODEL.split(np.arange(float(MODEL.n_parameters)))
    assert [part.shape for part in parts] == list(MODEL.shapes.values())
    np.testing.assert_array_equal(
        np.concatenate([part.ravel() for part in parts]), np.arange(MODEL.n_parameters)
    )


def test_digits_are_split_among_clients_without_loss():
    data = digits(n_clients=20, concentration=0.3, seed=1)
    sizes = [len(y) for _, y in data.clients.values()]
    assert sum(sizes) + len(data.test[1]) == 1797
    assert min(sizes) >= 1
    assert len(set(sizes)) > 3
    classes = [len(set(y)) for _, y in data.clients.values()]
    assert np.mean(classes) < 9  # uneven, as asked


def test_local_update_leaves_the_weights_alone():
    data = digits(seed=0)
    weights = MODEL.initial(0)
    before = weights.copy()
    client = next(iter(data.clients.values()))
    update = local_update(
        MODEL, weights, client, learning_rate=0.1, batch_size=8, rng=np.random.default_rng(0)
    )
    np.testing.assert_array_equal(weights, before)
    assert loss(weights + update, *client) < loss(weights, *client)


def test_training_learns_and_privacy_costs_little():
    data, model = digits(seed=0), MLP(64, 32, 10)
    plain = list(train(model, data, None, rounds=30, server_rate=0.3))[-1].accuracy
    aggregate = SparseSecAgg(
        noise_multiplier=0.3, clip_norm=0.5, n_bits=18, decoder="linear", simulation_seed=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        private = list(train(model, data, aggregate, rounds=30, server_rate=0.3))[-1].accuracy
    assert plain > 0.8
    assert private > plain - 0.1
