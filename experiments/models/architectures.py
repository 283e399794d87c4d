"""Architectures as data: names and shapes of the layers, in the order of the flat vector.

Parameters can be counted, split and recorded without the library that trains them. The paper's
three: a convolutional network for F-EMNIST (1,018,174 parameters), a dense one (209,662) and a
recurrent one for the next word (4,050,748).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Architecture:
    """Layers of a model."""

    name: str  # for people: what is between input and output
    #: Shape of each layer's parameters, in the order of the flat vector.
    shapes: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", MappingProxyType(dict(self.shapes)))

    @property
    def n_parameters(self) -> int:
        """Length d of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def slices(self) -> dict[str, slice]:
        """Where each layer lies in the flat vector."""
        return layer_slices(self.shapes)

    def split(self, weights: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return views of the flat vector in the shapes of the layers."""
        if weights.shape != (self.n_parameters,):
            raise ValueError(
                f"weights has shape {weights.shape}, but {self.name} has {self.n_parameters:,} "
                "parameters."
            )
        slices = self.slices
        return {name: weights[slices[name]].reshape(shape) for name, shape in self.shapes.items()}


def layer_slices(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, slice]:
    """Return where each layer lies in the flat vector."""
    slices, start = {}, 0
    for name, shape in shapes.items():
        slices[name] = slice(start, start + math.prod(shape))
        start = slices[name].stop
    return slices


def multilayer_perceptron(*sizes: int) -> Architecture:
    """Return dense layers between ``sizes``: inputs, hidden layers, classes.

    Examples
    --------
    >>> multilayer_perceptron(784, 200, 200, 62).n_parameters  # the paper's small model
    209662
    """
    if len(sizes) < 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"sizes={sizes} must be two or more positive integers.")
    shapes: dict[str, tuple[int, ...]] = {}
    for k, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        shapes[f"dense{k}.weight"] = (inputs, outputs)
        shapes[f"dense{k}.bias"] = (outputs,)
    return Architecture(f"MLP {'-'.join(map(str, sizes))}", shapes)


def emnist_cnn(n_classes: int = 62) -> Architecture:
    """Return the paper's convolutional network for 28×28 images.

    Two 3×3 convolutions without padding, 32 and 64 filters, with 2×2 max-pooling between them:
    28 → 26 → 13 → 11; then 128 dense units and the classes.

    Examples
    --------
    >>> emnist_cnn().n_parameters
    1018174
    """
    return Architecture(
        f"CNN 3x3x32, pool, 3x3x64, dense 128-{n_classes}",
        {
            "conv1.weight": (32, 1, 3, 3),
            "conv1.bias": (32,),
            "conv2.weight": (64, 32, 3, 3),
            "conv2.bias": (64,),
            "dense1.weight": (128, 64 * 11 * 11),
            "dense1.bias": (128,),
            "dense2.weight": (n_classes, 128),
            "dense2.bias": (n_classes,),
        },
    )


def next_word_lstm(
    vocabulary: int = 10_004, embedding: int = 96, hidden: int = 670
) -> Architecture:
    """Return embedding, one LSTM layer, a projection back to the embedding's size, and the words.

    The output layer has weights of its own, and the LSTM one bias, not PyTorch's two. The paper's
    10,004 words are 10,000 and four for padding, begin, end and unknown.

    Examples
    --------
    >>> next_word_lstm().n_parameters
    4050748
    """
    return Architecture(
        f"LSTM {hidden}, embedding {embedding}, {vocabulary:,} words",
        {
            "embedding.weight": (vocabulary, embedding),
            "lstm.weight_ih": (4 * hidden, embedding),
            "lstm.weight_hh": (4 * hidden, hidden),
            "lstm.bias": (4 * hidden,),
            "projection.weight": (embedding, hidden),
            "projection.bias": (embedding,),
            "output.weight": (vocabulary, embedding),
            "output.bias": (vocabulary,),
        },
    )
