"""The contract of a model: weights in, update or accuracy out, everything a flat vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from experiments.models.architectures import Architecture

Array = NDArray[Any]
Examples = tuple[Array, NDArray[np.int64]]


class Model(ABC):
    """A model whose parameters are one flat float32 vector; the object itself holds none."""

    architecture: Architecture  # names and shapes of the layers
    #: Whether updates are rows of sparse matrices, for models whose clients move few weights.
    sparse: ClassVar[bool] = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the layers, in the order of the flat vector."""
        return dict(self.architecture.shapes)

    @property
    def n_parameters(self) -> int:
        """Length d of the flat vector."""
        return self.architecture.n_parameters

    @abstractmethod
    def initial(self, seed: int) -> NDArray[np.float32]:
        """Return the weights at which training starts."""

    def local_update(
        self,
        weights: Array,
        examples: Examples,
        *,
        learning_rate: float,
        batch_size: int,
        rng: Generator,
        out: Array | None = None,
    ) -> Any:
        """Return what one epoch of gradient descent on a client's examples adds to the weights.

        The weights are left as they are; the update is written to ``out``, unless it is sparse.
        Order of the examples, and all other randomness, come from ``rng``.
        """
        x, y = examples
        local = np.empty_like(weights) if out is None else out
        local[:] = weights
        for batch in batches(len(y), batch_size, rng):
            self.descend(local, x[batch], y[batch], learning_rate, rng)
        local -= weights
        return local

    @abstractmethod
    def descend(self, local: Array, x: Array, y: Array, step: float, rng: Generator) -> None:
        """Move weights, in place, by ``step`` against the gradient on a batch.

        ``rng`` is for what is random in training, as dropout is.
        """

    @abstractmethod
    def accuracy(self, weights: Array, x: Array, y: Array) -> float:
        """Return the share of right predictions."""


def batches(n_examples: int, batch_size: int, rng: Generator) -> list[NDArray[np.int64]]:
    """Return the examples of one epoch in random order, in batches; the last may be smaller."""
    order = rng.permutation(n_examples)
    return [order[start : start + batch_size] for start in range(0, n_examples, batch_size)]
