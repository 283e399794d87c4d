"""Calls run by joblib on any of its backends, results as they come."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

BACKENDS = ("loky", "threading", "multiprocessing", "sequential", "dask")


def check_backend(
    backend: str, scheduler: str | None, choices: Sequence[str] | None = None
) -> None:
    """Raise ValueError unless the backend is one of ``choices``, by default any that joblib has."""
    from joblib.parallel import BACKENDS as REGISTERED
    from joblib.parallel import EXTERNAL_BACKENDS

    known = {*BACKENDS, *REGISTERED, *EXTERNAL_BACKENDS} if choices is None else choices
    if backend not in known:
        shown = ", ".join(choices or BACKENDS)
        raise ValueError(f"backend={backend!r} is not known; choose one of {shown}.")
    if (backend == "dask") != (scheduler is not None):
        raise ValueError(
            "backend='dask' and scheduler='tcp://HOST:PORT' belong together: give both or none."
        )
    if backend == "dask":
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise ValueError(
                "backend='dask' needs dask and distributed: pip install 'sparse-secagg[dask]'."
            ) from error


def run_unordered(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    jobs: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
) -> Iterator[Any]:
    """Yield ``function(*each)`` for each of ``arguments``, in the order in which they finish.

    The function is pure and importable by the workers. ``jobs`` calls run at a time, −1 for one
    per core; a cluster, reached at ``scheduler`` with the backend "dask", decides by itself.
    """
    from joblib import Parallel, delayed, effective_n_jobs, parallel_config

    check_backend(backend, scheduler)
    with ExitStack() as stack:
        if backend == "dask":
            # a client set as the default one must exist before joblib looks for it
            stack.enter_context(connect(scheduler))
            stack.enter_context(parallel_config("dask"))
        elif backend == "loky":
            stack.enter_context(parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1))
        else:
            stack.enter_context(parallel_config(backend, n_jobs=jobs))
        calls = [delayed(function)(*each) for each in arguments]
        try:
            # one call at a time: what is finished reaches the store at once
            parallel = Parallel(return_as="generator_unordered", batch_size=1)
        except ValueError:  # a backend that returns whole lists only, as multiprocessing
            step = 4 * effective_n_jobs()
            for start in range(0, len(calls), step):
                yield from Parallel(batch_size=1)(calls[start : start + step])
            return
        yield from parallel(calls)


def become_worker() -> None:
    """Leave to the parent of a worker what concerns a user, who has one command before them.

    Ctrl-C, which the terminal sends to workers, too, and the word about kernels that are compiled.
    """
    if multiprocessing.current_process().name == "MainProcess":
        return
    from solvers import compiling_kernels

    compiling_kernels.notice.silence()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def connect(scheduler: str | None) -> Any:
    """Return a client of the cluster at ``scheduler``; raise ValueError if nobody answers there."""
    from distributed import Client

    try:
        return Client(scheduler, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(
            f"scheduler={scheduler!r} does not answer: {error}. Start one with 'dask scheduler'."
        ) from error
