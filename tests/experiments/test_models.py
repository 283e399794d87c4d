"""Architectures have the published sizes, gradients are right, and torch builds the same layers."""

import numpy as np
import pytest

from experiments.datasets import digits
from experiments.models import (
    MLP,
    WordClassifier,
    emnist_cnn,
    multilayer_perceptron,
    next_word_lstm,
)
from experiments.training import tasks

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


def gradient_of(weights, x, y):
    """Return the step against which a client descends, in the precision of the weights."""
    moved = weights.copy()
    MODEL.descend(moved, x.astype(weights.dtype), y, 1.0, np.random.default_rng(0))
    return weights - moved


def test_gradient_equals_finite_differences():
    rng = np.random.default_rng(0)
    weights = MODEL.initial(0) + 0.01 * rng.standard_normal(MODEL.n_parameters)
    x, y = rng.random((7, 64)), rng.integers(0, 10, 7)
    gradient = gradient_of(weights, x, y)
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
        slow -= 0.2 * gradient_of(slow, x[batch], y[batch])
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


def test_a_word_classifier_is_logistic_regression_on_rows_of_norm_one():
    """Against a dense model on the whole rows; only the words that occur move."""
    rng = np.random.default_rng(3)
    model = WordClassifier(30, 4)
    x = np.zeros((9, 6), dtype=np.int32)
    rows = np.zeros((9, 30), dtype=np.float32)
    for k in range(8):  # the last text has no known word
        words = rng.choice(20, rng.integers(1, 7), replace=False) + 1
        x[k, : len(words)] = words
        rows[k, words - 1] = np.log(1 + words)
        rows[k] /= np.linalg.norm(rows[k])
    y = rng.integers(0, 4, 9)
    weights = rng.standard_normal(model.n_parameters).astype(np.float32)
    options = {"learning_rate": 0.7, "batch_size": 4}
    update = model.local_update(weights, (x, y), rng=np.random.default_rng(1), **options)
    W = weights.reshape(30, 4).astype(float)
    order, right = np.random.default_rng(1).permutation(9), np.eye(4)[y]
    for batch in (order[:4], order[4:8], order[8:]):
        shares = np.exp(rows[batch] @ W)
        shares /= shares.sum(axis=1, keepdims=True)
        W -= 0.7 * rows[batch].T @ (shares - right[batch]) / len(batch)
    np.testing.assert_allclose(update.toarray()[0], W.ravel() - weights, atol=1e-6)
    assert update.nnz == 4 * len(np.unique(x[x > 0])) < len(weights)
    expected = np.mean((rows @ weights.reshape(30, 4)).argmax(axis=1) == y)
    assert model.accuracy(weights, x, y) == expected
    moved = weights.copy()
    model.descend(moved, x[order[:4]], y[order[:4]], 0.7, rng)
    first = model.local_update(
        weights, (x[order[:4]], y[order[:4]]), rng=rng, learning_rate=0.7, batch_size=4
    )
    np.testing.assert_allclose(moved - weights, first.toarray()[0], atol=1e-6)


# -- PyTorch ------------------------------------------------------------------------------------


def torch_models():
    pytest.importorskip("torch")
    from experiments.models import torch_models

    return torch_models


def test_torch_layers_have_as_many_parameters_as_the_architectures():
    """PyTorch's own layers of the same sizes, counted by PyTorch; its LSTM has a second bias."""
    torch_models()
    from torch import nn

    def count(*layers):
        return sum(p.numel() for layer in layers for p in layer.parameters())

    cnn = [nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Linear(7744, 128), nn.Linear(128, 62)]
    assert count(*cnn) == emnist_cnn().n_parameters
    dense = [nn.Linear(784, 200), nn.Linear(200, 200), nn.Linear(200, 62)]
    assert count(*dense) == multilayer_perceptron(784, 200, 200, 62).n_parameters
    words = [nn.Embedding(10_004, 96), nn.LSTM(96, 670), nn.Linear(670, 96), nn.Linear(96, 10_004)]
    assert count(*words) - 4 * 670 == next_word_lstm().n_parameters


def test_the_convolutional_network_is_that_of_torch_layers():
    models = torch_models()
    import torch
    from torch import nn

    model = models.emnist_cnn_model()
    weights = model.initial(0)
    assert weights.shape == (1_018_174,)
    parts = {name: torch.from_numpy(p) for name, p in model.architecture.split(weights).items()}
    layers = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(7744, 128),
        nn.ReLU(),
        nn.Linear(128, 62),
    )
    with torch.no_grad():
        for own, name in zip(layers.parameters(), parts):
            own.copy_(parts[name])
        x = torch.rand(3, 784, generator=torch.Generator().manual_seed(0))
        np.testing.assert_allclose(model.forward(parts, x), layers(x), atol=1e-5)


def test_the_recurrent_network_is_that_of_torch_layers():
    models = torch_models()
    import torch
    from torch import nn

    model = models.NextWordLSTM(12, 5, 7)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=model.n_parameters).astype(np.float32)
    parts = {name: torch.from_numpy(p) for name, p in model.architecture.split(weights).items()}
    lstm = nn.LSTM(5, 7, batch_first=True)
    words = torch.from_numpy(rng.integers(0, 12, (4, 6)))
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(parts["lstm.weight_ih"])
        lstm.weight_hh_l0.copy_(parts["lstm.weight_hh"])
        lstm.bias_ih_l0.copy_(parts["lstm.bias"])
        lstm.bias_hh_l0.zero_()
        x = lstm(parts["embedding.weight"][words])[0]
        x = x @ parts["projection.weight"].T + parts["projection.bias"]
        x = x @ parts["output.weight"].T + parts["output.bias"]
        np.testing.assert_allclose(model.forward(parts, words), x, atol=1e-5)


def test_a_torch_epoch_is_a_gradient_step_a_batch():
    """The same dense network in PyTorch and in NumPy takes the same steps."""
    models = torch_models()
    from torch.nn import functional

    numpy_model = MLP(6, 5, 4)

    def forward(t, x):
        hidden = functional.relu(x @ t["dense1.weight"] + t["dense1.bias"])
        return hidden @ t["dense2.weight"] + t["dense2.bias"]

    torch_model = models.TorchModel(numpy_model.architecture, forward)
    rng = np.random.default_rng(2)
    x, y = rng.random((17, 6)).astype(np.float32), rng.integers(0, 4, 17)
    weights = numpy_model.initial(1)
    updates = [
        model.local_update(
            weights, (x, y), learning_rate=0.3, batch_size=5, rng=np.random.default_rng(9)
        )
        for model in (numpy_model, torch_model)
    ]
    np.testing.assert_allclose(*updates, atol=1e-6)
    assert np.abs(updates[0]).max() > 1e-2
    assert torch_model.accuracy(weights, x, y) == numpy_model.accuracy(weights, x, y)


def test_the_convolutional_network_drops_units_in_training_alone():
    models = torch_models()
    torch = pytest.importorskip("torch")
    model = models.emnist_cnn_model(10)
    rng = np.random.default_rng(0)
    weights = model.initial(0)
    x = rng.random((6, 784)).astype(np.float32)
    tensors = {
        name: torch.from_numpy(part) for name, part in model.architecture.split(weights).items()
    }
    images = torch.from_numpy(x)
    used = model.forward(tensors, images)
    torch.testing.assert_close(model.forward(tensors, images), used)
    draws = [model.trained(tensors, images, torch.Generator().manual_seed(k)) for k in range(300)]
    assert not torch.equal(draws[0], draws[1])
    # the last layer is linear, and the mean over what is dropped before it is what is used
    torch.testing.assert_close(
        torch.stack(draws).mean(0), used, atol=0.2 * float(used.abs().max()), rtol=0
    )
    options = {"learning_rate": 0.1, "batch_size": 3}
    y = rng.integers(0, 10, 6)
    first, again, other = (
        model.local_update(weights, (x, y), rng=np.random.default_rng(k), **options)
        for k in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)  # a function of the client's randomness
    assert np.abs(first - other).max() > 1e-4


def test_dropout_keeps_the_mean():
    models = torch_models()
    torch = pytest.importorskip("torch")
    ones = torch.ones(400, 400)
    dropped = models.dropout(ones, 0.25, torch.Generator().manual_seed(0))
    assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    assert models.dropout(ones, 0.25, None) is ones


def test_padding_is_neither_trained_on_nor_counted():
    models = torch_models()
    model = models.NextWordLSTM(12, 5, 7)
    weights = model.initial(0)
    options = {"learning_rate": 0.5, "batch_size": 2}
    x = np.array([[10, 3, 4], [10, 5, 0]])
    y = np.array([[3, 4, 11], [5, 11, 0]])
    rng = np.random.default_rng
    update = model.local_update(weights, (x, y), rng=rng(0), **options)
    longer = [np.pad(a, ((0, 0), (0, 4))) for a in (x, y)]
    padded = model.local_update(weights, tuple(longer), rng=rng(0), **options)
    np.testing.assert_allclose(update, padded, atol=1e-6)
    assert np.abs(update).max() > 1e-3
    nothing = np.zeros((2, 3), dtype=np.int64)
    silent = model.local_update(weights, (nothing, nothing), rng=rng(0), **options)
    np.testing.assert_array_equal(silent, 0)
    assert model.accuracy(weights, x, y) == model.accuracy(weights, *longer)
    rows = model.architecture.split(update)["embedding.weight"]
    assert np.abs(rows[[3, 4, 5, 10]]).max(axis=1).min() > 0  # only words that occurred move
    np.testing.assert_array_equal(rows[[1, 2, 6, 7, 8, 9]], 0)
