"""Public randomness: seeds that client and server share, and streams derived from them.

Every stream is addressed by a 64-bit key, key = BLAKE2b(seed, label, numbers), and read at any
position: word(key, i) = mix64(key + (i + 1)·φ), the counter form of SplitMix64. Nothing has to be
stored or generated in order, and the words are the same on every platform. This randomness is not
secret and is never used for noise, rounding or masks.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import secrets
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparse_secagg import kernels

_MAX_SEED = 2**64
#: Words that are made at once where they are used up on the way.
_PIECE = 2**20


def resolve_seed(random_state: Any) -> int:
    """Return the public seed that ``random_state`` stands for.

    Parameters
    ----------
    random_state : None, int, numpy.random.RandomState or numpy.random.Generator
        None draws a fresh seed from the operating system; an integer in [0, 2**64) is the seed
        itself; a generator is asked for one.
    """
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**63 - 1, dtype=np.int64))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63 - 1))
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if 0 <= int(random_state) < _MAX_SEED:
            return int(random_state)
        raise ValueError(
            f"random_state={random_state} is not a seed; pass an integer from 0 to 2**64 - 1, "
            "or None for a fresh one."
        )
    raise ValueError(
        f"random_state={random_state!r} is not a seed; pass None, an integer from 0 to 2**64 - 1, "
        "or a NumPy RandomState or Generator."
    )


def stream_key(seed: int, label: str, *numbers: int) -> np.uint64:
    """Return the key of the stream named by ``label`` and ``numbers`` under ``seed``."""
    message = "/".join([str(seed), label, *map(str, numbers)]).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little"))


def words(key: np.uint64, start: int, stop: int) -> NDArray[np.uint64]:
    """Return the 64-bit words ``start`` to ``stop - 1`` of the stream ``key``."""
    out = np.empty(stop - start, dtype=np.uint64)
    kernels.hashing.fill_words(key, np.uint64(start), out)
    return out


def random_signs(key: np.uint64, size: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return ``size`` signs ±1, from the lowest bits of the stream's words."""
    signs = np.empty(size, dtype=dtype)
    for start in range(0, size, _PIECE):
        stop = min(start + _PIECE, size)
        bits = words(key, start, stop) & np.uint64(1)
        signs[start:stop] = 1 - 2 * bits.astype(np.int8)
    return signs


def smallest_words(key: np.uint64, size: int, count: int) -> NDArray[np.int64]:
    """Return where the ``count`` smallest of the first ``size`` words are, in order.

    They are a uniform sample without replacement. No word comes twice: mixing is a bijection.
    """
    # a few more than enough, almost surely; no array of length ``size`` is made
    expected = count + 10 * math.sqrt(count) + 10
    while True:
        limit = np.uint64(min(expected / size, 1.0) * (2.0**64 - 2.0**11))
        if expected >= size:
            limit = np.uint64(2**64 - 1)
        places, found = [], []
        for start in range(0, size, _PIECE):
            piece = words(key, start, min(start + _PIECE, size))
            small = np.flatnonzero(piece <= limit)
            places.append(small + start)
            found.append(piece[small])
        candidates = np.concatenate(places)
        if len(candidates) >= count:
            order = np.argpartition(np.concatenate(found), count - 1)[:count]
            return np.sort(candidates[order])
        expected *= 2
