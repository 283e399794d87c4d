"""Options that commands share: one vocabulary, whose words and meanings are those of a round.

Numbers may be written as 1e6 everywhere. Options with several values take them by commas or by
repetition, and numbers also one after the other: ``--epsilon 1,10`` is ``--epsilon 1 10``.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sparse_secagg.parameters import describe


def whole(text: str | float) -> int:
    """Return 1000, 1e3 or 1_000 as an integer, or raise if it is none."""
    try:
        value = float(text)
        if value != int(value):
            raise ValueError
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text} must be a whole number, such as 1000 or 1e3.") from None
    return int(value)


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

    A text with a colon is one word: commas then part the options of a decoder.

    Examples
    --------
    >>> words(["linear,lasso", "amp:low_rank,debias"])
    ('linear', 'lasso', 'amp:low_rank,debias')
    """
    found: list[str] = []
    for text in texts or ():
        pieces = [text] if ":" in text else text.split(",")
        found += [piece.strip() for piece in pieces if piece.strip()]
    return tuple(found)


def round_option(name: str, text: str | None = None, **more: Any) -> Any:
    """Return the option of a parameter of a round, with its name and its meaning."""
    meaning = describe(name).replace("``", "") if text is None else text
    return typer.Option(
        f"--{name.replace('_', '-')}", help=meaning.replace("[", r"\["), show_default=False, **more
    )


def _several(name: str, kind: str) -> Any:
    return round_option(name, metavar=f"{kind},…")


def whole_option(name: str, text: str | None = None) -> Any:
    """Return the option of a whole number of a round."""
    return round_option(name, text, parser=whole, metavar="N")


Compression = Annotated[float | None, round_option("compression")]
Compressions = Annotated[list[str] | None, _several("compression", "R")]
Epsilon = Annotated[float | None, round_option("epsilon")]
Epsilons = Annotated[list[str] | None, _several("epsilon", "E")]
NoiseMultiplier = Annotated[float | None, round_option("noise_multiplier")]
NoiseMultipliers = Annotated[list[str] | None, _several("noise_multiplier", "Z")]
Delta = Annotated[float | None, round_option("delta")]
NBits = Annotated[int | None, whole_option("n_bits")]
NRows = Annotated[int | None, whole_option("n_rows")]
Sparsity = Annotated[int | None, whole_option("sparsity", "Nonzero entries s of the mean.")]
Rounds = Annotated[int | None, whole_option("rounds", "Rounds, which share epsilon.")]
Colluders = Annotated[int | None, whole_option("colluders")]
Encoder = Annotated[str | None, round_option("encoder")]
Encoders = Annotated[list[str] | None, _several("encoder", "NAME")]
Mechanism = Annotated[str | None, round_option("mechanism")]
Mechanisms = Annotated[list[str] | None, _several("mechanism", "NAME")]
_DECODER = "NAME, NAME:option,… or package.module:Class: linear, lasso:debias, amp:low_rank,debias."
Decoder = Annotated[str | None, round_option("decoder", _DECODER)]
Decoders = Annotated[list[str] | None, round_option("decoder", _DECODER, metavar="NAME,…")]
Prior = Annotated[
    str | None, round_option("prior", "scores:FILE, public scores for amp: item,score or a score.")
]
ClipNorm = Annotated[float | None, round_option("clip_norm", "ℓ₂ clip of a client's vector.")]

DIM = typer.Option("--dim", parser=whole, metavar="N", help="Length d of a vector.")
CLIENTS = typer.Option("--clients", parser=whole, metavar="N", help="Clients n of a round.")
Dim = Annotated[int | None, DIM]
Clients = Annotated[int | None, CLIENTS]
Output = Annotated[Path, typer.Option(help="Folder for pictures and machine-readable results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[
    int, typer.Option(parser=whole, metavar="N", help="First seed of sketches and noise.")
]
Jobs = Annotated[
    int, typer.Option(parser=whole, metavar="N", help="Draws at a time; -1 for one per core.")
]
Backend = Annotated[str, typer.Option(help="loky, threading, multiprocessing, sequential or dask.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler, with --backend dask.")
]
Data = Annotated[Path | None, typer.Option(help="Folder or file of data; else SPARSE_SECAGG_DATA.")]


class ManyNumbers(TyperCommand):
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
        if word.startswith("--") or not _is_number(word):
            option = word if word in repeatable else None
        elif option is not None and args[place - 1] != option:
            found.append(option)
        found.append(word)
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
