"""Rows in a Dask array: every block of them is encoded by the worker that holds or makes it.

The rows are never gathered. Modular sums are joined in a tree on the workers, and one sketch's
length of integers, with a norm of each client, comes back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from solvers.parallel import one_thread
from sparse_secagg.exceptions import ClusterError
from sparse_secagg.round.cohort import Block, Cohort, Encoded, encode_block, join
from sparse_secagg.round.parts import Round

__all__ = ["DaskRows", "is_dask_array"]

#: Sums that are joined at once.
_FAN_IN = 8
#: Sums of blocks that are waited for one by one, so that progress can be told.
_STEPS = 64
#: Seconds in which a scheduler has to answer, and between two such questions.
_PATIENCE = 5.0


def is_dask_array(X: Any) -> bool:
    """Return whether X is a Dask array, without importing Dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "to_delayed")


class DaskRows:
    """The rows of a Dask array of shape (n, d), as :class:`~sparse_secagg.round.cohort.Rows`.

    They are encoded on the cluster of the current :class:`distributed.Client`; without one, by
    Dask's local scheduler.

    Parameters
    ----------
    X : dask.array.Array
        One client a row. Blocks of NumPy arrays or SciPy sparse matrices; a block has whole rows.
    """

    def __init__(self, X: Any) -> None:
        if np.isnan(X.shape[0]):
            raise ValueError(
                "X has blocks of unknown length; call X.compute_chunk_sizes() first, which counts "
                "their rows."
            )
        self.X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        self.shape: tuple[int, int] = X.shape
        self.sparse = sp.issparse(getattr(X, "_meta", None))
        self._client = _current_client()

    def check(self) -> None:
        """Raise :class:`ClusterError` unless the cluster's scheduler answers."""
        if self._client is not None and not _answers(self._client):
            raise ClusterError(
                f"the Dask scheduler at {_address(self._client)} does not answer; nothing was "
                "charged. Start one with 'dask scheduler' and connect a new distributed.Client."
            )

    def encode(self, cohort: Cohort) -> Iterator[Encoded]:
        """Yield what comes of all clients, once they are done."""
        levels = _tree(self._blocks(cohort), cohort.parts.config.mechanism.modulus)
        total = levels[-1][0]
        if self._client is None:
            yield total.compute()
        else:
            steps = next(level for level in levels if len(level) <= _STEPS)
            *parts, whole = self._client.compute([*steps, total])
            self._wait(parts, whole, cohort)
            yield whole.result()
        if cohort.progress is not None:
            cohort.progress(self.shape[0], self.shape[0])

    def _blocks(self, cohort: Cohort) -> list[Any]:
        from dask.delayed import delayed

        # the parts travel once; chunks stay where they are
        parts = delayed(cohort.parts, name=f"round-{cohort.parts.config.round_id}")
        encode = delayed(_encode_chunk, pure=False)
        blocks = cohort.split(self.X.chunks[0])
        chunks = self.X.to_delayed().ravel()
        return [
            encode(parts, block, chunk, cohort.watched)
            for block, chunk in zip(blocks, chunks)
            if block.start < block.stop
        ]

    def _wait(self, steps: list[Any], whole: Any, cohort: Cohort) -> None:
        """Wait for the cluster; raise when a block fails or the scheduler is gone."""
        n, told, asked = self.shape[0], 0, time.monotonic()
        while not whole.done():
            time.sleep(0.05)
            done = sum(step.status == "finished" for step in steps)
            if len(steps) > done > told and cohort.progress is not None:
                cohort.progress(n * done // len(steps), n)
            told = max(done, told)
            if time.monotonic() - asked < _PATIENCE:
                continue
            if not _answers(self._client):
                break
            asked = time.monotonic()
        if whole.status in ("finished", "error"):
            return
        raise ClusterError(
            f"the Dask scheduler at {_address(self._client)} stopped answering: the round ended, "
            "nothing was decoded, and what was charged stays charged. Start a scheduler, connect "
            "a new distributed.Client, and fit again: that is a new round."
        )


def _encode_chunk(parts: Round, block: Block, rows: Any, watched: bool) -> Encoded:
    """Encode a block on one thread: a worker of Dask runs as many blocks as it has threads."""
    with one_thread():
        return encode_block(parts, block, rows, watched)


def _tree(blocks: list[Any], modulus: int) -> list[list[Any]]:
    """Return the levels of a tree of joins, from the blocks to the only root."""
    from dask.delayed import delayed

    joined = delayed(join, pure=False)
    levels = [blocks]
    while len(levels[-1]) > 1:
        last = levels[-1]
        groups = [last[k : k + _FAN_IN] for k in range(0, len(last), _FAN_IN)]
        levels.append([joined(group, modulus) for group in groups])
    return levels


def _current_client() -> Any:
    """Return the client of a cluster that this process is connected to, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        return default_client()  # type: ignore[no-untyped-call]
    except ValueError:
        return None


def _answers(client: Any) -> bool:
    """Return whether the client's scheduler answers soon."""
    if client.status != "running":
        return False
    try:
        client.sync(client.scheduler.identity, callback_timeout=_PATIENCE)
    except (OSError, TimeoutError, AttributeError):
        return False
    return True


def _address(client: Any) -> str:
    return str(getattr(client.scheduler, "address", None) or "its address")
