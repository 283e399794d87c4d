"""The messages of a round, as dataclasses and as bytes.

Every message starts with 32 bytes: "SA", the version of the format, its kind, the head of the
digest of the round as its sender sees it, and the client. So none can be replayed in another round
or belongs to another view of this one. Lists follow the receiver's or sender's neighbourhood
(public, ascending) behind one byte a member. Where the server may lie, a client signs what it
sends (Ed25519, 64 bytes at the end, over the whole digest and the message).

A message that is longer than its kind can be, or does not parse to the last byte, raises
``ValueError`` before anything is made of it; no representation shows a share or a masked vector.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg.identities import SIGNATURE_BYTES
from sparse_secagg.secagg.keys import (
    COMMITMENT_BYTES,
    PUBLIC_BYTES,
    SEAL_BYTES,
    SHARE_TAG_BYTES,
)
from sparse_secagg.secagg.merkle import HASH_BYTES
from sparse_secagg.secagg.setup import VIEW_BYTES, RoundDocument, RoundSetup
from sparse_secagg.secagg.shamir import SHARE_BYTES
from sparse_secagg.secagg.wire import bit_width, pack, packed_size, unpack

MAGIC = b"SA"
VERSION = 2

#: Which of a client's two shared secrets a flag means.
NOTHING, SELF_MASK, MASK_KEY = 0, 1, 2

CIPHERTEXT_BYTES = 2 * SHARE_BYTES + SEAL_BYTES
TAGS_BYTES = 2 * SHARE_TAG_BYTES
CONFIRMATION_BYTES = 16
#: Two public keys and the commitment to the self-mask seed: what a client advertises.
ADVERTISED_BYTES = 2 * PUBLIC_BYTES + COMMITMENT_BYTES

_HEADER = struct.Struct(f"<2sBB{VIEW_BYTES}sI")
HEADER_BYTES = _HEADER.size
Bytes = NDArray[np.uint8]


def sender_of(data: bytes) -> int:
    """Return the client that a message names; raise ValueError if it has no header."""
    if len(data) < HEADER_BYTES:
        raise ValueError(f"has {len(data)} bytes, fewer than a header")
    return int(_HEADER.unpack(data[:HEADER_BYTES])[-1])


def signed_part(digest: bytes, message: bytes) -> bytes:
    """Return what a client signs: its message under the whole digest of the round."""
    return b"sparse_secagg message\0" + digest + message


@dataclass(frozen=True, eq=False)
class Message:
    """What every message carries: the round, and the client that sends or receives it."""

    kind: ClassVar[int]

    view: bytes = field(repr=False)
    client: int

    def to_bytes(self) -> bytes:
        """Return the message as it goes over the wire, unsigned."""
        return _HEADER.pack(MAGIC, VERSION, self.kind, self.view, self.client) + self._body()

    @classmethod
    def from_bytes(cls, data: bytes, setup: RoundSetup, client: int) -> Self:
        """Return the message that ``client`` sent or receives in the round of ``setup``."""
        largest = HEADER_BYTES + cls.max_body(setup.document)
        if len(data) > largest:
            raise ValueError(f"has {len(data)} bytes; {cls.__name__} has at most {largest}")
        sender = sender_of(data)
        magic, version, kind, view, _ = _HEADER.unpack(data[:HEADER_BYTES])
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"is not of version {VERSION} of this protocol")
        if kind != cls.kind:
            raise ValueError(f"is of kind {kind} where {cls.kind} ({cls.__name__}) is expected")
        if view != cls.expected_view(setup):
            raise ValueError("belongs to another session or round, or to another view of this one")
        if sender != client:
            raise ValueError(f"claims to be client {sender}'s")
        return cls._parse(setup, view, client, data[HEADER_BYTES:])

    @classmethod
    def expected_view(cls, setup: RoundSetup) -> bytes:
        """Return the digest's head that the message must carry."""
        return setup.view

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        """Return the most bytes that can follow the header."""
        raise NotImplementedError

    @property
    def payload_bytes(self) -> int:
        """Bytes of the aggregated vector in this message; the rest is protocol."""
        return 0

    def _body(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class AdvertiseKeys(Message):
    """Client to server: two public keys and the commitment to the self-mask seed.

    The keys make the round's digest, so this message carries that of the document instead.
    """

    kind = 1

    mask_key: bytes
    cipher_key: bytes
    seed_commitment: bytes

    @classmethod
    def expected_view(cls, setup: RoundSetup) -> bytes:
        return setup.document.digest[:VIEW_BYTES]

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        return ADVERTISED_BYTES

    def _body(self) -> bytes:
        return self.mask_key + self.cipher_key + self.seed_commitment

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        mask_key, cipher_key, seed_commitment = _cut(
            body, PUBLIC_BYTES, PUBLIC_BYTES, COMMITMENT_BYTES
        )
        return cls(view, client, mask_key, cipher_key, seed_commitment)

    @classmethod
    def of(cls, document: RoundDocument, client: int, advertised: bytes) -> Self:
        """Return the message with this body, as ``client`` sends it."""
        mask_key, cipher_key, seed = _cut(advertised, PUBLIC_BYTES, PUBLIC_BYTES, COMMITMENT_BYTES)
        return cls(document.digest[:VIEW_BYTES], client, mask_key, cipher_key, seed)

    @classmethod
    def signed_by(cls, document: RoundDocument, client: int, advertised: bytes) -> bytes:
        """Return what ``client`` must have signed to have sent this body."""
        view = document.digest[:VIEW_BYTES]
        header = _HEADER.pack(MAGIC, VERSION, cls.kind, view, client)
        return signed_part(document.digest, header + advertised)


@dataclass(frozen=True, eq=False)
class PeerKeys(Message):
    """Server to client: what its neighbours that are present advertised, itself left out.

    Where the server may lie: with their signatures, the root of the hash tree over all clients'
    keys, and the proof that the neighbourhood's are in it.
    """

    kind = 2

    present: NDArray[np.bool_]
    advertised: Bytes
    root: bytes = b""
    proof: bytes = b""

    @classmethod
    def row_bytes(cls, document: RoundDocument) -> int:
        """Return the bytes for one neighbour."""
        return ADVERTISED_BYTES + (SIGNATURE_BYTES if document.lying_server else 0)

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        plain = document.n_members * (1 + cls.row_bytes(document))
        if not document.lying_server:
            return plain
        depth = (document.n_clients - 1).bit_length()
        return plain + HASH_BYTES * (1 + document.n_members * depth)

    @classmethod
    def root_of(cls, data: bytes, document: RoundDocument) -> bytes:
        """Return the root that the message states, on which its own view depends."""
        if not document.lying_server:
            return b""
        root = data[HEADER_BYTES : HEADER_BYTES + HASH_BYTES]
        if len(root) < HASH_BYTES:
            raise ValueError(f"has {len(data)} bytes, too few for the root of the keys")
        return root

    def _body(self) -> bytes:
        flags = self.present.astype(np.uint8).tobytes()
        return self.root + flags + self.advertised.tobytes() + self.proof

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        document, root, proof = setup.document, b"", b""
        if document.lying_server:
            root, body = body[:HASH_BYTES], body[HASH_BYTES:]
            n_present = np.count_nonzero(np.frombuffer(body[: document.n_members], np.uint8))
            end = document.n_members + int(n_present) * cls.row_bytes(document)
            body, proof = body[:end], body[end:]
        flags, rows = _flagged_rows(body, document.n_members, cls.row_bytes(document))
        return cls(view, client, flags == 1, rows, root, proof)


@dataclass(frozen=True, eq=False)
class ShareKeys(Message):
    """Client to server: an encrypted pair of shares for each neighbour; tags of all shares.

    ``tags`` has a row for each member present and for the dealer itself, which keeps its share.
    """

    kind = 3

    present: NDArray[np.bool_]
    ciphertexts: Bytes
    tags: Bytes

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        return document.n_members * (1 + CIPHERTEXT_BYTES + TAGS_BYTES)

    def _body(self) -> bytes:
        flags = self.present.astype(np.uint8)
        return flags.tobytes() + self.ciphertexts.tobytes() + self.tags.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        own_tag = len(body) - TAGS_BYTES
        if own_tag < 0:
            raise ValueError("is too short")
        flags, rows = _flagged_rows(
            body[:own_tag], setup.document.n_members, CIPHERTEXT_BYTES + TAGS_BYTES
        )
        # All ciphertexts come first, then all tags.
        n = len(rows)
        data = np.frombuffer(body[len(flags) :], dtype=np.uint8)
        ciphertexts = data[: n * CIPHERTEXT_BYTES].reshape(n, CIPHERTEXT_BYTES)
        tags = data[n * CIPHERTEXT_BYTES :].reshape(n + 1, TAGS_BYTES)
        return cls(view, client, flags == 1, ciphertexts, tags)


@dataclass(frozen=True, eq=False)
class ForwardedShares(Message):
    """Server to client: the ciphertexts that its neighbours made for it."""

    kind = 4

    present: NDArray[np.bool_]
    ciphertexts: Bytes

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        return document.n_members * (1 + CIPHERTEXT_BYTES)

    def _body(self) -> bytes:
        return self.present.astype(np.uint8).tobytes() + self.ciphertexts.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        flags, rows = _flagged_rows(body, setup.document.n_members, CIPHERTEXT_BYTES)
        return cls(view, client, flags == 1, rows)


@dataclass(frozen=True, eq=False)
class MaskedInput(Message):
    """Client to server: its message plus all its masks; and whose shares did not open."""

    kind = 5

    values: NDArray[np.uint64] = field(repr=False)
    modulus: int
    complaints: tuple[int, ...] = ()

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        size = packed_size(document.length, bit_width(document.modulus))
        return 4 + 4 * document.n_members + size

    @property
    def payload_bytes(self) -> int:
        return packed_size(len(self.values), bit_width(self.modulus))

    def _body(self) -> bytes:
        complaints = struct.pack(
            f"<I{len(self.complaints)}I", len(self.complaints), *self.complaints
        )
        return complaints + pack(self.values, bit_width(self.modulus))

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
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
        return cls(view, client, values, setup.modulus, complaints)


@dataclass(frozen=True, eq=False)
class SurvivorList(Message):
    """Server to client: which of all clients are in the sum, one bit each.

    A client gives shares of self masks for those on the list and of mask keys for those that shared
    and are not; so there is no way to ask for both, nor for neither.
    """

    kind = 6

    survivors: NDArray[np.bool_]

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        return packed_size(document.n_clients, 1)

    def _body(self) -> bytes:
        return np.packbits(self.survivors, bitorder="little").tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        n = setup.document.n_clients
        if len(body) != packed_size(n, 1):
            raise ValueError(f"has a list of {len(body)} bytes for {n} clients")
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8), bitorder="little")
        if bits[n:].any():
            raise ValueError("has a list with bits beyond the last client")
        return cls(view, client, bits[:n] == 1)


@dataclass(frozen=True, eq=False)
class Confirmation(Message):
    """Client to server: for each neighbour on the list, a tag that shows it the same list."""

    kind = 7

    present: NDArray[np.bool_]
    tags: Bytes

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        return document.n_members * (1 + CONFIRMATION_BYTES)

    def _body(self) -> bytes:
        return self.present.astype(np.uint8).tobytes() + self.tags.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        flags, rows = _flagged_rows(body, setup.document.n_members, CONFIRMATION_BYTES)
        return cls(view, client, flags == 1, rows)


@dataclass(frozen=True, eq=False)
class Confirmations(Confirmation):
    """Server to client: the tags that its neighbours made for it."""

    kind = 8


@dataclass(frozen=True, eq=False)
class UnmaskShares(Message):
    """Client to server: the shares that the list asks for, as far as it has them."""

    kind = 9

    given: Bytes
    shares: Bytes = field(repr=False)

    @classmethod
    def max_body(cls, document: RoundDocument) -> int:
        return document.n_members * (1 + SHARE_BYTES)

    def _body(self) -> bytes:
        return self.given.tobytes() + self.shares.tobytes()

    @classmethod
    def _parse(cls, setup: RoundSetup, view: bytes, client: int, body: bytes) -> Self:
        flags, rows = _flagged_rows(body, setup.document.n_members, SHARE_BYTES, MASK_KEY)
        return cls(view, client, flags, rows)


#: Every kind of message.
KINDS: tuple[type[Message], ...] = (
    AdvertiseKeys, PeerKeys, ShareKeys, ForwardedShares, MaskedInput,
    SurvivorList, Confirmation, Confirmations, UnmaskShares,
)  # fmt: skip


def max_message_bytes(document: RoundDocument) -> int:
    """Return the length of the longest message of a round, which a transport need not exceed."""
    return HEADER_BYTES + SIGNATURE_BYTES + max(kind.max_body(document) for kind in KINDS)


def max_incoming_bytes(document: RoundDocument) -> int:
    """Return the length of the longest message that a client is sent; no vector is among them."""
    kinds = (PeerKeys, ForwardedShares, SurvivorList, Confirmations)
    return HEADER_BYTES + max(kind.max_body(document) for kind in kinds)


def _cut(body: bytes, *sizes: int) -> list[bytes]:
    if len(body) != sum(sizes):
        raise ValueError(f"has a body of {len(body)} bytes instead of {sum(sizes)}")
    ends = accumulate(sizes)
    return [body[end - size : end] for end, size in zip(ends, sizes)]


def _flagged_rows(
    body: bytes, n_flags: int, row_bytes: int, largest_flag: int = 1
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
