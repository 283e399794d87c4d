"""Standard errors of unbiased estimates, from the residual that made them.

An estimate x + Aᵀz, z a residual that is corrected for what x has seen of A, is the truth plus
noise of variance τ² = ‖z‖²/m in each entry, over draws of A: the noise that went in, and what
other entries leave in the same measurements. ``linear`` is the case x = 0, z = y; the debiased
Lasso and message passing are others. Count sketches of few rows average few measurements in each
entry, so that their errors are far from normal: there the standard error is the least that covers
several quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from solvers.operators import Operator

__all__ = [
    "effective_noise",
    "few_rows_factor",
    "in_blocks",
    "linear_std_err",
    "measured_spread",
    "median_std_err",
    "notes",
    "over_norms",
    "row_share",
    "row_std_err",
    "rows_per_column",
]

#: Largest s/m in the formula for an unknown noise level, which has a pole at 1.
_MOST_USED = 0.98

#: Below this many rows the linear unsketch of a count sketch has errors far from normal.
_ROWS_FOR_LINEAR = 15

#: Below this many rows so have the pseudo-data of the largest entries.
_ROWS_FOR_PSEUDO_DATA = 8

#: Entries whose rows are looked at together.
_BLOCK = 1 << 14
_TINY = np.finfo(np.float64).tiny

#: Tails at which quantiles are compared with those of the normal law, and resampled entries.
_TAILS = (0.1, 0.05, 0.01, 1e-3, 1e-4, 2e-5)
_RESAMPLED = 200_000


def effective_noise(
    mean_square: float, used: float, row_share: float, noise_std: float | None
) -> float:
    """Return τ from ‖z‖²/m, the share s/m of measurements used up and m/D.

    τ² = ‖z‖²/m·(1 − m/D) + noise_std²·m/D. Where the noise is not known it is what makes
    the fixed point consistent, noise_std² = τ²·(1 − s/m)/(1 − s/D).
    """
    if noise_std is not None:
        return math.sqrt(mean_square * (1.0 - row_share) + noise_std**2 * row_share)
    if row_share == 0.0:
        return math.sqrt(mean_square)
    share, used = min(row_share, 1.0 - 1e-6), min(max(used, 0.0), _MOST_USED)
    inverse_gain = (1.0 - used) / (1.0 - used * share)
    return math.sqrt(mean_square * (1.0 - share) / (1.0 - share * inverse_gain))


def measured_spread(
    correlation: NDArray[np.floating],
    z: NDArray[np.float64],
    z_before: NDArray[np.float64],
    used: float,
    noise_std: float | None,
) -> float:
    """Return the variance of the noise in Aᵀz over ‖z‖²/m, that of independent entries.

    It is not quite 1 where buckets that are fuller than others also hold more of z. By Stein's
    lemma ‖Aᵀz‖² = ‖x − truth‖² + dτ² − 2s·(z·z₋)/m, with z₋ the residual that x was made from.
    """
    m, d = len(z), len(correlation)
    square = float(z @ z)
    if square == 0.0:
        return 1.0
    left = 1.0 - min(used, 1.0) if noise_std is None else m * noise_std**2 / square
    error = max(1.0 - left, 0.0) * square
    noise = float(np.dot(correlation, correlation)) - error + 2 * used * float(z @ z_before)
    return min(max(noise * m / (d * square), 0.5), 2.0)


def row_share(A: Operator) -> float:
    """Return m/D where A knows that its rows are orthogonal in D dimensions, else 0."""
    D = A.orthogonal_dimension
    return 0.0 if D is None else min(A.shape[0] / D, 1.0)


def rows_per_column(A: Operator) -> int | None:
    """Return how many nonzeros a column of a sparse matrix has; None for dense columns."""
    if not A.has_sparse_columns:
        return None
    d = A.shape[1]
    some = np.unique(np.linspace(0, d - 1, min(d, 25)).astype(np.int64))
    return max(int(np.median(np.diff(A.sparse_columns(some).indptr))), 1)


def few_rows_factor(A: Operator) -> tuple[float, str]:
    """Return the factor by which τ is widened for the pseudo-data of A, and why.

    Measured on four rows: intervals of ±1.96 τ cover 87 to 94 % of the 100 largest entries, those
    of this factor 93 % and more, with message passing.
    """
    t = rows_per_column(A)
    if t is None or t >= _ROWS_FOR_PSEUDO_DATA:
        return 1.0, ""
    return math.sqrt(1.0 + 2.0 / t), (
        f"widened by √(1 + 2/{t}): an entry is the mean of only {t} measurements; with "
        f"{_ROWS_FOR_PSEUDO_DATA} rows or more intervals are exact."
    )


def linear_std_err(A: Operator, y: NDArray[np.float64], noise_std: float | None) -> tuple[Any, str]:
    """Return the standard error of each entry of Aᵀy, columns of norm 1, and what to know of it.

    In place of numbers for a count sketch it is a function that computes them, one for each
    entry: they take as long as the median decoder.
    """
    if A.diagonal_blocks:
        parts = [linear_std_err(B, y[rows], noise_std) for _, rows, B in A.diagonal_blocks]
        widths = [columns.stop - columns.start for columns, _, _ in A.diagonal_blocks]
        return partial(in_blocks, [part for part, _ in parts], widths), notes(parts)
    tau = effective_noise(float(y @ y) / len(y), 0.0, row_share(A), noise_std)
    t = rows_per_column(A)
    if t is None:
        return tau, ""
    enough = t >= _ROWS_FOR_LINEAR
    note = "" if enough else _note(t)
    if hasattr(A, "row_estimates"):
        return partial(row_std_err, A, y, "mean", _TAILS[1:2] if enough else _TAILS), note
    return (tau if enough else max(tau, _factor(_means(_resampled(y, t))[0], _TAILS))), note


def in_blocks(std_errs: Sequence[Any], widths: Sequence[int]) -> NDArray[np.float64]:
    """Return the standard errors of blocks, each a number, an array or a function, as one array."""
    found = [each() if callable(each) else each for each in std_errs]
    return np.concatenate([np.broadcast_to(each, width) for each, width in zip(found, widths)])


def notes(parts: Sequence[tuple[Any, str]]) -> str:
    """Return what there is to know of several standard errors, each sentence once."""
    return " ".join(dict.fromkeys(note for _, note in parts if note))


def median_std_err(A: Operator, y: NDArray[np.float64]) -> tuple[Any, str]:
    """Do the same for the median over the rows of a count sketch."""
    return partial(row_std_err, A, y, "median", _TAILS), (
        "the error of a median is not normal: widened to cover at least its level, from 90 % to "
        "99.998 %."
    )


def row_std_err(
    A: Any, y: NDArray[np.float64], center: str, tails: Sequence[float]
) -> NDArray[np.float64]:
    """Return the standard errors of the mean or median over the rows of a count sketch.

    An entry whose rows agree has the error that all entries have on average; one that shares a
    bucket with a heavy entry shows it in the spread of its rows, and the larger of both is taken.
    An entry falls into its buckets by chance, so that measurements taken at random have the
    distribution of its error, and tell by which factor the result is widened to cover its level.
    """
    statistics = _means if center == "mean" else _medians
    d, t = A.shape[1], len(A.row_estimates(y, 0, 1))
    errors, spreads = statistics(_resampled(y, t))
    typical = float(np.sqrt(np.mean(errors**2)))
    factor = _factor(errors / np.maximum(spreads, max(typical, _TINY)), tails)
    std_err = np.empty(d)
    for start in range(0, d, _BLOCK):
        stop = min(start + _BLOCK, d)
        std_err[start:stop] = statistics(A.row_estimates(y, start, stop))[1]
    return factor * np.maximum(std_err, typical)


def _means(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the means over the rows and their standard errors, from the spread of the rows."""
    t = len(rows)
    center = rows.mean(axis=0)
    return center, np.sqrt(np.sum((rows - center) ** 2, axis=0) / (t * max(t - 1, 1)))


def _medians(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the medians over the rows and their standard errors, from the quartiles."""
    lower, center, upper = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    # of t normal numbers: standard deviation (upper − lower)/1.349, that of a median √(π/2t)
    return center, (upper - lower) / 1.349 * math.sqrt(math.pi / (2 * len(rows)))


def _resampled(y: NDArray[np.float64], t: int) -> NDArray[np.float64]:
    """Draw row estimates of zero entries: measurements at random with random signs."""
    signed = np.concatenate([y, -y]) * math.sqrt(t)
    return signed[np.random.default_rng(0).integers(0, len(signed), (t, _RESAMPLED))]


def _factor(errors: NDArray[np.float64], tails: Sequence[float]) -> float:
    """Return the least standard deviation whose normal law covers as much in all tails."""
    found = np.quantile(np.abs(errors), 1.0 - np.array(tails))
    return float(np.max(found / stats.norm.isf(np.array(tails) / 2)))


def _note(t: int) -> str:
    return (
        f"widened: an entry is the mean of only {t} measurements, whose error is not normal; it "
        f"covers at least its level. {_ROWS_FOR_LINEAR} rows or more need no widening."
    )


def over_norms(tau: float, column_norms: NDArray[np.float64]) -> Any:
    """Return τ/‖A_j‖: a number where all columns have the same norm."""
    if len(column_norms) and np.ptp(column_norms) <= 1e-9 * column_norms.max():
        return tau / float(column_norms[0]) if column_norms[0] > 0 else math.inf
    return np.divide(
        tau, column_norms, out=np.full(len(column_norms), np.inf), where=column_norms > 0
    )
