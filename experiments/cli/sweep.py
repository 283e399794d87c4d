"""``sparse-secagg sweep``: trade-off curves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.cli.options import AsJson, Output, Seed
from experiments.report.terminal import literal

__all__ = ["sweep"]


def sweep(
    preset: Annotated[
        str | None, typer.Option(help="A ready-made sweep; 'list' names them.")
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            help="What varies, NAME or NAME=V1,V2,…; one or two. Names: sparsity, compression, "
            "bits, clients, epsilon, noise_multiplier, dim, rows, threshold, rounds."
        ),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            help="Synthetic mean: sparse, power_law, laplace, dense, low_rank, clustered, layered."
        ),
    ] = None,
    recording: Annotated[
        Path | None, typer.Option(help="Recorded updates in place of synthetic ones.")
    ] = None,
    recorded_round: Annotated[
        int | None, typer.Option(help="Which recorded round; the last by default.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Train: a cell is a training run, measured by its accuracy.")
    ] = None,
    encoder: Annotated[list[str] | None, typer.Option(help="Encoders, one or several.")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Mechanisms.")] = None,
    decoder: Annotated[
        list[str] | None, typer.Option(help="Decoders, as 'lasso' or 'amp:low_rank,debias'.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions.", min=1)] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension d.")] = None,
    clients: Annotated[int | None, typer.Option(help="Clients n.")] = None,
    sparsity: Annotated[int | None, typer.Option(help="Nonzero entries s.")] = None,
    compression: Annotated[float | None, typer.Option(help="r = d/m; 1: unsketched.")] = None,
    bits: Annotated[int | None, typer.Option("--bits", "--n-bits", help="Bits b.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows t of a count sketch.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε of a round.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="z in place of ε.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of a training run.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a further field of training.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="File of results; OUTPUT/results.sqlite by default.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Cells at a time; -1 for one a core.")] = -1,
    backend: Annotated[
        str, typer.Option(help="loky, threading, multiprocessing, sequential or dask.")
    ] = "loky",
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, with --backend dask.")
    ] = None,
    slack: Annotated[
        float | None,
        typer.Option(help="Δ: 1 lets errors double; 0.01 costs a point of accuracy. By metric."),
    ] = None,
    retry_failed: Annotated[bool, typer.Option(help="Run failed cells again.")] = False,
    export: Annotated[str | None, typer.Option(help="csv or parquet, beside the results.")] = None,
    dry_run: Annotated[
        bool, typer.Option(help="List the cells and estimate the time; run nothing.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of training data.")] = None,
    output: Output = Path("sweep-output"),
    as_json: AsJson = False,
    seed: Seed = 0,
) -> None:
    """Draw trade-off curves; in parallel, resumable, decoders compared on the same noise."""
    from experiments.cli.sweep_run import RunOptions, SweepRequest, list_presets, run_request
    from experiments.sweeps.store import StoreError

    console = Console(stderr=as_json)
    if preset == "list":
        list_presets(console)
        return
    try:
        found = run_request(
            SweepRequest(
                preset=preset,
                axes=axis or (),
                mean=mean,
                recording=recording,
                recorded_round=recorded_round,
                task=task,
                data=data,
                encoders=encoder or (),
                mechanisms=mechanism or (),
                decoders=decoder or (),
                seeds=seeds,
                first_seed=seed,
                fixed={
                    "dim": dim,
                    "clients": clients,
                    "sparsity": sparsity,
                    "compression": compression,
                    "bits": bits,
                    "rows": rows,
                    "epsilon": epsilon,
                    "noise_multiplier": noise_multiplier,
                    "rounds": rounds,
                },
                options=options or (),
            ),
            RunOptions(
                output=output,
                store=store,
                jobs=jobs,
                backend=backend,
                scheduler=scheduler,
                retry_failed=retry_failed,
                dry_run=dry_run,
                export=export,
                slack=slack,
                command=["sparse-secagg", *sys.argv[1:]],
            ),
            console,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except StoreError as error:
        Console(stderr=True).print("[red]error:[/red]", literal(error))
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(found, indent=2))
