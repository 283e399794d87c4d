"""Small products on one BLAS thread.

Threads of OpenBLAS wait for each other. On cores shared with other processes a product of a
tenth of a millisecond can then take many milliseconds, and on free cores two threads gain
little on it; so small work is done by one thread.
"""

from __future__ import annotations

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
_limiter: Any = None


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


def _enter() -> None:
    global _depth, _limiter
    with _lock:
        if _depth == 0:
            _limiter = _controller().limit(limits=1, user_api="blas")
        _depth += 1


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            _limiter.restore_original_limits()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
