"""Secure aggregation by pairwise masks: keys, shares, masked vectors, unmasking.

Bonawitz et al.'s protocol against a semi-honest server, with what a client can check by itself
against one that lies, on the complete graph or on a random
k-regular one (Bell et al.). Clients and server are objects that exchange bytes; this module runs
them all in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.secagg.client import Client
from sparse_secagg.secagg.contract import Aggregation, SecureAggregation
from sparse_secagg.secagg.dropouts import Dropouts, resolve_dropouts
from sparse_secagg.secagg.errors import InvalidMessageError
from sparse_secagg.secagg.graph import complete_graph, regular_graph
from sparse_secagg.secagg.ideal import check_cohort
from sparse_secagg.secagg.keys import RoundId, key_pair_type
from sparse_secagg.secagg.modular import check_messages
from sparse_secagg.secagg.result import AggregationResult
from sparse_secagg.secagg.server import Server
from sparse_secagg.secagg.setup import STAGES, RoundSetup, Session, resolve_threshold
from sparse_secagg.secagg.shamir import MAX_SHARES
from sparse_secagg.secagg.wire import check_modulus

#: Share of a neighbourhood that gives a secret, by default. A server that lies in its lists can
#: unmask one client below (√5 − 1)/2 = 0.618 on the complete graph, below about 0.73 on the circle;
#: cut out an arc of the circle below about 0.8. tests/adversarial/test_lying_server.py plays it.
COMPLETE_SHARE = Fraction(2, 3)
REGULAR_SHARE = Fraction(4, 5)

#: What travels from a client to the server: channel(stage, client, data) returns what arrives.
Channel = Callable[[str, int, bytes], bytes]


class MaskedSecAgg(SecureAggregation):
    """The four-stage protocol with key agreement, secret sharing, masks and recovery.

    Parameters
    ----------
    threshold : int, float or None
        Clients that must be left after every stage: a count, a fraction of the cohort, or None
        for two thirds. Below it the round raises :class:`BelowThresholdError`.
    neighbors : int or None
        Clients that each client shares masks and secrets with; None: all of them.
    masks : {"x25519", "seeded"}
        Key agreement: real, or the same algebra with cheap keys that protect nobody, for large
        simulations.
    modulus : int
        M, from 2 to 2^63, a power of two or not.
    share_threshold : int or None
        Shares that give a secret, and members of a neighbourhood that every client insists on.
        None: the threshold, and at least two thirds of the clients, on the complete graph; four
        fifths of the neighbourhood on the regular one. Below about 0.62 and 0.73 of it a lying
        server could unmask a client: such values are for seeded masks only.
    on_invalid : {"raise", "exclude"}
        Whether a client that breaks the protocol ends the round with
        :class:`InvalidMessageError`, or is left out and reported.
    random_state : None, int, RandomState or Generator
        Public randomness: the regular graph, and dropouts given as a rate. Keys, seeds and shares
        always come from the operating system.

    Notes
    -----
    An instance is a session: it refuses a round id, a public key or a seed it has seen before. A
    clone is a new session.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import MaskedSecAgg
    >>> messages = np.array([[1, 9], [2, 9], [3, 9], [4, 9]], dtype=np.uint64)
    >>> result = MaskedSecAgg(threshold=2, modulus=10).aggregate(messages, dropouts=[3])
    >>> result.total.tolist(), result.survivors.tolist()
    ([6, 7], [0, 1, 2])
    """

    name: ClassVar[str] = "masked"

    def __init__(
        self,
        threshold: float | None = None,
        neighbors: int | None = None,
        masks: str = "x25519",
        modulus: int | None = None,
        share_threshold: int | None = None,
        on_invalid: str = "raise",
        random_state: Any = None,
    ) -> None:
        self.threshold = threshold
        self.neighbors = neighbors
        self.masks = masks
        self.modulus = modulus
        self.share_threshold = share_threshold
        self.on_invalid = on_invalid
        self.random_state = random_state

    def aggregate(
        self,
        messages: Any,
        dropouts: Any = None,
        *,
        round_id: int | None = None,
        cohort: ArrayLike | None = None,
        context: bytes = b"",
    ) -> AggregationResult:
        """Run one round and return the sum of the survivors' messages.

        Parameters
        ----------
        messages : array of int, shape (n, m), or n arrays of length m
            One row a client, values in [0, M).
        dropouts : None, float, sequence, mapping or Dropouts
            Who leaves before which message. A float is the probability of leaving, at a random
            stage; a list of clients (or a boolean array) leaves before the masked vector; a
            mapping from "advertise", "share", "mask", "unmask" to lists says it all.
        round_id : int, optional
            A number not used before in this session; None takes the next.
        cohort : array-like of shape (n,), optional
            Names of the clients; every round may have others.
        context : bytes
            What the messages mean: the round's configuration. It becomes part of every key, so
            masks cancel only between clients that agree on it.

        Raises
        ------
        BelowThresholdError
            Too few clients are left. Nothing is returned.
        InvalidMessageError
            A client broke the protocol and ``on_invalid="raise"``; its ``client`` says which.
        ReuseError
            ``round_id`` was used before.
        """
        return self._run(messages, check_modulus(self.modulus), dropouts, round_id, cohort, context)

    def _run(
        self,
        messages: Any,
        modulus: int,
        dropouts: Any,
        round_id: int | None,
        cohort: ArrayLike | None,
        context: bytes,
    ) -> AggregationResult:
        rows, faults = check_messages(messages, modulus, self.on_invalid)
        rng = np.random.default_rng(resolve_seed(self.random_state))
        leaves = resolve_dropouts(dropouts, len(rows), rng)
        names = check_cohort(cohort, len(rows))
        setup = self._setup(rows.shape[0], rows.shape[1], modulus, rng, round_id, context)
        server = Server(setup, self._session_of_rounds())
        simulation = setup.key_pair.not_private
        clients = {
            i: Client(i, row, setup, simulation=simulation)
            for i, row in enumerate(rows)
            if i not in faults
        }
        traffic = Traffic.none(len(rows))
        found = run_round(server, clients, leaves, self.on_invalid, traffic=traffic)
        return AggregationResult(
            total=server.total(),
            survivors=server.survivors,
            payload_up=traffic.payload_up,
            protocol_up=traffic.protocol_up,
            payload_down=traffic.payload_down,
            protocol_down=traffic.protocol_down,
            cohort=names,
            excluded={**faults, **found},
            complaints=tuple(server.complaints),
            not_private=setup.key_pair.not_private,
        )

    def begin(
        self,
        n_clients: int,
        length: int,
        *,
        modulus: int,
        dropouts: Any = None,
        context: bytes = b"",
    ) -> MaskedAggregation:
        certain = resolve_threshold(self.threshold, n_clients)
        return MaskedAggregation(self, certain, check_modulus(modulus), dropouts, context)

    def guaranteed_survivors(self, n_clients: int) -> int:
        return resolve_threshold(self.threshold, n_clients)

    def protocol_bytes(self, n_clients: int) -> int:
        members = n_clients if self.neighbors is None else self.neighbors + 1
        base, per_client, per_member = _message_sizes()
        return round(base + per_client * n_clients + per_member * members)

    def _session_of_rounds(self) -> Session:
        if not hasattr(self, "_session"):
            self._session = Session()
        return self._session

    def _setup(
        self,
        n: int,
        length: int,
        modulus: int,
        rng: np.random.Generator,
        number: int | None,
        context: bytes = b"",
    ) -> RoundSetup:
        """Check the parameters and, when all is well, claim the round id."""
        threshold = resolve_threshold(self.threshold, n)
        if self.neighbors is None:
            if n > MAX_SHARES:
                raise ValueError(
                    f"neighbors=None with {n} clients: the complete graph is for at most "
                    f"{MAX_SHARES}; pass neighbors=100 or so."
                )
            graph = complete_graph(n)
        else:
            graph = regular_graph(n, self.neighbors, rng)
        key_pair = key_pair_type(self.masks)
        setup = RoundSetup(
            RoundId(b"", 0), graph, length, modulus, threshold, graph.n_members, self.masks, context
        )
        setup = replace(setup, share_threshold=self._resolve_share_threshold(setup))
        if setup.exposes(0) and not key_pair.not_private:
            raise ValueError(
                f"share_threshold={setup.share_threshold} of {graph.n_members} members of a "
                "neighbourhood: a server that lies about who dropped could unmask a client. Leave "
                "it out, raise it, or take masks='seeded' for a simulation."
            )
        return replace(setup, round_id=self._session_of_rounds().new_round(number))

    def _resolve_share_threshold(self, setup: RoundSetup) -> int:
        members = setup.graph.n_members
        if self.share_threshold is None:
            if setup.graph.is_complete:
                return max(setup.threshold, math.ceil(members * COMPLETE_SHARE))
            return math.ceil(members * REGULAR_SHARE)
        if not 2 <= self.share_threshold <= members:
            raise ValueError(
                f"share_threshold={self.share_threshold} is not between 2 and the {members} "
                "members of a neighbourhood."
            )
        return int(self.share_threshold)


class MaskedAggregation(Aggregation):
    """The messages of a cohort, kept until the protocol runs over all of them."""

    def __init__(
        self, secagg: MaskedSecAgg, n_certain: int, modulus: int, dropouts: Any, context: bytes
    ) -> None:
        self.n_certain = n_certain
        self._secagg, self._modulus = secagg, modulus
        self._dropouts, self._context = dropouts, context
        self._messages: list[NDArray[np.uint64]] = []

    def add(self, messages: Any) -> None:
        self._messages.append(messages)

    def finish(self) -> AggregationResult:
        rows, self._messages = np.concatenate(self._messages), []
        return self._secagg._run(rows, self._modulus, self._dropouts, None, None, self._context)


@lru_cache(maxsize=1)
def _message_sizes() -> tuple[float, float, float]:
    """Return the bytes of any round, for each client and for each member of a neighbourhood.

    Sizes are linear in both, so three small rounds of the protocol itself tell them.
    """
    shapes = [(4, None, 4), (6, None, 6), (6, 2, 3)]
    sent = [
        MaskedSecAgg(neighbors=k, modulus=256).aggregate(np.zeros((n, 1), np.uint64)).protocol_up[0]
        for n, k, _ in shapes
    ]
    terms = np.array([(1, n, members) for n, _, members in shapes], dtype=float)
    base, per_client, per_member = np.linalg.solve(terms, np.array(sent, dtype=float))
    return float(base), float(per_client), float(per_member)


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes of every client, counted as messages pass."""

    payload_up: NDArray[np.int64]
    protocol_up: NDArray[np.int64]
    payload_down: NDArray[np.int64] = field(repr=False)
    protocol_down: NDArray[np.int64] = field(repr=False)

    @classmethod
    def none(cls, n: int) -> Traffic:
        """Return counters at zero for n clients."""
        return cls(*(np.zeros(n, dtype=np.int64) for _ in range(4)))


def run_round(
    server: Server,
    clients: dict[int, Client],
    dropouts: Dropouts,
    on_invalid: str = "raise",
    *,
    channel: Channel | None = None,
    traffic: Traffic | None = None,
) -> dict[int, str]:
    """Carry the messages of all stages; return the clients left out for an invalid one, and why.

    Parameters
    ----------
    server, clients
        The roles. A client that is missing sends nothing.
    dropouts : Dropouts
        Who leaves before which message.
    on_invalid : {"raise", "exclude"}
        What to do about a client that breaks the protocol.
    channel : callable, optional
        Stands between clients and server: channel(stage, client, data) returns what arrives.
    traffic : Traffic, optional
        Counters to add to.
    """
    excluded: dict[int, str] = {}
    for stage in STAGES:
        absent = dropouts.before(stage)
        for i in np.flatnonzero(server.alive).tolist():
            if i not in clients or i in absent:
                continue
            incoming = None if stage == STAGES[0] else server.message_for(i).to_bytes()
            message = clients[i].respond(incoming)
            data = message.to_bytes()
            if traffic is not None:
                traffic.protocol_down[i] += len(incoming or b"")
                traffic.payload_up[i] += message.payload_bytes
                traffic.protocol_up[i] += len(data) - message.payload_bytes
            try:
                server.receive(i, data if channel is None else channel(stage, i, data))
            except InvalidMessageError as error:
                if on_invalid == "raise":
                    raise
                excluded[i] = error.reason
        server.close_stage()
    return excluded
