"""Small products on one BLAS thread.

Threads of OpenBLAS wait for each other. On cores shared with other processes a product of a
tenth of a millisecond can then take many milliseconds, and on free cores two threads gain
little on it; so small work is done by one thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

#: Multiplications below which one thread does the work: about 2 ms.
WORTH_THREADS = 2e7

#: A pass over a matrix reads each number once, from memory: so many times slower than a product
#: of small matrices.
MEMORY_BOUND = 20

_lock = threading.Lock()
_depth = 0
_before: list[int] = []


@contextmanager
def blas_for(multiplications: float) -> Iterator[None]:
    """Run the block on one BLAS thread where it is small, on all of them otherwise.

    Counted over threads: the first to enter sets the limit and the last to leave lifts it, so
    that concurrent fits cannot leave it behind.
    """
    if multiplications > WORTH_THREADS:
        yield
        return
    _enter()
    try:
        yield
    finally:
        _leave()


# threadpoolctl's own context manager describes all libraries on entry and exit, which takes longer
# than the small products it would guard.


def _enter() -> None:
    global _depth, _before
    with _lock:
        if _depth == 0:
            _before = [library.num_threads for library in _libraries()]
            for library in _libraries():
                library.set_num_threads(1)
        _depth += 1


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            for library, before in zip(_libraries(), _before):
                library.set_num_threads(before)


def _lift_in_child() -> None:
    """Forget the limits that threads of the parent held: they do not survive a fork."""
    global _lock, _depth
    _lock = threading.Lock()
    if _depth:
        _depth = 1
        _leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lift_in_child)


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  its BLAS must be loaded to be found

    return ThreadpoolController().select(user_api="blas").lib_controllers
