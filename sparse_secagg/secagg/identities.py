"""Who takes part: Ed25519 identities, and rosters of them that everybody knows beforehand.

A roster is a file that clients and server get from somebody they trust, not from the server; its
SHA-256 digest is part of every key of a round, so parties with different rosters have no key in
common. Client i of a round is member i of its roster. A change makes a new version; keys that were
rotated or revoked are remembered, so that they cannot come back.

An identity signs, for everybody, and agrees on a secret with each other identity, for the two of
them: Ed25519 and X25519 are one curve, −x² + y² = 1 + d·x²y² and v² = u³ + A·u² + u, with
u = (1 + y)/(1 − y) (RFC 7748, section 4.1).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sparse_secagg.private_files import open_private
from sparse_secagg.secagg.keys import X25519

KEY_BYTES = 32
SIGNATURE_BYTES = 64
#: Longest roster that is read: about 200 bytes a member.
MAX_ROSTER_BYTES = 1 << 28
MAX_NAME = 100
#: The prime of both curves.
_PRIME = 2**255 - 19

_IDENTITY_FORMAT = "sparse_secagg identity 1"
_ROSTER_FORMAT = "sparse_secagg roster 1"


class Identity:
    """A client's long-term key.

    Parameters
    ----------
    secret : bytes
        32 random bytes. Use :meth:`new` or :meth:`load`.

    See Also
    --------
    Roster : Whose public keys count.

    Examples
    --------
    >>> from sparse_secagg import Identity
    >>> len(Identity.new().public)
    32
    """

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise ValueError(f"secret must have {KEY_BYTES} bytes; make one with Identity.new().")
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        #: The public key, which goes on rosters.
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def new(cls) -> Identity:
        """Return a fresh identity from the operating system's randomness."""
        return cls(os.urandom(KEY_BYTES))

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""
        return self._key.sign(message)

    @cached_property
    def agreement(self) -> X25519:
        """The same key as one to agree with; :func:`agreement_keys` gives the others'."""
        # The scalar of Ed25519 (RFC 8032, section 5.1.5), which X25519 clamps alike.
        return X25519(hashlib.sha512(self._key.private_bytes_raw()).digest()[:KEY_BYTES])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the secret to a new file that only its owner can read."""
        document = {"format": _IDENTITY_FORMAT, "secret": self._key.private_bytes_raw().hex()}
        with open_private(Path(path), "x") as file:
            json.dump(document, file)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Identity:
        """Return the identity that :meth:`save` wrote."""
        try:
            document = json.loads(Path(path).read_text())
            if document["format"] != _IDENTITY_FORMAT:
                raise ValueError("another format")
            return cls(bytes.fromhex(document["secret"]))
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{str(path)!r} holds no identity; make one with 'sparse-secagg identity new'."
            ) from None

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()[:16]}…)"

    def __getstate__(self) -> Any:
        raise TypeError("an identity is a secret and is not to be pickled or copied.")


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether ``signature`` is that of ``message`` under a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def agreement_keys(identities: Sequence[bytes]) -> list[bytes]:
    """Return the X25519 public keys of identities, from their Ed25519 public keys."""
    heights = [(int.from_bytes(key, "little") & ((1 << 255) - 1)) % _PRIME for key in identities]
    # One inversion for all. The neutral element, y = 1, has no u: nobody agrees with it anyway.
    divisors = [(1 - y) % _PRIME or 1 for y in heights]
    products = list(accumulate(divisors, lambda a, b: a * b % _PRIME, initial=1))
    inverse, keys = pow(products[-1], -1, _PRIME), []
    for y, divisor, before in zip(reversed(heights), reversed(divisors), reversed(products[:-1])):
        keys.append(((1 + y) * before * inverse % _PRIME).to_bytes(KEY_BYTES, "little"))
        inverse = inverse * divisor % _PRIME
    return keys[::-1]


@dataclass(frozen=True)
class Member:
    """One line of a roster."""

    name: str
    key: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME:
            raise ValueError(f"name={str(self.name)[:50]!r} must have 1 to {MAX_NAME} characters.")
        if not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES:
            raise ValueError(f"the key of {self.name!r} must have {KEY_BYTES} bytes.")


def _enrolled(name: str, key: bytes) -> Member:
    """Return a new line of a roster; refuse keys that agree with all others on the same."""
    member = Member(name, key)
    try:
        X25519(bytes(KEY_BYTES)).agree(*agreement_keys([key]))
    except ValueError:
        raise ValueError(f"the key of {name!r} is of low order: nobody has its secret.") from None
    return member


@dataclass(frozen=True)
class Roster:
    """Everybody who may take part in the rounds of one group.

    Parameters
    ----------
    name : str
        Of the group. Clients remember the newest version they have seen under it.
    members : tuple of Member
        Client i of a round is ``members[i]``.
    version : int
        Grows with every change.
    revoked : frozenset of bytes
        Keys that were on an earlier version and are not to be trusted any more.

    See Also
    --------
    Identity : Makes the key of a member.
    announce_round : Announces a round to a roster.

    Examples
    --------
    >>> from sparse_secagg.secagg.identities import Identity, Roster
    >>> ann, bob = Identity.new(), Identity.new()
    >>> roster = Roster("demo").add("ann", ann.public).add("bob", bob.public)
    >>> roster.version, roster.index(bob.public)
    (3, 1)
    >>> roster.rotate("bob", Identity.new().public).index(bob.public) is None
    True
    """

    name: str
    members: tuple[Member, ...] = field(default=(), repr=False)
    version: int = 1
    revoked: frozenset[bytes] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME:
            raise ValueError(f"name={str(self.name)[:50]!r} must have 1 to {MAX_NAME} characters.")
        if type(self.version) is not int or not 1 <= self.version < 1 << 63:
            raise ValueError(f"version={self.version!r} must be a positive integer.")
        keys = [member.key for member in self.members]
        if len(set(keys)) < len(keys):
            raise ValueError("two members of the roster have one key; every member needs its own.")
        if len({member.name for member in self.members}) < len(keys):
            raise ValueError("two members of the roster have one name.")
        if not self.revoked.isdisjoint(keys):
            raise ValueError("a member of the roster has a revoked key; give it a new one.")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the whole roster, by which it is pinned."""
        return hashlib.sha256(self.to_json().encode()).digest()

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {member.key: i for i, member in enumerate(self.members)}

    def index(self, key: bytes) -> int | None:
        """Return the place of the member with this public key; None for a stranger."""
        return self._index.get(key)

    def add(self, name: str, key: bytes) -> Roster:
        """Return the next version, with a new member."""
        return self._next((*self.members, _enrolled(name, key)))

    def rotate(self, name: str, key: bytes) -> Roster:
        """Return the next version, in which a member has a new key and the old one is revoked."""
        place = self._place(name)
        members = list(self.members)
        members[place] = _enrolled(name, key)
        return self._next(tuple(members), self.members[place].key)

    def revoke(self, name: str) -> Roster:
        """Return the next version, without a member and with its key revoked."""
        place = self._place(name)
        return self._next(self.members[:place] + self.members[place + 1 :], self.members[place].key)

    def to_json(self) -> str:
        """Return the roster as JSON, always the same text for the same roster."""
        document = {
            "format": _ROSTER_FORMAT,
            "members": [{"key": m.key.hex(), "name": m.name} for m in self.members],
            "name": self.name,
            "revoked": sorted(key.hex() for key in self.revoked),
            "version": self.version,
        }
        return json.dumps(document, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Roster:
        """Return the roster that :meth:`to_json` wrote; raise ValueError if it is none."""
        if len(text) > MAX_ROSTER_BYTES:
            raise ValueError(f"the roster has {len(text)} bytes, above {MAX_ROSTER_BYTES}.")
        try:
            document = json.loads(text)
            if document["format"] != _ROSTER_FORMAT:
                raise ValueError("it has another format")
            return cls(
                document["name"],
                tuple(Member(m["name"], bytes.fromhex(m["key"])) for m in document["members"]),
                document["version"],
                frozenset(bytes.fromhex(key) for key in document["revoked"]),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"this is no roster: {error!r}.") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the roster to a file."""
        Path(path).write_text(self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Roster:
        """Return the roster in a file; raise ValueError if it holds none."""
        try:
            return cls.from_json(Path(path).read_text().strip())
        except ValueError as error:
            raise ValueError(
                f"{str(path)!r} holds no roster ({error}); make one with 'sparse-secagg identity "
                "enrol'."
            ) from None

    def __len__(self) -> int:
        return len(self.members)

    def _next(self, members: tuple[Member, ...], revoked: bytes | None = None) -> Roster:
        gone = self.revoked if revoked is None else self.revoked | {revoked}
        return replace(self, members=members, version=self.version + 1, revoked=gone)

    def _place(self, name: str) -> int:
        names = [member.name for member in self.members]
        if name not in names:
            raise ValueError(f"name={name!r} is nobody on the roster {self.name!r}.")
        return names.index(name)
