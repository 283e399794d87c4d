"""SQLite files of TensorFlow Federated: one ``tf.train.Example`` a row, by split and client.

The tables are ``client_metadata(client_id, split_name, num_examples)`` and ``examples(split_name,
client_id, serialized_example_proto)``. Only the rows asked for are read, through the index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import DataError
from experiments.datasets.files import ALWAYS_ALLOWED
from experiments.datasets.tensorflow_federated.protobuf import Feature, parse_example

_COLUMNS = {
    "client_metadata": {"client_id", "split_name"},
    "examples": {"client_id", "split_name", "serialized_example_proto"},
}
_LONGEST_EXAMPLE = 1 << 24  # bytes; an F-EMNIST image takes 3 kB


@dataclass(frozen=True)
class SqliteSplit:
    """One split of a file: who is in it, and the examples of one client."""

    path: Path
    split: str

    def names(self, limit: int | None = None) -> list[str]:
        """Return the clients in alphabetical order, only so many if a limit is given."""
        with _connection(self.path) as connection:
            rows = connection.execute(
                "SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ? "
                "ORDER BY client_id LIMIT ?",
                (self.split, -1 if limit is None else limit),
            ).fetchall()
        if not all(isinstance(name, str) for (name,) in rows):
            raise DataError(f"{self.path}: a client_id is not text; export the file again.")
        return [name for (name,) in rows]

    def features(self, client: str) -> set[str]:
        """Return the names of what the first example of a client holds."""
        examples = self._examples(client)
        return set(examples[0]) if examples else set()

    def read(self, client: str, feature: str) -> NDArray[Any] | list[bytes]:
        """Return one feature of a client, a row an example; text as a list."""
        where = f"{self.path}: client {client!r}"
        rows: list[Any] = []
        for example in self._examples(client):
            if feature not in example:
                raise DataError(
                    f"{where} has an example of {', '.join(sorted(example)) or 'nothing'}; images "
                    "(pixels, label) and texts (tokens) are understood."
                )
            rows.append(example[feature])
        if rows and all(isinstance(row, list) for row in rows):
            return [text for row in rows for text in row]
        try:
            return np.stack(rows) if rows else np.zeros((0, 1))
        except ValueError:
            raise DataError(f"{where} has {feature} of different sizes.") from None

    def _examples(self, client: str) -> list[dict[str, Feature]]:
        messages, size = [], 0
        with _connection(self.path) as connection:
            for (message,) in connection.execute(
                "SELECT serialized_example_proto FROM examples "
                "WHERE split_name = ? AND client_id = ? ORDER BY rowid",
                (self.split, client),
            ):
                if not isinstance(message, bytes):
                    raise DataError(f"{self.path}: an example of client {client!r} is not bytes.")
                size += len(message)
                if size > ALWAYS_ALLOWED:
                    raise DataError(
                        f"{self.path}: client {client!r} holds over {ALWAYS_ALLOWED} bytes of "
                        "examples, more than any client can."
                    )
                messages.append(message)
        try:
            return [parse_example(message) for message in messages]
        except DataError as error:
            raise DataError(
                f"{self.path}: an example of client {client!r} is not a tf.train.Example: {error}; "
                "get the file again."
            ) from error


def split_names(path: Path) -> list[str]:
    """Return the splits of a file after a look at its tables."""
    with _connection(path) as connection:
        for table, columns in _COLUMNS.items():
            kind = connection.execute(
                "SELECT type FROM sqlite_master WHERE name = ?", (table,)
            ).fetchone()
            present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            # A view could compute for ever: the format has tables.
            if kind != ("table",) or not columns <= present:
                raise DataError(
                    f"{path} has no table {table}({', '.join(sorted(columns))}); it is not a "
                    "dataset of TensorFlow Federated."
                )
        rows = connection.execute("SELECT DISTINCT split_name FROM client_metadata").fetchall()
    return sorted(str(name) for (name,) in rows)


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Open read-only, with functions in the schema off and long values refused."""
    try:
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_EXAMPLE)
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as SQLite ({error}); get it again.") from error
