"""Options that commands share, and options that take several values.

``--epsilon 1 10`` is ``--epsilon 1 --epsilon 10``.
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Output = Annotated[Path, typer.Option(help="Folder for pictures and machine-readable results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[int, typer.Option(help="Public seed of the sketches.", min=0)]


def whole(name: str, value: float) -> int:
    """Return a number such as 1e6 as an integer, or raise if it is none."""
    if not float(value).is_integer():
        raise ValueError(f"{name}={value} must be a whole number.")
    return int(value)


def number(text: str) -> str | float:
    """Return a text as a number where it is one."""
    return float(text) if _is_number(text) else text


class ManyValues(TyperCommand):
    """A command whose repeatable options may be followed by several values.

    Values are taken up to the next option, as long as they are numbers like the first one. After
    a text they are texts, unless the command's argument is still to come and one of them is there
    as a file or folder.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, as the parser wants it."""
        options = [p for p in self.params if p.param_type_name == "option"]
        repeatable = {name for p in options if getattr(p, "multiple", False) for name in p.opts}
        flags = {name for p in options if getattr(p, "is_flag", False) for name in p.opts}
        n_arguments = len(self.params) - len(options)
        return super().parse_args(ctx, spread(args, repeatable, flags, n_arguments))


def spread(
    args: list[str], repeatable: Set[str], flags: Set[str] = frozenset(), n_arguments: int = 1
) -> list[str]:
    """Return the words of a command line with repeatable options before each of their values."""
    found: list[str] = []
    option = first = None  # the option whose values come now, and the first of them
    for word in args:
        if word.startswith("--"):
            option, first = (None if word in flags or "=" in word else word), None
        elif option is not None and first is None:
            first = word
        elif first is not None and option in repeatable and _is_value(word, first, n_arguments):
            found.append(str(option))
        else:
            option = first = None
            n_arguments -= 1
        found.append(word)
    return found


def _is_value(word: str, first: str, n_arguments: int) -> bool:
    """Return whether ``word`` goes on with the values that began with ``first``."""
    if _is_number(first):
        return _is_number(word)
    return n_arguments <= 0 or not os.path.exists(word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
