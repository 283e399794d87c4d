"""Who shares masks with whom: the complete graph, or a random k-regular one.

The regular graph puts the clients on a circle in random order and joins each with the k/2 nearest
on both sides (and the opposite one, if k is odd), as in the polylogarithmic variant of the
protocol.
"""

from __future__ import annotations

import hashlib
import numbers
import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class MaskGraph:
    """A regular graph, each client being a member of its own neighbourhood.

    Attributes
    ----------
    members : ndarray of shape (n, k + 1)
        Row i: the neighbourhood of client i, itself included, ascending.
    rank : ndarray of shape (n, k + 1)
        ``rank[i, a]`` is the place of i in the neighbourhood of ``members[i, a]``.
    """

    members: NDArray[np.int64]
    rank: NDArray[np.int64]

    @property
    def n_clients(self) -> int:
        """The number n of clients."""
        return self.members.shape[0]

    @property
    def n_members(self) -> int:
        """The size k + 1 of a neighbourhood."""
        return self.members.shape[1]

    @property
    def is_complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.n_members == self.n_clients

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the neighbourhoods; the complete graph is known by its size."""
        shape = struct.pack("<QQ", self.n_clients, self.n_members)
        members = b"" if self.is_complete else self.members.astype("<i8").tobytes()
        return hashlib.sha256(shape + members).digest()

    def is_neighbourhood(self, i: int) -> bool:
        """Return whether row i can be one: ascending clients, at least two and i among them."""
        if not (0 <= i < self.n_clients and self.n_members > 1):
            return False
        row = self.members[i]
        inside = row[0] >= 0 and row[-1] < self.n_clients
        return bool(inside and (np.diff(row) > 0).all() and i in row)

    def n_within_two_steps(self, i: int) -> int:
        """Return how many clients are neighbours of client i's neighbours, others than i."""
        if self.is_complete:
            return self.n_clients - 1
        return len(np.unique(self.members[self.members[i]])) - 1

    def own_rank(self, i: int) -> int:
        """Return the place of client i in its own neighbourhood."""
        return int(np.searchsorted(self.members[i], i))

    def is_connected(self, alive: NDArray[np.bool_]) -> bool:
        """Return whether the alive clients hang together through alive clients."""
        reached = np.zeros_like(alive)
        front = np.flatnonzero(alive)[:1]
        while front.size:
            reached[front] = True
            front = np.unique(self.members[front])
            front = front[alive[front] & ~reached[front]]
        return bool((reached == alive).all())


def complete_graph(n: int) -> MaskGraph:
    """Return the graph in which everybody is everybody's neighbour."""
    everybody = np.arange(n, dtype=np.int64)
    return MaskGraph(
        np.broadcast_to(everybody, (n, n)), np.broadcast_to(everybody[:, None], (n, n))
    )


def regular_graph(n: int, k: int, rng: np.random.Generator) -> MaskGraph:
    """Return a random graph in which each of n clients has k neighbours."""
    if not isinstance(k, numbers.Integral) or not 2 <= k < n:
        raise ValueError(
            f"neighbors={k!r} is not between 2 and n_clients - 1 = {n - 1}; "
            "None joins everybody with everybody."
        )
    if k % 2 and n % 2:
        raise ValueError(f"neighbors={k} and n_clients={n} are both odd: no such graph exists.")
    half = np.arange(1, k // 2 + 1)
    steps = np.concatenate([[0], half, -half, [n // 2] if k % 2 else []]).astype(np.int64)
    order = rng.permutation(n)
    members = np.empty((n, k + 1), dtype=np.int64)
    members[order] = order[(np.arange(n)[:, None] + steps) % n]
    members.sort(axis=1)
    # Rows ascend and follow each other, so (row, member) pairs are sorted as one list.
    pairs = (np.arange(n)[:, None] * n + members).ravel()
    rank = np.searchsorted(pairs, members * n + np.arange(n)[:, None]) - members * (k + 1)
    return MaskGraph(members, rank)
