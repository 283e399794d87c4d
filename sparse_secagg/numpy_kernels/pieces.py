"""Long arrays in pieces, whose temporary arrays stay small and in cache."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["pieces"]

#: Entries of a piece; a multiple of 64, so that packed pieces begin with a word of their own.
_ENTRIES = 1 << 16


def pieces(start: int, stop: int, entries: int = _ENTRIES) -> Iterator[slice]:
    """Cut the places ``start`` to ``stop - 1`` into slices of at most so many entries."""
    for lo in range(start, stop, entries):
        yield slice(lo, min(lo + entries, stop))
