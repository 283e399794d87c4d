"""The class of every command: what it or the operating system refuses is said in words."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from sparse_secagg.exceptions import ClusterError

_REMEDIES = {
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.EEXIST: "a file of that name is there already; choose another path",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another path",
    errno.EISDIR: "this is a folder; give a file",
    errno.EACCES: "you have no permission; choose another path, or change its permissions",
    errno.EPERM: "you have no permission; choose another path, or change its permissions",
    errno.EROFS: "nothing can be written there; choose another path",
    errno.ENOSPC: "the disk is full; free some space, or choose another path",
}


class Command(TyperCommand):
    """A command whose refusals end with 2: what is wrong, and the option or argument to change.

    Its epilog is examples, one in each line.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, and examples below it that can be copied."""
        kept = examples, text = self.epilog, self.help
        paragraphs = (text or "").split("\n\n")
        self.epilog, self.help = None, "\n\n".join(" ".join(p.split()) for p in paragraphs)
        try:
            super().format_help(ctx, formatter)
        finally:
            self.epilog, self.help = kept
        if examples:
            typer.echo("\n".join([" Examples:", *map(_folded, examples.splitlines()), ""]))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; wrong use ends with 2, a disk that is full on the way with 1."""
        try:
            return super().invoke(ctx)
        except (ValueError, ImportError, ClusterError) as error:
            logging.getLogger(__name__).debug("refused", exc_info=True)  # seen with --verbose
            raise typer.BadParameter(_as_typed(str(error), self.params, ctx)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            named = _named(error, self.params, ctx.params)
            if named is not None:
                reason = _REMEDIES.get(error.errno or 0) or os.strerror(error.errno or 0)
                raise typer.BadParameter(f"{named}: {reason}.") from error
            if isinstance(error, FileExistsError | FileNotFoundError):  # with words of their own
                raise typer.BadParameter(str(error)) from error
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


def _folded(example: str) -> str:
    """Return a command in lines that fit a terminal, and that a shell reads as one."""
    lines = [""]
    for piece in re.split(r" (?=--)", example):  # an option stays beside its value
        if lines[-1] and len(f"{lines[-1]} {piece}") > 70:
            lines.append("")
        lines[-1] = f"{lines[-1]} {piece}".strip()
    return "\n" + " \\\n".join([f"  {lines[0]}", *(f"      {line}" for line in lines[1:])])


def _as_typed(message: str, parameters: list[Any], ctx: Any) -> str:
    """Return a message of the library about what was given, in the words of the command line.

    In Python a parameter is ``n_bits=99``, and may be None; on the command line ``--n-bits 99``.
    """
    for parameter in reversed(parameters):  # as for errors about files, below
        if getattr(ctx.get_parameter_source(parameter.name), "name", "") != "COMMANDLINE":
            continue
        typed, value = _typed(parameter), ctx.params.get(parameter.name)
        known = {parameter.name, typed.strip("-").replace("-", "_"), _IN_PYTHON.get(parameter.name)}
        names = "|".join(filter(None, known | ({"path"} if isinstance(value, Path) else set())))
        found = re.compile(rf"(?<![\w(\[.])(?:{names})=('[^']*'|[\w.+*/-]*\w)")
        message = found.sub(partial(_replaced, typed, value), message)
    message = message.replace("must be None, or ", "must be ").replace(", or None.", ".")
    return message.replace(", or an AdaptiveClip.", ".")


def _replaced(typed: str, value: Any, found: re.Match[str]) -> str:
    """Return ``--name value`` for ``name=value`` where this is the value that was given."""
    text = found[1].strip("'")
    if isinstance(value, Path):
        return f"{typed} {value}" if Path(text).absolute() == value.absolute() else found[0]
    given = value if isinstance(value, list | tuple) else [value]
    pieces = {str(v) for v in given} | {piece for v in given for piece in str(v).split(",")}
    same = text in pieces or any(_number(text) == _number(piece) for piece in pieces)
    return f"{typed} {text}" if same else found[0]


def _number(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return "nan" if math.isnan(number) else number


#: Options whose parameter has another name in Python.
_IN_PYTHON = {"clients": "n_clients", "dim": "d"}


def _typed(parameter: Any) -> str:
    """Return an option or an argument as it is typed."""
    option = parameter.param_type_name == "option"
    return str(max(parameter.opts, key=len) if option else parameter.name)


def _named(error: OSError, parameters: list[Any], values: dict[str, Any]) -> str | None:
    """Return the option, or the argument, and the value that an error is about."""
    if not isinstance(error.filename, str | os.PathLike):
        return None
    place = Path(error.filename).absolute()
    for parameter in reversed(parameters):  # what is read comes first, what is written last
        value = values.get(parameter.name)
        if isinstance(value, Path) and _concerns(place, value.absolute()):
            return f"{_typed(parameter)} {value}"
    return None


def _concerns(place: Path, path: Path) -> bool:
    """Return whether a place is a path, a folder that it is in, or a draft of it beside it."""
    draft = place.parent == path.parent and path.name in place.name
    return draft or place == path or place in path.parents
