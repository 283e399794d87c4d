"""Hash trees: one 32-byte root for the keys of all clients, and proofs for a neighbourhood.

    leaf_i = SHA-256(0 ‖ i ‖ data_i), or 32 zero bytes for an absent client
    node   = SHA-256(1 ‖ left ‖ right),   leaves padded with zeros to a power of two

A proof for a set of leaves holds the hashes beside their paths, level by level from the leaves up.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence

HASH_BYTES = 32
ABSENT = bytes(HASH_BYTES)


def leaf(index: int, data: bytes) -> bytes:
    """Return the leaf of client ``index``."""
    return hashlib.sha256(b"\0" + struct.pack("<I", index) + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class HashTree:
    """The tree over all leaves, as its owner holds it."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        width = 1 << max(0, len(leaves) - 1).bit_length()
        level = [*leaves, *[ABSENT] * (width - len(leaves))]
        self._levels = [level]
        while len(level) > 1:
            level = [_node(level[i], level[i + 1]) for i in range(0, len(level), 2)]
            self._levels.append(level)

    @property
    def root(self) -> bytes:
        """The root, which binds all leaves."""
        return self._levels[-1][0]

    def proof(self, indices: Iterable[int]) -> bytes:
        """Return the hashes that lead from the leaves at ``indices`` to the root."""
        known, parts = set(indices), []
        for level in self._levels[:-1]:
            parts += [level[i ^ 1] for i in sorted(known) if i ^ 1 not in known]
            known = {i >> 1 for i in known}
        return b"".join(parts)


def is_proved(root: bytes, n_leaves: int, leaves: Mapping[int, bytes], proof: bytes) -> bool:
    """Return whether ``proof`` shows that a tree of ``n_leaves`` has these leaves and this root."""
    known, position = dict(leaves), 0
    for _ in range(max(0, n_leaves - 1).bit_length()):
        above: dict[int, bytes] = {}
        for i in sorted(known):
            if i >> 1 in above:
                continue
            other = known.get(i ^ 1)
            if other is None:
                other = proof[position : position + HASH_BYTES]
                position += HASH_BYTES
            pair = (known[i], other) if i % 2 == 0 else (other, known[i])
            above[i >> 1] = _node(*pair)
        known = above
    return position == len(proof) and known == {0: root}
