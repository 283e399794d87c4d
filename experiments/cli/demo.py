"""``sparse-secagg demo``: the main job on embedded data, in less than a minute."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from experiments.cli.options import AsJson, Output, Seed

__all__ = ["demo"]


def demo(output: Output = Path("demo-output"), as_json: AsJson = False, seed: Seed = 0) -> None:
    """Train privately, decode a recorded round with every solver, find heavy hitters."""
    from experiments.cli.demo_run import run_demo

    console = Console(stderr=as_json)
    result = run_demo(output, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        result.show(console)
