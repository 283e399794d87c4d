"""``sparse-secagg demo``: the main job on embedded data, in less than a minute."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from experiments.cli.options import AsJson, Output, Seed
from experiments.report.terminal import literal


def demo(output: Output = Path("demo-output"), as_json: AsJson = False, seed: Seed = 0) -> None:
    """Train privately, decode a recorded round with every solver, find heavy hitters."""
    from experiments.cli.demo_run import run_demo, show

    console = Console(stderr=as_json)
    if seed < 0:
        raise typer.BadParameter(f"--seed {seed} must be at least 0.")
    found, files = run_demo(output, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(found.document() | {"files": [str(f) for f in files]}, indent=2))
    else:
        show(found, files, console)
    for line in found.failures:
        Console(stderr=True).print("[red]error:[/red]", literal(line), soft_wrap=True)
    if found.failures:
        raise typer.Exit(1)
