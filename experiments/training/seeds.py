"""Seeds of a training run: each a function of (seed, what for, round, client), and of no more."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_INITIAL, _COHORT, _LOCAL, _SKETCH, _NOISE = range(5)


@dataclass(frozen=True)
class ClientRandomness:
    """The random choices of a run that no secret depends on, and the seeds of simulated noise."""

    seed: int  # of the run

    @property
    def initial(self) -> int:
        """Seed of the initial weights."""
        return self._integer(_INITIAL)

    def cohort(
        self, number: int, population: int, size: int, *, secret: bool = False
    ) -> NDArray[np.int64]:
        """Return the clients of a round, drawn without replacement, in increasing order.

        A ``secret`` cohort comes from the operating system, and nobody can draw it again.
        """
        if secret:
            return np.sort(secrets.SystemRandom().sample(range(population), size))
        rng = np.random.default_rng([self.seed, _COHORT, number])
        return np.sort(rng.choice(population, size, replace=False))

    def local(self, number: int, client: int) -> np.random.Generator:
        """Return the randomness of one client's local training."""
        return np.random.default_rng([self.seed, _LOCAL, number, client])

    def sketch(self, number: int) -> int:
        """Return the public seed of the round's sketch and rotation."""
        return self._integer(_SKETCH, number)

    def noise(self, number: int) -> int:
        """Return the seed of the round's simulated noise."""
        return self._integer(_NOISE, number)

    def _integer(self, *purpose: int) -> int:
        return int(np.random.SeedSequence([self.seed, *purpose]).generate_state(1)[0])
