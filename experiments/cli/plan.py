"""``sparse-secagg plan``: what a round needs and what it will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli import options as opt


@opt.takes(
    "epsilon delta noise_multiplier clip_norm n_bits compression sparsity "
    "colluders population rounds observer n_rows sketch_clip",
    encoder=opt.option(
        "encoder", text="identity, hadamard, count_sketch or gaussian; else chosen."
    ),
    mechanism=opt.option("mechanism", text="ddg or skellam."),
    decoder=opt.option("decoder", text="linear, lasso or amp; else chosen."),
    secagg=opt.option("secagg", text="ideal, or masked to count the bytes of the protocol."),
)
def plan(
    dim: Annotated[
        int, typer.Option(parser=opt.at_least_one, metavar="N", help=opt.MEANINGS["dim"])
    ],
    clients: Annotated[
        int, typer.Option(parser=opt.at_least_one, metavar="N", help=opt.MEANINGS["clients"])
    ],
    given: opt.Given,
    error_slack: Annotated[
        float,
        typer.Option(
            parser=opt.number,
            metavar="X",
            help="Error accepted over the best possible: 1 allows twice.",
        ),
    ] = 1.0,
    target_error: Annotated[
        float | None,
        typer.Option(
            parser=opt.number,
            metavar="X",
            help="Largest squared error over clip², in place of the slack.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw error against bytes, as PNG, SVG or PDF by the suffix."),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Choose encoder, sketch length, bits, noise and decoder, and predict the error."""
    from experiments.report.plan_figure import check_picture, draw_plan
    from experiments.report.style import save_picture
    from experiments.report.terminal import say
    from sparse_secagg import plan as make_plan
    from sparse_secagg.private_files import check_file

    if "epsilon" in given and "noise_multiplier" in given:
        raise typer.BadParameter("give --epsilon or --noise-multiplier, not both.")
    if "sketch_clip" in given:
        given["sketch_clip"] = opt.number_or_word(given["sketch_clip"])
    request: dict[str, Any] = {
        "d": dim,
        "n_clients": clients,
        "error_slack": error_slack,
        "target_error": target_error,
        **given,
    }
    if plot is not None:
        check_picture(plot)
        check_file(plot)
    made = make_plan(**request)
    if as_json:
        typer.echo(made.to_json())
    else:
        say(made.explain(), Console())
    if plot is not None:
        save_picture(draw_plan(made, request), plot)
        typer.echo(f"written: {plot}", err=as_json)
