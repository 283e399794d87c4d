"""Counts with intervals: records that can be published, files of them, and what they say together.

Everything here is made of a private estimate and its standard errors; it costs no privacy.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

import solvers
from sparse_secagg.counting.tables import text_of
from sparse_secagg.private_files import open_private

__all__ = [
    "Amount",
    "Count",
    "Estimates",
    "Evaluation",
    "amounts",
    "evaluate",
    "truth_of",
    "write_csv",
]

#: Probability with which intervals cover, and share of false discoveries.
LEVEL, FALSE_DISCOVERIES = 0.95, 0.05


@dataclass(frozen=True)
class Count:
    """How many users hold an item, after bounding.

    Attributes
    ----------
    item : str
        The item, or its cell.
    count : float
        Estimated number of users.
    low, high : float
        Ends of a 95 % interval.
    significant : bool
        Whether the item is among those that somebody holds, at most 5 % of them wrongly.
    """

    item: str
    count: float
    low: float
    high: float
    significant: bool


@dataclass(frozen=True)
class Amount:
    """Sum of a number over the users of an item, and its mean per user.

    Attributes
    ----------
    item : str
        The item, or its cell.
    sum, sum_low, sum_high : float
        Estimated sum of the clipped numbers, and its 95 % interval.
    count : float
        Estimated number of users.
    mean, mean_low, mean_high : float
        The sum per user, and an approximate 95 % interval; nan where the count may be zero.
    """

    item: str
    sum: float
    sum_low: float
    sum_high: float
    count: float
    mean: float
    mean_low: float
    mean_high: float


@dataclass(frozen=True, eq=False)
class Estimates:
    """Unbiased estimates of totals, one per column, with their standard errors.

    Attributes
    ----------
    values, std_err : ndarray of shape (d,)
        Estimates and their standard errors.
    n_measurements : int or None
        Length of the sketch; None where nothing was sketched.
    n_users : int
        No count is larger.
    """

    values: NDArray[np.float64]
    std_err: NDArray[np.float64]
    n_measurements: int | None
    n_users: int

    def largest(self, k: int) -> NDArray[np.int64]:
        """Return the k columns of the largest estimates, in decreasing order."""
        k = min(k, len(self.values))
        found = np.argpartition(-self.values, k - 1)[:k] if k else np.empty(0, dtype=np.int64)
        order = np.lexsort((found, -self.values[found]))
        return np.asarray(found[order], dtype=np.int64)

    def discoveries(self) -> NDArray[np.int64]:
        """Return the columns that are not zero, the most significant first."""
        found = solvers.discoveries(
            self.values, self.std_err, FALSE_DISCOVERIES, n_measurements=self.n_measurements
        )
        return found[self.values[found] > 0]

    def intervals(self, columns: NDArray[np.int64], *, selected: bool) -> NDArray[np.float64]:
        """Return 95 % intervals; of columns selected by their estimates, adjusted for that."""
        if selected:
            return solvers.selected_intervals(
                self.values, self.std_err, columns, LEVEL, n_measurements=self.n_measurements
            )
        return solvers.confidence_interval(self.values[columns], self.std_err[columns], LEVEL)

    def records(
        self, columns: NDArray[np.int64], names: Sequence[str], *, selected: bool
    ) -> list[Count]:
        """Return the counts of columns; within 0 and the number of users."""
        if not len(columns):
            return []
        ends = np.clip(self.intervals(columns, selected=selected), 0, self.n_users)
        values = np.clip(self.values[columns], 0, self.n_users)
        found = np.zeros(len(self.values), dtype=bool)
        found[self.discoveries()] = True
        return [
            Count(name, float(value), float(low), float(high), bool(found[column]))
            for name, column, value, (low, high) in zip(names, columns, values, ends)
        ]

    def total(self) -> tuple[float, float, float]:
        """Return the sum of all columns and its 95 % interval."""
        value = float(self.values.sum())
        half = 1.959964 * float(np.sqrt(np.sum(self.std_err**2)))
        return value, value - half, value + half

    def rest(self, k: int) -> tuple[float, float, float]:
        """Return the sum of all columns but the k largest, and an interval of at least 95 %.

        The k largest estimates hold more than their share of the positive errors, so that what is
        left is too small: by the k largest of d normal errors at most, d·φ(Φ⁻¹(1 − k/d)) standard
        errors on average. The upper end is higher by that.
        """
        others = np.ones(len(self.values), dtype=bool)
        others[self.largest(k)] = False
        left = Estimates(self.values[others], self.std_err[others], None, self.n_users)
        value, low, high = left.total()
        threshold = ndtri(1.0 - min(1.0, k / len(others)))
        selected = len(others) * np.exp(-(threshold**2) / 2) / np.sqrt(2 * np.pi)
        return value, low, high + float(selected * self.std_err.max())


def amounts(
    counts: Estimates, sums: Estimates, columns: NDArray[np.int64], names: Sequence[str]
) -> list[Amount]:
    """Return sums and means of columns that were selected by their sums."""
    if not len(columns):
        return []
    ends = sums.intervals(columns, selected=True)
    records = []
    for name, column, (low, high) in zip(names, columns, ends):
        total, users = float(sums.values[column]), float(counts.values[column])
        deviations = (high - low) / (2 * sums.std_err[column])
        mean = half = float("nan")
        if users > deviations * counts.std_err[column]:
            mean = total / users
            spread = np.hypot(sums.std_err[column], mean * counts.std_err[column])
            half = float(deviations * spread / users)
        records.append(
            Amount(name, total, float(low), float(high), users, mean, mean - half, mean + half)
        )
    return records


@dataclass(frozen=True)
class Evaluation:
    """A comparison with the exact data: **not private**, and no part of what is released.

    Attributes
    ----------
    recall, precision : float
        Of the k largest estimates against the k truly most common items.
    k : int
        How many are compared.
    relative_error : float
        ‖estimate − truth‖²/‖truth‖² over those k items.
    bounding : float
        Share of all (user, item) pairs that the estimates' total lacks: what ``max_items`` and the
        domain take away, and noise.
    not_private : bool
        Always True.
    """

    recall: float
    precision: float
    k: int
    relative_error: float
    bounding: float
    not_private: bool = True


def evaluate(
    estimates: Estimates, columns: NDArray[np.int64], truth: NDArray[np.float64], k: int
) -> Evaluation:
    """Compare estimates with the true counts ``truth`` of items in ``columns`` (−1: none)."""
    exact = np.zeros(len(estimates.values))
    np.add.at(exact, columns[columns >= 0], truth[columns >= 0])
    k = min(k, int(np.count_nonzero(truth)))
    if k == 0:
        raise ValueError("truth holds no item with a count above zero.")
    least = np.sort(truth)[-k]
    found = estimates.largest(k)
    right = int(np.sum(exact[found] >= least))
    top = columns[np.argsort(-truth, kind="stable")[:k]]
    top = top[top >= 0]
    error = np.sum((estimates.values[top] - exact[top]) ** 2) / np.sum(exact[top] ** 2)
    lost = 1.0 - estimates.total()[0] / truth.sum()
    return Evaluation(min(right / k, 1.0), right / k, k, float(error), float(lost))


def truth_of(truth: Any) -> tuple[list[str], NDArray[np.float64]]:
    """Return items and counts of a mapping or of a pandas Series."""
    pairs: Mapping[Any, Any] = truth
    if not hasattr(truth, "items"):
        raise ValueError("truth must map items to their true counts: a dictionary or a Series.")
    listed = [(text_of(item, "truth"), float(count)) for item, count in pairs.items()]
    counts = np.array([count for _, count in listed])
    if not listed or not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("truth must hold items, each with a count of 0 or more.")
    return [item for item, _ in listed], counts


def write_csv(path: str | os.PathLike[str], records: Sequence[Any], names: Sequence[str]) -> None:
    """Write records, readable by their owner only."""
    options = {"newline": "", "encoding": "utf-8", "errors": "backslashreplace"}
    with open_private(Path(path), "w", **options) as file:
        writer = csv.DictWriter(file, list(names))
        writer.writeheader()
        writer.writerows(asdict(record) for record in records)
