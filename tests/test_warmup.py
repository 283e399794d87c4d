"""What compiling costs a user: nothing after a warm-up, and one line before."""

import subprocess
import sys

import pytest

from solvers import compiling_kernels

NOTICE = "sparse-secagg warmup"
ROUND = """
import warnings, numpy as np
warnings.simplefilter("ignore")
from sparse_secagg import SparseSecAgg
from solvers.compiling_kernels import notice
SparseSecAgg(epsilon=8.0, decoder="linear", random_state=0).fit(0.01 * np.ones((6, 3000)))
print(notice.seconds)
"""


def run(code, cache):
    environment = {"NUMBA_CACHE_DIR": str(cache), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done


class Clock:
    """Time that passes when told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(compiling_kernels.time, "perf_counter", lambda: self.now)


class Event:
    def __init__(self, module):
        kernel = type("Kernel", (), {})()
        kernel.__module__ = module
        self.data = {"dispatcher": type("Dispatcher", (), {"py_func": kernel})()}


@pytest.mark.parametrize(
    ("module", "seconds", "said"),
    [("solvers.a", 0.9, 0), ("solvers.a", 1.1, 1), ("sparse_secagg.b", 1.1, 1), ("users", 9.0, 0)],
)
def test_one_line_after_a_second_of_our_own_kernels(monkeypatch, caplog, module, seconds, said):
    clock, notice = Clock(monkeypatch), compiling_kernels.CompilationNotice()
    outer, inner = Event(module), Event(module)
    notice.on_start(outer)
    clock.now += seconds / 2
    notice.on_start(inner)
    notice.on_end(inner)
    clock.now += seconds / 2
    notice.on_end(outer)
    assert notice.seconds == (0.0 if module == "users" else pytest.approx(seconds))
    for _ in range(3):  # and never again
        notice.on_start(outer)
        notice.on_end(outer)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == said
    assert all(NOTICE in message for message in messages)


@pytest.mark.slow
def test_nothing_is_left_to_compile_after_a_warm_up(tmp_path):
    first = run(ROUND, tmp_path / "cold")
    assert float(first.stdout) > 0
    run("from sparse_secagg.warmup import warm_up; warm_up()", tmp_path / "warm")
    then = run(ROUND, tmp_path / "warm")
    assert float(then.stdout) == 0
    assert NOTICE not in then.stderr
