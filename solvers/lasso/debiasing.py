"""Unbiased estimates made of Lasso solutions, with their standard errors.

x + D^-1 A^T z (1 - ||x||_0 / N),   z = (y - A x) / (1 - ||x||_0 / m),   D = diag ||A_j||^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.operators import Operator
from solvers.standard_errors import (
    effective_noise,
    few_rows_factor,
    in_blocks,
    measured_spread,
    notes,
    over_norms,
    row_share,
)

__all__ = ["Debiased", "debias", "debiased"]


@dataclass(frozen=True)
class Debiased:
    """An unbiased estimate made of a Lasso solution, and its standard error."""

    coef: NDArray[np.float64]
    std_err: Any
    note: str


def debias(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    column_norms: NDArray[np.float64],
    noise_std: float | None = None,
) -> Debiased:
    """Return x + D^-1 A^T z (1 - ||x||_0 / N), z = (y - A x) / (1 - ||x||_0 / m).

    D = diag ||A_j||^2, and N the number of columns of the orthogonal matrix that the rows of A
    are taken from, infinite for independent entries. Unbiased over fresh draws of A and the
    noise. The denominator is the share of degrees of freedom that the fit left in the
    residual; without it the estimate still leans to zero. Where x has as many nonzeros as there
    are measurements nothing is left, and one degree of freedom is taken.
    """
    if A.diagonal_blocks:
        return _by_blocks(A, y, x, column_norms, noise_std)
    m = len(y)
    n_nonzero = int(np.count_nonzero(x))
    left = max(m - n_nonzero, 1) / m
    z = (y - A.image(x)) / left
    correlations = np.asarray(A.rmatvec(z), dtype=np.float64)
    share = row_share(A)
    kept = 1.0 - share * n_nonzero / m
    squares = column_norms**2
    step = np.divide(correlations, squares, out=np.zeros(len(x)), where=squares > 0)
    scaled = np.divide(correlations, column_norms, out=np.zeros(len(x)), where=squares > 0)
    spread = 1.0 if share else measured_spread(scaled, z, z, 1.0 - left, noise_std)
    tau = effective_noise(spread * float(z @ z) / m, 1.0 - left, share, noise_std)
    factor, note = few_rows_factor(A)
    return Debiased(x + kept * step, over_norms(factor * tau, column_norms), note)


def _by_blocks(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    column_norms: NDArray[np.float64],
    noise_std: float | None,
) -> Debiased:
    """Debias block by block: each has a residual, and so a standard error, of its own."""
    parts = [
        debias(B, y[rows], x[columns], column_norms[columns], noise_std)
        for columns, rows, B in A.diagonal_blocks
    ]
    widths = [len(part.coef) for part in parts]
    return Debiased(
        np.concatenate([part.coef for part in parts]),
        in_blocks([part.std_err for part in parts], widths),
        notes([(part.std_err, part.note) for part in parts]),
    )


def debiased(
    A: Operator,
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    column_norms: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the estimate of :func:`debias`."""
    return debias(A, y, x, column_norms).coef
