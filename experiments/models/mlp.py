"""Dense layers of rectified linear units and a softmax, in NumPy.

Without layers of a library a step on a small batch costs its matrix products and little more.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator
from numpy.typing import NDArray

from experiments.models.architectures import Architecture, multilayer_perceptron
from experiments.models.base import Array, Examples, Model, batches

Layers = list[tuple[Array, Array]]


class MLP(Model):
    """A multilayer perceptron.

    Parameters
    ----------
    *sizes : int
        Inputs, hidden layers, classes.

    Examples
    --------
    >>> MLP(784, 128, 10).n_parameters
    101770
    """

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.architecture = multilayer_perceptron(*sizes)

    def __repr__(self) -> str:
        return f"MLP({', '.join(map(str, self.sizes))})"

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Return He-initialised weights and zero biases."""
        rng = np.random.default_rng(seed)
        weights = np.zeros(self.n_parameters, dtype=np.float32)
        for W, _ in self._layers(weights):
            W[:] = rng.normal(0, np.sqrt(2 / len(W)), W.shape)
        return weights

    def descend(self, local: Array, x: Array, y: Array, step: float, rng: Generator) -> None:
        _descend(self._layers(local), x, y, step)

    def accuracy(self, weights: Array, x: Array, y: Array) -> float:
        scores = _forward(self._layers(weights), x)[-1]
        return float(np.mean(scores.argmax(axis=1) == y))

    def _layers(self, weights: Array) -> Layers:
        parts = list(self.architecture.split(weights).values())
        return list(zip(parts[::2], parts[1::2]))


class WordClassifier(MLP):
    """Logistic regression on which words a text has, without a bias.

    Word k counts log(1 + k), the inverse document frequency of Zipf's law where words are numbered
    from the most widespread on, and the row of a text has norm one. A client moves the weights of
    its own words alone, so that updates are sparse; a bias would move with every client, and where
    each has one class, it swings with the classes of the cohort.

    Parameters
    ----------
    n_words, n_classes : int
        A text is a row of word numbers from 1 to ``n_words``, each once, filled up with zeros.

    Examples
    --------
    >>> WordClassifier(20_000, 14).n_parameters
    280000
    """

    sparse = True

    def __init__(self, n_words: int, n_classes: int) -> None:
        super().__init__(n_words, n_classes)
        shapes = {"words": (n_words, n_classes)}
        self.architecture = Architecture(f"{n_words:,} words, {n_classes} classes", shapes)
        self._none = np.zeros(n_classes, dtype=np.float32)

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Return zeros, from which no word speaks for any class."""
        return np.zeros(self.n_parameters, dtype=np.float32)

    def local_update(
        self,
        weights: Array,
        examples: Examples,
        *,
        learning_rate: float,
        batch_size: int,
        rng: Generator,
        out: Array | None = None,
    ) -> sp.csr_array:
        """Return what one epoch adds to the weights, as a sparse row."""
        x, y = examples
        ((W, _),) = self._layers(weights)
        there = x > 0
        words, column = np.unique(x[there] - 1, return_inverse=True)
        rows = np.zeros((len(x), len(words)), dtype=np.float32)
        rows[np.nonzero(there)[0], column] = _word_weights(x)[there]
        own = W[words]
        for batch in batches(len(y), batch_size, rng):
            _descend([(own, self._none.copy())], rows[batch], y[batch], learning_rate)
        moved = (own - W[words]).ravel()
        columns = words[:, None] * W.shape[1] + np.arange(W.shape[1])
        return sp.csr_array((moved, columns.ravel(), [0, moved.size]), shape=(1, len(weights)))

    def descend(self, local: Array, x: Array, y: Array, step: float, rng: Generator) -> None:
        super().descend(local, self._rows(x).toarray(), y, step, rng)

    def accuracy(self, weights: Array, x: Array, y: Array) -> float:
        ((W, _),) = self._layers(weights)
        return float(np.mean((self._rows(x) @ W).argmax(axis=1) == y))

    def _layers(self, weights: Array) -> Layers:
        return [(self.architecture.split(weights)["words"], self._none.copy())]

    def _rows(self, x: Array) -> sp.csr_array:
        """Return the texts as rows over all words."""
        there = x > 0
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        shape = (len(x), self.sizes[0])
        return sp.csr_array((_word_weights(x)[there], x[there] - 1, starts), shape=shape)


def _word_weights(x: Array) -> Array:
    """Return the weight of every word of some texts."""
    entries = np.log1p(x.astype(np.float32))  # the zeros at the end stay zeros
    entries /= np.maximum(np.linalg.norm(entries, axis=1, keepdims=True), 1e-12)
    return entries


def _forward(layers: Layers, x: Array) -> list[Array]:
    """Return the input and the output of every layer; the last is not rectified."""
    found = [x]
    for k, (W, b) in enumerate(layers, start=1):
        z = found[-1] @ W
        z += b
        if k < len(layers):
            np.maximum(z, 0, out=z)
        found.append(z)
    return found


def _descend(layers: Layers, x: Array, y: Array, step: float) -> None:
    """Move the layers, in place, by ``step`` against the gradient of the mean cross-entropy."""
    *inputs, scores = _forward(layers, x)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(y)), y] -= 1
    scores *= step / len(y)
    back = scores
    for k in range(len(layers) - 1, -1, -1):
        W, b = layers[k]
        # the error of the layer below needs W before it moves
        below = (back @ W.T) * (inputs[k] > 0) if k else None
        W -= inputs[k].T @ back
        b -= back.sum(axis=0)
        if below is not None:
            back = below
