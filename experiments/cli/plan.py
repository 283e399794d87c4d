"""``sparse-secagg plan``: what a round needs and what it will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli import options as opt


def plan(
    dim: Annotated[int, opt.DIM],
    clients: Annotated[int, opt.CLIENTS],
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = None,
    noise_multiplier: opt.NoiseMultiplier = None,
    clip_norm: opt.ClipNorm = None,
    n_bits: opt.NBits = None,
    compression: opt.Compression = None,
    sparsity: opt.Sparsity = None,
    encoder: opt.Encoder = None,
    decoder: Annotated[
        str | None, opt.round_option("decoder", "linear, lasso or amp; else chosen.")
    ] = None,
    colluders: opt.Colluders = None,
    secagg: Annotated[
        str | None,
        opt.round_option("secagg", "ideal, or masked to count the bytes of the protocol."),
    ] = None,
    error_slack: Annotated[
        float, typer.Option(help="Error accepted over the best possible: 1 allows twice.")
    ] = 1.0,
    target_error: Annotated[
        float | None,
        typer.Option(help="Largest squared error over clip², in place of the slack."),
    ] = None,
    population: Annotated[int | None, opt.whole_option("population")] = None,
    rounds: opt.Rounds = None,
    observer: Annotated[str | None, opt.round_option("observer")] = None,
    mechanism: opt.Mechanism = None,
    n_rows: opt.NRows = None,
    sketch_clip: Annotated[str | None, opt.round_option("sketch_clip")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw error against bytes, as PNG, SVG or PDF by the suffix."),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Choose encoder, sketch length, bits, noise and decoder, and predict the error."""
    from experiments.report.plan_figure import check_picture, draw_plan
    from experiments.report.style import save_picture
    from sparse_secagg import plan as make_plan

    given = {
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "clip_norm": clip_norm,
        "n_bits": n_bits,
        "compression": compression,
        "sparsity": sparsity,
        "encoder": encoder,
        "decoder": decoder,
        "colluders": colluders,
        "secagg": secagg,
        "population": population,
        "rounds": rounds,
        "observer": observer,
        "mechanism": mechanism,
        "n_rows": n_rows,
        "sketch_clip": None if sketch_clip is None else _number(sketch_clip),
    }
    request: dict[str, Any] = {
        "d": dim,
        "n_clients": clients,
        "error_slack": error_slack,
        "target_error": target_error,
        **{name: value for name, value in given.items() if value is not None},
    }
    try:
        if plot is not None:
            check_picture(plot)
        made = make_plan(**request)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(made.to_json() if as_json else made.explain())
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        save_picture(draw_plan(made, request), plot)
        typer.echo(f"written: {plot}", err=as_json)


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
