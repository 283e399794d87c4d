"""Federated averaging in NumPy: clients train locally, the server averages through the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import ClientData
from sparse_secagg import SparseSecAgg


@dataclass(frozen=True)
class MLP:
    """One hidden layer of rectified linear units and a softmax, as a flat parameter vector.

    Attributes
    ----------
    n_inputs, n_hidden, n_classes : int
        Sizes of the layers.
    """

    n_inputs: int
    n_hidden: int
    n_classes: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the layers, in the order of the flat vector."""
        return {
            "hidden.weight": (self.n_inputs, self.n_hidden),
            "hidden.bias": (self.n_hidden,),
            "output.weight": (self.n_hidden, self.n_classes),
            "output.bias": (self.n_classes,),
        }

    @property
    def n_parameters(self) -> int:
        """Length d of the flat vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def initial(self, seed: int) -> NDArray[np.float64]:
        """Return He-initialised weights and zero biases."""
        rng = np.random.default_rng(seed)
        parts = [
            rng.normal(0, np.sqrt(2 / shape[0]), shape).ravel()
            if len(shape) == 2
            else np.zeros(shape)
            for shape in self.shapes.values()
        ]
        return np.concatenate(parts)

    def split(self, weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return views of the flat vector in the shapes of the layers."""
        parts, start = [], 0
        for shape in self.shapes.values():
            size = int(np.prod(shape))
            parts.append(weights[start : start + size].reshape(shape))
            start += size
        return parts

    def gradient(
        self, weights: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the gradient of the mean cross-entropy."""
        W1, b1, W2, b2 = self.split(weights)
        hidden = np.maximum(x @ W1 + b1, 0)
        scores = _softmax(hidden @ W2 + b2)
        scores[np.arange(len(y)), y] -= 1
        scores /= len(y)
        back = (scores @ W2.T) * (hidden > 0)
        parts = [x.T @ back, back.sum(axis=0), hidden.T @ scores, scores.sum(axis=0)]
        return np.concatenate([part.ravel() for part in parts])

    def accuracy(
        self, weights: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64]
    ) -> float:
        """Return the share of right predictions."""
        W1, b1, W2, b2 = self.split(weights)
        return float(np.mean((np.maximum(x @ W1 + b1, 0) @ W2 + b2).argmax(axis=1) == y))


def local_update(
    model: MLP,
    weights: NDArray[np.float64],
    data: tuple[NDArray[np.float64], NDArray[np.int64]],
    *,
    learning_rate: float,
    batch_size: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return what one epoch of gradient descent on a client's data adds to the weights."""
    x, y = data
    local = weights.copy()
    order = rng.permutation(len(y))
    for start in range(0, len(y), batch_size):
        batch = order[start : start + batch_size]
        local -= learning_rate * model.gradient(local, x[batch], y[batch])
    return local - weights


@dataclass(frozen=True)
class TrainingRound:
    """State after one round of training."""

    number: int
    weights: NDArray[np.float64]
    updates: NDArray[np.float64]
    accuracy: float
    epsilon: float


def train(
    model: MLP,
    data: ClientData,
    aggregate: SparseSecAgg | None,
    *,
    rounds: int,
    learning_rate: float = 0.1,
    server_rate: float = 1.0,
    momentum: float = 0.9,
    batch_size: int = 16,
    seed: int = 0,
) -> Iterator[TrainingRound]:
    """Train by federated averaging and yield the state after every round.

    Parameters
    ----------
    model : MLP
        The model.
    data : ClientData
        Training data by client, and test data.
    aggregate : SparseSecAgg or None
        How updates are averaged; None takes the plain mean. Use an unbiased decoder: a shrinking
        one loses the same part of the signal every round.
    rounds : int
        How many rounds.
    learning_rate, server_rate, momentum, batch_size : float, int
        Of the clients' and of the server's optimiser.
    seed : int
        Initial weights and order of batches.
    """
    rng = np.random.default_rng(seed)
    weights = model.initial(seed)
    velocity = np.zeros_like(weights)
    for number in range(rounds):
        updates = np.array(
            [
                local_update(
                    model,
                    weights,
                    client,
                    learning_rate=learning_rate,
                    batch_size=batch_size,
                    rng=rng,
                )
                for client in data.clients.values()
            ]
        )
        mean, epsilon = _mean(updates, aggregate)
        velocity = momentum * velocity + mean
        weights = weights + server_rate * velocity
        accuracy = model.accuracy(weights, *data.test)
        yield TrainingRound(number, weights, updates, accuracy, epsilon)


def _mean(
    updates: NDArray[np.float64], aggregate: SparseSecAgg | None
) -> tuple[NDArray[np.float64], float]:
    if aggregate is None:
        return updates.mean(axis=0), np.inf
    aggregate.fit(updates)
    return aggregate.mean_, aggregate.epsilon_


def _softmax(scores: NDArray[Any]) -> NDArray[Any]:
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)
