import csv
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from experiments.results.table import SweepTable
from experiments.sweeps.cells import MeanCell, TaskCell
from experiments.sweeps.store import Result, Store, StoreError


def result(seed=0, status="done", **more):
    metrics = {"relative_error": 0.1 + seed, "theory_lasso": None} if status == "done" else {}
    message = "" if status == "done" else "why"
    return Result(MeanCell(seed=seed), status, metrics, message, 1.5, 0.5, "now", **more)


def add_many(store, seeds):
    for seed in seeds:
        store.add(result(seed))


def test_results_come_back_as_they_were(tmp_path):
    kept = [result(seed, versions={"numpy": "2.0", "revision": "abc"}) for seed in range(5)]
    kept.append(Result(TaskCell.of("digits", seed=1), "failed", {}, "why", versions={}))
    kept[0] = replace(kept[0], curve=(0.1, 0.25))
    with Store(tmp_path / "new" / "r.sqlite") as store:
        for each in kept:
            store.add(each)
    with Store(tmp_path / "new" / "r.sqlite") as store:
        assert len(store) == 6
        assert store.keys() == {each.cell.key() for each in kept}
        found = {each.cell.key(): each for each in store.results()}
        assert found == {each.cell.key(): each for each in kept}
        (one,) = store.results([kept[2].cell.key()])
        assert one == kept[2]


def test_a_cell_is_kept_once(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        store.add(result())
        with pytest.raises(StoreError, match="has a result already"):
            store.add(result())
        assert len(store) == 1


def test_failures_can_be_forgotten_and_nothing_else(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        for seed, status in enumerate(["done", "failed", "infeasible"]):
            store.add(result(seed, status))
        assert store.forget_failures() == 1
        assert {each.status for each in store.results()} == {"done", "infeasible"}


def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written to .*Choose another"):
        Store(tmp_path / "file" / "r.sqlite")


def test_a_read_only_folder_is_refused_at_once(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", refuse)  # permissions do not bind root
    with pytest.raises(StoreError, match="unable to open database file. Choose another"):
        Store(tmp_path / "r.sqlite")


def test_a_file_of_something_else_is_left_alone(tmp_path):
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE precious (x)")
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="is no file of results"):
        Store(tmp_path / "other.sqlite")
    (tmp_path / "text").write_text("hello " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(tmp_path / "text")
    assert (tmp_path / "text").read_text() == "hello " * 100


def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        store.add(result(0))
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full.*Those before it are safe"):
            add_many(store, range(1, 500))
        kept = len(store)
    with Store(tmp_path / "r.sqlite") as store:
        assert len(store) == kept >= 1


HOLD = """
    import sys, time
    from experiments.sweeps.cells import MeanCell
    from experiments.sweeps.store import Result, Store
    store = Store(sys.argv[1])
    store.add(Result(MeanCell(seed=7), "done", {"relative_error": 1.0}))
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_writer_at_a_time_and_readers_any_time(tmp_path):
    path = tmp_path / "r.sqlite"
    code = textwrap.dedent(HOLD)
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="is being written by another sweep"):
            Store(path)
        with Store(path, read_only=True) as reader:
            assert len(reader) == 1
    finally:
        holder.kill()  # as kill -9: no chance to tidy up
        holder.wait()
    for _ in range(50):
        try:
            with Store(path) as store:
                assert len(store) == 1
            return
        except StoreError:
            time.sleep(0.1)
    pytest.fail("the lock outlived its process")


def test_reading_needs_a_file(tmp_path):
    with pytest.raises(StoreError, match="does not exist; run the sweep first"):
        Store(tmp_path / "none.sqlite", read_only=True)


@pytest.mark.parametrize("name", ["r.sqlite", "what? is #1 & 50%41.sqlite", "mode=rwc&x?mode=rwc"])
def test_reading_neither_makes_nor_alters_anything(tmp_path, name):
    path = tmp_path / name
    with Store(path) as store:
        store.add(result(3))
    (tmp_path / f"{name}.lock").unlink()
    before = path.read_bytes()
    with Store(path, read_only=True) as reader:
        assert [each.cell.seed for each in reader.results()] == [3]
        for write in (
            lambda: reader.add(result(4)),
            reader.forget_failures,
        ):
            with pytest.raises((StoreError, sqlite3.OperationalError), match="readonly"):
                write()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_what_a_killed_writer_left_is_repaired_by_writers_and_not_by_readers(tmp_path):
    path, copy = tmp_path / "r.sqlite", tmp_path / "copy.sqlite"
    with Store(path) as store:
        store.add(result(3))
        store._db.execute("PRAGMA cache_size = 1")  # changes reach the file before the commit
        store._db.execute("BEGIN")
        store._db.execute("CREATE TABLE unfinished (x)")
        for _ in range(200):
            store._db.execute("INSERT INTO unfinished VALUES (zeroblob(5000))")
        for suffix in ("", "-journal"):  # as they lie on the disk at this moment
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        store._db.execute("ROLLBACK")
    before = copy.read_bytes()
    with pytest.raises(StoreError, match="killed while it wrote; run it again"):
        Store(copy, read_only=True)
    assert copy.read_bytes() == before
    with Store(copy) as store:
        assert len(store) == 1
    with Store(copy, read_only=True) as store:
        assert len(store) == 1


def test_reading_a_file_that_goes_away_does_not_bring_it_back(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: True)  # deleted a moment later
    with pytest.raises(StoreError, match="cannot be read from"):
        Store(tmp_path / "gone.sqlite", read_only=True)
    assert not any(tmp_path.iterdir())


def test_exports_are_flat_tables(tmp_path):
    table = SweepTable([result(0), result(1), result(2, "infeasible")], ("sparsity",))
    with table.export(tmp_path / "out" / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["relative_error"] for row in rows] == ["0.1", "1.1", ""]
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    assert rows[2]["message"] == "why"
