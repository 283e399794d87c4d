"""Threads: over kernels that release the GIL, and limits on those of BLAS and OpenMP.

Plain threads rather than numba's ``prange``: its OpenMP layer dies after a fork, its
workqueue layer crashes under joblib threads, and parallel kernels compile much slower.
Every limit of the process is set here, counted over its threads: the first to enter sets it and
the last to leave lifts it, so that concurrent fits cannot leave a limit behind.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

__all__ = [
    "MEMORY_BOUND",
    "WORTH_THREADS",
    "blas_for",
    "for_each",
    "n_threads",
    "one_blas_thread",
    "one_thread",
]

#: Multiplications below which one BLAS thread does the work: about 2 ms.
WORTH_THREADS = 2e7

#: A pass over a matrix reads each number once, from memory: so many times slower than a product
#: of small matrices.
MEMORY_BOUND = 20


# --- threads over kernels -----------------------------------------------------------------------

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()
_inside = threading.local()  # set while this thread runs tasks


def n_threads() -> int:
    """Threads a kernel may use: ``NUMBA_NUM_THREADS`` (joblib sets it in its workers) or all."""
    limit = os.environ.get("NUMBA_NUM_THREADS", "")
    if limit.isdigit() and int(limit) > 0:
        return int(limit)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def for_each(
    task: Callable[[int], object], n_tasks: int, *, first: int = 0, threaded: bool = True
) -> None:
    """Call ``task(0) … task(n_tasks - 1)``, in threads where there are several and it pays.

    The tasks must write to disjoint places, so that the result does not depend on their order.
    Those from ``first`` on begin when all before have ended, without waking threads anew. A task
    that calls ``for_each`` runs its own tasks itself: waiting for helpers that wait in turn
    could block for ever.
    """
    if not threaded or n_tasks <= 1 or getattr(_inside, "tasks", False):
        for i in range(n_tasks):
            task(i)
        return
    queue = iter(range(n_tasks))
    ended: list[int] = []
    go_on = threading.Event()

    def work() -> None:
        _inside.tasks = True
        try:
            for i in queue:
                if i >= first > len(ended):
                    go_on.wait()
                    if len(ended) < first:
                        return  # some task failed
                task(i)
                ended.append(i)
                if len(ended) == first:
                    go_on.set()
        except BaseException:
            go_on.set()
            raise
        finally:
            _inside.tasks = False

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
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="kernel")
        return _pool


# --- limits -------------------------------------------------------------------------------------


class _Counted:
    """A limit of the process, set by the first thread that enters and lifted by the last."""

    def __init__(self, set_limits: Callable[[ExitStack], None]) -> None:
        self._set_limits = set_limits
        self._lifts = ExitStack()
        self._lock = threading.Lock()
        self._depth = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._set_limits(self._lifts)
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._depth == 1:
                self._lifts.close()
            self._depth = max(self._depth - 1, 0)  # a fork may have lifted it before

    def after_fork(self, lift: bool) -> None:
        """Free the lock, and lift the limit: the threads that held them are not in the child."""
        self._lock = threading.Lock()
        if lift and self._depth:
            self._depth = 0
            self._lifts.close()

    @property
    def is_set(self) -> bool:
        """Whether some thread is inside."""
        return self._depth > 0


@contextmanager
def blas_for(multiplications: float) -> Iterator[None]:
    """Run the block on one BLAS thread where it is small, on all of them otherwise.

    Threads of OpenBLAS wait for each other. On cores shared with other processes a product of a
    tenth of a millisecond can then take many milliseconds, and on free cores two threads gain
    little on it; so small work is done by one thread.
    """
    if multiplications > WORTH_THREADS:
        yield
        return
    with _ONE_BLAS_THREAD:
        yield


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run products on one thread: their sums do not depend on the number of jobs then."""
    with _ONE_BLAS_THREAD:
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP, PyTorch and our own kernels to one thread."""
    with _ONE_THREAD:
        yield


def _limit_blas(lifts: ExitStack) -> None:
    # threadpoolctl's own context manager describes all libraries on entry and exit, which takes
    # longer than the small products it would guard.
    for library in _libraries("scipy.linalg" in sys.modules):
        lifts.callback(library.set_num_threads, library.num_threads)
        library.set_num_threads(1)


def _limit_everything(lifts: ExitStack) -> None:
    from threadpoolctl import threadpool_limits

    lifts.enter_context(_ONE_BLAS_THREAD)
    lifts.enter_context(threadpool_limits(1, user_api="openmp"))
    # what our kernels obey, and libraries that are loaded later
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        lifts.callback(_restore_variable, name, os.environ.get(name))
        os.environ[name] = "1"
    torch = sys.modules.get("torch")
    if torch is not None:
        lifts.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)


def _restore_variable(name: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before


@cache
def _libraries(with_scipy: bool) -> list[Any]:
    """Return the BLAS libraries that are loaded: NumPy's, and SciPy's own one if it is in use."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:  # a light client, whose products are small
        return []
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


_ONE_BLAS_THREAD = _Counted(_limit_blas)
_ONE_THREAD = _Counted(_limit_everything)


# --- forks --------------------------------------------------------------------------------------


def _after_fork() -> None:
    """Forget the pool and the limits of the parent's threads."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()
    # a worker that is forked inside the wider limit is meant to use one thread
    _ONE_THREAD.after_fork(lift=False)
    _ONE_BLAS_THREAD.after_fork(lift=not _ONE_THREAD.is_set)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
