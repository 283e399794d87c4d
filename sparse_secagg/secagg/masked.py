"""Secure aggregation by pairwise masks: keys, shares, masked vectors, unmasking.

Bonawitz et al.'s protocol, on the complete graph or on a random k-regular one (Bell et al.),
against a semi-honest server or one that lies. Clients and server are sessions that exchange bytes
(:mod:`~sparse_secagg.secagg.session`); this module drives them all in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.secagg.client import ClientSession
from sparse_secagg.secagg.contract import Aggregation, SecureAggregation
from sparse_secagg.secagg.dropouts import Dropouts, resolve_dropouts
from sparse_secagg.secagg.errors import InvalidMessageError
from sparse_secagg.secagg.graph import check_neighbors
from sparse_secagg.secagg.ideal import check_cohort
from sparse_secagg.secagg.identities import Identity, Member, Roster
from sparse_secagg.secagg.keys import AgreedOnce, key_pair_type
from sparse_secagg.secagg.modular import check_messages
from sparse_secagg.secagg.parties import Workers, answers_here
from sparse_secagg.secagg.quorums import has_quorums, least_quorum
from sparse_secagg.secagg.result import AggregationResult
from sparse_secagg.secagg.server import ServerSession
from sparse_secagg.secagg.setup import SECURITY, RoundDocument, Session, resolve_threshold
from sparse_secagg.secagg.shamir import MAX_SHARES
from sparse_secagg.secagg.wire import bit_width, check_modulus, packed_size

#: Share of a neighbourhood that gives a secret, by default. A server that lies in its lists can
#: unmask one client below (√5 − 1)/2 = 0.618 on the complete graph, below about 0.73 on the circle;
#: cut out an arc of the circle below about 0.8. tests/adversarial/test_lying_server.py plays it.
COMPLETE_SHARE = Fraction(2, 3)
REGULAR_SHARE = Fraction(4, 5)

#: What clients answer in a stage: answers(clients, incoming, vectors) yields (client, data).
Answers = Callable[[dict[int, ClientSession], dict[int, bytes], Any], Iterable[tuple[int, bytes]]]
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
    security : {"semi_honest", "malicious"}
        Whether the server is believed, or the clients sign, and confirm the list of survivors to
        each other. In one process there is nobody to lie: the second is for its cost.
    agree_once : bool
        Whether the keys of a pair, equal at both ends, are computed by one end alone: half of the
        key agreements, which is most of a simulated round, and the same messages. False measures
        what parties of their own do.
    n_jobs : int or None
        Worker processes that play the clients, as joblib counts them; None: this process. Only
        where the server is believed.

    See Also
    --------
    IdealSecAgg : The same sum without cryptography.
    ServerSession, ClientSession : The same protocol between parties.

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
        security: str = "semi_honest",
        agree_once: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.threshold = threshold
        self.neighbors = neighbors
        self.masks = masks
        self.modulus = modulus
        self.share_threshold = share_threshold
        self.on_invalid = on_invalid
        self.random_state = random_state
        self.security = security
        self.agree_once = agree_once
        self.n_jobs = n_jobs

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
        identities = self._identities(len(rows))
        roster = _roster_of(identities)
        document = self._document(len(rows), rows.shape[1], modulus, rng, round_id, context, roster)
        server = ServerSession(document, self._session_of_rounds(), roster=roster)
        simulation = key_pair_type(self.masks).not_private
        agreed = AgreedOnce() if self.agree_once else None
        clients = {
            i: ClientSession(
                document,
                i,
                identity=identities.get(i),
                roster=roster,
                simulation=simulation,
                agreed=agreed,
            )
            for i in range(len(rows))
            if i not in faults
        }
        traffic = Traffic.none(len(rows))
        found = run_round(
            server, clients, rows, leaves, self.on_invalid,
            answers=self._answers(document, clients), traffic=traffic,
        )  # fmt: skip
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
            not_private=simulation,
        )

    def _answers(self, document: RoundDocument, clients: dict[int, ClientSession]) -> Answers:
        """Return who plays the clients: this process, or workers."""
        if self.n_jobs in (None, 1):
            return answers_here
        if document.lying_server:
            raise ValueError(
                f"n_jobs={self.n_jobs}: clients that sign do not hand their identities to other "
                "processes; leave n_jobs out, or take security='semi_honest'."
            )
        order = document.setup().graph.order
        order = np.arange(document.n_clients) if order is None else order
        return Workers(clients, order, self.n_jobs, self.agree_once).answers

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
        base, per_client, per_member = _message_sizes(self.security)
        return round(base + per_client * n_clients + per_member * members)

    def _session_of_rounds(self) -> Session:
        if not hasattr(self, "_session"):
            self._session = Session()
        return self._session

    def _identities(self, n: int) -> dict[int, Identity]:
        """Return fresh identities where clients sign."""
        if self.security not in SECURITY:
            raise ValueError(f"security={self.security!r} must be one of {', '.join(SECURITY)}.")
        return {} if self.security == "semi_honest" else {i: Identity.new() for i in range(n)}

    def _document(
        self,
        n: int,
        length: int,
        modulus: int,
        rng: np.random.Generator,
        number: int | None,
        context: bytes = b"",
        roster: Roster | None = None,
    ) -> RoundDocument:
        """Check the parameters and, when all is well, claim the round id."""
        threshold = resolve_threshold(self.threshold, n)
        if self.neighbors is not None:
            check_neighbors(self.neighbors, n)
        elif n > MAX_SHARES:
            raise ValueError(
                f"neighbors=None with {n} clients: the complete graph is for at most "
                f"{MAX_SHARES}; pass neighbors=100 or so."
            )
        seeded = self.neighbors is not None and roster is None
        seed = int.from_bytes(rng.bytes(16), "little") if seeded else None
        key_pair = key_pair_type(self.masks)
        share_threshold = self._resolve_share_threshold(n, threshold)

        def document(session: Session) -> RoundDocument:
            return RoundDocument(
                session.new_round(number), n, length, modulus, threshold, share_threshold,
                None if self.neighbors is None else int(self.neighbors), seed, self.masks,
                self.security, b"" if roster is None else roster.digest, context,
            )  # fmt: skip

        if not key_pair.not_private and self._exposes(document(Session())):
            raise ValueError(
                f"share_threshold={share_threshold} of {self._members(n)} members of a "
                "neighbourhood: a server that lies about who dropped could unmask a client. Leave "
                "it out, raise it, or take masks='seeded' for a simulation."
            )
        return document(self._session_of_rounds())

    @staticmethod
    def _exposes(document: RoundDocument) -> bool:
        members, t = document.n_members, document.share_threshold
        if document.lying_server:
            return not has_quorums(members, t, document.n_clients)
        return document.setup().exposes

    def _members(self, n: int) -> int:
        return n if self.neighbors is None else int(self.neighbors) + 1

    def _resolve_share_threshold(self, n: int, threshold: int) -> int:
        members = self._members(n)
        if self.share_threshold is None:
            if members == n:
                return max(threshold, math.ceil(members * COMPLETE_SHARE))
            share = math.ceil(members * REGULAR_SHARE)
            return max(share, least_quorum(members, n)) if self.security == "malicious" else share
        if not 2 <= self.share_threshold <= members:
            raise ValueError(
                f"share_threshold={self.share_threshold} is not between 2 and the {members} "
                "members of a neighbourhood."
            )
        return int(self.share_threshold)


def _roster_of(identities: dict[int, Identity]) -> Roster | None:
    if not identities:
        return None
    members = tuple(Member(str(i), identity.public) for i, identity in identities.items())
    return Roster("one process", members)


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


@lru_cache(maxsize=len(SECURITY))
def _message_sizes(security: str) -> tuple[float, float, float]:
    """Return the bytes of any round, for each client and for each member of a neighbourhood.

    Sizes are linear in both, so three small rounds of the protocol itself tell them.
    """
    shapes = [(4, None, 4), (6, None, 6), (6, 2, 3)]
    sent = []
    for n, k, _ in shapes:
        secagg = MaskedSecAgg(neighbors=k, masks="seeded", modulus=256, security=security)
        sent.append(secagg.aggregate(np.zeros((n, 1), np.uint64)).protocol_up[0])
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
    server: ServerSession,
    clients: dict[int, ClientSession],
    vectors: Any,
    dropouts: Dropouts,
    on_invalid: str = "raise",
    *,
    channel: Channel | None = None,
    answers: Answers = answers_here,
    traffic: Traffic | None = None,
) -> dict[int, str]:
    """Carry the messages of all stages; return the clients left out for an invalid one, and why.

    Parameters
    ----------
    server, clients
        The sessions. A client that is missing sends nothing.
    vectors : array of int, shape (n, m)
        The messages to mask, one row a client.
    dropouts : Dropouts
        Who leaves before which message.
    on_invalid : {"raise", "exclude"}
        What to do about a client that breaks the protocol.
    channel : callable, optional
        Stands between clients and server: channel(stage, client, data) returns what arrives.
    answers : callable
        Makes the clients' messages of a stage of what each is sent; :func:`answers_here` or
        :meth:`Workers.answers`.
    traffic : Traffic, optional
        Counters to add to.
    """
    excluded: dict[int, str] = {}
    document = server.document
    payload = packed_size(document.length, bit_width(document.modulus))
    for stage in document.stages:
        absent = dropouts.before(stage)
        incoming = {
            i: b"" if stage == "advertise" else server.message_for(i)
            for i in np.flatnonzero(server.alive).tolist()
            if i in clients and i not in absent
        }
        for i, data in answers(clients, incoming, vectors if stage == "mask" else None):
            if traffic is not None:
                traffic.protocol_down[i] += len(incoming[i])
                traffic.payload_up[i] += payload if stage == "mask" else 0
                traffic.protocol_up[i] += len(data) - (payload if stage == "mask" else 0)
            try:
                server.receive(data if channel is None else channel(stage, i, data), i)
            except InvalidMessageError as error:
                if on_invalid == "raise":
                    raise
                excluded[i] = error.reason
        server.close_stage()
    return excluded
