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
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.command import Command
from experiments.sweeps.axes import whole as read_whole
from sparse_secagg.parameters import default as declared_default
from sparse_secagg.parameters import round_parameters


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

#: Groups of options in the help; what a command needs, and what is asked first, is in none.
PRIVACY, SKETCH, DECODING = "Privacy", "Sketch and messages", "Decoding"
TRAINING, RUNNING = "Training", "Output and running"


@dataclass(frozen=True)
class Words:
    """What the help says of a parameter of a round, and where."""

    group: str
    meaning: str


#: Meanings in the words of the command line, where the declarations speak to programmers.
WORDS = {
    "epsilon": Words(PRIVACY, "ε of all rounds together."),
    "delta": Words(PRIVACY, "δ of all rounds together."),
    "noise_multiplier": Words(
        PRIVACY,
        "Noise multiplier z of each round, in place of --epsilon; 0 adds no noise, and nothing is "
        "private.",
    ),
    "clip_norm": Words(
        PRIVACY, "Largest norm of a client's vector; longer vectors are scaled down to it."
    ),
    "mechanism": Words(
        PRIVACY,
        "Noise: ddg (discrete Gaussian, a share from each client), skellam (likewise), central "
        "(added by a trusted server), or package.module:Class.",
    ),
    "colluders": Words(
        PRIVACY, "Clients that may help the server; the noise is sized without their shares."
    ),
    "adjacency": Words(
        PRIVACY,
        "What is hidden: zero_out, whether a client's vector was replaced by zero, or "
        "replace_one, by any other.",
    ),
    "population": Words(
        PRIVACY, "Clients altogether, from whom those of each round are drawn in secret."
    ),
    "observer": Words(
        PRIVACY,
        "Against whom ε holds: server, or release, which is anyone who sees only the results and "
        "learns less where --population is given.",
    ),
    "rounds": Words(PRIVACY, "Rounds, which share ε."),
    "encoder": Words(
        SKETCH,
        "Sketch: auto, count_sketch, hadamard, gaussian, identity (none), or package.module:Class; "
        "auto is a count sketch for sparse data, and hadamard for all other.",
    ),
    "compression": Words(SKETCH, "How many times shorter than the vector its sketch is."),
    "n_bits": Words(SKETCH, "Bits of each number in a message."),
    "n_rows": Words(SKETCH, "Rows of a count sketch."),
    "sketch_clip": Words(
        SKETCH,
        "Clip of the sketch over that of the vector: tight (least predicted error), jl (the "
        "paper's 1.1), spectral (Gaussian sketches only), or a number.",
    ),
    "secagg": Words(
        SKETCH, "Secure aggregation: ideal, or masked, to count the bytes of the protocol."
    ),
    "decoder": Words(
        DECODING,
        "NAME or NAME:option,…, such as linear, lasso:debias or amp:low_rank,debias; or "
        "package.module:Class.",
    ),
    "prior": Words(
        DECODING,
        "Public scores of which entries are large, for amp and auto: a file with item,score or a "
        "score in each line.",
    ),
    "sparsity": Words(DECODING, "Entries of the mean that are not zero, where known."),
    "dim": Words("", "Length d of a vector."),
    "clients": Words("", "Clients that take part in a round."),
}
#: Types on the command line, where a declaration allows more.
_KINDS = {"clip_norm": "float", "n_bits": "int", "dim": "int", "clients": "int"}
_LETTERS = {"epsilon": "E", "noise_multiplier": "Z", "compression": "R"}


def about(
    text: str, group: str = "", default: str = "", names: Sequence[str] = (), **more: Any
) -> Any:
    """Return typer's option: what it means, its group in the help, and its default in words."""
    shown = text.replace("[", r"\[") + (rf" [dim]\[default: {default}][/dim]" if default else "")
    return typer.Option(*names, help=shown, rich_help_panel=group or None, **more)


def option(
    name: str,
    *,
    several: bool = False,
    kind: str = "",
    text: str = "",
    group: str | None = None,
    default: str | None = None,
) -> Any:
    """Return the annotation of an option: its name and type as the round declares them.

    The name is a parameter of a round, ``dim`` or ``clients``; ``kind`` and ``text`` are a type and
    a meaning that differ from the usual ones. The help shows the round's default, unless
    ``default`` says what else it is, or "" that there is none.
    """
    kind = kind or _KINDS.get(name) or str(round_parameters()[name].type).split(" |")[0]
    usual = WORDS[name]
    shown: Given = {
        "text": text or usual.meaning + (" Several by commas." if several else ""),
        "group": usual.group if group is None else group,
        "default": _declared(name) if default is None else default,
        "names": (f"--{name.replace('_', '-')}",),
        "show_default": False,
    }
    if several:
        return Annotated[
            list[str] | None, about(metavar=f"{_LETTERS.get(name, 'NAME')},…", **shown)
        ]
    if kind == "int":
        parser = at_least_one if name in ("clients", "dim") else whole
        return Annotated[int | None, about(parser=parser, metavar="N", **shown)]
    if name == "prior":
        return Annotated[str | None, about(parser=prior, metavar="scores:FILE", **shown)]
    if kind == "float":
        return Annotated[float | None, about(parser=number, metavar="X", **shown)]
    return Annotated[str | None, about(**shown)]


def _declared(name: str) -> str:
    value = declared_default(name) if name in round_parameters() else None
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def takes(
    one: str, *, many: str = "", defaults: Mapping[str, str] | None = None, **own: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some parameters in place of its argument ``given``.

    ``one`` and ``many`` are names of parameters of a round, with spaces between them: those with
    one value, and those with several. ``defaults`` are what the help says of those that the command
    does not leave to the round; ``own`` are further options, or annotations that differ.
    """
    said = defaults or {}
    made = {name: option(name, default=said.get(name)) for name in one.split()}
    made |= {name: option(name, several=True, default=said.get(name)) for name in many.split()}
    made |= own

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


Output = Annotated[Path, about("Folder for pictures, tables and other results.", RUNNING)]
AsJson = Annotated[
    bool, about("Print one JSON document in place of tables.", RUNNING, names=("--json",))
]
Seed = Annotated[
    int, about("First seed of sketches and noise.", RUNNING, parser=whole, metavar="N")
]
Jobs = Annotated[
    int,
    about("Processes that work at a time; -1 is one per core.", RUNNING, parser=jobs, metavar="N"),
]
Backend = Annotated[
    str, about("What runs them: loky, threading, multiprocessing, sequential or dask.", RUNNING)
]
Scheduler = Annotated[
    str | None, about("Address of a Dask scheduler, with --backend dask.", RUNNING)
]
Slack = Annotated[
    float | None,
    about(
        "What counts as no loss: 0.01 is a point of accuracy, 1 twice the error.",
        RUNNING,
        "0.01, or 1 for errors",
        parser=number,
        metavar="X",
    ),
]
RetryFailed = Annotated[
    bool, about("Repeat what failed before.", RUNNING, names=("--retry-failed",))
]
Data = Annotated[
    Path | None, about("Folder or file of the task's data.", default="SPARSE_SECAGG_DATA")
]


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
