"""Intervals and discoveries from an unbiased estimate and its standard errors.

A decoder whose estimate is unbiased says how sure it is as ``std_err_``: entry by entry the
estimate is normal around the truth with that standard deviation, over draws of the matrix and the
noise. What follows from this alone is here: intervals, one at a time or all at once; which entries
are not zero; and intervals for entries that were chosen because they are large.

>>> import numpy as np, solvers
>>> rng = np.random.default_rng(0)
>>> A = rng.standard_normal((300, 1000)) / np.sqrt(300)
>>> x = np.zeros(1000); x[:5] = 1
>>> y = A @ x + 0.05 * rng.standard_normal(300)
>>> found = solvers.get("amp", debias=True).fit(A, y, noise_std=0.05)
>>> sorted(solvers.discoveries(found.coef_, found.std_err_, family_wise=0.01).tolist())
[0, 1, 2, 3, 4]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["confidence_interval", "discoveries", "p_values", "selected_intervals"]

#: Measured over 1,000 decodings of sparse and heavy-tailed means with m from 100 to 1000: the 95 %
#: quantile of the largest error, in units of the normal law's, is 1.13 at m = 100, 1.06 at 500.
_OUTLIERS = 1.5

_ALTERNATIVES = ("two-sided", "greater", "less")


def confidence_interval(
    estimate: ArrayLike,
    std_err: ArrayLike,
    level: float = 0.95,
    simultaneous: bool = False,
    n_measurements: int | None = None,
) -> NDArray[np.float64]:
    """Return intervals that cover each entry, or all of them, with a given probability.

    Parameters
    ----------
    estimate : array-like of shape (d,)
        An unbiased estimate.
    std_err : float or array-like of shape (d,)
        Its standard errors.
    level : float, default=0.95
        Probability that an interval covers its entry; with ``simultaneous=True``, that all of them
        do (Šidák's inequality holds for normal errors of any correlation).
    simultaneous : bool, default=False
        Whether all entries are covered together.
    n_measurements : int, optional
        Number m of measurements that the estimate was made of. The farthest outliers of pseudo-data
        are taken for signals and draw the residual after them, so that simultaneous intervals
        need 1 + 1.5/√m times the width (measured); a single interval does not.

    Returns
    -------
    ndarray of shape (d, 2)
        Lower and upper ends.

    See Also
    --------
    discoveries : Entries that are not zero.
    selected_intervals : For entries that were picked because they came out large.

    Examples
    --------
    >>> from solvers import confidence_interval
    >>> confidence_interval([1.0], 0.5).round(2).tolist()
    [[0.02, 1.98]]
    """
    estimate, std_err = _checked(estimate, std_err)
    outside = 1.0 - _check_level("level", level)
    if simultaneous:
        # 1 − level^(1/d), without the cancellation
        outside = -np.expm1(np.log1p(-outside) / len(estimate))
    half = stats.norm.isf(outside / 2) * std_err
    if simultaneous:
        half = _outlier_factor(n_measurements) * half
    return np.stack([estimate - half, estimate + half], axis=1)


def p_values(
    estimate: ArrayLike,
    std_err: ArrayLike,
    alternative: str = "two-sided",
    n_measurements: int | None = None,
) -> NDArray[np.float64]:
    """Return for each entry how likely an estimate at least as large is where the truth is zero.

    Parameters
    ----------
    estimate, std_err : array-like of shape (d,), or a number
        As in :func:`confidence_interval`.
    alternative : "two-sided", "greater" or "less"
        What entries that are not zero may be; "greater" for counts.
    n_measurements : int, optional
        As in :func:`confidence_interval`: the tails are those of standard errors 1 + 1.5/√m times
        as large.

    Returns
    -------
    ndarray of shape (d,)
        A probability for each entry.

    See Also
    --------
    discoveries : Selects by them.

    Examples
    --------
    >>> from solvers import p_values
    >>> p_values([0.0, 1.96], 1.0).round(2).tolist()
    [1.0, 0.05]
    """
    estimate, std_err = _checked(estimate, std_err)
    std_err = _outlier_factor(n_measurements) * std_err
    if alternative not in _ALTERNATIVES:
        raise ValueError(f"alternative={alternative!r} must be one of {', '.join(_ALTERNATIVES)}.")
    z = np.divide(
        estimate,
        std_err,
        out=np.copysign(np.full(len(estimate), np.inf), estimate),
        where=std_err > 0,
    )
    z = np.where((estimate == 0) & (std_err == 0), 0.0, z)
    if alternative == "two-sided":
        return np.asarray(np.minimum(2 * stats.norm.sf(np.abs(z)), 1.0))
    return np.asarray(stats.norm.sf(z if alternative == "greater" else -z))


def discoveries(
    estimate: ArrayLike,
    std_err: ArrayLike,
    fdr: float | None = None,
    family_wise: float | None = None,
    alternative: str = "two-sided",
    n_measurements: int | None = None,
) -> NDArray[np.int64]:
    """Return the entries that are not zero, the most significant first.

    Parameters
    ----------
    estimate, std_err : array-like of shape (d,), or a number
        As in :func:`confidence_interval`.
    fdr : float, optional
        Bound on the expected share of zeros among the discoveries (Benjamini–Hochberg).
        Default: 0.05, where neither bound is given.
    family_wise : float, optional
        Bound on the probability of any zero among them (Holm), in place of ``fdr``.
    alternative : "two-sided", "greater" or "less"
        What entries that are not zero may be; "greater" for counts.
    n_measurements : int, optional
        As in :func:`p_values`. Without it false discoveries were measured at 6 % in place of 5 %
        for debiased message passing from 500 measurements, at 14 % for the debiased Lasso from
        100; with it both are below 5 %.

    Returns
    -------
    ndarray of int
        Their indices.

    See Also
    --------
    p_values : What it compares.
    selected_intervals : Intervals for what it returns.

    Examples
    --------
    >>> from solvers import discoveries
    >>> discoveries([5.0, 0.1, -4.0], 1.0, fdr=0.05).tolist()
    [0, 2]
    """
    if fdr is not None and family_wise is not None:
        raise ValueError(f"fdr={fdr} and family_wise={family_wise} exclude each other; give one.")
    found = p_values(estimate, std_err, alternative, n_measurements)
    order = np.argsort(found, kind="stable")
    ranked = found[order]
    ranks = np.arange(1, len(found) + 1)
    if family_wise is not None:
        bound = _check_level("family_wise", family_wise)
        failed = np.flatnonzero(ranked > bound / (len(found) + 1 - ranks))
        n = int(failed[0]) if len(failed) else len(found)
    else:
        bound = _check_level("fdr", 0.05 if fdr is None else fdr)
        passed = np.flatnonzero(ranked <= bound * ranks / len(found))
        n = int(passed[-1]) + 1 if len(passed) else 0
    return order[:n]


def selected_intervals(
    estimate: ArrayLike,
    std_err: ArrayLike,
    selected: ArrayLike,
    level: float = 0.95,
    n_measurements: int | None = None,
) -> NDArray[np.float64]:
    """Return intervals for entries that were selected by the same estimate.

    Entries are reported because they came out large, so plain intervals miss too often. These
    are widened until the expected share of them that miss is at most 1 − level (false
    coverage rate, Benjamini and Yekutieli), for any selection by which of the entries are large:
    discoveries, or the k largest.

    Parameters
    ----------
    estimate, std_err : array-like of shape (d,), or a number
        As in :func:`confidence_interval`.
    selected : array-like of int
        Indices of the selected entries.
    level : float, default=0.95
        Expected share of the intervals that cover.
    n_measurements : int, optional
        As in :func:`confidence_interval`; what is selected lies in the tails.

    Returns
    -------
    ndarray of shape (len(selected), 2)
        Lower and upper ends.

    See Also
    --------
    discoveries : Selects entries.
    confidence_interval : For entries that were named beforehand.

    Examples
    --------
    >>> from solvers import selected_intervals
    >>> selected_intervals([5.0, 0.1, -4.0], 1.0, [0, 2]).shape
    (2, 2)
    """
    estimate, std_err = _checked(estimate, std_err)
    chosen = np.asarray(selected, dtype=np.int64).ravel()
    outside = (1.0 - _check_level("level", level)) * len(chosen) / len(estimate)
    if len(chosen) == 0:
        return np.empty((0, 2))
    half = _outlier_factor(n_measurements) * stats.norm.isf(outside / 2) * std_err[chosen]
    return np.stack([estimate[chosen] - half, estimate[chosen] + half], axis=1)


def _checked(estimate: ArrayLike, std_err: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    estimate = np.asarray(estimate, dtype=np.float64)
    if estimate.ndim != 1 or len(estimate) == 0 or not np.isfinite(estimate).all():
        raise ValueError(f"estimate has shape {estimate.shape}; pass a finite vector (d,).")
    if std_err is None:
        raise ValueError(
            "std_err=None: the estimate is biased, so it has no standard error; decode with "
            "debias=True, or with an unbiased solver such as linear."
        )
    errors = np.asarray(std_err, dtype=np.float64)
    if errors.shape not in ((), estimate.shape) or not (np.isfinite(errors) & (errors >= 0)).all():
        raise ValueError(
            f"std_err has shape {errors.shape}; pass one finite number >= 0, or one for each of "
            f"the {len(estimate)} entries."
        )
    return estimate, np.broadcast_to(errors, estimate.shape)


def _outlier_factor(n_measurements: int | None) -> float:
    """Return by how much the farthest of many errors exceed their normal quantiles."""
    if n_measurements is None:
        return 1.0
    if not n_measurements >= 1:
        raise ValueError(f"n_measurements={n_measurements!r} must be an integer >= 1.")
    return float(1.0 + _OUTLIERS / float(n_measurements) ** 0.5)


def _check_level(name: str, level: float) -> float:
    if not 0.0 < level < 1.0:
        raise ValueError(f"{name}={level!r} must be a probability between 0 and 1.")
    return float(level)
