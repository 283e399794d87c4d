"""Key agreement, key derivation and authenticated encryption.

A pair of clients agrees on a secret, s_ij = agree(secret_i, public_j) = agree(secret_j, public_i).
Keys are never used as they come: each is HKDF-SHA256 of a secret with an ``info`` that names its
purpose, the two clients and, by its digest, everything public about the round. So no key serves two
purposes, rounds or pairs, and two clients that were told different things have no key in common.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SECRET_BYTES = 32
PUBLIC_BYTES = 32
SEAL_BYTES = 16
COMMITMENT_BYTES = 32
SHARE_TAG_BYTES = 16


@dataclass(frozen=True)
class RoundId:
    """The name of one round: a random session and a number used once in it."""

    session: bytes
    number: int


class KeyPair(Protocol):
    """One side of Diffie–Hellman, or of something with its interface."""

    #: True if the public key gives the secret away.
    not_private: bool
    #: The public key.
    public: bytes

    def __init__(self, secret: bytes) -> None:
        """Make the pair from 32 random bytes."""

    def agree(self, public: bytes) -> bytes:
        """Return the secret shared with another; raise ValueError for a key that is no key."""
        ...


#: A simulation reads each client's key once for every neighbour.
_public_key = lru_cache(maxsize=4096)(X25519PublicKey.from_public_bytes)


class X25519:
    """Elliptic-curve Diffie–Hellman on Curve25519 (RFC 7748)."""

    not_private = False

    def __init__(self, secret: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        # A point of low order gives the secret 0, which `exchange` refuses with ValueError.
        return self._private.exchange(_public_key(public))


class Seeded:
    """Diffie–Hellman in the additive group modulo 2^255 − 19: the algebra without the security.

    The public key is 9·a, the pair's secret 9·a·b: both take one multiplication, and whoever sees
    the public keys can divide by 9. For simulations whose point is not the cryptography.
    """

    not_private = True
    _ORDER = 2**255 - 19

    def __init__(self, secret: bytes) -> None:
        self._secret = int.from_bytes(secret, "little")
        self.public = self.agree((9).to_bytes(32, "little"))

    def agree(self, public: bytes) -> bytes:
        product = self._secret * int.from_bytes(public, "little") % self._ORDER
        if product == 0:
            raise ValueError("the public key is zero")
        return product.to_bytes(32, "little")


class Jointly:
    """Two key pairs as one: only who has a secret of each can agree with it."""

    def __init__(self, first: KeyPair, second: KeyPair) -> None:
        self._pairs = first, second
        self.not_private = first.not_private or second.not_private
        self.public = first.public + second.public

    def agree(self, public: bytes) -> bytes:
        first, second = self._pairs
        return first.agree(public[:PUBLIC_BYTES]) + second.agree(public[PUBLIC_BYTES:])


#: Key agreements by name.
KEY_PAIRS: dict[str, type[KeyPair]] = {"x25519": X25519, "seeded": Seeded}


def key_pair_type(masks: str) -> type[KeyPair]:
    """Return the key agreement called ``masks``."""
    if masks not in KEY_PAIRS:
        raise ValueError(f"masks={masks!r} must be one of {sorted(KEY_PAIRS)}.")
    return KEY_PAIRS[masks]


def derive_key(secret: bytes, purpose: str, digest: bytes, i: int, j: int, size: int = 32) -> bytes:
    """Return the key of ``purpose`` between clients i and j in the round that has this digest."""
    info = purpose.encode() + digest + struct.pack("<II", i, j)
    return HKDF(SHA256(), size, None, info).derive(secret)


class AgreedOnce:
    """Keys of pairs both ends of which are played in one process, each computed by one end alone.

    Two ends agree on the same key, so it is handed to the second as the first has found it. It is
    found under both public keys and all that it is derived from: ends that were told different
    things find nothing and compute their own.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[Any, ...], bytes] = {}

    def key(
        self, own: KeyPair, public: bytes, purpose: str, digest: bytes, i: int, j: int, size: int
    ) -> bytes:
        """Return the key of a purpose, of which each end asks for once."""
        pair = (*sorted((own.public, public)), purpose, digest, i, j, size)
        known = self._keys.pop(pair, None)
        if known is None:
            known = self._keys[pair] = derive_key(own.agree(public), purpose, digest, i, j, size)
        return known


def new_secret() -> bytes:
    """Return 32 bytes from the operating system."""
    return os.urandom(SECRET_BYTES)


def seal(key: bytes, plaintext: bytes) -> bytes:
    """Encrypt and authenticate (AES-256-GCM). The key is for this one message: nonce 0."""
    return AESGCM(key).encrypt(bytes(12), plaintext, None)


def unseal(key: bytes, ciphertext: bytes) -> bytes | None:
    """Invert :func:`seal`; None if a bit was changed or the key is another."""
    try:
        return AESGCM(key).decrypt(bytes(12), ciphertext, None)
    except InvalidTag:
        return None


def commitment(seed: bytes) -> bytes:
    """Return what binds a client to its self-mask seed and, the seed being random, hides it.

    It depends on the seed alone, so that a seed used twice is recognised.
    """
    return hashlib.blake2b(seed, digest_size=COMMITMENT_BYTES, person=b"self-mask seed").digest()


def share_tag(digest: bytes, dealer: int, rank: int, kind: int, share: bytes) -> bytes:
    """Return the fingerprint by which the server recognises a share it is given later.

    A share has 256 bits of entropy or more, so the fingerprint does not reveal it.
    """
    place = struct.pack("<IIB", dealer, rank, kind)
    return hashlib.blake2b(
        digest + place + share, digest_size=SHARE_TAG_BYTES, person=b"share tag"
    ).digest()
