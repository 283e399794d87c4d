"""``sparse-secagg epsilon``: what noise multipliers mean to every observer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli import options as opt


@opt.takes(
    "clients population rounds delta colluders adjacency",
    defaults={"population": "--clients"},
    noise_multiplier=opt.option(
        "noise_multiplier",
        several=True,
        text="Noise multipliers z of a round, by commas; 0 adds no noise.",
        default="0.1 to 4",
    ),
)
def epsilon(
    given: opt.Given,
    preset: Annotated[
        str | None,
        opt.about(
            "A setting of the paper, f-emnist or stack-overflow; other options change parts of it."
        ),
    ] = None,
    output: Annotated[
        Path | None, opt.about("Folder for the table as CSV and LaTeX.", opt.RUNNING)
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Turn noise multipliers into ε, for every observer."""
    from experiments.report.epsilon_table import as_document, as_table, epsilon_table, show
    from experiments.report.tables import write_tables
    from sparse_secagg.private_files import make_folder

    multipliers = opt.numbers("--noise-multiplier", given.pop("noise_multiplier", None))
    setting = _epsilon_setting(
        preset, given | ({"noise_multipliers": multipliers} if multipliers else {})
    )
    if output is not None:
        make_folder(output)  # a place that cannot be written is refused before the table is shown
    rows = epsilon_table(setting)
    if as_json:
        typer.echo(json.dumps(as_document(setting, rows), indent=2))
    else:
        show(setting, rows, Console())
    if output is not None:
        for path in write_tables([as_table(setting, rows)], output / "epsilon"):
            typer.echo(f"written: {path}", err=as_json)


def _epsilon_setting(preset: str | None, given: opt.Given) -> Any:
    """Return the preset with what was given in its place, or a setting of what was given."""
    from experiments.report.epsilon_table import PRESETS, Setting

    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r} is not known; choose one of {', '.join(PRESETS)}.")
        return replace(PRESETS[preset], **given)
    if "clients" not in given:
        raise ValueError("give --clients, or --preset f-emnist or stack-overflow.")
    return Setting(**{"population": given["clients"], **given})
