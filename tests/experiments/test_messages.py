"""Progress and messages: above one another, no wider than the terminal, and said once."""

import io
import json
import logging
import multiprocessing
import re
import signal
import subprocess
import sys

import pytest

from experiments.cli.app import main
from experiments.report.console import bar
from experiments.sweeps.workers import become_worker
from solvers import compiling_kernels

SENTENCE = "compiling kernels, once after an installation"
NEW_KERNELS = """
import json, sys, warnings
warnings.simplefilter("ignore")
from numba.core.dispatcher import Dispatcher
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.engine import evaluate, warm_kernels

def compiled():
    return {
        (name, str(types))
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith(("solvers.", "sparse_secagg."))
        for name, kernel in list(vars(module).items())
        if isinstance(kernel, Dispatcher)
        for types in kernel.signatures
    }

decoders = ("linear", "ridge", "lasso", "lasso:debias", "amp", "amp:debias", "auto")
found = []
for compression, mean in ((5, "sparse"), (5, "dense"), (1, "sparse")):
    cells = [
        MeanCell(
            mean=mean, dim=1000, clients=50, compression=compression, noise_multiplier=1.0,
            encoder=sys.argv[1], decoder=decoder, n_bits=20,
        )
        for decoder in decoders
    ]
    warm_kernels([cells])
    before = compiled()
    assert all(result.status == "done" for result in evaluate(cells))
    found += sorted(compiled() - before)
print(json.dumps(found))
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def loggers():
    """Put the handlers and levels of logging back that the command line sets."""
    named = [logging.getLogger(n) for n in (None, "sparse_secagg", "solvers", "experiments")]
    before = [(each, each.level, list(each.handlers)) for each in named]
    yield
    for each, level, handlers in before:
        each.setLevel(level)
        each.handlers = handlers


def test_a_message_stands_on_a_line_of_its_own_above_the_progress_bar(loggers, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    main(quiet=False, verbose=False)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with bar() as bars:
        bars.add_task("cells", total=10)
        bars.refresh()
        logging.getLogger("sparse_secagg").warning(SENTENCE)
        bars.refresh()
    written = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stderr.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", written) if "compiling" in line]
    assert [line.strip() for line in lines] == [f"sparse_secagg: {SENTENCE}"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_progress_bar_fits_the_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    with bar() as bars:
        line = bars.add_task("", total=400)
        bars.update(line, description="mnist-small: test accuracy 95.1%, ε 1.23e+03", completed=380)
    shown = capsys.readouterr().err
    assert "ε 1.23e+03" in shown
    assert "380/400" in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width


def test_a_progress_bar_is_no_part_of_the_output(capsys):
    with bar() as bars:
        bars.add_task("cells", total=1)
    captured = capsys.readouterr()
    assert "cells" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", ["LokyProcess-1", "SpawnPoolWorker-2", "MainProcess"])
def test_only_the_first_process_says_it(name, monkeypatch, caplog):
    class Process:
        pass

    Process.name = name
    notice = compiling_kernels.CompilationNotice()
    monkeypatch.setattr(compiling_kernels, "notice", notice)
    monkeypatch.setattr(multiprocessing, "current_process", Process)
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    become_worker()
    notice.seconds = 10.0
    kernel = type("Kernel", (), {"__module__": "solvers.some"})
    event = type("Event", (), {"data": {"dispatcher": type("", (), {"py_func": kernel})}})
    notice.on_start(event)
    notice.on_end(event)
    assert [SENTENCE in r.getMessage() for r in caplog.records] == [True] * (name == "MainProcess")


@pytest.mark.parametrize("encoder", ["count_sketch", "hadamard"])
def test_small_cells_compile_what_a_sweep_calls(encoder):
    """Kernels that only the workers would call are compiled by each of them."""
    command = [sys.executable, "-c", NEW_KERNELS, encoder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
