"""All clients of a simulated round: in this process, or played by workers from saved states.

Both ends of every pair are here, so keys need to be agreed on once for a pair, not at each end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg.client import ClientSession
from sparse_secagg.secagg.keys import AgreedOnce

__all__ = ["Workers", "answer", "answers_here"]

#: Groups for each worker where they can be small.
_PIECES = 8


def answer(client: ClientSession, incoming: bytes, vector: NDArray[Any] | None) -> bytes:
    """Return a client's next message, whichever it is."""
    if client.stage == "advertise":
        return client.start()
    data = client.receive(incoming)
    if data is None:
        assert vector is not None
        return client.mask(vector)
    return data


def answers_here(
    clients: dict[int, ClientSession], incoming: dict[int, bytes], vectors: Any
) -> Iterator[tuple[int, bytes]]:
    """Yield each client's next message, made when it is asked for.

    ``vectors`` is None in the stages that want none.
    """
    for i, data in incoming.items():
        yield i, answer(clients[i], data, None if vectors is None else vectors[i])


class Workers:
    """Worker processes that play the clients; between two stages a client is its saved state.

    Parameters
    ----------
    clients : dict of ClientSession
        All of them in their first stage. They end here.
    order : ndarray of int
        Clients as they sit around the graph: neighbours go to one worker, and agree once.
    n_jobs : int
        Worker processes, as joblib counts them.
    agree_once : bool
        Whether ends that one worker plays agree once.
    """

    def __init__(
        self,
        clients: dict[int, ClientSession],
        order: NDArray[np.int64],
        n_jobs: int,
        agree_once: bool,
    ) -> None:
        from joblib import Parallel, effective_n_jobs  # who plays one client does without it

        self._states = {i: client.save() for i, client in clients.items()}
        self._agree_once = agree_once
        self._workers = Parallel(n_jobs=n_jobs, return_as="generator")
        n_workers = effective_n_jobs(n_jobs)
        self._groups = np.array_split(order, n_workers)
        self._small_groups = np.array_split(order, min(_PIECES * n_workers, len(order)))

    def answers(
        self, clients: dict[int, ClientSession], incoming: dict[int, bytes], vectors: Any
    ) -> Iterator[tuple[int, bytes]]:
        """Yield each client's next message, as :func:`answers_here` does.

        From the masked vectors on nobody agrees on a key any more: messages come in small groups,
        which the server takes while the workers go on.
        """
        if vectors is not None:
            self._groups = self._small_groups
        from joblib import delayed

        groups = [[i for i in group.tolist() if i in incoming] for group in self._groups]
        played = self._workers(
            delayed(_play)(
                [(self._states[i], incoming[i]) for i in group],
                None if vectors is None else vectors[group],
                self._agree_once,
            )
            for group in groups
            if group
        )
        for group, results in zip(filter(None, groups), played):
            for i, (self._states[i], data) in zip(group, results):
                yield i, data


def _play(
    clients: list[tuple[bytes, bytes]], vectors: NDArray[Any] | None, agree_once: bool
) -> list[tuple[bytes, bytes]]:
    """Return the states and messages of a group of clients after their next stage."""
    agreed = AgreedOnce() if agree_once else None
    played = []
    for k, (state, incoming) in enumerate(clients):
        client = ClientSession.load(state, agreed=agreed)
        data = answer(client, incoming, None if vectors is None else vectors[k])
        played.append((client.save(), data))
    return played
