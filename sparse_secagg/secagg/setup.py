"""What everybody knows about a round before it starts, and what a session remembers of rounds."""

from __future__ import annotations

import hashlib
import math
import numbers
import os
import struct
from dataclasses import dataclass, field
from functools import cached_property

from sparse_secagg.secagg.errors import ReuseError
from sparse_secagg.secagg.graph import MaskGraph
from sparse_secagg.secagg.keys import KeyPair, RoundId, derive_key, key_pair_type

#: The four messages of a client, in order. A client may drop out before each of them.
STAGES = ("advertise", "share", "mask", "unmask")

#: Bytes of the digest at the head of every message.
VIEW_BYTES = 24


@dataclass(frozen=True)
class RoundSetup:
    """The public parameters of one round.

    Attributes
    ----------
    round_id : RoundId
        Session and number.
    graph : MaskGraph
        Who shares masks, and secrets, with whom.
    length, modulus : int
        Messages are in Z_M^m.
    threshold : int
        Clients that must be left after each stage.
    share_threshold : int
        Shares that give a secret: the threshold on the complete graph.
    masks : str
        Name of the key agreement.
    context : bytes
        What else the clients must agree on for their masks to cancel: the round's configuration.
    """

    round_id: RoundId
    graph: MaskGraph = field(repr=False)
    length: int
    modulus: int
    threshold: int
    share_threshold: int
    masks: str = "x25519"
    context: bytes = field(default=b"", repr=False)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of everything above. It is in every key, so other views make other masks."""
        parts = (
            b"sparse_secagg round",
            self.round_id.session,
            self.round_id.number,
            self.graph.digest,
            self.length,
            self.modulus,
            self.threshold,
            self.share_threshold,
            self.masks.encode(),
            self.context,
        )
        hasher = hashlib.sha256()
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            hasher.update(struct.pack("<Q", len(data)) + data)
        return hasher.digest()

    @property
    def view(self) -> bytes:
        """The head of the digest, by which messages name the round as their party sees it."""
        return self.digest[:VIEW_BYTES]

    @property
    def least_members(self) -> int:
        """Members of its neighbourhood, itself included, that a client insists on."""
        if self.graph.is_complete:
            return max(self.share_threshold, self.threshold)
        return self.share_threshold

    def exposes(self, client: int) -> bool:
        """Return whether a server's lies alone could take off all masks of this client.

        It takes t shares of the mask key of each of the t − 1 neighbours that the client masked
        towards. Clients within two steps hold them. Each gives at most h − t, for it believes in no
        more drop-outs in its neighbourhood of h members, and never gives its own.
        """
        t, spare = self.share_threshold, self.graph.n_members - self.share_threshold
        others = self.graph.n_within_two_steps(client) - (t - 1)
        available = (t - 1) * min(spare, t - 2) + others * min(spare, t - 1)
        return available >= t * (t - 1)

    def derive(self, secret: bytes, purpose: str, i: int, j: int, size: int = 32) -> bytes:
        """Return the key of ``purpose`` between clients i and j in this round."""
        return derive_key(secret, purpose, self.digest, i, j, size)

    @property
    def key_pair(self) -> type[KeyPair]:
        """The key agreement."""
        return key_pair_type(self.masks)


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
