"""Results in one SQLite file, written as they come.

Every result is one transaction with the rollback journal: a process killed at any moment leaves
complete results and no others. One process writes at a time; others may read.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from experiments.sweeps.cell import Cell
from experiments.sweeps.cells import cell_from_parameters
from sparse_secagg.private_files import make_folder, open_private

FORMAT = 2
_BUSY_SECONDS = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS environments (
    id INTEGER PRIMARY KEY,
    versions TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,
    parameters TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'infeasible', 'failed')),
    metrics TEXT NOT NULL,
    message TEXT NOT NULL,
    seconds REAL NOT NULL,
    draw_seconds REAL NOT NULL,
    finished TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments (id),
    curve TEXT NOT NULL
) WITHOUT ROWID;
"""


class StoreError(RuntimeError):
    """Results cannot be written or read."""


class UnusableStoreError(StoreError):
    """A path is no place for results, or holds something else."""


@dataclass(frozen=True)
class Result:
    """What became of one cell."""

    cell: Cell  # its parameters and seed
    status: str  # "infeasible": the parameters ask for the impossible, as too few bits
    metrics: dict[str, float | None]  # what was measured; empty unless done
    message: str = ""  # why not, unless done
    seconds: float = 0.0  # of decoding (or of training)
    draw_seconds: float = 0.0  # of clients, sketch and noise, shared by the cells of a draw
    finished: str = ""  # when, in UTC
    versions: dict[str, str] | None = None  # packages and revision that made it
    curve: tuple[float, ...] = ()  # the metric after every round, of a training run

    def record(self) -> dict[str, Any]:
        """Return one flat row: parameters, status, metrics, timing."""
        return {
            **self.cell.parameters(),
            "status": self.status,
            **self.metrics,
            "message": self.message,
            "seconds": self.seconds,
            "draw_seconds": self.draw_seconds,
            "finished": self.finished,
        }


class Store:
    """An open file of results. Use as a context manager.

    Parameters
    ----------
    path : path or ":memory:"
        The file; made, with its folder, where there is none.
    read_only : bool
        Read what is there, also while another process writes.

    Raises
    ------
    StoreError
        If the file cannot be written, is no file of results, or is being written by another
        process.

    See Also
    --------
    run_sweep : Writes to one.

    Examples
    --------
    >>> from experiments import Store
    >>> with Store(":memory:") as store:
    ...     len(store)
    0
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = str(path)
        self.read_only = read_only
        self._lock: sqlite3.Connection | None = None
        in_memory = self.path == ":memory:"
        if read_only and not in_memory and not Path(self.path).is_file():
            raise StoreError(f"{self.path} does not exist; run the sweep first.")
        try:
            if not read_only and not in_memory:
                make_folder(Path(self.path).parent)
                self._lock = _lock(f"{self.path}.lock", self.path)
            self._db = self._connect()
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            self.close()
            remedy = "Choose another file or folder."
            if read_only and Path(f"{self.path}-journal").exists():
                # SQLite would have to roll back what a killed process was writing
                remedy = "A sweep was killed while it wrote; run it again, which repairs the file."
            reason = error.strerror if isinstance(error, OSError) else error
            raise UnusableStoreError(
                f"results cannot be {'read from' if read_only else 'written to'} {self.path}: "
                f"{reason}. {remedy}"
            ) from error
        except StoreError:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        if self.path == ":memory:":
            return sqlite3.connect(self.path)
        if self.read_only:
            # SQLite itself then refuses to make or to change the file; the address is quoted
            address = f"{Path(self.path).absolute().as_uri()}?mode=ro"
            return sqlite3.connect(address, timeout=_BUSY_SECONDS, uri=True)
        _touch(self.path)
        return sqlite3.connect(self.path, timeout=_BUSY_SECONDS)

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if (tables and not version) or version not in (0, FORMAT):
            what = f"holds results of format {version}" if version else "is no file of results"
            raise UnusableStoreError(
                f"{self.path} {what}, and format {FORMAT} is read and written here. Choose another "
                "file or folder (--store, --output)."
            )
        if self.read_only and not version and self.path != ":memory:":
            raise StoreError(f"{self.path} holds no results yet; run the sweep first.")
        if not self.read_only and not version:
            self._db.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {FORMAT};COMMIT;")

    def add(self, result: Result) -> None:
        """Keep one result; each cell is kept once."""
        versions = json.dumps(result.versions or {}, sort_keys=True)
        try:
            with self._db:
                self._db.execute(
                    "INSERT OR IGNORE INTO environments (versions) VALUES (?)", (versions,)
                )
                self._db.execute(
                    "INSERT INTO results SELECT ?, ?, ?, ?, ?, ?, ?, ?, id, ? FROM environments "
                    "WHERE versions = ?",
                    (
                        result.cell.key(),
                        json.dumps(result.cell.parameters(), sort_keys=True),
                        result.status,
                        json.dumps(result.metrics, sort_keys=True),
                        result.message,
                        result.seconds,
                        result.draw_seconds,
                        result.finished,
                        json.dumps(result.curve),
                        versions,
                    ),
                )
        except sqlite3.IntegrityError as error:
            raise StoreError(f"cell {result.cell.key()} has a result already.") from error
        except sqlite3.Error as error:
            raise StoreError(
                f"a result could not be written to {self.path}: {error}. Those before it are "
                "safe; free some space and run the same sweep again."
            ) from error

    def forget_failures(self) -> int:
        """Delete the results of failed cells, so that they run again; return how many."""
        with self._db:
            return self._db.execute("DELETE FROM results WHERE status = 'failed'").rowcount

    def keys(self) -> set[str]:
        """Return the keys of all cells that have a result."""
        return {key for (key,) in self._db.execute("SELECT key FROM results")}

    def results(self, keys: Iterable[str] | None = None) -> Iterator[Result]:
        """Yield the results, all or those with the given keys, in the order of their keys."""
        wanted = None if keys is None else set(keys)
        rows = self._db.execute(
            "SELECT key, parameters, status, metrics, message, seconds, draw_seconds, finished, "
            "versions, curve FROM results JOIN environments ON environment = id ORDER BY key"
        ).fetchall()
        for key, parameters, status, metrics, message, time, shared, finished, made, curve in rows:
            if wanted is None or key in wanted:
                yield Result(
                    cell_from_parameters(json.loads(parameters)),
                    status,
                    json.loads(metrics),
                    message,
                    time,
                    shared,
                    finished,
                    json.loads(made),
                    tuple(json.loads(curve)),
                )

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM results").fetchone()[0])

    def close(self) -> None:
        """Release the file."""
        database = getattr(self, "_db", None)
        if database is not None:
            database.close()
        if self._lock is not None:
            # the lock file stays: who deletes it may delete the one another process just locked
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _lock(path: str, of: str) -> sqlite3.Connection:
    """Hold a lock that ends with the process, however it ends.

    An SQLite transaction on an empty file beside the results: the operating system releases it,
    on every platform, and readers of the results need not wait.
    """
    _touch(path)
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY")  # leaves no second file behind
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        connection.close()
        if "locked" not in str(error):
            raise
        raise StoreError(
            f"{of} is being written by another sweep; wait for it, or choose another file."
        ) from None
    return connection


def _touch(path: str) -> None:
    """Make a file that only its owner may read; SQLite gives its journal the same mode."""
    open_private(Path(path), "ab").close()
