"""``sparse-secagg epsilon``: what noise multipliers mean to every observer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli import options as opt


def epsilon(
    clients: opt.Clients = None,
    population: Annotated[
        int | None, opt.whole_option("population", "Clients from whom each round's are drawn.")
    ] = None,
    rounds: opt.Rounds = None,
    delta: opt.Delta = None,
    noise_multiplier: opt.NoiseMultipliers = None,
    colluders: opt.Colluders = None,
    adjacency: Annotated[str | None, opt.round_option("adjacency")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A setting of the paper: f-emnist or stack-overflow.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Turn noise multipliers into epsilon, for every observer."""
    from experiments.report.epsilon_table import as_document, epsilon_table, show

    try:
        setting = _epsilon_setting(
            preset,
            clients=clients,
            population=population,
            rounds=rounds,
            delta=delta,
            colluders=colluders or None,
            adjacency=adjacency,
            noise_multipliers=opt.numbers("--noise-multiplier", noise_multiplier) or None,
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
    from experiments.report.epsilon_table import PRESETS, Setting

    chosen = {name: value for name, value in given.items() if value is not None}
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r} is not known; choose one of {', '.join(PRESETS)}.")
        return replace(PRESETS[preset], **chosen)
    if "clients" not in chosen:
        raise ValueError("give --clients, or --preset f-emnist or stack-overflow.")
    return Setting(**{"population": chosen["clients"], **chosen})
