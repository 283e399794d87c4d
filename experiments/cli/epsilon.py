"""``sparse-secagg epsilon``: what noise multipliers mean to every observer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli.options import AsJson

__all__ = ["epsilon"]


def epsilon(
    clients: Annotated[float | None, typer.Option(help="Clients in a round.")] = None,
    population: Annotated[
        float | None, typer.Option(help="Clients from whom each round's are drawn.")
    ] = None,
    rounds: Annotated[float | None, typer.Option(help="Rounds. [default: 1]")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta. [default: 1e-5]")] = None,
    noise_multiplier: Annotated[
        list[float] | None, typer.Option(help="Noise multipliers z, one or several.")
    ] = None,
    colluders: Annotated[int, typer.Option(help="Clients that collude with the server.")] = 0,
    adjacency: Annotated[str, typer.Option(help="zero_out or replace_one.")] = "zero_out",
    preset: Annotated[
        str | None, typer.Option(help="A setting of the paper: f-emnist or stack-overflow.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn noise multipliers into epsilon, for every observer."""
    from experiments.cli.epsilon_table import as_document, epsilon_table, show

    try:
        setting = _epsilon_setting(
            preset,
            clients=_whole("--clients", clients),
            population=_whole("--population", population),
            rounds=_whole("--rounds", rounds),
            delta=delta,
            colluders=colluders or None,
            adjacency=adjacency,
            noise_multipliers=tuple(noise_multiplier) if noise_multiplier else None,
        )
        rows = epsilon_table(setting)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        typer.echo(json.dumps(as_document(setting, rows), indent=2))
    else:
        show(setting, rows, Console())


def _epsilon_setting(preset: str | None, **given: Any) -> Any:
    """Return the preset with what was given in its place, or a setting of what was given."""
    from experiments.cli.epsilon_table import PRESETS, Setting

    chosen = {name: value for name, value in given.items() if value is not None}
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r} is not known; choose one of {', '.join(PRESETS)}.")
        return replace(PRESETS[preset], **chosen)
    if "clients" not in chosen:
        raise ValueError("give --clients, or --preset f-emnist or stack-overflow.")
    return Setting(**{"population": chosen["clients"], **chosen})


def _whole(option: str, value: float | None) -> int | None:
    """Return a count written as 1000 or 1e3."""
    if value is None:
        return None
    if not math.isfinite(value) or value != int(value):
        raise ValueError(f"{option} {value} must be a whole number.")
    return int(value)
