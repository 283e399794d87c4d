"""Threads over kernels that release the GIL.

Plain threads rather than numba's ``prange``: its OpenMP layer dies after a fork, its
workqueue layer crashes under joblib threads, and parallel kernels compile much slower.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()
_inside = threading.local()  # set while this thread runs tasks


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

    The tasks must write to disjoint places, so that the result does not depend on their order. A
    task that calls ``for_each`` runs its own tasks itself: waiting for helpers that wait in turn
    could block for ever.
    """
    queue = iter(range(n_tasks))

    def work() -> None:
        _inside.tasks = True
        try:
            for i in queue:
                task(i)
        finally:
            _inside.tasks = False

    if not threaded or getattr(_inside, "tasks", False):
        for i in queue:
            task(i)
        return
    helpers = [_helpers().submit(work) for _ in range(min(n_threads(), n_tasks) - 1)]
    try:
        work()
    finally:
        # a helper that has not begun, behind the tasks of others, would find nothing left to do
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()


def _helpers() -> ThreadPoolExecutor:
    """Return the pool that serves the whole process: starting threads costs half a millisecond."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="kernel")
        return _pool


def _forget_pool() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pool)
