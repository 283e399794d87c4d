"""What a training run leaves: its rounds, the state to go on from, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.training.config import TrainingConfig
from sparse_secagg.parameters import default


@dataclass(frozen=True)
class PrivacySpent:
    """ε so far, at the run's δ."""

    #: Against the server, which knows the cohorts; infinite if it adds the noise itself.
    server: float
    colluders: float  # against the server together with the clients that collude with it
    release: float  # against anyone who sees only the released models


@dataclass(frozen=True)
class RoundRecord:
    """What one round did."""

    number: int
    accuracy: float  # on the test data, after the round
    privacy: PrivacySpent  # ε of all rounds so far
    clip_norm: float  # the round's clip
    seconds: float  # time it took


@dataclass(frozen=True)
class TrainingState:
    """All that a run needs to go on."""

    #: The server's model and momentum.
    weights: NDArray[np.float32] = field(repr=False)
    velocity: NDArray[np.float32] = field(repr=False)
    history: tuple[RoundRecord, ...] = ()
    clip_norm: float = float("nan")  # clip of the next round
    unconverged: int = 0  # rounds whose decoder stopped early
    #: What thresholding of the sketch carries over.
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
    """A finished run."""

    config: TrainingConfig  # what was trained and how
    history: tuple[RoundRecord, ...]  # every round, those before a resumption included
    weights: NDArray[np.float32] = field(repr=False)  # the model at the end
    bits_per_parameter: float  # payload of one message, divided by d
    #: Length of an update, and clients from whom cohorts are drawn.
    n_parameters: int
    population: int
    unconverged: int  # rounds whose decoder stopped before its stopping rule was met
    not_private: bool  # True for simulated noise and without noise
    #: Whom ``epsilon`` is about: the server, with its colluders if there are; the release, if a
    #: trusted server adds the noise.
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
