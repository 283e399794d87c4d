"""LEAF JSON: ``{"users": [...], "num_samples": [...], "user_data": {user: {"x", "y"}}}``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.datasets.base import ClientData, ClientTexts, DataError, Examples
from experiments.datasets.files import read_json
from experiments.datasets.splits import hold_out, pooled

MAX_CLASSES = 10_000  # a label beyond would make a model of any size


def leaf(
    path: str | os.PathLike[str],
    *,
    max_clients: int | None = None,
    invert: bool = False,
    text_field: int | None = None,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> ClientData | ClientTexts:
    """Return a LEAF dataset: numbers and labels as `ClientData`, strings as `ClientTexts`.

    Parameters
    ----------
    path : path
        A file, a folder of files, or a folder with the subfolders ``train`` and ``test``.
    max_clients : int, optional
        Only so many, in the order of the files; files beyond are not opened.
    invert : bool
        Return 1 - x: in LEAF's F-EMNIST 1.0 is the background.
    text_field : int, optional
        Where each x is a list of fields (Sent140: 4), the place of the text; default: all, joined.
    test_fraction, seed : float, int
        Without ``test``: which share of the clients is held out, and the draw.
    """
    path = Path(path)
    if max_clients is not None and max_clients < 1:
        raise ValueError(f"max_clients={max_clients}: at least one client must be read.")
    training = _users(path / "train" if (path / "train").is_dir() else path, max_clients)
    has_test = (path / "test").is_dir()
    test = _users(path / "test", max_clients) if has_test else {}
    first = next(iter(training.values())).x[0]
    if _is_text(first):
        texts, held_out = (
            {name: user.texts(text_field) for name, user in users.items()}
            for users in (training, test)
        )
        # LEAF's test often has the same people: only others count as held out.
        return ClientTexts(texts, {k: v for k, v in held_out.items() if k not in texts})
    clients, tested = (
        {name: user.examples(invert) for name, user in users.items()} for users in (training, test)
    )
    widths = {x.shape[1] for x, _ in [*clients.values(), *tested.values()]}
    if len(widths) > 1:
        raise DataError(f"{path}: clients have rows of different lengths {sorted(widths)}.")
    if has_test:
        return ClientData(clients, pooled(list(tested.values())))
    return hold_out(clients, test_fraction, seed)


class _User:
    """One user's entry, checked only as far as its kind needs."""

    def __init__(self, name: str, x: list[Any], y: list[Any], path: Path) -> None:
        self.x, self.y = x, y
        self.where = f"{path}: user {name!r}"

    def examples(self, invert: bool) -> Examples:
        try:
            with np.errstate(over="ignore"):  # infinite then, and refused below
                x = np.array(self.x, dtype=np.float32)
            y = np.array(self.y)
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{self.where}: x is not rows of numbers of one length.") from error
        if not np.isfinite(x).all():
            raise DataError(f"{self.where}: x has values that are not finite numbers.")
        if y.ndim != 1 or y.dtype.kind not in "iuf" or not np.all(y == np.floor(y)):
            raise DataError(f"{self.where}: y is not one whole number a row.")
        if not (y.min() >= 0 and y.max() < MAX_CLASSES):
            raise DataError(
                f"{self.where}: labels go from {y.min()} to {y.max()}; classes count from 0 up to "
                f"{MAX_CLASSES} at most."
            )
        x = x.reshape(len(x), -1)
        if invert and not (x.min() >= 0 and x.max() <= 1):
            raise DataError(f"{self.where}: invert=True needs x in 0..1.")
        return 1 - x if invert else x, y.astype(np.int64)

    def texts(self, field: int | None) -> list[str]:
        windows = self._windows()
        if windows is not None:
            return windows
        return [" ".join(_strings(x, field, self.where)) for x in self.x]

    def _windows(self) -> list[str] | None:
        """Put LEAF's Shakespeare together: x are 80 characters moved on by one, y the next."""
        pairs = list(zip(self.x, self.y))
        if not all(isinstance(x, str) and isinstance(y, str) and len(y) == 1 for x, y in pairs):
            return None
        texts: list[list[str]] = []
        expected = None
        for x, y in pairs:
            if x == expected:
                texts[-1].append(y)
            else:
                texts.append([x, y])
            expected = x[1:] + y
        return ["".join(parts) for parts in texts]


def _is_text(x: Any) -> bool:
    while isinstance(x, list) and x:
        x = x[0]
    return isinstance(x, str)


def _strings(x: Any, field: int | None, where: str) -> Iterator[str]:
    if isinstance(x, str):
        yield x
    elif isinstance(x, list) and field is not None:
        if not (-len(x) <= field < len(x) and isinstance(x[field], str)):
            raise DataError(f"{where}: text_field={field}, but that field is not there or no text.")
        yield x[field]
    elif isinstance(x, list):
        for part in x:
            yield from _strings(part, None, where)
    else:
        raise DataError(f"{where}: {type(x).__name__} where text was expected.")


def _users(path: Path, limit: int | None) -> dict[str, _User]:
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    users: dict[str, _User] = {}
    for file in files:
        if limit is not None and len(users) >= limit:
            break
        for name, user in _read(file):
            if name in users:
                raise DataError(f"{file}: user {name!r} is in two files; remove one.")
            users[name] = user
    if not users:
        raise DataError(f"{path} holds no LEAF data (.json files with users and user_data).")
    return dict(list(users.items())[:limit])


def _read(path: Path) -> Iterator[tuple[str, _User]]:
    content = read_json(path)
    user_data = content.get("user_data") if isinstance(content, dict) else None
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(user_data, dict) or not isinstance(users, list):
        raise DataError(
            f"{path} is not LEAF JSON, which is an object with users (a list), num_samples and "
            "user_data (an object)."
        )
    counts = content.get("num_samples", [None] * len(users))
    if not isinstance(counts, list) or len(counts) != len(users):
        raise DataError(f"{path}: num_samples must be a list as long as users, {len(users)}.")
    for name, count in zip(users, counts):
        entry = user_data.get(name) if isinstance(name, str) else None
        x, y = (entry.get("x"), entry.get("y")) if isinstance(entry, dict) else (None, None)
        if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
            raise DataError(
                f"{path}: user {name!r} lacks user_data with lists x and y of a length."
            )
        if count is not None and count != len(x):
            raise DataError(
                f"{path}: user {name!r} has {len(x)} rows, but num_samples says {count!r}."
            )
        if x:
            yield name, _User(name, x, y, path)
