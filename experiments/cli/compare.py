"""``sparse-secagg compare``: every decoder on recorded updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.cli.options import AsJson, Output, Seed
from experiments.report.terminal import literal

__all__ = ["compare"]


def compare(
    recording: Annotated[
        Path, typer.Argument(help="Folder of a recording; a packed one, .npy or .npz.")
    ],
    compression: Annotated[list[float], typer.Option(help="d/m, one or several.")] = [10.0],  # noqa: B006
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Epsilon of a round, one or several. [default: 1]")
    ] = None,
    noise_multiplier: Annotated[
        list[float] | None, typer.Option(help="Noise multipliers z, instead of epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of a round.")] = 1e-5,
    decoder: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME or NAME:option,… such as lasso:debias, amp:low_rank; all: every solver. "
            "[default: the fast ones of each kind]"
        ),
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder of the sketches.")] = "count_sketch",
    n_rows: Annotated[int | None, typer.Option(help="Rows of a count sketch.", min=1)] = None,
    n_bits: Annotated[int | None, typer.Option(help="Bits of a coordinate; else chosen.")] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="Clip of the updates, instead of the recorded one.")
    ] = None,
    rounds: Annotated[
        list[int] | None, typer.Option("--round", help="Rounds by number. [default: all]")
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws of sketch and noise a round.", min=1)] = 3,
    top: Annotated[int, typer.Option(help="K of the top-K precision and recall.", min=1)] = 100,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = 1,
    output: Output = Path("compare-output"),
    as_json: AsJson = False,
    seed: Seed = 0,
) -> None:
    """Decode recorded updates with every decoder and say which one to use."""
    from experiments.report.compare_report import show
    from experiments.sweeps.compare import CompareConfig, compare_recording

    if epsilon and noise_multiplier:
        raise typer.BadParameter("give --epsilon or --noise-multiplier, not both.")
    console = Console(stderr=as_json)
    try:
        config = CompareConfig(
            compressions=tuple(compression),
            epsilons=tuple(epsilon or [1.0]),
            noise_multipliers=tuple(noise_multiplier or []),
            delta=delta,
            decoders=tuple(decoder or []),
            encoder=encoder,
            n_rows=n_rows,
            n_bits=n_bits,
            clip_norm=clip_norm,
            draws=draws,
            top=top,
            rounds=tuple(rounds) if rounds else None,
            seed=seed,
        )
        result, files = compare_recording(
            recording, config, output=output, jobs=jobs, console=console
        )
    except (ValueError, OSError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=1))
        return
    show(result, console)
    for path in files:
        console.print(literal(f"written: {path}"))
