"""What everybody knows about a round: one JSON document, and what follows from it.

A :class:`RoundDocument` is all that a server announces: configuration, sizes, thresholds, roster
and how the graph is made. Once the clients' keys are known, document, key root and graph are a
:class:`RoundSetup`, whose digest is in every key:

    document digest = SHA-256(fields of the document)
    graph           = complete, or the circle in the order drawn from SHA-256(document ‖ key root)
    round digest    = SHA-256(document digest ‖ key root ‖ graph)
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import os
import struct
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg.errors import ReuseError
from sparse_secagg.secagg.graph import MaskGraph, complete_graph, seeded_graph
from sparse_secagg.secagg.keys import KEY_PAIRS, KeyPair, RoundId, derive_key, key_pair_type
from sparse_secagg.secagg.shamir import MAX_SHARES
from sparse_secagg.secagg.wire import MAX_BITS

FORMAT_VERSION = 2

#: The messages of a client, in order; "confirm" only where the server may lie. A client may drop
#: out before each of them.
STAGES = ("advertise", "share", "mask", "confirm", "unmask")

#: Whom the protocol is to withstand: a server that looks, or one that lies as well.
SECURITY = ("malicious", "semi_honest")

#: Bytes of the digest at the head of every message.
VIEW_BYTES = 24

#: Longest document that is read, before it is parsed.
MAX_DOCUMENT_BYTES = 1 << 20
MAX_CLIENTS = 1 << 24
MAX_LENGTH = 1 << 40


@dataclass(frozen=True)
class RoundDocument:
    """The public description of one round, as the server announces it.

    Parameters
    ----------
    round_id : RoundId
        Session and number.
    n_clients : int
        Size of the cohort; that of the roster, if there is one.
    length, modulus : int
        Messages are in Z_M^m.
    threshold : int
        Clients that must be left after each stage.
    share_threshold : int
        Members of a neighbourhood whose shares give a secret, and that every client insists on.
    neighbors : int or None
        k of the regular graph; None: the complete one.
    graph_seed : int or None
        Public seed of the regular graph, where the server is believed. Where it is not, there is
        none: the graph follows from the clients' keys.
    masks : str
        Name of the key agreement.
    security : {"malicious", "semi_honest"}
        Whether the server may lie.
    roster : bytes
        Digest of the roster; empty for simulations without identities.
    context : bytes
        What the vectors mean, UTF-8: the configuration of the round.

    See Also
    --------
    announce_round : Makes one from a spec and a roster.

    Examples
    --------
    >>> from sparse_secagg import Identity, Roster, RoundDocument, RoundSpec, announce_round
    >>> roster = Roster("pair")
    >>> for name in ("ann", "bob", "cas"):
    ...     roster = roster.add(name, Identity.new().public)
    >>> document = announce_round(RoundSpec(encoder="identity", n_bits=20), 10, roster)
    >>> RoundDocument.from_json(document.to_json()).n_clients
    3
    """

    round_id: RoundId
    n_clients: int
    length: int
    modulus: int
    threshold: int
    share_threshold: int
    neighbors: int | None = None
    graph_seed: int | None = None
    masks: str = "x25519"
    security: str = "malicious"
    roster: bytes = b""
    context: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        for name, valid in _FIELDS.items():
            value = getattr(self, name)
            if not valid(value):
                raise RefusedRoundError(
                    f"the round's document has {name}={str(value)[:50]!r}, out of range."
                )
        if not 2 <= self.threshold <= self.n_clients:
            raise RefusedRoundError(
                f"the round's document has threshold={self.threshold}, which is not between 2 and "
                f"{self.n_clients} clients."
            )
        if not 2 <= self.share_threshold <= self.n_members <= MAX_SHARES:
            raise RefusedRoundError(
                f"the round's document has share_threshold={self.share_threshold} of "
                f"{self.n_members} members of a neighbourhood; it must be between 2 and them all."
            )
        self._check_graph()

    def _check_graph(self) -> None:
        k, n = self.neighbors, self.n_clients
        if k is not None and (not 2 <= k < n or (k % 2 and n % 2)):
            raise RefusedRoundError(
                f"the round's document has neighbors={k} with {n} clients: no such graph exists."
            )
        seeded = self.graph_seed is not None
        if seeded != (k is not None and self.security == "semi_honest"):
            raise RefusedRoundError(
                "the round's document must have a graph_seed exactly where a regular graph is the "
                "server's choice; with security='malicious' it follows from the clients' keys."
            )

    @property
    def n_members(self) -> int:
        """The size k + 1 of a neighbourhood, its client included."""
        return self.n_clients if self.neighbors is None else self.neighbors + 1

    @property
    def lying_server(self) -> bool:
        """Whether the round is to withstand a server that lies."""
        return self.security == "malicious"

    @property
    def stages(self) -> tuple[str, ...]:
        """The messages of a client, in order."""
        return tuple(s for s in STAGES if s != "confirm" or self.lying_server)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of every field."""
        parts = [getattr(self, item.name) for item in fields(self) if item.name != "round_id"]
        return _hash(b"sparse_secagg document", self.round_id.session, self.round_id.number, *parts)

    def setup(self, root: bytes = b"") -> RoundSetup:
        """Return the round as it is once the keys, bound by ``root``, are known."""
        return _setup(self, root)

    def to_json(self) -> str:
        """Return the document as JSON: what a server broadcasts."""
        document = {item.name: getattr(self, item.name) for item in fields(self)}
        document["round_id"] = [self.round_id.session.hex(), self.round_id.number]
        document["roster"] = self.roster.hex()
        document["context"] = self.context.decode()
        return json.dumps({"version": FORMAT_VERSION, **document}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> RoundDocument:
        """Return the document in JSON; raise :class:`RefusedRoundError` for anything else."""
        if len(text) > MAX_DOCUMENT_BYTES:
            raise RefusedRoundError(
                f"the round's document has {len(text)} bytes, above {MAX_DOCUMENT_BYTES}."
            )
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise RefusedRoundError("the round's document is not JSON.") from None
        names = {item.name for item in fields(cls)} | {"version"}
        if not isinstance(document, dict) or set(document) != names:
            raise RefusedRoundError("the round's document has unexpected or missing fields.")
        version = document.pop("version")
        if type(version) is not int or version != FORMAT_VERSION:
            raise RefusedRoundError(
                f"the round's document has version {str(version)[:20]}, this software speaks "
                f"{FORMAT_VERSION}; update the older of the two."
            )
        try:
            session, number = document["round_id"]
            document["round_id"] = RoundId(bytes.fromhex(session), number)
            document["roster"] = bytes.fromhex(document["roster"])
            document["context"] = document["context"].encode()
        except (ValueError, TypeError, AttributeError) as error:
            raise RefusedRoundError(f"the round's document is not valid: {error}.") from None
        return cls(**document)


def _whole(smallest: int, largest: int) -> Any:
    return lambda value: type(value) is int and smallest <= value <= largest


_FIELDS: dict[str, Any] = {
    "round_id": lambda v: len(v.session) <= 64 and _whole(0, (1 << 64) - 1)(v.number),
    "n_clients": _whole(2, MAX_CLIENTS),
    "length": _whole(0, MAX_LENGTH),
    "modulus": _whole(2, 1 << MAX_BITS),
    "threshold": _whole(-MAX_CLIENTS, MAX_CLIENTS),
    "share_threshold": _whole(-MAX_CLIENTS, MAX_CLIENTS),
    "neighbors": lambda v: v is None or _whole(2, MAX_SHARES - 1)(v),
    "graph_seed": lambda v: v is None or _whole(0, (1 << 256) - 1)(v),
    "masks": lambda v: isinstance(v, str) and v in KEY_PAIRS,
    "security": lambda v: isinstance(v, str) and v in SECURITY,
    "roster": lambda v: len(v) in (0, 32),
    "context": lambda v: len(v) <= MAX_DOCUMENT_BYTES,
}


@dataclass(frozen=True)
class RoundSetup:
    """A round whose keys are known.

    Attributes
    ----------
    document : RoundDocument
        What the server announced.
    graph : MaskGraph
        Who shares masks, and secrets, with whom.
    root : bytes
        Root of the hash tree over the clients' signed keys; empty where the server is believed.
    """

    document: RoundDocument
    graph: MaskGraph = field(repr=False)
    root: bytes = field(default=b"", repr=False)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of it. It is in every key, so other views make other masks."""
        return _hash(b"sparse_secagg round", self.document.digest, self.root, self.graph.digest)

    @property
    def view(self) -> bytes:
        """The head of the digest, by which messages name the round as their party sees it."""
        return self.digest[:VIEW_BYTES]

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return self.document.length

    @property
    def modulus(self) -> int:
        """What vectors are added modulo."""
        return self.document.modulus

    @property
    def threshold(self) -> int:
        """Clients that must be left after each stage."""
        return self.document.threshold

    @property
    def share_threshold(self) -> int:
        """Shares that give a secret."""
        return self.document.share_threshold

    @property
    def least_members(self) -> int:
        """Members of its neighbourhood, itself included, that a client insists on."""
        if self.graph.is_complete:
            return max(self.share_threshold, self.threshold)
        return self.share_threshold

    @cached_property
    def exposes(self) -> bool:
        """Return whether a server's lies alone could take off all masks of a client.

        This is for rounds without confirmed lists. It takes t shares of the mask key of each of the
        t − 1 neighbours that the client masked towards. Clients within two steps hold them. Each
        gives at most h − t, for it believes in no more drop-outs in its neighbourhood of h members,
        and never gives its own.
        """
        t, spare = self.share_threshold, self.graph.n_members - self.share_threshold
        others = self.graph.n_within_two_steps - (t - 1)
        available = (t - 1) * min(spare, t - 2) + others * min(spare, t - 1)
        return available >= t * (t - 1)

    def derive(self, secret: bytes, purpose: str, i: int, j: int, size: int = 32) -> bytes:
        """Return the key of ``purpose`` between clients i and j in this round."""
        return derive_key(secret, purpose, self.digest, i, j, size)

    @property
    def key_pair(self) -> type[KeyPair]:
        """The key agreement."""
        return key_pair_type(self.document.masks)


@lru_cache(maxsize=8)
def _setup(document: RoundDocument, root: bytes) -> RoundSetup:
    if document.neighbors is None:
        graph = complete_graph(document.n_clients)
    elif document.graph_seed is not None:
        seed = _hash(b"sparse_secagg seed", document.graph_seed)
        graph = seeded_graph(document.n_clients, document.neighbors, seed)
    else:
        seed = _hash(b"sparse_secagg graph", document.digest, root)
        graph = seeded_graph(document.n_clients, document.neighbors, seed)
    return RoundSetup(document, graph, root)


def _hash(*parts: object) -> bytes:
    hasher = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        hasher.update(struct.pack("<Q", len(data)) + data)
    return hasher.digest()


class Session:
    """Rounds between one server and its changing cohorts: nothing in it is used twice.

    It remembers round numbers and public keys, none of which is secret.
    """

    def __init__(self) -> None:
        self.id = os.urandom(16)
        self._rounds: set[int] = set()
        self._keys: set[bytes] = set()

    def new_round(self, number: int | None = None) -> RoundId:
        """Return the id of a round that has not been; without a number, the next one."""
        if number is None:
            number = max(self._rounds, default=-1) + 1
        if not isinstance(number, numbers.Integral) or not 0 <= number < 1 << 64:
            raise ValueError(f"round_id={number!r} must be an integer from 0 to 2**64 - 1.")
        if number in self._rounds:
            raise ReuseError(
                f"round_id={number} has been used in this session: masks made for it would cancel "
                "each other. Leave round_id out, or give each round its own number."
            )
        self._rounds.add(int(number))
        return RoundId(self.id, int(number))

    def claim_keys(self, keys: list[bytes]) -> bool:
        """Remember public keys; False, and nothing is remembered, if one of them is known."""
        if len(set(keys)) < len(keys) or not self._keys.isdisjoint(keys):
            return False
        self._keys.update(keys)
        return True

    def __repr__(self) -> str:
        return f"Session(rounds={len(self._rounds)})"


def resolve_threshold(threshold: float | None, n: int) -> int:
    """Return the number of clients that ``threshold`` asks for: a count, a fraction, or 2/3."""
    if n < 2:
        raise ValueError(f"messages come from {n} client; a sum hides nothing with fewer than 2.")
    if threshold is None:
        return max(2, math.ceil(2 * n / 3))
    if isinstance(threshold, numbers.Integral) and not isinstance(threshold, bool):
        count = int(threshold)
    elif isinstance(threshold, numbers.Real) and 0 < threshold < 1:
        count = math.ceil(threshold * n)
    else:
        raise ValueError(
            f"threshold={threshold!r} must be a number of clients, a fraction between 0 and 1, "
            "or None for two thirds."
        )
    if not 2 <= count <= n:
        raise ValueError(
            f"threshold={threshold!r} asks for {count} of {n} clients; it must be at least 2, for "
            "a sum of one client's message is that message, and at most the number of clients."
        )
    return count
