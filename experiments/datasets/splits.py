"""From rows to clients: by a column that says whose they are, or by a Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Examples, Value


def split_by_client(
    x: NDArray[Any], y: NDArray[np.int64], client: NDArray[Any]
) -> dict[str, Examples]:
    """Return the rows of each client, in the order of the file; clients in ascending order."""
    order = np.argsort(client, kind="stable")
    names, starts = np.unique(client[order], return_index=True)
    rows = np.split(order, starts[1:])
    return {str(name): (x[mine], y[mine]) for name, mine in zip(names, rows)}


def dirichlet_split(
    x: NDArray[Any],
    y: NDArray[np.int64],
    n_clients: int,
    concentration: float,
    rng: np.random.Generator,
) -> dict[str, Examples]:
    """Share the rows of each class among clients in Dirichlet proportions, drawn by ``rng``.

    A client that receives no row is left out. A small concentration gives each client few classes,
    a large one gives all the same mixture.
    """
    if n_clients < 1:
        raise ValueError(f"n_clients={n_clients}: at least one client must hold the data.")
    if not (concentration > 0 and np.isfinite(concentration)):
        raise ValueError(f"concentration={concentration} must be a positive number, such as 1.")
    owners: list[list[int]] = [[] for _ in range(n_clients)]
    for label in np.unique(y):
        mine = np.flatnonzero(y == label)
        shares = rng.dirichlet(np.full(n_clients, concentration))
        cuts = (np.cumsum(shares)[:-1] * len(mine)).astype(int)
        for owner, part in zip(owners, np.split(mine, cuts)):
            owner.extend(part)
    return {f"client-{i:03d}": (x[owner], y[owner]) for i, owner in enumerate(owners) if owner}


def hold_out(
    clients: Mapping[str, Value], fraction: float, seed: int
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the clients of the training, and those drawn for the test: at least one of each."""
    if not 0 < fraction < 1:
        raise ValueError(f"test_fraction={fraction} must lie between 0 and 1, such as 0.1.")
    if len(clients) < 2:
        raise ValueError("one client alone cannot be split into training and test; add clients.")
    names = list(clients)
    n_test = min(max(1, round(fraction * len(names))), len(names) - 1)
    chosen = np.random.default_rng(seed).choice(len(names), n_test, replace=False)
    test = {names[k] for k in chosen}
    training = {name: own for name, own in clients.items() if name not in test}
    return training, {name: own for name, own in clients.items() if name in test}


def pooled(parts: Iterable[Examples]) -> Examples:
    """Return all rows together."""
    xs, ys = zip(*parts)
    return np.concatenate(xs), np.concatenate(ys)
