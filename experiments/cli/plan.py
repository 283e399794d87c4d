"""``sparse-secagg plan``: what a round needs and what it will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli import options as opt


@opt.takes(
    "epsilon delta noise_multiplier clip_norm colluders population rounds observer compression "
    "n_bits n_rows sketch_clip sparsity",
    defaults={"compression": "chosen", "n_bits": "chosen"},
    encoder=opt.option(
        "encoder",
        text="Sketch: identity (none), hadamard, count_sketch or gaussian.",
        default="chosen",
    ),
    mechanism=opt.option("mechanism", text="Noise: ddg or skellam, a share from each client."),
    decoder=opt.option(
        "decoder", text="What makes the mean of the sketch: linear, lasso or amp.", default="chosen"
    ),
    secagg=opt.option("secagg"),
)
def plan(
    dim: Annotated[int, opt.about(opt.WORDS["dim"].meaning, parser=opt.at_least_one, metavar="N")],
    clients: Annotated[
        int, opt.about(opt.WORDS["clients"].meaning, parser=opt.at_least_one, metavar="N")
    ],
    given: opt.Given,
    error_slack: Annotated[
        float,
        opt.about(
            "How far the error may be above the smallest one possible: 1 allows twice as much.",
            opt.DECODING,
            parser=opt.number,
            metavar="X",
        ),
    ] = 1.0,
    target_error: Annotated[
        float | None,
        opt.about(
            "Largest squared error, over the squared clip, in place of --error-slack.",
            opt.DECODING,
            parser=opt.number,
            metavar="X",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        opt.about("Picture of error against bytes: a .png, .svg or .pdf file.", opt.RUNNING),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Choose encoder, sketch length, bits, noise and decoder of a round; predict its error."""
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
