"""Who shares masks with whom: the complete graph, or a random k-regular one.

The regular graph puts the clients on a circle in random order and joins each with the k/2 nearest
on both sides (and the opposite one, if k is odd), as in the polylogarithmic variant of the
protocol (Bell et al., 2020).
"""

from __future__ import annotations

import hashlib
import numbers
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class MaskGraph:
    """A regular graph, each client being a member of its own neighbourhood.

    A client looks at its own row only; all rows (``members``, ``rank``) are made on first use, by
    the server.

    Attributes
    ----------
    n_clients : int
        n.
    n_members : int
        The size k + 1 of a neighbourhood.
    order : ndarray of shape (n,) or None
        The clients as they sit on the circle; None for the complete graph.
    """

    n_clients: int
    n_members: int
    order: NDArray[np.int64] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.n_members == self.n_clients

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the graph; the complete one is known by its size."""
        shape = struct.pack("<QQ", self.n_clients, self.n_members)
        order = b"" if self.order is None else self.order.astype("<i8").tobytes()
        return hashlib.sha256(shape + order).digest()

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """Row i: the neighbourhood of client i, itself included, ascending; shape (n, k + 1)."""
        n = self.n_clients
        if self.order is None:
            return np.broadcast_to(np.arange(n, dtype=np.int64), (n, n))
        members = np.empty((n, self.n_members), dtype=np.int64)
        members[self.order] = self.order[(np.arange(n)[:, None] + self._steps) % n]
        members.sort(axis=1)
        return members

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """``rank[i, a]`` is the place of i in the neighbourhood of ``members[i, a]``."""
        n, members = self.n_clients, self.members
        if self.order is None:
            return np.broadcast_to(np.arange(n, dtype=np.int64)[:, None], (n, n))
        # Rows ascend and follow each other, so (row, member) pairs are sorted as one list.
        pairs = (np.arange(n)[:, None] * n + members).ravel()
        places = np.searchsorted(pairs, members * n + np.arange(n)[:, None])
        return places - members * self.n_members

    def neighbourhood(self, i: int) -> NDArray[np.int64]:
        """Return row i of ``members``, without making the others."""
        if self.order is None:
            return np.arange(self.n_clients, dtype=np.int64)
        place = int(self._place[i])
        return np.sort(self.order[(place + self._steps) % self.n_clients])

    @cached_property
    def n_within_two_steps(self) -> int:
        """How many clients are neighbours of a client's neighbours, for every client the same."""
        if self.is_complete:
            return self.n_clients - 1
        return len(np.unique(np.add.outer(self._steps, self._steps) % self.n_clients)) - 1

    def n_near(self, alive: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many members of each neighbourhood are alive, in time proportional to n."""
        n = self.n_clients
        if self.order is None:
            return np.full(n, np.count_nonzero(alive))
        seated = alive[self.order].astype(np.int64)
        half = (self.n_members - 1) // 2
        wrapped = np.concatenate([[0], seated[n - half :], seated, seated[:half]])
        around = np.cumsum(wrapped)
        counts = around[2 * half + 1 :] - around[:n]
        if self.n_members % 2 == 0:
            counts = counts + np.roll(seated, -(n // 2))
        near = np.empty(n, dtype=np.int64)
        near[self.order] = counts
        return near

    def is_connected(self, alive: NDArray[np.bool_]) -> bool:
        """Return whether the alive clients hang together through alive clients."""
        if self.is_complete:
            return True
        reached = np.zeros_like(alive)
        front = np.flatnonzero(alive)[:1]
        while front.size:
            reached[front] = True
            front = np.unique(self.members[front])
            front = front[alive[front] & ~reached[front]]
        return bool((reached == alive).all())

    @cached_property
    def _place(self) -> NDArray[np.int64]:
        return np.argsort(self.order)  # type: ignore[arg-type]

    @cached_property
    def _steps(self) -> NDArray[np.int64]:
        k = self.n_members - 1
        half = np.arange(1, k // 2 + 1)
        opposite = [self.n_clients // 2] if k % 2 else []
        return np.concatenate([[0], half, -half, opposite]).astype(np.int64)


def complete_graph(n: int) -> MaskGraph:
    """Return the graph in which everybody is everybody's neighbour."""
    return MaskGraph(n, n)


def regular_graph(n: int, k: int, order: NDArray[np.integer] | np.random.Generator) -> MaskGraph:
    """Return the graph in which each of n clients has the k nearest on the circle as neighbours.

    ``order`` is the clients as they sit on the circle, or a generator to draw it with.
    """
    check_neighbors(k, n)
    if isinstance(order, np.random.Generator):
        order = order.permutation(n)
    return MaskGraph(n, int(k) + 1, np.asarray(order, dtype=np.int64))


def check_neighbors(k: int, n: int) -> None:
    """Raise unless there is a graph of n clients with k neighbours each."""
    if not isinstance(k, numbers.Integral) or not 2 <= k < n:
        raise ValueError(
            f"neighbors={k!r} is not between 2 and n_clients - 1 = {n - 1}; "
            "None joins everybody with everybody."
        )
    if k % 2 and n % 2:
        raise ValueError(f"neighbors={k} and n_clients={n} are both odd: no such graph exists.")


@lru_cache(maxsize=8)
def seeded_graph(n: int, k: int, seed: bytes) -> MaskGraph:
    """Return the k-regular graph of a 32-byte seed, the same on every platform.

    The order on the circle is that of the words that AES-256-CTR makes under the seed; words of 128
    bits are all different but with probability n²/2^129, and equal ones keep their clients' order.
    """
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(16 * n))
    words = np.frombuffer(stream, dtype="<u8").reshape(n, 2)
    return regular_graph(n, k, np.lexsort((words[:, 1], words[:, 0])))
