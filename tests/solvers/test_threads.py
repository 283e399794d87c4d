import os

import numpy as np
import pytest

from solvers._threads import for_each, n_threads


@pytest.mark.parametrize("threads", ["1", "2", "4"])
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 7, 100])
def test_every_task_runs_exactly_once(threads, n_tasks, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    counts = np.zeros(n_tasks, dtype=int)

    def count(i):
        counts[i] += 1

    for_each(count, n_tasks)
    assert (counts == 1).all()


@pytest.mark.parametrize("bad", [0, 5])
def test_an_error_in_any_task_reaches_the_caller(bad):
    def task(i):
        if i == bad:
            raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        for_each(task, 6)


def test_nested_calls_from_many_threads_do_not_block(monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setenv("NUMBA_NUM_THREADS", "4")
    counts = np.zeros((8, 8, 8), dtype=int)

    def outer(caller):
        def middle(i):
            for_each(lambda j: counts.__setitem__((caller, i, j), counts[caller, i, j] + 1), 8)

        for_each(middle, 8)

    with ThreadPoolExecutor(8) as callers:
        list(callers.map(outer, range(8), timeout=60))
    assert (counts == 1).all()


def test_thread_limit_follows_the_environment(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert n_threads() == 3
    monkeypatch.setenv("NUMBA_NUM_THREADS", "many")
    assert n_threads() >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_work_again_after_a_fork(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    for_each(lambda i: None, 8)
    child = os.fork()
    if child == 0:
        done = np.zeros(8)
        for_each(lambda i: done.__setitem__(i, 1), 8)
        os._exit(0 if done.all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
