import os
import time

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  its BLAS is among those that are limited
from threadpoolctl import threadpool_info

from solvers.parallel import (
    WORTH_THREADS,
    blas_for,
    for_each,
    n_threads,
    one_blas_thread,
    one_thread,
)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


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


@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_later_tasks_begin_when_all_first_ones_have_ended(threads, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    for _ in range(20):
        ended = []

        def task(i, ended=ended):
            if i >= 6:
                assert sum(k < 6 for k in ended) == 6
            time.sleep(0.001 * (i == 3))
            ended.append(i)

        for_each(task, 9, first=6)
        assert sorted(ended) == list(range(9))


def test_an_error_in_a_first_task_ends_those_that_wait_for_it(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    later = []

    def task(i):
        if i == 0:
            time.sleep(0.05)  # the other thread waits meanwhile
            raise KeyError("boom")
        if i >= 2:
            later.append(i)

    with pytest.raises(KeyError, match="boom"):
        for_each(task, 8, first=2)
    assert later == []


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_does_not_inherit_the_limit_on_blas_blas_threads():
    before = blas_threads()
    with blas_for(1):
        child = os.fork()
        if child == 0:
            inherited = blas_threads()
            with blas_for(1):
                limited = set(blas_threads())
            os._exit(0 if (inherited, limited) == (before, {1}) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_small_work_runs_on_one_blas_thread_and_the_limit_is_lifted():
    before = blas_threads()
    with blas_for(1), blas_for(1):
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with blas_for(2 * WORTH_THREADS):
        assert blas_threads() == before


def test_limits_of_two_threads_may_end_in_any_order():
    before = blas_threads()
    small, wide = one_blas_thread(), one_thread()
    small.__enter__()
    wide.__enter__()
    small.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    assert n_threads() == 1
    wide.__exit__(None, None, None)
    assert blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_forked_on_one_thread_stays_on_one():
    with one_thread():
        child = os.fork()
        if child == 0:
            os._exit(0 if set(blas_threads()) == {1} and n_threads() == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
