"""The command line: ``sparse-secagg COMMAND``. One function a command; the work is elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    help="Private mean estimation from short integer sketches.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)

Output = Annotated[Path, typer.Option(help="Folder for pictures and machine-readable results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[int, typer.Option(help="Public seed of the sketches.", min=0)]


@app.callback()
def main() -> None:
    """Private mean estimation from short integer sketches."""


@app.command()
def demo(output: Output = Path("demo-output"), as_json: AsJson = False, seed: Seed = 0) -> None:
    """Train privately, decode a recorded round with every solver, find heavy hitters."""
    from experiments.demo import run_demo

    console = Console(stderr=as_json)
    result = run_demo(output, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        result.show(console)


@app.command()
def plan(
    dim: Annotated[float, typer.Option(help="Dimension d of the vectors, e.g. 1e6.")],
    clients: Annotated[int, typer.Option(help="Clients in a round.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of all rounds together.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier z, instead of epsilon.")
    ] = None,
    clip_norm: Annotated[float, typer.Option(help="Clip of a client's vector.")] = 1.0,
    n_bits: Annotated[int | None, typer.Option(help="Bits of a coordinate; else chosen.")] = None,
    compression: Annotated[float | None, typer.Option(help="d/m; else chosen.")] = None,
    sparsity: Annotated[int | None, typer.Option(help="Nonzeros of the mean, if known.")] = None,
    population: Annotated[
        int | None, typer.Option(help="Clients from whom the cohorts are sampled.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds that share the budget.")] = 1,
    observer: Annotated[str, typer.Option(help="Epsilon against: server or release.")] = "server",
    mechanism: Annotated[str, typer.Option(help="ddg or skellam.")] = "ddg",
    as_json: AsJson = False,
) -> None:
    """Choose sketch length, bits and noise for a round, and predict its error."""
    from sparse_secagg import plan as make_plan

    try:
        made = make_plan(
            d=int(dim),
            n_clients=clients,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            n_bits=n_bits,
            compression=compression,
            sparsity=sparsity,
            population=population,
            rounds=rounds,
            observer=observer,
            mechanism=mechanism,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(made.to_json() if as_json else made.explain())


if __name__ == "__main__":
    app()
