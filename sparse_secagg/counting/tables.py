"""Tables of (user, item[, weight]): columns of any kind, CSV or Parquet, read in batches of rows.

Users and items become texts: texts stay as they are, whole numbers are written in decimal, also
those that a column of floats holds. A missing or empty item says that the row names none; a missing
user is an error.
"""

from __future__ import annotations

import csv
import math
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BATCH_ROWS", "Batch", "Texts", "read_batches", "text_of"]

#: Rows that are held at once.
BATCH_ROWS = 1 << 18
#: Binary digits of a float: from 2**53 on one may stand for several whole numbers.
_DIGITS = 53

_REMEDY = "give texts or whole numbers, for example by converting the column to text"


@dataclass(frozen=True)
class Texts:
    """A column of texts: the distinct values, and which of them each row has (−1: none)."""

    values: list[str]
    codes: NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Some rows of a table."""

    users: Texts
    items: Texts
    weights: NDArray[np.float64] | None = None


def read_batches(
    table: Any,
    items: Any = None,
    *,
    user: str | None = None,
    item: str | None = None,
    weight: str | None = None,
    rows: int = BATCH_ROWS,
) -> Iterator[Batch]:
    """Yield the rows of a table, batch by batch.

    Parameters
    ----------
    table : object
        The column of users, if ``items`` is given. Otherwise a pandas, polars or pyarrow table, an
        Arrow stream, a dictionary of columns, or a path to a CSV or Parquet file.
    items : sequence, optional
        The column of items.
    user, item, weight : str
        Names of the columns of a table.
    rows : int
        Rows of a batch.
    """
    if items is not None:
        _check_no_names(user=user, item=item, weight=weight)
        pieces = _of_columns([table, items], ["users", "items"], rows)
        names = ["users", "items"]
    else:
        if user is None or item is None:
            raise ValueError(
                "a table needs the names of its columns; call fit(table, user=..., item=...), or "
                "fit(users, items) with two columns."
            )
        if user == item:
            raise ValueError(f"user and item are the same column, {user!r}; name one for each.")
        names = [user, item] if weight is None else [user, item, weight]
        pieces = _pieces(table, names, rows)
    readers = [_TextColumn(name) for name in names[:2]]
    for piece in pieces:
        users, texts = (reader.read(column) for reader, column in zip(readers, piece))
        if (users.codes < 0).any():
            raise ValueError(
                f"column {names[0]!r} has rows without a user; leave them out, or give each of "
                "them a user of its own."
            )
        values = None if len(piece) == 2 else _numbers(names[2], piece[2])
        yield Batch(users, texts, values)


# --- where rows come from -----------------------------------------------------------------------


def _pieces(table: Any, names: list[str], rows: int) -> Iterator[list[Any]]:
    if isinstance(table, str | os.PathLike):
        path = Path(table).expanduser()
        if not path.is_file():
            raise ValueError(
                f"table={str(path)!r} is not a file; give the path of a CSV or Parquet file."
            )
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path, names, rows)
        return _csv(path, names, rows)
    if _has_columns(table):
        _check_names(names, _names_of(table), "the table")
        return _of_columns([table[name] for name in names], names, rows)
    if hasattr(type(table), "collect"):
        raise _unreadable(table, " that collect() returns")
    if hasattr(table, "__arrow_c_stream__"):
        reader = _pyarrow("an Arrow stream").RecordBatchReader.from_stream(table)
        _check_names(names, reader.schema.names, "the table")
        return ([batch.column(name).to_pylist() for name in names] for batch in reader)
    if hasattr(table, "__dataframe__"):
        _pyarrow("a dataframe")
        from pyarrow.interchange import from_dataframe

        return _pieces(from_dataframe(table), names, rows)
    raise _unreadable(table)


def _unreadable(table: Any, which: str = "") -> ValueError:
    return ValueError(
        f"table={type(table).__name__} cannot be read; give a pandas, polars or pyarrow "
        f"table{which}, a dictionary of columns, or a path to a CSV or Parquet file."
    )


def _has_columns(table: Any) -> bool:
    named = any(hasattr(type(table), name) for name in ("columns", "keys", "column_names"))
    return named and hasattr(table, "__getitem__") and not hasattr(type(table), "collect")


def _names_of(table: Any) -> list[str]:
    for attribute in ("column_names", "columns"):
        found = getattr(table, attribute, None)
        if found is not None and not callable(found):
            return list(found)
    return list(table.keys())


def _check_no_names(**named: str | None) -> None:
    """Raise for names of columns where there is no table that they could be of."""
    for role, name in named.items():
        if name is not None:
            raise ValueError(
                f"{role}={name!r} names a column of a table, and two columns were given; call "
                "fit(table, user=..., item=...)."
            )


def _check_names(names: list[str], found: Sequence[str], where: str) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        shown = ", ".join(map(repr, list(found)[:20]))
        raise ValueError(f"{where} has no column {missing[0]!r}; its columns are {shown}.")
    for name in names:
        if list(found).count(name) > 1:
            raise ValueError(f"{where} has two columns named {name!r}; rename or drop one of them.")


def _of_columns(columns: list[Any], names: list[str], rows: int) -> Iterator[list[Any]]:
    if not all(_is_column(column) for column in columns):
        raise ValueError(f"{' and '.join(names)} must be columns of values, one per row.")
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        counts = ", ".join(f"{name}: {n}" for name, n in zip(names, lengths))
        raise ValueError(f"columns must have the same number of rows ({counts}).")

    def pieces() -> Iterator[list[Any]]:
        for start in range(0, lengths[0], rows):
            yield [_slice(column, start, start + rows) for column in columns]

    return pieces()


def _is_column(column: Any) -> bool:
    if isinstance(column, str | Mapping | Set):
        return False
    if len(getattr(column, "shape", (None,))) != 1:
        return False
    return hasattr(column, "__len__") and hasattr(column, "__getitem__")


def _slice(column: Any, start: int, stop: int) -> Any:
    part = column.iloc[start:stop] if hasattr(column, "iloc") else column[start:stop]
    if isinstance(part, np.ma.MaskedArray):
        return part.tolist()  # with None for what is masked
    if isinstance(getattr(part, "dtype", None), np.dtype) and part.dtype.kind in "iuf":
        return np.asarray(part)  # a pandas column without nulls of its own
    for method in ("to_pylist", "to_list"):  # pyarrow; polars and pandas keep their nulls
        if hasattr(part, method) and not isinstance(part, np.ndarray):
            return getattr(part, method)()
    return part


def _csv(path: Path, names: list[str], rows: int) -> Iterator[list[Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)  # an open quote would swallow the rest of the file
        try:
            header = next(filter(None, reader), None)
            if header is None:
                raise ValueError(f"{path} is empty; its first line must name the columns.")
            _check_names(names, header, f"{path} (fields are separated by commas)")
            where = [header.index(name) for name in names]
            held: list[list[Any]] = [[] for _ in names]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} fields, but the header has "
                        f"{len(header)}."
                    )
                for column, k in zip(held, where):
                    column.append(row[k])
                if len(held[0]) == rows:
                    yield held
                    held = [[] for _ in names]
            if held[0]:
                yield held
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a CSV file in UTF-8, around line {max(1, reader.line_num)}: "
                f"{error}; save the table as one, not compressed, or as Parquet in a file named "
                ".parquet."
            ) from None


def _parquet(path: Path, names: list[str], rows: int) -> Iterator[list[Any]]:
    pyarrow = _pyarrow("a Parquet file")
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            _check_names(names, file.schema_arrow.names, str(path))
            for batch in file.iter_batches(batch_size=rows, columns=names):
                yield [batch.column(name).to_pylist() for name in names]
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as a Parquet file: {error}") from None


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            f"{what} needs pyarrow: pip install 'sparse-secagg[tables]'; CSV files, dictionaries "
            "of columns, pandas and polars do without."
        ) from None
    return pyarrow


# --- values -------------------------------------------------------------------------------------


class _TextColumn:
    """Reads a column as texts; the kind of its values must be the same throughout."""

    def __init__(self, name: str) -> None:
        self.name, self.kind = name, ""

    def read(self, column: Any) -> Texts:
        array = column if isinstance(column, np.ndarray) else None
        if array is not None and array.dtype.kind in "iu":
            self._agree("whole numbers")
            distinct, codes = np.unique(array, return_inverse=True)
            return Texts([str(value) for value in distinct.tolist()], codes.astype(np.int64))
        if array is not None and array.dtype.kind == "f":
            self._check_exact(array)
        dates = array is not None and array.dtype.kind in "mM"  # tolist makes them numbers
        values = list(column) if array is None or dates else array.tolist()
        if set(map(type, values)) == {str}:
            return self._texts(values)
        seen: dict[str, int] = {}
        codes = np.fromiter((self._code(value, seen) for value in values), np.int64, len(values))
        return Texts(list(seen), codes)

    def _texts(self, values: list[str]) -> Texts:
        """Read a column in which every value is a text."""
        distinct = [value for value in dict.fromkeys(values) if value]
        if distinct:
            self._agree("texts")
        number = {value: k for k, value in enumerate(distinct)}
        number[""] = -1
        codes = np.fromiter(map(number.__getitem__, values), np.int64, len(values))
        return Texts(distinct, codes)

    def _code(self, value: Any, seen: dict[str, int]) -> int:
        text = text_of(value, f"column {self.name!r}")
        if not text:
            return -1
        self._agree("texts" if isinstance(value, str) else "whole numbers")
        return seen.setdefault(text, len(seen))

    def _check_exact(self, array: NDArray[np.floating]) -> None:
        digits = np.finfo(array.dtype).nmant + 1
        if (np.abs(array) >= 2.0**digits).any():
            raise _ambiguous(f"column {self.name!r}", digits)

    def _agree(self, kind: str) -> None:
        if self.kind != kind:
            if self.kind:
                raise ValueError(f"column {self.name!r} mixes {self.kind} and {kind}; {_REMEDY}.")
            self.kind = kind


def text_of(value: Any, where: str) -> str:
    """Return a value as the text that it is counted as; an empty one where it is missing.

    Parameters
    ----------
    value : object
        A text, a whole number, or None, NaN or NA.
    where : str
        What held it, for the error about anything else.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if _missing(value):
        return ""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float | np.floating) and (number := float(value)) == np.floor(number):
        if abs(number) < 2.0**_DIGITS:
            return str(int(number))
        raise _ambiguous(where, _DIGITS)
    raise ValueError(
        f"{where} holds a {type(value).__name__} that is no text and no whole number; {_REMEDY}."
    )


def _ambiguous(where: str, digits: int) -> ValueError:
    return ValueError(
        f"{where} holds a float of 2**{digits} or more, which may stand for several whole numbers; "
        "give integers or texts."
    )


def _missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _numbers(name: str, column: Any) -> NDArray[np.float64]:
    convert: Callable[..., NDArray[np.float64]] = np.asarray
    try:
        values = convert(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"column {name!r} of weights must hold numbers only, such as 1.5; drop the rows that "
            "have none."
        ) from None
    if not np.isfinite(values).all():
        raise ValueError(
            f"column {name!r} of weights has missing or infinite values; drop the rows."
        )
    return values
