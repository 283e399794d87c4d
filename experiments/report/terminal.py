"""Other people's words in the terminal: shown as they are, whatever signs they hold."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text


def literal(value: Any, style: str = "") -> Text:
    r"""Return a text that the terminal shows sign by sign.

    Names of items, layers, tasks, decoders and files come from data and from the command line. As
    plain strings rich would read markup and emoji in them, ``[/]`` would end the output with an
    error, and control characters would reach the terminal; here these are written out.

    Examples
    --------
    >>> literal("[bold]:bug:").plain
    '[bold]:bug:'
    >>> literal("\x1b[2J").plain
    '\\x1b[2J'
    """
    return Text("".join(map(_visible, str(value))), style=style)


def say(text: Any, console: Console, style: str = "") -> None:
    """Print a sentence: in a terminal broken between words, in a file or a pipe one line."""
    console.print(literal(text, style), soft_wrap=not console.is_terminal)


def _visible(sign: str) -> str:
    return sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1]
