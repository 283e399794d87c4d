"""Names of items that nobody listed: votes on the bits of a fixed-length code.

An item's code is its UTF-8 bytes, padded with zeros, and a checksum. In the second round every
holder of an item in one of the heavy cells votes ±1 on each bit; the bits of the dominant item
stand out. A name is accepted only if its checksum and its cell agree with what was decoded, which
also corrects a few doubtful bits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sparse_secagg.counting.domains import Domain

__all__ = ["Ballot", "ItemCodes", "VoteRows", "planned_votes"]

_CHECK_BYTES = 2
#: Doubtful bits that are tried both ways: 2¹² trials against 33 bits of hash and checksum.
_DOUBTFUL = 12
#: Votes of a cell over their noise below which its name is not tried.
_LEAST_SIGNAL = 4.0
_MOST_CELLS = 128
_MOST_VOTES = 8


@dataclass(frozen=True)
class ItemCodes:
    """Codes of items up to ``n_bytes`` bytes of UTF-8; longer ones have none (zeros)."""

    n_bytes: int

    @property
    def length(self) -> int:
        """Bytes of a code."""
        return self.n_bytes + _CHECK_BYTES

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        return 8 * self.length

    def encode(self, items: Sequence[str]) -> NDArray[np.uint8]:
        """Return the codes of items, of shape (n, length)."""
        return np.frombuffer(b"".join(map(self._code, items)), dtype=np.uint8).reshape(
            -1, self.length
        )

    def _code(self, item: str) -> bytes:
        try:
            text = item.encode()
        except UnicodeEncodeError:
            text = b""
        if not text or len(text) > self.n_bytes or b"\0" in text:
            return bytes(self.length)
        padded = text.ljust(self.n_bytes, b"\0")
        return padded + _checksum(padded)

    def decode(self, votes: NDArray[np.float64], cell: int, domain: Domain) -> str | None:
        """Return the item that votes of shape (n_bits,) spell; None where they are in doubt."""
        bits = (votes > 0).astype(np.uint8)
        for flipped in self._likely(bits, np.abs(votes)):
            item = self._item(np.packbits(flipped).tobytes())
            if item is not None and domain.columns([item])[0] == cell:
                return item
        return None

    def _likely(
        self, bits: NDArray[np.uint8], confidence: NDArray[np.float64]
    ) -> Iterator[NDArray[np.uint8]]:
        """Yield the bits and then, the likelier first, with doubtful ones turned over."""
        yield bits
        doubtful = np.argsort(confidence, kind="stable")[:_DOUBTFUL]
        turned = (np.arange(1, 2 ** len(doubtful))[:, None] >> np.arange(len(doubtful))) & 1
        for k in np.argsort(turned @ confidence[doubtful], kind="stable"):
            other = bits.copy()
            other[doubtful] ^= turned[k].astype(np.uint8)
            yield other

    def _item(self, code: bytes) -> str | None:
        padded, check = code[: self.n_bytes], code[self.n_bytes :]
        if check != _checksum(padded):
            return None
        text = padded.rstrip(b"\0")
        if not text or b"\0" in text:
            return None
        try:
            return text.decode()
        except UnicodeDecodeError:
            return None


def _checksum(padded: bytes) -> bytes:
    return hashlib.blake2b(padded, digest_size=_CHECK_BYTES, person=b"item check").digest()


def planned_votes(
    counts: NDArray[np.float64], n: int, noise_multiplier: float, n_bits: int
) -> tuple[int, int]:
    """Return how many cells to name, and how many items a user may vote on.

    A user holds about Σcounts/n items in the cells and votes on ``votes`` of them, with noise
    z·√(votes·n_bits): the most cells of which the smallest still stands out.

    Parameters
    ----------
    counts : ndarray
        Private estimates of the heavy cells' counts, the largest first.
    n : int
        Users.
    noise_multiplier : float
        z of the second round.
    n_bits : int
        Bits of a code.
    """
    counts = counts[:_MOST_CELLS]
    held = np.maximum(np.cumsum(counts) / n, 1.0)
    best = (min(len(counts), _MOST_VOTES), 1)
    for cells in range(len(counts), 0, -1):
        signals = [
            counts[cells - 1]
            * min(1.0, votes / held[cells - 1])
            / (noise_multiplier * math.sqrt(votes * n_bits))
            for votes in range(1, _MOST_VOTES + 1)
        ]
        if max(signals) >= _LEAST_SIGNAL:
            return cells, int(np.argmax(signals)) + 1
    return best


@dataclass(frozen=True)
class Ballot:
    """What the second round of an open domain asks; public, since it follows from private counts.

    Attributes
    ----------
    cells : tuple of int
        The cells to be named, the heaviest first.
    votes : int
        Items that one user may vote on.
    codes : ItemCodes
        How items are written.
    """

    cells: tuple[int, ...]
    votes: int
    codes: ItemCodes

    @classmethod
    def of(
        cls,
        cells: NDArray[np.int64],
        counts: NDArray[np.float64],
        n: int,
        noise_multiplier: float,
        codes: ItemCodes,
    ) -> Ballot:
        """Return the ballot on heavy cells with these counts, the largest first."""
        number, votes = planned_votes(counts, n, noise_multiplier, codes.n_bits)
        return cls(tuple(cells[:number].tolist()), votes, codes)

    @property
    def dim(self) -> int:
        """Length of a user's vector of votes."""
        return len(self.cells) * self.codes.n_bits

    def names(self, means: NDArray[np.float64], domain: Domain) -> dict[int, str]:
        """Return the cells whose item the mean vector of votes spells beyond doubt."""
        spelt = np.reshape(means, (len(self.cells), self.codes.n_bits))
        names = {
            cell: self.codes.decode(votes, cell, domain) for cell, votes in zip(self.cells, spelt)
        }
        return {cell: name for cell, name in names.items() if name is not None}


class VoteRows:
    """The users' votes as the rows of a matrix of ±1, made when they are read.

    Parameters
    ----------
    held : Held
        Of each user, cells and codes.
    n, n_cells : int
        Users and cells.
    """

    def __init__(self, held: Any, n: int, n_cells: int) -> None:
        self._held, self._n_bits = held, 8 * held.codes.shape[1]
        self.shape = (n, n_cells * self._n_bits)

    def __getitem__(self, rows: slice) -> sp.csr_array:
        start, stop, _ = rows.indices(self.shape[0])
        ends = np.minimum(np.arange(start, stop + 1), self._held.n_users)
        indptr = self._held.indptr[ends]
        part = slice(indptr[0], indptr[-1])
        signs = 2.0 * np.unpackbits(self._held.codes[part], axis=1) - 1.0
        first = self._held.columns[part] * self._n_bits
        columns = first[:, None] + np.arange(self._n_bits)
        return sp.csr_array(
            (signs.ravel(), columns.ravel(), (indptr - indptr[0]) * self._n_bits),
            shape=(stop - start, self.shape[1]),
        )
