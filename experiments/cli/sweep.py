"""``sparse-secagg sweep``: trade-off curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.cli import options as opt


@opt.takes(
    "prior dim clients sparsity compression n_bits n_rows epsilon noise_multiplier delta "
    "clip_norm rounds",
    many="encoder mechanism decoder",
)
def sweep(
    *,
    preset: Annotated[
        str | None, typer.Option(help="A ready-made sweep; 'list' names them.")
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            help="What varies, NAME or NAME=V1,V2,…; one or two. Names: sparsity, density, "
            "compression, n_bits, clients, epsilon, noise_multiplier, dim, n_rows, threshold, "
            "rounds."
        ),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            help="Synthetic mean: sparse, flat, power_law, laplace, dense, low_rank, layered."
        ),
    ] = None,
    recording: Annotated[
        Path | None, typer.Option(help="Recorded updates in place of synthetic ones.")
    ] = None,
    recorded_round: Annotated[
        int | None,
        typer.Option(parser=opt.whole, metavar="N", help="Which recorded round; all by default."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Train: a cell is a training run, or a round of heavy-hitters."),
    ] = None,
    given: opt.Given,
    seeds: Annotated[
        int | None, typer.Option(parser=opt.at_least_one, metavar="N", help="Repetitions.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a further field of the cells.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="File of results; OUTPUT/results.sqlite by default.")
    ] = None,
    jobs: opt.Jobs = -1,
    backend: opt.Backend = "loky",
    scheduler: opt.Scheduler = None,
    slack: Annotated[
        float | None,
        typer.Option(
            parser=opt.number,
            metavar="X",
            help="Δ: 1 lets errors double; 0.01 costs a point of accuracy. By metric.",
        ),
    ] = None,
    retry_failed: opt.RetryFailed = False,
    data: opt.Data = None,
    output: opt.Output = Path("sweep-output"),
    as_json: opt.AsJson = False,
    seed: opt.Seed = 0,
) -> None:
    """Draw trade-off curves; in parallel, resumable, decoders compared on the same noise."""
    from experiments.cli.sweeping import RunOptions, SweepRequest, list_presets, run_command

    if preset == "list":
        list_presets(Console(stderr=as_json))
        return
    request = SweepRequest(
        preset=preset,
        axes=axis or (),
        mean=mean,
        recording=recording,
        rounds=() if recorded_round is None else (recorded_round,),
        task=task,
        data=data,
        encoders=opt.words(given.pop("encoder", None)),
        mechanisms=opt.words(given.pop("mechanism", None)),
        decoders=opt.words(given.pop("decoder", None)),
        prior=given.pop("prior", None),
        seeds=seeds,
        first_seed=seed,
        fixed=given,
        options=options or (),
    )
    run_command(
        request,
        RunOptions(
            name=preset or "sweep",
            output=output,
            store=store,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            retry_failed=retry_failed,
            slack=slack,
        ),
        as_json=as_json,
    )
