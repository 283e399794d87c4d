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
    """Find the most used identifiers of Python's standard library from ten times less data."""
    from experiments.demo import run_demo

    console = Console(stderr=as_json)
    result = run_demo(output, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        result.show(console)


if __name__ == "__main__":
    app()
