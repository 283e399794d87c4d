"""Exact sums in Z_M and the checks that come before them."""

from __future__ import annotations

from statistics import mode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import for_each
from sparse_secagg import kernels
from sparse_secagg.secagg.errors import InvalidMessageError

#: Columns summed at once: the running total stays in the first-level cache.
_COLUMNS = 2048
#: Values that keep one thread busy for a moment.
_VALUES = 1 << 16


def modular_sum(
    rows: NDArray[Any], modulus: int, included: NDArray[np.bool_] | None = None
) -> NDArray[np.uint64]:
    """Return Σ rows mod M over the included rows, exactly; all entries must lie in [0, M)."""
    n, length = rows.shape
    included = np.ones(n, dtype=bool) if included is None else included
    total = np.zeros(length, dtype=np.uint64)

    def block(k: int) -> None:
        start = k * _COLUMNS
        stop = min(start + _COLUMNS, length)
        kernels.modular.add_rows(total, rows, included, np.uint64(modulus), start, stop)

    for_each(block, -(-length // _COLUMNS), threaded=rows.size > _VALUES)
    return total


def check_messages(
    messages: Any, modulus: int, on_invalid: str
) -> tuple[NDArray[Any], dict[int, str]]:
    """Return the messages as an integer array (n, m), and the clients whose message is invalid.

    A row of another length than most, or with an entry outside [0, M), is its client's fault: the
    error names the client, or, with ``on_invalid="exclude"``, the row is zeroed and reported.
    """
    if on_invalid not in ("raise", "exclude"):
        raise ValueError(f"on_invalid={on_invalid!r} must be 'raise' or 'exclude'.")
    rows, faults = _as_rows(messages)
    valid = np.empty(len(rows), dtype=bool)
    step = max(1, _VALUES // max(1, rows.shape[1]))

    def block(k: int) -> None:
        kernels.modular.in_range(
            rows, np.uint64(modulus), valid, k * step, min((k + 1) * step, len(rows))
        )

    for_each(block, -(-len(rows) // step), threaded=rows.size > _VALUES)
    for i in np.flatnonzero(~valid):
        faults.setdefault(int(i), f"has values outside [0, {modulus})")
    if faults and on_invalid == "raise":
        client = min(faults)
        raise InvalidMessageError(client, faults[client])
    return rows, faults


def _as_rows(messages: Any) -> tuple[NDArray[Any], dict[int, str]]:
    faults: dict[int, str] = {}
    if not isinstance(messages, np.ndarray):
        rows = [np.asarray(row) for row in messages]
        if not rows:
            raise ValueError("messages is empty; secure aggregation needs at least 2 clients.")
        length = mode(row.size for row in rows)
        for i, row in enumerate(rows):
            if row.ndim != 1 or row.size != length:
                faults[i] = f"has a message of shape {row.shape}; the others' is ({length},)"
                rows[i] = np.zeros(length, dtype=np.uint64)
        messages = np.stack(rows) if _all_integers(rows) else np.array(rows, dtype=object)
    if messages.ndim != 2:
        raise ValueError(f"messages has shape {messages.shape}; pass (n_clients, length).")
    if messages.dtype == object:
        messages, outside = _from_objects(messages)
        faults.update(outside)
    if messages.dtype.kind not in "iu":
        raise ValueError(
            f"messages has dtype {messages.dtype}; secure aggregation adds integers: pass what a "
            "mechanism's encode returns."
        )
    return messages, faults


def _all_integers(rows: list[NDArray[Any]]) -> bool:
    # Stacking int64 with uint64 would make float64.
    return len({row.dtype for row in rows}) == 1


def _from_objects(messages: NDArray[Any]) -> tuple[NDArray[np.uint64], dict[int, str]]:
    """Convert rows of Python integers; rows with anything else in them are invalid."""
    rows, faults = np.zeros(messages.shape, dtype=np.uint64), {}
    for i, row in enumerate(messages):
        if all(isinstance(v, int | np.integer) and 0 <= v < 1 << 64 for v in row):
            rows[i] = [int(v) for v in row]
        else:
            faults[i] = "has values that are not integers in [0, 2**64)"
    return rows, faults
