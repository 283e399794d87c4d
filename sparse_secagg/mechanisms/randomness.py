"""Private randomness: AES-256 in counter mode, keyed by the operating system.

Noise, stochastic rounding and masks draw from here and nowhere else. :class:`PrivateRandomness`
is the default; :class:`SimulationRandomness` is reproducible, must be asked for by name and says
``not_private``.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

__all__ = ["PrivateRandomness", "Randomness", "SimulationRandomness", "as_randomness"]

_BLOCK = 16  # bytes of one AES block
_ZEROS = bytes(1 << 18)  # encrypted to give the key stream, a piece at a time

# A process is told from its ancestors by how many forks lie between them: process ids come back.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Randomness:
    """A stream of secret words. Use one of the two subclasses.

    See Also
    --------
    PrivateRandomness : For clients whose vectors are private.
    SimulationRandomness : For experiments that are to be repeated.

    Examples
    --------
    >>> from sparse_secagg.mechanisms import PrivateRandomness, Randomness
    >>> isinstance(PrivateRandomness(), Randomness)
    True
    """

    #: True if anybody could repeat this stream.
    not_private: bool

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite the contiguous integer array ``out`` with uniform random bits."""
        raise NotImplementedError

    def spawn(self, n: int) -> list[Randomness]:
        """Return ``n`` new independent sources: one for each client, round or thread."""
        raise NotImplementedError

    def split(self, counts: Sequence[int]) -> list[Randomness]:
        """Return sources that, one after the other, spawn what this one would have.

        The k-th is there to ``spawn(counts[k])`` and for nothing else: clients get the same streams
        however they are spread over blocks and workers.
        """
        raise NotImplementedError

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` 64-bit words."""
        out = np.empty(n, dtype=np.uint64)
        self.fill(out)
        return out


class PrivateRandomness(Randomness):
    """Randomness that nobody can repeat, this process included.

    Every instance takes its own 256-bit key from the operating system. A fork gets a new key on
    first use, and so does a copy or an unpickled instance: no two streams are ever the same, and
    the key appears in no representation.

    See Also
    --------
    SimulationRandomness : A stream that can be repeated, and so protects nobody.

    Examples
    --------
    >>> from sparse_secagg.mechanisms import PrivateRandomness
    >>> rng = PrivateRandomness()
    >>> rng.words(4).shape, rng.not_private
    ((4,), False)
    """

    not_private = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forks = -1
        self._encryptor: Any = None

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite the contiguous integer array ``out`` with uniform random bits."""
        if self._forks != _forks:
            # The lock may have been held by another thread at the time of the fork.
            self._lock = threading.Lock()
            self._encryptor = _key_stream(os.urandom(32), 0)
            self._forks = _forks
        with self._lock:
            _encrypt_zeros(self._encryptor, out)

    def spawn(self, n: int) -> list[Randomness]:
        """Return ``n`` new sources, each with its own key."""
        return [PrivateRandomness() for _ in range(n)]

    def split(self, counts: Sequence[int]) -> list[Randomness]:
        """Return new sources, which take keys of their own wherever they are used."""
        return self.spawn(len(counts))

    def __repr__(self) -> str:
        return "PrivateRandomness()"

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivateRandomness, ()


class SimulationRandomness(Randomness):
    """Reproducible randomness for experiments and tests. It protects nobody.

    Parameters
    ----------
    seed : int
        Any integer from 0 on.
    path : tuple of int
        Place in the tree of spawned sources; left empty by callers.

    Raises
    ------
    ValueError
        If the seed is not such an integer.

    See Also
    --------
    PrivateRandomness : What messages of real clients are made with.

    Notes
    -----
    Sources with different ``(seed, path)`` have independent streams. A fork or a copy continues
    the same stream: give each worker a source of its own, from :meth:`spawn`.

    Examples
    --------
    >>> from sparse_secagg.mechanisms import SimulationRandomness
    >>> first, again = SimulationRandomness(0).words(4), SimulationRandomness(0).words(4)
    >>> bool((first == again).all())
    True
    """

    not_private = True

    def __init__(self, seed: int, path: tuple[int, ...] = ()) -> None:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seed={seed!r} must be an integer, at least 0.")
        self.seed = int(seed)
        self.path = tuple(path)
        self._position = 0
        self._spawned = 0
        self._lock = threading.Lock()
        self._encryptor: Any = None

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite the contiguous integer array ``out`` with the next bits of the stream."""
        with self._lock:
            if self._encryptor is None:
                name = f"{self.seed}/{'/'.join(map(str, self.path))}".encode()
                key = hashlib.blake2b(name, digest_size=32, person=b"simulation").digest()
                self._encryptor = _key_stream(key, self._position)
            _encrypt_zeros(self._encryptor, out)
            self._position += out.nbytes

    def spawn(self, n: int) -> list[Randomness]:
        """Return ``n`` new sources; a later call returns others."""
        first, self._spawned = self._spawned, self._spawned + n
        return [SimulationRandomness(self.seed, (*self.path, first + i)) for i in range(n)]

    def split(self, counts: Sequence[int]) -> list[Randomness]:
        """Return sources that spawn the next streams of this one, so many each."""
        parts: list[Randomness] = []
        for count in counts:
            part = SimulationRandomness(self.seed, self.path)
            part._spawned = self._spawned
            self._spawned += count
            parts.append(part)
        return parts

    def __repr__(self) -> str:
        return f"SimulationRandomness({self.seed}, path={self.path})"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_encryptor")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _encryptor=None)


def as_randomness(rng: Randomness | None) -> Randomness:
    """Return ``rng``, or a new :class:`PrivateRandomness` for None."""
    if rng is None:
        return PrivateRandomness()
    if isinstance(rng, Randomness):
        return rng
    raise TypeError(
        f"rng={rng!r} is not a source of private randomness; pass None for the operating system's, "
        "or SimulationRandomness(seed) where nothing has to be private."
    )


def _key_stream(key: bytes, position: int) -> Any:
    """Return AES-256-CTR under ``key`` from byte ``position`` of its stream on."""
    block, skip = divmod(position, _BLOCK)
    counter = block.to_bytes(_BLOCK, "big")
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    encryptor.update(bytes(skip))
    return encryptor


def _encrypt_zeros(encryptor: Any, out: NDArray[Any]) -> None:
    if not out.flags.c_contiguous:
        raise ValueError("out must be contiguous: a copy would be filled in its place.")
    if out.nbytes == 0:
        return
    target = out.reshape(-1).view(np.uint8).data
    for start in range(0, len(target), len(_ZEROS)):
        piece = target[start : start + len(_ZEROS)]
        encryptor.update_into(memoryview(_ZEROS)[: len(piece)], piece)
