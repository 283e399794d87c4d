"""Models that federated training trains: one flat float32 vector and a small contract."""

from experiments.models.architectures import (
    Architecture,
    emnist_cnn,
    multilayer_perceptron,
    next_word_lstm,
)
from experiments.models.base import Model
from experiments.models.mlp import MLP, WordClassifier

__all__ = [
    "MLP",
    "Architecture",
    "Model",
    "WordClassifier",
    "emnist_cnn",
    "multilayer_perceptron",
    "next_word_lstm",
]
