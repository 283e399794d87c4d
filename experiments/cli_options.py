"""Options that take several values: ``--epsilon 1 10`` as well as ``--epsilon 1 --epsilon 10``."""

from __future__ import annotations

import os
from typing import Any

from typer.core import TyperCommand


class ManyValues(TyperCommand):
    """A command whose repeatable options may be followed by several values.

    Values are taken up to the next option, as long as they are numbers like the first one; after a
    text, as long as they are not there as a file or folder, which is an argument.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, as the parser wants it."""
        repeatable = {
            name
            for parameter in self.params
            if getattr(parameter, "multiple", False)
            for name in parameter.opts
        }
        return super().parse_args(ctx, _spread(args, repeatable))


def _spread(args: list[str], repeatable: set[str]) -> list[str]:
    spread: list[str] = []
    option = first = None
    for token in args:
        if token.startswith("--"):
            option, first = (token if token in repeatable else None), None
        elif option is not None and first is None:
            first = token
        elif option is not None and first is not None:
            if _is_number(token) if _is_number(first) else not os.path.exists(token):
                spread.append(option)
            else:
                option = None
        spread.append(token)
    return spread


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
