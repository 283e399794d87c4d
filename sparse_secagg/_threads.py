"""Threads over kernels that release the GIL.

Plain threads rather than numba's ``prange``: its OpenMP layer dies after a fork, its
workqueue layer crashes under joblib threads, and parallel kernels compile much slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_pool: ThreadPoolExecutor | None = None


def n_threads() -> int:
    """Threads a kernel may use: ``NUMBA_NUM_THREADS`` (joblib sets it in its workers) or all."""
    limit = os.environ.get("NUMBA_NUM_THREADS", "")
    if limit.isdigit() and int(limit) > 0:
        return int(limit)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def for_each(task: Callable[[int], object], n_tasks: int, *, threaded: bool = True) -> None:
    """Call ``task(0) … task(n_tasks - 1)``, in threads where there are several and it pays.

    The tasks must write to disjoint places, so that the result does not depend on their order,
    and must not call ``for_each`` themselves.
    """
    queue = iter(range(n_tasks))

    def work() -> None:
        for i in queue:
            task(i)

    n_helpers = min(n_threads(), n_tasks) - 1 if threaded else 0
    helpers = [_helpers().submit(work) for _ in range(n_helpers)]
    try:
        work()
    finally:
        for helper in helpers:
            helper.result()


def _helpers() -> ThreadPoolExecutor:
    """Return the pool that serves the whole process: starting threads costs half a millisecond."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="sparse_secagg")
    return _pool


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pool)
