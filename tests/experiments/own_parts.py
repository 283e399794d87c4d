"""A solver in ten lines and an encoder in fifteen, as the documentation shows; and one that fails."""

import numpy as np

from solvers import Solver
from solvers.operators import as_operator


class Matched(Solver):
    """Keeps what stands out of the noise of the linear estimate."""

    def __init__(self, factor=3.0):
        self.factor = factor

    def _solve(self, A, y, noise_std):
        x = A.rmatvec(y)
        return np.where(np.abs(x) > self.factor * np.std(x), x, 0.0)


class Failing(Solver):
    """Raises."""

    def _solve(self, A, y, noise_std):
        raise FloatingPointError("seven is not prime enough")
