"""Convolutional and recurrent models in PyTorch, behind the contract of flat vectors.

The layers come from the architecture alone: a flat vector is split into named tensors, and the
forward pass is a function of them. Needs the extra ``torch``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from experiments.models.architectures import Architecture, emnist_cnn, next_word_lstm
from experiments.models.base import Array, Model

try:
    import torch
    from torch.nn import functional
except ImportError as error:  # said here, once, for whoever asks for such a model
    raise ImportError(
        "this model is trained by PyTorch, which is not installed: "
        "pip install 'sparse-secagg[torch]'."
    ) from error

Tensors = dict[str, "torch.Tensor"]
Forward = Callable[[Tensors, "torch.Tensor"], "torch.Tensor"]
#: The same where clients train; the generator is for dropout.
Trained = Callable[[Tensors, "torch.Tensor", "torch.Generator"], "torch.Tensor"]

#: Rows evaluated at once, so that activations of a large test set fit in memory.
_EVALUATED = 256
#: Shares of units that the convolutional network drops in training. The paper prints the two
#: layers without their rates; these are those of TensorFlow Federated's network for F-EMNIST.
_DROPOUT = (0.25, 0.5)
#: Targets with this number are padding: neither trained on nor counted.
_PADDING = 0


class TorchModel(Model):
    """A classifier of vectors whose forward pass is a function of named tensors.

    ``forward`` goes from tensors by name and a batch of inputs to the scores of the classes;
    ``trained`` is the same for clients' training, where that drops units out.
    """

    def __init__(
        self, architecture: Architecture, forward: Forward, trained: Trained | None = None
    ) -> None:
        self.architecture = architecture
        self.forward = forward
        self.trained = trained or (lambda tensors, x, generator: forward(tensors, x))

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Return Glorot-uniform weights and zero biases."""
        rng = np.random.default_rng(seed)
        weights = np.zeros(self.n_parameters, dtype=np.float32)
        for name, part in self.architecture.split(weights).items():
            if part.ndim > 1:
                field_ = int(np.prod(part.shape[2:]))
                bound = np.sqrt(6 / (field_ * (part.shape[0] + part.shape[1])))
                if name == "embedding.weight":
                    bound = 1.0  # whatever the vocabulary: tiny inputs would leave the LSTM idle
                part[:] = rng.uniform(-bound, bound, part.shape)
        return weights

    def descend(self, local: Array, x: Array, y: Array, step: float, rng: Generator) -> None:
        _use_one_thread()
        flat = torch.from_numpy(local)  # shares memory: steps on it are steps on ``local``
        leaves = self._tensors(flat, trainable=True)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        scores = self.trained(leaves, torch.from_numpy(x), generator)
        loss = self.loss(scores, torch.from_numpy(y))
        if not loss.requires_grad:
            return  # a batch of padding only
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        with torch.no_grad():
            for leaf, gradient in zip(leaves.values(), gradients):
                leaf -= step * gradient

    def loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of a batch."""
        return functional.cross_entropy(scores, y)

    def accuracy(self, weights: Array, x: Array, y: Array) -> float:
        tensors = self._tensors(torch.from_numpy(np.ascontiguousarray(weights)))
        right = counted = 0
        _use_one_thread()
        with torch.no_grad():
            for start in range(0, len(y), _EVALUATED):
                rows = slice(start, start + _EVALUATED)
                scores = self.forward(tensors, torch.from_numpy(np.ascontiguousarray(x[rows])))
                targets = torch.from_numpy(np.ascontiguousarray(y[rows]))
                matters = self._counted(targets)
                right += int(((scores.argmax(dim=-1) == targets) & matters).sum())
                counted += int(matters.sum())
        return right / counted if counted else 0.0

    def _counted(self, targets: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(targets, dtype=torch.bool)

    def _tensors(self, flat: torch.Tensor, trainable: bool = False) -> Tensors:
        """Return views of the flat vector, in the shapes of the layers."""
        slices = self.architecture.slices
        return {
            name: flat[slices[name]].view(shape).requires_grad_(trainable)
            for name, shape in self.architecture.shapes.items()
        }


class NextWordLSTM(TorchModel):
    """Next-word model: embedding, LSTM, projection, output. Padding (word 0) counts nowhere."""

    def __init__(self, vocabulary: int = 10_004, embedding: int = 96, hidden: int = 670) -> None:
        super().__init__(next_word_lstm(vocabulary, embedding, hidden), _lstm_scores)

    def loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy over all words that are not padding."""
        if not bool((y != _PADDING).any()):
            return torch.zeros(())
        return functional.cross_entropy(scores.flatten(0, 1), y.flatten(), ignore_index=_PADDING)

    def _counted(self, targets: torch.Tensor) -> torch.Tensor:
        return targets != _PADDING


def emnist_cnn_model(n_classes: int = 62) -> TorchModel:
    """Return the paper's convolutional network for 28×28 images given as rows of 784 numbers."""
    return TorchModel(emnist_cnn(n_classes), _cnn_scores, _cnn_scores)


def _cnn_scores(t: Tensors, x: torch.Tensor, training: torch.Generator | None = None) -> Any:
    x = x.view(-1, 1, 28, 28)
    x = functional.relu(functional.conv2d(x, t["conv1.weight"], t["conv1.bias"]))
    x = functional.max_pool2d(x, 2)
    x = functional.relu(functional.conv2d(x, t["conv2.weight"], t["conv2.bias"]))
    x = dropout(x, _DROPOUT[0], training).flatten(1)
    x = functional.relu(functional.linear(x, t["dense1.weight"], t["dense1.bias"]))
    x = dropout(x, _DROPOUT[1], training)
    return functional.linear(x, t["dense2.weight"], t["dense2.bias"])


def dropout(x: torch.Tensor, rate: float, generator: torch.Generator | None) -> torch.Tensor:
    """Drop a share of the units, where there is a generator; from that generator alone.

    PyTorch's own dropout draws from one generator of the process, so that runs with threads over
    clients could not be repeated.
    """
    if generator is None:
        return x
    return x * (torch.rand(x.shape, generator=generator) >= rate) / (1 - rate)


def _lstm_scores(t: Tensors, words: torch.Tensor) -> torch.Tensor:
    x = functional.embedding(words, t["embedding.weight"])
    hidden = t["lstm.weight_hh"].shape[1]
    start = torch.zeros(1, len(words), hidden)
    # PyTorch's kernel wants two biases; the second is zero and no parameter
    parameters = [t["lstm.weight_ih"], t["lstm.weight_hh"], t["lstm.bias"]]
    parameters.append(torch.zeros_like(t["lstm.bias"]))
    x, _, _ = torch.lstm(x, (start, start), parameters, True, 1, 0.0, False, False, True)
    x = functional.linear(x, t["projection.weight"], t["projection.bias"])
    return functional.linear(x, t["output.weight"], t["output.bias"])


def _use_one_thread() -> None:
    """Compute on one thread from here on: sums are then the same whatever the number of jobs.

    Not undone afterwards, since clients train in several threads of one process at once.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
