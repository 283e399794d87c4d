"""Contributions: what each user holds, and at most ``max_items`` of it, chosen at random.

Rows are spread over buckets by a secret hash of their user, so that a user's rows meet however they
are scattered over the table, and only one bucket is held at a time. Large buckets wait on disk, in
unnamed files that nobody else can open.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sparse_secagg.counting.domains import Domain
from sparse_secagg.counting.names import ItemCodes
from sparse_secagg.counting.tables import Batch
from sparse_secagg.mechanisms.randomness import Randomness

__all__ = ["Contributions", "Held", "first_of_each", "presence", "presence_and_values"]

_BUCKETS = 32
#: Bytes of a bucket that stay in memory.
_IN_MEMORY = 1 << 20


@dataclass(frozen=True)
class Held:
    """What some users hold: user i has ``columns[indptr[i]:indptr[i + 1]]``, each once.

    Attributes
    ----------
    indptr, columns : ndarray of int64
        Users and the columns of their items.
    weights : ndarray, optional
        Sum of the user's weights for each.
    codes : ndarray of uint8, shape (n, code length), optional
        The item itself, for open domains.
    """

    indptr: NDArray[np.int64]
    columns: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    codes: NDArray[np.uint8] | None = None

    @property
    def n_users(self) -> int:
        """Users, those that hold nothing included."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items of each user."""
        return np.diff(self.indptr)

    def kept(self, keep: NDArray[np.bool_]) -> Held:
        """Return the same users with some of their items."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return Held(
            before[self.indptr],
            self.columns[keep],
            None if self.weights is None else self.weights[keep],
            None if self.codes is None else self.codes[keep],
        )

    def limited(self, limit: int, rng: Randomness) -> Held:
        """Return at most ``limit`` items of each user, every choice equally likely."""
        users = np.repeat(np.arange(self.n_users), self.sizes)
        order = np.lexsort((rng.words(len(users)), users))
        keep = np.zeros(len(users), dtype=bool)
        keep[order] = first_of_each(self.indptr, limit)
        return self.kept(keep)


def first_of_each(indptr: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Return which entries are among the first ``limit`` of their row."""
    starts = np.repeat(indptr[:-1], np.diff(indptr))
    return np.asarray(np.arange(indptr[-1]) - starts < limit)


class Contributions:
    """The rows of a table by user.

    Parameters
    ----------
    domain : Domain
        Which items have a column; others are not counted.
    rng : Randomness
        Keys the hash of the users.
    weighted : bool
        Whether rows carry weights.
    codes : ItemCodes, optional
        Keep the items themselves, coded this way.
    """

    def __init__(
        self,
        domain: Domain,
        rng: Randomness,
        *,
        weighted: bool = False,
        codes: ItemCodes | None = None,
    ) -> None:
        self._domain, self._codes = domain, codes
        self._key = rng.words(4).tobytes()
        fields: list[Any] = [("user", "<u8"), ("more", "<u8"), ("column", "<i8")]
        if weighted:
            fields.append(("weight", "<f8"))
        if codes is not None:
            fields.append(("code", "u1", (codes.length,)))
        self._dtype = np.dtype(fields)
        self._files: list[IO[bytes]] = [
            tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 -- closed in close
            for _ in range(_BUCKETS)
        ]

    def __enter__(self) -> Contributions:
        return self

    def __exit__(self, *_: Any) -> None:
        for file in self._files:
            file.close()

    def read(self, batches: Iterable[Batch]) -> None:
        """Add all rows of a table."""
        for batch in batches:
            self._add(batch)

    def _add(self, batch: Batch) -> None:
        rows = np.zeros(len(batch.users.codes), dtype=self._dtype)
        hashes = self._hashed(batch.users.values)[batch.users.codes]
        rows["user"], rows["more"] = hashes[:, 0], hashes[:, 1]
        # one value more, for rows without an item, whose code is -1
        columns = np.append(self._domain.columns(batch.items.values), -1)
        rows["column"] = columns[batch.items.codes]
        if batch.weights is not None:
            rows["weight"] = batch.weights
        if self._codes is not None:
            coded = self._codes.encode([*batch.items.values, ""])
            rows["code"] = coded[batch.items.codes]
        bucket = rows["user"] % np.uint64(_BUCKETS)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(_BUCKETS + 1))
        for k, file in enumerate(self._files):
            file.write(rows[order[ends[k] : ends[k + 1]]].tobytes())

    def _hashed(self, users: list[str]) -> NDArray[np.uint64]:
        keyed = hashlib.blake2b(digest_size=16, key=self._key, person=b"users")
        digests = []
        for user in users:
            digest = keyed.copy()
            digest.update(user.encode("utf-8", "surrogatepass"))
            digests.append(digest.digest())
        return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)

    def buckets(self) -> Iterator[Held]:
        """Yield all users and what they hold, some at a time, always in the same order."""
        for file in self._files:
            file.seek(0)
            yield self._held(np.frombuffer(file.read(), dtype=self._dtype))
            file.seek(0, 2)

    def _held(self, rows: NDArray[Any]) -> Held:
        rows = rows[np.lexsort((rows["column"], rows["more"], rows["user"]))]
        new_user = _changes(rows["user"]) | _changes(rows["more"])
        new_pair = new_user | _changes(rows["column"])
        starts = np.flatnonzero(new_pair)
        users = np.cumsum(new_user)[starts] - 1 if len(rows) else starts
        columns = rows["column"][starts]
        n = int(new_user.sum())
        indptr = np.searchsorted(users, np.arange(n + 1))
        weights = codes = None
        if "weight" in self._dtype.names:  # type: ignore[operator]
            weights = np.add.reduceat(rows["weight"], starts) if len(rows) else np.empty(0)
        if "code" in self._dtype.names:  # type: ignore[operator]
            codes = rows["code"][starts]
        return Held(indptr, columns, weights, codes).kept(columns >= 0)

    # -- the vectors ---------------------------------------------------------------------------

    def sizes(self) -> NDArray[np.int64]:
        """Return how many items of the domain each user holds."""
        return np.concatenate([held.sizes for held in self.buckets()])

    def limited(self, limit: int, rng: Randomness) -> Held:
        """Return at most ``limit`` items of every user, chosen at random."""
        parts = [held.limited(limit, rng) for held in self.buckets()]
        return _joined(parts)

    def within(self, columns: NDArray[np.int64], limit: int, rng: Randomness) -> Held:
        """Return the items with a code in some columns, numbered anew, at most ``limit`` each."""
        place = np.full(self._domain.size, -1, dtype=np.int64)
        place[columns] = np.arange(len(columns))
        parts = []
        for held in self.buckets():
            assert held.codes is not None
            wanted = held.kept((place[held.columns] >= 0) & (held.codes[:, 0] > 0))
            parts.append(wanted.limited(limit, rng))
        found = _joined(parts)
        return Held(found.indptr, place[found.columns], None, found.codes)


def presence(held: Held, n: int, d: int) -> sp.csr_array:
    """Return the users' 0/1 vectors as rows, with empty rows up to n."""
    return _rows(held.indptr, held.columns, np.ones(len(held.columns)), n, d)


def _rows(
    indptr: NDArray[np.int64],
    columns: NDArray[np.int64],
    values: NDArray[np.float64],
    n: int,
    d: int,
) -> sp.csr_array:
    more = np.full(n + 1 - len(indptr), indptr[-1])
    wide = np.int64 if len(columns) > np.iinfo(np.int32).max else np.int32
    pointers = np.concatenate([indptr, more]).astype(wide)
    return sp.csr_array((values, columns.astype(wide), pointers), shape=(n, d))


def presence_and_values(held: Held, n: int, d: int, largest: float) -> sp.csr_array:
    """Return rows of length 2d: which items a user holds, and its weights over ``largest``."""
    assert held.weights is not None
    values = np.clip(held.weights, -largest, largest) / largest
    rows = presence(held, n, d)
    amounts = sp.csr_array((values, rows.indices, rows.indptr), shape=(n, d))
    return sp.csr_array(sp.hstack([rows, amounts], format="csr"))


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    out = np.ones(len(column), dtype=bool)
    out[1:] = column[1:] != column[:-1]
    return out


def _joined(parts: list[Held]) -> Held:
    offsets = np.cumsum([0, *[part.indptr[-1] for part in parts]])
    indptr = np.concatenate(
        [part.indptr[:-1] + offset for part, offset in zip(parts, offsets)] + [offsets[-1:]]
    )
    weights = [part.weights for part in parts if part.weights is not None]
    codes = [part.codes for part in parts if part.codes is not None]
    return Held(
        indptr,
        np.concatenate([part.columns for part in parts]),
        np.concatenate(weights) if weights else None,
        np.concatenate(codes) if codes else None,
    )
