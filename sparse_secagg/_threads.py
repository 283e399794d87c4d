"""Threads over kernels that release the GIL.

Plain threads rather than numba's ``prange``: its OpenMP layer dies after a fork, its
workqueue layer crashes under joblib threads, and parallel kernels compile much slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


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

    The tasks must write to disjoint places, so that the result does not depend on their order.
    """
    workers = min(n_threads(), n_tasks) if threaded else 1
    if workers <= 1:
        for i in range(n_tasks):
            task(i)
        return
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(task, i) for i in range(n_tasks)]:
            done.result()
