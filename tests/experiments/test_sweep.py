import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import experiments
from experiments import run_sweep
from experiments.sweeps.cells import MeanCell, TaskCell
from experiments.sweeps.engine import evaluate, group_draws, missing_draws
from experiments.sweeps.grid import Grid
from experiments.sweeps.store import Store, StoreError
from experiments.sweeps.workers import run_unordered
from experiments.versions import versions

BASE = MeanCell(dim=300, clients=20, sparsity=5, compression=3, n_rows=5)
GRID = Grid(
    {"sparsity": (3, 30)},
    BASE,
    encoders=("count_sketch", "gaussian"),
    decoders=("linear", "lasso", "amp"),
    seeds=2,
)
TIMES = ("seconds", "draw_seconds", "finished")


def stripped(table):
    """Rows without timings, in the order of cells."""
    rows = table.to_records() if hasattr(table, "to_records") else [r.record() for r in table]
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


@pytest.fixture(scope="module")
def expected():
    return stripped(run_sweep(GRID))


@pytest.mark.parametrize(
    ("backend", "jobs"),
    [("sequential", 1), ("loky", 2), ("threading", 3), ("multiprocessing", 2)],
)
def test_results_do_not_depend_on_jobs_and_backend(expected, backend, jobs):
    assert stripped(run_sweep(GRID, jobs=jobs, backend=backend)) == expected


def test_results_do_not_depend_on_threads(expected, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "4")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert stripped(run_sweep(GRID)) == expected


def test_a_cell_runs_on_one_thread_and_puts_everything_back(monkeypatch):
    from solvers.parallel import n_threads, one_thread

    monkeypatch.setenv("NUMBA_NUM_THREADS", "4")
    with one_thread():
        with one_thread():
            assert n_threads() == 1
        assert n_threads() == 1  # the inner one must not lift the outer's limit
    assert n_threads() == 4


def test_dask_gives_the_same_results(expected):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        table = run_sweep(GRID, backend="dask", scheduler=cluster.scheduler_address)
        seen = set(
            run_unordered(
                _worker_id,
                [(k,) for k in range(8)],
                backend="dask",
                scheduler=cluster.scheduler_address,
            )
        )
    assert stripped(table) == expected
    assert len(seen) == 2
    assert os.getpid() not in seen


def _worker_id(_):
    time.sleep(0.2)
    return os.getpid()


def test_a_second_run_does_nothing_and_gives_the_same(tmp_path, expected, monkeypatch):
    path = tmp_path / "r.sqlite"
    assert stripped(run_sweep(GRID, store=path)) == expected

    def no_work(*args):
        raise AssertionError("a finished cell ran again")

    monkeypatch.setattr("experiments.sweeps.engine.evaluate", no_work)
    assert stripped(run_sweep(GRID, store=path)) == expected


def test_a_decoder_added_later_joins_the_same_draws(tmp_path, expected):
    path = tmp_path / "r.sqlite"
    few = Grid(GRID.axes, BASE, encoders=GRID.encoders, decoders=("linear", "amp"), seeds=2)
    run_sweep(few, store=path)
    with Store(path) as store:
        draws = missing_draws(GRID, store)
    assert [[cell.spec.decoder for cell in draw] for draw in draws] == [["lasso"]] * 8
    assert stripped(run_sweep(GRID, store=path)) == expected


SLOW_SWEEP = """
    import sys, time
    import experiments.sweeps.engine as sweep
    from tests.experiments.test_sweep import GRID
    evaluate = sweep.evaluate
    def slowly(*args):
        time.sleep(0.15)
        return evaluate(*args)
    sweep.evaluate = slowly
    print("ready", flush=True)
    sweep.run_sweep(GRID, store=sys.argv[1], backend=sys.argv[2], jobs=2)
    print("finished", flush=True)
"""


@pytest.mark.parametrize(
    "backend", ["sequential", pytest.param("threading", marks=pytest.mark.slow)]
)
def test_a_killed_sweep_resumes_without_losing_or_repeating_a_cell(tmp_path, expected, backend):
    path = tmp_path / "r.sqlite"
    code = textwrap.dedent(SLOW_SWEEP)
    counts = []
    for wait in (0.1, 0.2):
        run = subprocess.Popen(
            [sys.executable, "-c", code, str(path), backend], stdout=subprocess.PIPE, text=True
        )
        assert run.stdout.readline() == "ready\n"
        before = counts[-1] if counts else 0
        deadline = time.monotonic() + 60
        while _count(path) <= before and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(wait)
        run.send_signal(signal.SIGKILL)
        run.wait()
        with Store(path) as store:  # repairs what was being written, as the next sweep would
            counts.append(len(store))
    assert counts == sorted(counts)
    assert 0 < counts[0] < len(expected)
    kept = stripped_by_key(path)
    assert stripped(run_sweep(GRID, store=path)) == expected
    final = stripped_by_key(path)
    assert {key: final[key] for key in kept} == kept
    run_sweep(GRID, store=tmp_path / "once.sqlite")
    assert final == stripped_by_key(tmp_path / "once.sqlite")


def _count(path):
    try:
        with Store(path, read_only=True) as store:
            return len(store)
    except StoreError:
        return 0


def stripped_by_key(path):
    """Whole rows of the file, timings aside."""
    with Store(path, read_only=True) as store:
        return {
            result.cell.key(): (stripped([result]), result.versions) for result in store.results()
        }


def test_infeasible_and_failing_cells_do_not_stop_a_sweep(tmp_path, monkeypatch):
    grid = Grid({"n_bits": (3, 18)}, BASE, decoders=("linear",), seeds=2)
    table = run_sweep(grid, store=tmp_path / "r.sqlite")
    assert [result.status for result in table.results] == ["infeasible", "done"] * 2
    few, enough = table.summary()
    assert few.interval is None
    assert "smallest that can" in few.message
    assert enough.interval.n == 2

    def fail(*args, **kwargs):
        raise MemoryError("too large")

    monkeypatch.setattr("experiments.sweeps.cells.synthetic_clients", fail)
    other = Grid({"n_bits": (18,)}, BASE, decoders=("linear",), seeds=[7])
    table = run_sweep(other, store=tmp_path / "r.sqlite")
    assert table.results[0].status == "failed"
    assert table.results[0].message == "MemoryError: too large"
    monkeypatch.undo()
    assert run_sweep(other, store=tmp_path / "r.sqlite").results[0].status == "failed"
    again = run_sweep(other, store=tmp_path / "r.sqlite", retry_failed=True)
    assert again.results[0].status == "done"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(axes={}), "a sweep has one or two"),
        (dict(axes={"sparsity": []}), "axis 'sparsity' has no values"),
        (dict(axes={"sparsity": [5], "n_bits": [16], "dim": [9]}), "a sweep has one or two"),
        (dict(axes={"colour": [5]}), "axis 'colour' does not apply to a mean"),
        (dict(axes={"sparsity": [5]}, base=TaskCell.of("digits")), "does not apply to a task"),
        (dict(axes={"sparsity": [5, 9]}, base=MeanCell(mean="dense")), "no cell of its own"),
        (dict(axes={"n_rows": [5, 9]}, encoders=["gaussian"]), "no cell of its own"),
        (dict(axes={"n_bits": [16]}, decoders=["amq"]), "no solver 'amq'"),
        (dict(axes={"n_bits": [16]}, seeds=0), "at least one"),
        (dict(axes={"n_bits": [16, 99]}), "n_bits=99 must be an integer from 1 to 63"),
        (dict(axes={"n_bits": [16]}, seeds=[-1]), "seed=-1"),
    ],
)
def test_a_bad_grid_is_refused_before_any_work(arguments, words):
    with pytest.raises(ValueError, match=words):
        Grid(**arguments)


def test_backends_are_checked_before_any_work():
    with pytest.raises(ValueError, match="backend='pigeons' is not known"):
        run_sweep(GRID, backend="pigeons")
    with pytest.raises(ValueError, match="belong together"):
        run_sweep(GRID, backend="dask")
    with pytest.raises(ValueError, match="belong together"):
        run_sweep(GRID, scheduler="tcp://127.0.0.1:1")


def test_the_median_is_left_out_where_it_cannot_be_used():
    grid = Grid(
        {"n_bits": (18,)},
        BASE,
        encoders=["gaussian", "count_sketch"],
        decoders=["median", "linear"],
    )
    assert {(cell.spec.encoder, cell.spec.decoder) for cell in grid.cells()} == {
        ("gaussian", "linear"),
        ("count_sketch", "linear"),
        ("count_sketch", "median"),
    }


def test_seeds_are_outermost_so_that_whole_repetitions_finish_first():
    seeds = [cell.seed for cell in GRID.cells()]
    assert seeds == sorted(seeds)
    assert len(group_draws(GRID.cells())) == 8
    several = Grid({"compression": (2,)}, [BASE, BASE.with_values(norm=0.2)], seeds=2)
    assert [cell.seed for cell in several.cells()] == [0, 0, 1, 1]


def test_every_result_says_which_packages_made_it():
    table = run_sweep(Grid({"compression": (2,)}, BASE, decoders=("linear",), seeds=1))
    assert table.results[0].versions == versions()
    assert "numpy" in versions()


def test_tables_summarise_and_compare(expected):
    table = run_sweep(GRID)
    assert len(table) == len(expected) == 24
    assert table.varying == ["sparsity", "encoder", "decoder"]
    assert table.fixed["dim"] == 300
    rows = table.summary()
    assert len(rows) == 12
    first = rows[0]
    values = [r["relative_error"] for r in expected if _matches(r, first.setting)]
    assert first.interval.mean == pytest.approx(np.exp(np.mean(np.log(values))))
    assert len(table.winners()) == 4
    assert len(table.to_records()) == 24


def _matches(record, setting):
    return all(record[name] == value for name, value in setting.items())


def test_experiments_exports_the_sweep_and_loads_nothing_for_it():
    code = (
        "import sys, experiments; "
        "print([m for m in ('numpy', 'joblib', 'matplotlib', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert "run_sweep" in dir(experiments)


def _ignores_interrupts():
    evaluate([])
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_workers_leave_interrupts_to_the_process_that_sweeps():
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        assert workers.apply(_ignores_interrupts)
    assert not _ignores_interrupts()
