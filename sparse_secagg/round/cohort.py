"""The clients of a round in blocks: encoded where their rows are, joined in any grouping.

A block needs the public parts of the round, its weights, its clients' randomness and which of them
count. What comes of it is the modular sum of its messages, or the messages where secure aggregation
needs them, with a few facts about its clients. Addition modulo M is associative and every client
has a stream of its own, so that any number of workers gives what one process gives, bit for bit.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from solvers.parallel import one_thread
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.round.diagnostics import Sightings
from sparse_secagg.round.parts import Round
from sparse_secagg.secagg.modular import modular_sum

__all__ = ["Block", "Cohort", "Encoded", "LocalRows", "Rows", "encode_block", "join"]

#: Bytes of sketches, messages and rows read from elsewhere that a worker holds at once.
_BLOCK_BYTES = 2**26
#: Clients that share the hashing of a count sketch and the registers of a Fourier transform.
_TOGETHER = 16
#: Blocks that each of several local workers gets, at least: the last ones end close together.
_BLOCKS_EACH = 4


@dataclass(frozen=True)
class Block:
    """Clients that are encoded by one worker, one after the other.

    Attributes
    ----------
    start, stop : int
        Which clients of the cohort.
    rng : Randomness
        Spawns their streams.
    weights : ndarray of shape (n,) or None
        Their weights.
    included : ndarray of bool, shape (n,), or None
        Whose messages are added. None: every message is kept.
    """

    start: int
    stop: int
    rng: Randomness = field(repr=False)
    weights: NDArray[np.float64] | None = field(default=None, repr=False)
    included: NDArray[np.bool_] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Encoded:
    """What comes of neighbouring clients.

    Attributes
    ----------
    messages : ndarray of uint64, shape (1, D) or (n, D)
        Their sum modulo M, or all of them.
    norms : ndarray of shape (n,)
        Norms of the weighted rows before clipping.
    summed : bool
        Which of the two ``messages`` is.
    seconds : dict
        Time of each stage, added over workers.
    seen : Sightings, optional
        With diagnostics: what clipping and rounding met.
    """

    messages: NDArray[np.uint64]
    norms: NDArray[np.float64]
    summed: bool
    seconds: dict[str, float]
    seen: Sightings | None = None


@dataclass(frozen=True)
class Cohort:
    """All clients of a round, to be split into blocks.

    Attributes
    ----------
    parts : Round
        Encoder and mechanism.
    rng : Randomness
        Private randomness of all clients.
    weights, included : ndarray or None
        As in :class:`Block`.
    watched : bool
        Whether to keep what only a simulation may know.
    progress : callable, optional
        Called with the numbers of clients done and of all clients.
    """

    parts: Round
    rng: Randomness
    weights: NDArray[np.float64] | None = None
    included: NDArray[np.bool_] | None = None
    watched: bool = False
    progress: Callable[[int, int], object] | None = None

    def split(self, sizes: Sequence[int]) -> list[Block]:
        """Return blocks of these sizes, in order; once, since randomness is used up."""
        stops = np.cumsum(sizes).tolist()
        return [
            Block(
                stop - size,
                stop,
                rng,
                None if self.weights is None else self.weights[stop - size : stop],
                None if self.included is None else self.included[stop - size : stop],
            )
            for size, stop, rng in zip(sizes, stops, self.rng.split(sizes))
        ]


class Rows(Protocol):
    """The clients' vectors, wherever they are."""

    shape: tuple[int, int]
    sparse: bool

    def check(self) -> None:
        """Raise if nobody is there to encode them; called before anything is charged."""

    def encode(self, cohort: Cohort) -> Iterator[Encoded]:
        """Yield what comes of the clients, in order."""


class LocalRows:
    """Rows that this process or its joblib workers can slice.

    Parameters
    ----------
    X : ndarray, sparse matrix, memmap or anything with ``shape`` that is sliced by rows
        The rows; a slice is taken by the worker that encodes it.
    n_jobs : int or None
        Blocks at a time, as joblib counts. None: one, which all threads work on.
    """

    def __init__(self, X: Any, n_jobs: int | None = None) -> None:
        self.X, self.n_jobs = X, n_jobs
        self.shape: tuple[int, int] = X.shape
        self.sparse = sp.issparse(X)

    def check(self) -> None:
        """Do nothing: this process is there."""

    def encode(self, cohort: Cohort) -> Iterator[Encoded]:
        """Yield what comes of the clients, in order."""
        blocks = cohort.split(self._sizes(cohort.parts))
        for block, encoded in zip(blocks, self._encoded(blocks, cohort)):
            yield encoded
            if cohort.progress is not None:
                cohort.progress(block.stop, self.shape[0])

    def _encoded(self, blocks: list[Block], cohort: Cohort) -> Iterator[Encoded]:
        parts, watched = cohort.parts, cohort.watched
        if self.n_jobs is None:
            return (encode_block(parts, b, self.X[b.start : b.stop], watched) for b in blocks)
        from joblib import Parallel, delayed

        # threads: kernels release the interpreter lock, and no row is copied; joblib's
        # parallel_config chooses other workers
        jobs = Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")
        found: Iterator[Encoded] = jobs(
            delayed(_encode_slice)(parts, block, self.X, watched) for block in blocks
        )
        return found

    def _sizes(self, parts: Round) -> list[int]:
        n = self.shape[0]
        read = not (isinstance(self.X, np.ndarray) or self.sparse)
        step = rows_at_once(parts, reads_rows=read)
        if self.n_jobs is not None:
            from joblib import effective_n_jobs

            step = min(step, -(-n // (_BLOCKS_EACH * effective_n_jobs(self.n_jobs))))
            step = max(step // _TOGETHER * _TOGETHER, min(step, _TOGETHER))
        return [min(step, n - start) for start in range(0, n, step)]


def rows_at_once(parts: Round, *, reads_rows: bool) -> int:
    """Return how many rows to encode at once: sketch, rotated sketch, noise and message of each."""
    row = parts.config.dim if reads_rows else 0
    return max(1, _BLOCK_BYTES // (32 * parts.config.mechanism.padded_dim + 8 * row))


def encode_block(parts: Round, block: Block, rows: Any, watched: bool = False) -> Encoded:
    """Encode the rows of a block, as many at a time as fit in little memory."""
    p = parts.config.mechanism
    mechanism = copy.copy(parts.mechanism)  # other threads have reports of their own
    seen = Sightings(parts.config.dim) if watched else None
    seconds: dict[str, float] = {}
    found = []
    n, step = rows.shape[0], rows_at_once(parts, reads_rows=False)
    for start in range(0, n, step):
        here = slice(start, min(start + step, n))
        with _timed(seconds, "sketch"):
            weights = None if block.weights is None else block.weights[here]
            piece = rows if step >= n else rows[here]
            sketches, counts = parts.sketch(piece, weights)
        with _timed(seconds, "encode"):
            messages = mechanism.encode(sketches, block.rng)
        with _timed(seconds, "aggregate"):
            if block.included is not None:
                messages = modular_sum(messages, p.modulus, block.included[here])[None, :]
        if seen is not None:
            seen.see(counts, mechanism.report_)
        found.append(Encoded(messages, counts.norms, block.included is not None, {}))
    joined = join(found, p.modulus)
    return Encoded(joined.messages, joined.norms, joined.summed, seconds, seen)


def join(blocks: Sequence[Encoded], modulus: int) -> Encoded:
    """Return what comes of neighbouring blocks together."""
    if len(blocks) == 1:
        return blocks[0]
    messages = np.concatenate([block.messages for block in blocks])
    if blocks[0].summed:
        messages = modular_sum(messages, modulus)[None, :]
    seen = blocks[0].seen
    seconds = dict(blocks[0].seconds)
    for block in blocks[1:]:
        for stage, spent in block.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
        if seen is not None and block.seen is not None:
            seen = seen + block.seen
    norms = np.concatenate([block.norms for block in blocks])
    return Encoded(messages, norms, blocks[0].summed, seconds, seen)


def _encode_slice(parts: Round, block: Block, X: Any, watched: bool) -> Encoded:
    """Encode a block of X on one thread, in a worker among others."""
    with one_thread():
        return encode_block(parts, block, X[block.start : block.stop], watched)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start
