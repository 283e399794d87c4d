"""Architectures have the published sizes, gradients are right, and torch builds the same layers."""

import numpy as np
import pytest

from experiments import tasks
from experiments.datasets import digits
from experiments.models import MLP, emnist_cnn, multilayer_perceptron, next_word_lstm

MODEL = MLP(64, 16, 12, 10)


def loss(model, weights, x, y):
    parts = list(model.architecture.split(weights).values())
    for W, b in zip(parts[:-2:2], parts[1:-2:2]):
        x = np.maximum(x @ W + b, 0)
    scores = x @ parts[-2] + parts[-1]
    return np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y])


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        (emnist_cnn(), 1_018_174),
        (multilayer_perceptron(784, 200, 200, 62), 209_662),
        (next_word_lstm(), 4_050_748),
        (multilayer_perceptron(784, 128, 10), 101_770),
    ],
)
def test_parameter_counts_are_the_papers(architecture, expected):
    assert architecture.n_parameters == expected
    assert sum(np.prod(shape) for shape in architecture.shapes.values()) == expected


def test_gradient_equals_finite_differences():
    rng = np.random.default_rng(0)
    weights = MODEL.initial(0) + 0.01 * rng.standard_normal(MODEL.n_parameters)
    x, y = rng.random((7, 64)), rng.integers(0, 10, 7)
    gradient = MODEL.gradient(weights, x, y)
    for direction in rng.standard_normal((5, len(weights))):
        step = 1e-6 * direction
        difference = loss(MODEL, weights + step, x, y) - loss(MODEL, weights - step, x, y)
        assert gradient @ direction == pytest.approx(difference / 2e-6, rel=1e-4)


def test_one_epoch_is_a_gradient_step_a_batch():
    rng = np.random.default_rng(1)
    x, y = rng.random((21, 64)).astype(np.float32), rng.integers(0, 10, 21)
    start = MODEL.initial(3)
    order = np.random.default_rng(5).permutation(21)
    slow = start.astype(np.float64)
    for batch in (order[:8], order[8:16], order[16:]):
        slow -= 0.2 * MODEL.gradient(slow, x[batch], y[batch])
    options = {"learning_rate": 0.2, "batch_size": 8}
    fast = MODEL.local_update(start, (x, y), rng=np.random.default_rng(5), **options)
    np.testing.assert_allclose(fast, slow - start, atol=2e-6)
    other = MODEL.local_update(start, (x, y), rng=np.random.default_rng(6), **options)
    assert np.abs(other - fast).max() > 1e-4  # the order matters, so the test above sees it


def test_local_update_leaves_the_weights_alone_and_writes_where_asked():
    client = next(iter(digits(seed=0).clients.values()))
    model = MLP(64, 16, 10)
    weights = model.initial(0)
    before, out = weights.copy(), np.empty_like(weights)
    update = model.local_update(
        weights, client, learning_rate=0.1, batch_size=8, rng=np.random.default_rng(0), out=out
    )
    assert update is out
    np.testing.assert_array_equal(weights, before)
    assert loss(model, weights + update, *client) < loss(model, weights, *client)


def test_split_covers_the_vector_in_order():
    parts = MODEL.architecture.split(np.arange(MODEL.n_parameters, dtype=np.float32))
    assert {name: part.shape for name, part in parts.items()} == MODEL.shapes
    joined = np.concatenate([part.ravel() for part in parts.values()])
    np.testing.assert_array_equal(joined, np.arange(MODEL.n_parameters))


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ValueError, match="parameters"):
        MODEL.accuracy(np.zeros(3, dtype=np.float32), np.zeros((1, 64)), np.zeros(1, dtype=int))


@pytest.mark.parametrize("sizes", [(64,), (64, 0), (64, -3, 10)])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="sizes"):
        MLP(*sizes)


def test_accuracy_is_the_share_of_right_answers():
    model = MLP(3, 3)
    weights = np.concatenate([np.eye(3).ravel(), np.zeros(3)]).astype(np.float32)
    x = np.eye(3, dtype=np.float32)
    assert model.accuracy(weights, x, np.array([0, 1, 2])) == 1.0
    assert model.accuracy(weights, x, np.array([0, 2, 1])) == pytest.approx(1 / 3)


def test_an_unknown_task_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean 'digits'|Did you mean 'digits'"):
        tasks.get("digit")
