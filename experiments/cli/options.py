"""Options that commands share: one vocabulary, whose words and meanings are those of a round.

A command says which parameters of a round it takes, by name; their options are made here of their
declarations, and what a user gave arrives in one dictionary::

    @takes("compression n_bits", many="epsilon")
    def command(path: Path, given: Given, output: Output = Path("out")) -> None: ...

Numbers may be written as 1e6 everywhere. Options with several values take them by commas or by
repetition, and numbers also one after the other: ``--epsilon 1,10`` is ``--epsilon 1 10``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.command import Command
from experiments.sweeps.axes import whole as read_whole
from sparse_secagg.parameters import describe, round_parameters


def whole(text: str | float) -> int:
    """Return 1000, 1e3 or 1_000 as an integer, or raise if it is none."""
    try:
        return read_whole(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text} must be a whole number, such as 1000 or 1e3.") from None


def at_least_one(text: str | float) -> int:
    """Return a whole number from 1 on, or raise if the text is none."""
    if whole(text) < 1:
        raise typer.BadParameter(f"{text} must be at least 1.")
    return whole(text)


def jobs(text: str | int) -> int:
    """Return how many draws or threads run at a time, or raise if that is none."""
    found = whole(text)
    if found < 1 and found != -1:
        raise typer.BadParameter(f"{text} must be at least 1, or -1 for one per core.")
    return found


def number(text: str | float) -> float:
    """Return 0.5, 1e-5 or inf as a number, or raise if it is none."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text} must be a number, such as 0.5 or 1e-5.") from None


def fraction(text: str | float) -> float:
    """Return a number from 0 to below 1, or raise if it is none."""
    if not 0 <= number(text) < 1:
        raise typer.BadParameter(f"{text} must be a fraction, from 0 to below 1.")
    return number(text)


def prior(text: str) -> str:
    """Return ``scores:FILE`` as it is, or raise if it does not name a file that is there."""
    kind, _, path = text.partition(":")
    if kind != "scores" or not path:
        raise typer.BadParameter(
            f"{text} must be scores:FILE, a file with item,score or a score in each line."
        )
    if not Path(path).is_file():
        raise typer.BadParameter(f"{text}: there is no file {path}; check the path.")
    return text


def number_or_word(text: str) -> float | str:
    """Return the number that a text is; any other text is for the round to judge."""
    try:
        return float(text)
    except ValueError:
        return text


def numbers(option: str, texts: Sequence[str] | None) -> tuple[float, ...]:
    """Return the numbers of an option that was given by commas, by repetition, or both."""
    found = []
    for piece in words(texts):
        try:
            found.append(float(piece))
        except ValueError:
            raise typer.BadParameter(f"{option} {piece} must be a number.") from None
    return tuple(found)


def words(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Return the words of an option that was given by commas, by repetition, or both.

    Commas after a colon part the options of a decoder, up to the next decoder with a colon.

    Examples
    --------
    >>> words(["linear,lasso", "ridge,amp:low_rank,debias"])
    ('linear', 'lasso', 'ridge', 'amp:low_rank,debias')
    >>> words(["amp:low_rank,debias,lasso:debias"])
    ('amp:low_rank,debias', 'lasso:debias')
    """
    found: list[str] = []
    for text in texts or ():
        decoder = ""  # the one with a colon whose options come now
        for piece in map(str.strip, text.split(",")):
            begins = ":" in piece.partition("=")[0]
            if decoder and not begins:
                found[-1] = f"{found[-1]},{piece}"
            else:
                found.append(piece)
            decoder = piece if begins else decoder
    return tuple(filter(None, found))


#: What was given of the parameters of a round, by name.
Given = dict[str, Any]

#: Meanings on the command line, where a declaration's would not do.
MEANINGS = {
    "sparsity": "Nonzero entries s of the mean.",
    "rounds": "Rounds, which share epsilon.",
    "decoder": "NAME, NAME:option,… or package.module:Class: linear, lasso:debias, "
    "amp:low_rank,debias.",
    "prior": "scores:FILE, public scores for amp and auto: item,score or a score.",
    "clip_norm": "ℓ₂ clip of a client's vector.",
    "encoder": "auto, count_sketch, hadamard, gaussian, identity, or package.module:Class. auto is "
    "the fastest: a count sketch for scipy sparse matrices, Hadamard for everything else.",
    "mechanism": "ddg, skellam, central, or package.module:Class.",
    "dim": "Length d of a vector.",
    "clients": "Clients n of a round.",
}
#: Types on the command line, where a declaration allows more.
_KINDS = {"clip_norm": "float", "n_bits": "int", "dim": "int", "clients": "int"}
_LETTERS = {"epsilon": "E", "noise_multiplier": "Z", "compression": "R"}


def option(name: str, *, several: bool = False, kind: str = "", text: str = "") -> Any:
    """Return the annotation of an option: its name, type and meaning as the round declares them.

    The name is a parameter of a round, ``dim`` or ``clients``; ``kind`` and ``text`` are a type and
    a meaning that differ from the declaration's.
    """
    kind = kind or _KINDS.get(name) or str(round_parameters()[name].type).split(" |")[0]
    meaning = text or MEANINGS.get(name) or describe(name).replace("``", "")
    shown: Given = {"help": meaning.replace("[", r"\["), "show_default": False}
    flag = f"--{name.replace('_', '-')}"
    if several:
        letter = _LETTERS.get(name, "NAME")
        return Annotated[list[str] | None, typer.Option(flag, metavar=f"{letter},…", **shown)]
    if kind == "int":
        parser = at_least_one if name in ("clients", "dim") else whole
        return Annotated[int | None, typer.Option(flag, parser=parser, metavar="N", **shown)]
    if name == "prior":
        return Annotated[
            str | None, typer.Option(flag, parser=prior, metavar="scores:FILE", **shown)
        ]
    if kind == "float":
        return Annotated[float | None, typer.Option(flag, parser=number, metavar="X", **shown)]
    return Annotated[str | None, typer.Option(flag, **shown)]


def takes(
    one: str, *, many: str = "", **own: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some parameters in place of its argument ``given``.

    ``one`` and ``many`` are names of parameters of a round, with spaces between them: those with
    one value, and those with several. ``own`` are further options, or annotations that differ.
    """
    made = {name: option(name) for name in one.split()}
    made |= {name: option(name, several=True) for name in many.split()} | own

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**values: Any) -> None:
            given = {name: values.pop(name) for name in made}
            function(given={n: v for n, v in given.items() if v is not None}, **values)

        signature = inspect.signature(function, eval_str=True)
        keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        added = [keyword(name, default=None, annotation=kind) for name, kind in made.items()]
        parameters: list[inspect.Parameter] = []
        for name, mine in signature.parameters.items():
            parameters += added if name == "given" else [mine.replace(kind=mine.KEYWORD_ONLY)]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


Output = Annotated[Path, typer.Option(help="Folder for pictures and machine-readable results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[
    int, typer.Option(parser=whole, metavar="N", help="First seed of sketches and noise.")
]
Jobs = Annotated[
    int, typer.Option(parser=jobs, metavar="N", help="Draws at a time; -1 for one per core.")
]
Backend = Annotated[str, typer.Option(help="loky, threading, multiprocessing, sequential or dask.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler, with --backend dask.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")]
Data = Annotated[Path | None, typer.Option(help="Folder or file of data; else SPARSE_SECAGG_DATA.")]


class ManyNumbers(Command):
    """A command whose repeatable options may be followed by several numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its numbers, as the parser wants it."""
        options = [p for p in self.params if p.param_type_name == "option"]
        repeatable = {name for p in options if getattr(p, "multiple", False) for name in p.opts}
        return super().parse_args(ctx, spread(args, repeatable))


def spread(args: Sequence[str], repeatable: Set[str]) -> list[str]:
    """Return the words of a command line with repeatable options before each of their numbers."""
    found: list[str] = []
    option: str | None = None  # the option whose numbers come now
    for place, word in enumerate(args):
        if word.startswith("--") or not isinstance(number_or_word(word), float):
            option = word if word in repeatable else None
        elif option is not None and args[place - 1] != option:
            found.append(option)
        found.append(word)
    return found
