"""``sparse-secagg plan``: what a round needs and what it will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.options import AsJson

__all__ = ["plan"]


def plan(
    dim: Annotated[float, typer.Option(help="Dimension d of the vectors, e.g. 1e6.")],
    clients: Annotated[float, typer.Option(help="Clients in a round, e.g. 1e3.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of all rounds together.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier z, instead of epsilon.")
    ] = None,
    clip_norm: Annotated[float, typer.Option(help="Clip of a client's vector.")] = 1.0,
    n_bits: Annotated[int | None, typer.Option(help="Bits of a coordinate; else chosen.")] = None,
    compression: Annotated[
        float | None, typer.Option(help="d/m, 1 for no sketch; else chosen.")
    ] = None,
    sparsity: Annotated[
        float | None, typer.Option(help="Nonzeros of the mean, if known: adds sparse decoders.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="identity, hadamard, count_sketch or gaussian; else chosen.")
    ] = None,
    decoder: Annotated[str | None, typer.Option(help="linear, lasso or amp; else chosen.")] = None,
    colluders: Annotated[float, typer.Option(help="Clients that work with the server.")] = 0,
    secagg: Annotated[
        str, typer.Option(help="ideal, or masked to count the bytes of the protocol.")
    ] = "ideal",
    error_slack: Annotated[
        float, typer.Option(help="Error accepted over the best possible: 1 allows twice.")
    ] = 1.0,
    target_error: Annotated[
        float | None,
        typer.Option(help="Largest squared error over clip², in place of the slack."),
    ] = None,
    population: Annotated[
        float | None, typer.Option(help="Clients from whom the cohorts are sampled.")
    ] = None,
    rounds: Annotated[float, typer.Option(help="Rounds that share the budget.")] = 1,
    observer: Annotated[str, typer.Option(help="Epsilon against: server or release.")] = "server",
    mechanism: Annotated[str, typer.Option(help="ddg or skellam.")] = "ddg",
    n_rows: Annotated[int, typer.Option(help="Rows of a count sketch.")] = 15,
    sketch_clip: Annotated[
        str, typer.Option(help="Clip of sketches: tight, jl, spectral or a factor.")
    ] = "tight",
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw error against bytes, as PNG, SVG or PDF by the suffix."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose encoder, sketch length, bits, noise and decoder, and predict the error."""
    from experiments.cli.options import number, whole
    from experiments.report.plan_figure import check_picture, draw_plan
    from sparse_secagg import plan as make_plan

    try:
        request: dict[str, Any] = {
            "d": whole("dim", dim),
            "n_clients": whole("clients", clients),
            "epsilon": epsilon,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "clip_norm": clip_norm,
            "n_bits": n_bits,
            "compression": compression,
            "sparsity": None if sparsity is None else whole("sparsity", sparsity),
            "encoder": encoder,
            "decoder": decoder,
            "colluders": whole("colluders", colluders),
            "secagg": secagg,
            "error_slack": error_slack,
            "target_error": target_error,
            "population": None if population is None else whole("population", population),
            "rounds": whole("rounds", rounds),
            "observer": observer,
            "mechanism": mechanism,
            "n_rows": n_rows,
            "sketch_clip": number(sketch_clip),
        }
        if plot is not None:
            check_picture(plot)
        made = make_plan(**request)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(made.to_json() if as_json else made.explain())
    if plot is not None:
        draw_plan(made, request, plot)
        typer.echo(f"written: {plot}", err=as_json)
