"""The messages of a round, as dataclasses and as bytes.

Every message starts with its kind, the head of the round's digest and the client (29 bytes), so
none can be replayed in another round or belongs to another view of this one. Lists follow the
receiver's or sender's neighbourhood (public, ascending) behind one byte a member. A message that
does not parse to the last byte raises ``ValueError``; no representation shows a share or a masked
vector.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg.keys import (
    COMMITMENT_BYTES,
    PUBLIC_BYTES,
    SEAL_BYTES,
    SHARE_TAG_BYTES,
)
from sparse_secagg.secagg.setup import VIEW_BYTES, RoundSetup
from sparse_secagg.secagg.shamir import SHARE_BYTES
from sparse_secagg.secagg.wire import bit_width, pack, packed_size, unpack

#: Which of a client's two shared secrets a flag means.
NOTHING, SELF_MASK, MASK_KEY = 0, 1, 2

CIPHERTEXT_BYTES = 2 * SHARE_BYTES + SEAL_BYTES
KEYS_BYTES = 2 * PUBLIC_BYTES
TAGS_BYTES = 2 * SHARE_TAG_BYTES

_HEADER = struct.Struct(f"<B{VIEW_BYTES}sI")
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Message:
    """What every message carries: the round, and the client that sends or receives it."""

    kind: ClassVar[int]

    view: bytes = field(repr=False)
    client: int

    def to_bytes(self) -> bytes:
        """Return the message as it goes over the wire."""
        return _HEADER.pack(self.kind, self.view, self.client) + self._body()

    @classmethod
    def from_bytes(cls, data: bytes, setup: RoundSetup, client: int) -> Self:
        """Return the message that ``client`` sent or receives in the round of ``setup``."""
        if len(data) < _HEADER.size:
            raise ValueError(f"has {len(data)} bytes, fewer than a header")
        kind, view, sender = _HEADER.unpack(data[: _HEADER.size])
        if kind != cls.kind:
            raise ValueError(f"is of kind {kind} where {cls.kind} ({cls.__name__}) is expected")
        if view != setup.view:
            raise ValueError("belongs to another session or round, or to another view of this one")
        if sender != client:
            raise ValueError(f"claims to be client {sender}'s")
        return cls._parse(setup, client, data[_HEADER.size :])

    @property
    def payload_bytes(self) -> int:
        """Bytes of the aggregated vector in this message; the rest is protocol."""
        return 0

    def _body(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class AdvertiseKeys(Message):
    """Client to server: two public keys and the commitment to the self-mask seed."""

    kind = 1

    mask_key: bytes
    cipher_key: bytes
    seed_commitment: bytes

    def _body(self) -> bytes:
        return self.mask_key + self.cipher_key + self.seed_commitment

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        mask_key, cipher_key, seed_commitment = _cut(
            body, PUBLIC_BYTES, PUBLIC_BYTES, COMMITMENT_BYTES
        )
        return cls(setup.view, client, mask_key, cipher_key, seed_commitment)


@dataclass(frozen=True, eq=False)
class PeerKeys(Message):
    """Server to client: the public keys of its neighbours that are present, itself not."""

    kind = 2

    present: NDArray[np.bool_]
    keys: Bytes

    def _body(self) -> bytes:
        return self.present.astype(np.uint8).tobytes() + self.keys.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        flags, rows = _flagged_rows(body, setup.graph.n_members, KEYS_BYTES, 1)
        return cls(setup.view, client, flags == 1, rows)


@dataclass(frozen=True, eq=False)
class ShareKeys(Message):
    """Client to server: an encrypted pair of shares for each neighbour; tags of all shares.

    ``tags`` has a row for each member present and for the dealer itself, which keeps its share.
    """

    kind = 3

    present: NDArray[np.bool_]
    ciphertexts: Bytes
    tags: Bytes

    def _body(self) -> bytes:
        flags = self.present.astype(np.uint8)
        return flags.tobytes() + self.ciphertexts.tobytes() + self.tags.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        own_tag = len(body) - TAGS_BYTES
        if own_tag < 0:
            raise ValueError("is too short")
        flags, rows = _flagged_rows(
            body[:own_tag], setup.graph.n_members, CIPHERTEXT_BYTES + TAGS_BYTES, 1
        )
        # All ciphertexts come first, then all tags.
        n = len(rows)
        data = np.frombuffer(body[len(flags) :], dtype=np.uint8)
        ciphertexts = data[: n * CIPHERTEXT_BYTES].reshape(n, CIPHERTEXT_BYTES)
        tags = data[n * CIPHERTEXT_BYTES :].reshape(n + 1, TAGS_BYTES)
        return cls(setup.view, client, flags == 1, ciphertexts, tags)


@dataclass(frozen=True, eq=False)
class ForwardedShares(Message):
    """Server to client: the ciphertexts that its neighbours made for it."""

    kind = 4

    present: NDArray[np.bool_]
    ciphertexts: Bytes

    def _body(self) -> bytes:
        return self.present.astype(np.uint8).tobytes() + self.ciphertexts.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        flags, rows = _flagged_rows(body, setup.graph.n_members, CIPHERTEXT_BYTES, 1)
        return cls(setup.view, client, flags == 1, rows)


@dataclass(frozen=True, eq=False)
class MaskedInput(Message):
    """Client to server: its message plus all its masks; and whose shares did not open."""

    kind = 5

    values: NDArray[np.uint64] = field(repr=False)
    modulus: int
    complaints: tuple[int, ...] = ()

    @property
    def payload_bytes(self) -> int:
        return packed_size(len(self.values), bit_width(self.modulus))

    def _body(self) -> bytes:
        complaints = struct.pack(
            f"<I{len(self.complaints)}I", len(self.complaints), *self.complaints
        )
        return complaints + pack(self.values, bit_width(self.modulus))

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        bits = bit_width(setup.modulus)
        size = packed_size(setup.length, bits)
        n_complaints = int.from_bytes(body[:4], "little") if len(body) >= 4 else 0
        if len(body) != 4 + 4 * n_complaints + size:
            raise ValueError(
                f"has a body of {len(body)} bytes; a vector of length {setup.length} at {bits} "
                f"bits takes {size} and {4 + 4 * n_complaints} more"
            )
        complaints = struct.unpack(f"<{n_complaints}I", body[4 : 4 + 4 * n_complaints])
        values = unpack(body[4 + 4 * n_complaints :], bits, setup.length)
        if values.size and int(values.max()) >= setup.modulus:
            raise ValueError(f"has values outside [0, {setup.modulus})")
        return cls(setup.view, client, values, setup.modulus, complaints)


@dataclass(frozen=True, eq=False)
class UnmaskRequest(Message):
    """Server to client: which share of each neighbour it wants. There is no way to ask for both."""

    kind = 6

    wanted: Bytes

    def _body(self) -> bytes:
        return self.wanted.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        flags, _ = _flagged_rows(body, setup.graph.n_members, 0, MASK_KEY)
        return cls(setup.view, client, flags)


@dataclass(frozen=True, eq=False)
class UnmaskShares(Message):
    """Client to server: the shares asked for, as far as it has them."""

    kind = 7

    given: Bytes
    shares: Bytes = field(repr=False)

    def _body(self) -> bytes:
        return self.given.tobytes() + self.shares.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, client: int, body: bytes) -> Self:
        flags, rows = _flagged_rows(body, setup.graph.n_members, SHARE_BYTES, MASK_KEY)
        return cls(setup.view, client, flags, rows)


def _cut(body: bytes, *sizes: int) -> list[bytes]:
    if len(body) != sum(sizes):
        raise ValueError(f"has a body of {len(body)} bytes instead of {sum(sizes)}")
    ends = np.cumsum(sizes)
    return [body[end - size : end] for end, size in zip(ends, sizes)]


def _flagged_rows(
    body: bytes, n_flags: int, row_bytes: int, largest_flag: int
) -> tuple[Bytes, Bytes]:
    """Return one flag a member and one row a nonzero flag, or raise if the body is not that."""
    flags = np.frombuffer(body[:n_flags], dtype=np.uint8)
    if len(flags) != n_flags or flags.max() > largest_flag:
        raise ValueError("has malformed flags")
    n_rows = int(np.count_nonzero(flags))
    if len(body) != n_flags + n_rows * row_bytes:
        raise ValueError(
            f"has a body of {len(body)} bytes instead of {n_flags + n_rows * row_bytes}"
        )
    rows = np.frombuffer(body[n_flags:], dtype=np.uint8).reshape(n_rows, row_bytes)
    return flags, rows
