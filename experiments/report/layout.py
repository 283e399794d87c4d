"""Tables in the terminal, at any width: columns that do not fit stand in a further block below.

One rule for all tables. Headings may take several lines, cells do not; where all columns together
are wider than the terminal, they are folded into blocks, each of which begins with the names of the
rows. Only what is too wide for a terminal by itself, such as a long name, goes on in a next line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table

from experiments.report.tables import TextTable
from experiments.report.terminal import literal

#: Blanks between two columns.
_GAP = 2
#: Words, and the parts of names of decoders: a line may end behind each of them.
_PIECES = re.compile(r"[^\s:,=/_]*[:,=/_]*\s*")


def print_table(table: TextTable, console: Console) -> None:
    """Print a table below its title, no wider than the terminal."""
    if table.title:
        console.print(literal(table.title, "table.title"))
        console.print()
    for block in lay_out(table, console.width):
        console.print(block)
        console.print()


def lay_out(table: TextTable, width: int) -> list[Table]:
    """Return the blocks of a table for a terminal of ``width`` columns."""
    texts = [[literal(text).plain for text in column] for column in zip(table.heads, *table.rows)]
    wide = [max(map(_width, column)) for column in texts]
    least = [max(_narrowest(head), 1, *map(_width, cells)) for head, *cells in texts]
    names = max(table.left, 1)
    if _total(wide) <= width:
        return [_block(table, dict(enumerate(wide)))]
    first = _shrunk(least[:names], max(width // 3, width - _total(least[names:]) - _GAP))
    rest = [min(each, width - _total(first) - _GAP) for each in least[names:]]
    return [
        _block(table, dict(enumerate(first)) | _eased(part, wide, width - _total(first) - _GAP))
        for part in _parts(rest, names, width - _total(first) - _GAP)
    ]


def fold(text: str, width: int) -> str:
    r"""Return a text in lines of at most so many columns, broken between words if possible.

    Examples
    --------
    >>> fold("bits per parameter", 9).split("\n")
    ['bits per', 'parameter']
    >>> fold("amp:low_rank,debias", 10).split("\n")
    ['amp:low_', 'rank,', 'debias']
    """
    return "\n".join(line for given in text.split("\n") for line in _lines(given, width))


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for piece in _PIECES.findall(text):
        if line and cell_len(f"{line}{piece}".rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += piece
        while cell_len(line.rstrip()) > width:  # a word that is longer than a line
            head = chop_cells(line, width)[0] or line[0]
            yield head
            line = line[len(head) :]
    yield line.rstrip()


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _narrowest(head: str) -> int:
    return max(cell_len(piece.rstrip()) for piece in _PIECES.findall(head))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shrunk(widths: Sequence[int], room: int) -> list[int]:
    """Return widths of which the widest were made narrower until they fit."""
    found = list(widths)
    while _total(found) > room and max(found) > 1:
        found[found.index(max(found))] -= 1
    return found


def _parts(widths: Sequence[int], start: int, room: int) -> Iterator[dict[int, int]]:
    """Yield as many columns, by number and width, as fit beside the names of the rows."""
    part: dict[int, int] = {}
    for column, width in enumerate(widths, start):
        if part and _total([*part.values(), width]) > room:
            yield part
            part = {}
        part[column] = width
    yield part


def _eased(widths: dict[int, int], wide: Sequence[int], room: int) -> dict[int, int]:
    """Return widths in which headings stand on one line, as far as there is space left."""
    found = dict(widths)
    for column, width in widths.items():
        if _total([*found.values()]) + wide[column] - width <= room:
            found[column] = wide[column]
    return found


def _block(table: TextTable, widths: dict[int, int]) -> Table:
    """Return some columns of a table, at these widths."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, _GAP - 1))
    for column, width in widths.items():
        head = literal(fold(literal(table.heads[column]).plain, width))
        shown.add_column(head, justify="left" if column < table.left else "right", width=width)
    for line, row in enumerate(table.rows):
        cells = [(column, fold(literal(row[column]).plain, w)) for column, w in widths.items()]
        shown.add_row(*(literal(t, "bold" if (line, c) in table.bold else "") for c, t in cells))
    return shown
