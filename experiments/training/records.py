"""What a training run leaves: its rounds, the state to go on from, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.training.config import TrainingConfig
from sparse_secagg.parameters import default

__all__ = ["PrivacySpent", "RoundRecord", "TrainingResult", "TrainingState"]


@dataclass(frozen=True)
class PrivacySpent:
    """ε so far, at the run's δ.

    Attributes
    ----------
    server : float
        Against the server, which knows the cohorts; infinite if it adds the noise itself.
    colluders : float
        Against the server together with the clients that collude with it.
    release : float
        Against anyone who sees only the released models.
    """

    server: float
    colluders: float
    release: float


@dataclass(frozen=True)
class RoundRecord:
    """What one round did.

    Attributes
    ----------
    number : int
        From 1.
    accuracy : float
        On the test data, after the round.
    privacy : PrivacySpent
        ε of all rounds so far.
    clip_norm : float
        The round's clip.
    seconds : float
        Time it took.
    """

    number: int
    accuracy: float
    privacy: PrivacySpent
    clip_norm: float
    seconds: float


@dataclass(frozen=True)
class TrainingState:
    """All that a run needs to go on.

    Attributes
    ----------
    weights, velocity : ndarray of shape (d,)
        The server's model and momentum.
    history : tuple of RoundRecord
        Rounds done.
    clip_norm : float
        Clip of the next round.
    unconverged : int
        Rounds whose decoder stopped early.
    dropped : ndarray of shape (m,) or (0,)
        What thresholding of the sketch carries over.
    """

    weights: NDArray[np.float32] = field(repr=False)
    velocity: NDArray[np.float32] = field(repr=False)
    history: tuple[RoundRecord, ...] = ()
    clip_norm: float = float("nan")
    unconverged: int = 0
    dropped: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)

    @classmethod
    def start(cls, dim: int) -> TrainingState:
        """Return the state before the first round; the model sets the initial weights."""
        return cls(np.zeros(dim, dtype=np.float32), np.zeros(dim, dtype=np.float32))

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return len(self.history)


@dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Attributes
    ----------
    config : TrainingConfig
        What was trained and how.
    history : tuple of RoundRecord
        Every round, those before a resumption included.
    weights : ndarray of shape (d,)
        The model at the end.
    bits_per_parameter : float
        Payload of one message, divided by d.
    n_parameters, population : int
        Length of an update, and clients from whom cohorts are drawn.
    unconverged : int
        Rounds whose decoder stopped before its stopping rule was met.
    not_private : bool
        True for simulated noise and without noise.
    observer : {"server", "colluders", "release"}
        Whom ``epsilon`` is about: the server, with its colluders if there are; the release, if a
        trusted server adds the noise.
    """

    config: TrainingConfig
    history: tuple[RoundRecord, ...]
    weights: NDArray[np.float32] = field(repr=False)
    bits_per_parameter: float
    n_parameters: int
    population: int
    unconverged: int
    not_private: bool
    observer: str = default("observer")

    @property
    def accuracy(self) -> list[float]:
        """Test accuracy after each round."""
        return [record.accuracy for record in self.history]

    @property
    def epsilon(self) -> float:
        """ε of all rounds against ``observer``."""
        return float(getattr(self.history[-1].privacy, self.observer))

    @property
    def epsilon_release(self) -> float:
        """ε of all rounds against anyone who sees only the models and knows no cohort."""
        return self.history[-1].privacy.release

    @property
    def seconds(self) -> float:
        """Time of all rounds."""
        return sum(record.seconds for record in self.history)
