"""The command line: ``sparse-secagg COMMAND``. One function a command; the work is elsewhere."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli_options import ManyValues
from experiments.terminal import literal

app = typer.Typer(
    help="Private mean estimation from short integer sketches.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)

Output = Annotated[Path, typer.Option(help="Folder for pictures and machine-readable results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[int, typer.Option(help="Public seed of the sketches.", min=0)]


@app.callback()
def main() -> None:
    """Private mean estimation from short integer sketches."""


@app.command()
def demo(output: Output = Path("demo-output"), as_json: AsJson = False, seed: Seed = 0) -> None:
    """Train privately, decode a recorded round with every solver, find heavy hitters."""
    from experiments.demo import run_demo

    console = Console(stderr=as_json)
    result = run_demo(output, seed=seed, console=console)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
    else:
        result.show(console)


@app.command()
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
    from experiments.cli_options import number, whole
    from experiments.plan_plot import check_picture, draw_plan
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


@app.command(cls=ManyValues)
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
    from experiments.epsilon_table import as_document, epsilon_table, show

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
    from experiments.epsilon_table import PRESETS, Setting

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


@app.command(cls=ManyValues)
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
    from experiments.store import StoreError
    from experiments.sweep_command import RunOptions, SweepRequest, list_presets, run_request

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


@app.command(cls=ManyValues)
def compare(
    recording: Annotated[
        Path, typer.Argument(help="Folder of a recording; a packed one, .npy or .npz.")
    ],
    compression: Annotated[list[float], typer.Option(help="d/m, one or several.")] = [10.0],  # noqa: B006
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Epsilon of a round, one or several. [default: 1]")
    ] = None,
    noise_multiplier: Annotated[
        list[float] | None, typer.Option(help="Noise multipliers z, instead of epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of a round.")] = 1e-5,
    decoder: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME or NAME:option,… such as lasso:debias, amp:low_rank; all: every solver. "
            "[default: the fast ones of each kind]"
        ),
    ] = None,
    encoder: Annotated[str, typer.Option(help="Encoder of the sketches.")] = "count_sketch",
    n_rows: Annotated[int | None, typer.Option(help="Rows of a count sketch.", min=1)] = None,
    n_bits: Annotated[int | None, typer.Option(help="Bits of a coordinate; else chosen.")] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="Clip of the updates, instead of the recorded one.")
    ] = None,
    rounds: Annotated[
        list[int] | None, typer.Option("--round", help="Rounds by number. [default: all]")
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws of sketch and noise a round.", min=1)] = 3,
    top: Annotated[int, typer.Option(help="K of the top-K precision and recall.", min=1)] = 100,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = 1,
    output: Output = Path("compare-output"),
    as_json: AsJson = False,
    seed: Seed = 0,
) -> None:
    """Decode recorded updates with every decoder and say which one to use."""
    from experiments.compare import CompareConfig, compare_recording
    from experiments.compare_report import show

    if epsilon and noise_multiplier:
        raise typer.BadParameter("give --epsilon or --noise-multiplier, not both.")
    console = Console(stderr=as_json)
    try:
        config = CompareConfig(
            compressions=tuple(compression),
            epsilons=tuple(epsilon or [1.0]),
            noise_multipliers=tuple(noise_multiplier or []),
            delta=delta,
            decoders=tuple(decoder or []),
            encoder=encoder,
            n_rows=n_rows,
            n_bits=n_bits,
            clip_norm=clip_norm,
            draws=draws,
            top=top,
            rounds=tuple(rounds) if rounds else None,
            seed=seed,
        )
        result, files = compare_recording(
            recording, config, output=output, jobs=jobs, console=console
        )
    except (ValueError, OSError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=1))
        return
    show(result, console)
    for path in files:
        console.print(literal(f"written: {path}"))


@app.command()
def train(
    task: Annotated[
        str,
        typer.Option(
            help="digits, mnist, mnist-small, fashion-mnist, emnist-cnn, emnist-dense, next-word, "
            "next-word-paper or heavy-hitters."
        ),
    ] = "digits",
    rounds: Annotated[int | None, typer.Option(help="Rounds; else the task's.")] = None,
    clients: Annotated[int | None, typer.Option(help="Clients in a round.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier z of each round.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of all rounds together, instead of z.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta.")] = 1e-5,
    compression: Annotated[float | None, typer.Option(help="d/m; 1 sends no sketch.")] = None,
    n_bits: Annotated[int | None, typer.Option(help="Bits of a coordinate.")] = None,
    encoder: Annotated[str, typer.Option(help="Encoder.")] = "count_sketch",
    n_rows: Annotated[int | None, typer.Option(help="Rows of a count sketch.")] = None,
    mechanism: Annotated[str, typer.Option(help="ddg, skellam or central.")] = "ddg",
    decoder: Annotated[
        str | None, typer.Option(help="NAME or NAME:option,... such as amp:low_rank.")
    ] = None,
    debias: Annotated[
        bool | None, typer.Option(help="Unbiased estimates; else the task's choice.")
    ] = None,
    clip_norm: Annotated[str | None, typer.Option(help="A number, or adaptive.")] = None,
    client_rate: Annotated[float | None, typer.Option(help="Clients' learning rate.")] = None,
    server_rate: Annotated[float | None, typer.Option(help="Server's learning rate.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Server's momentum.")] = None,
    colluders: Annotated[int, typer.Option(help="Clients that collude with the server.")] = 0,
    private_noise: Annotated[
        bool, typer.Option("--private-noise", help="Noise and cohorts that nobody can repeat.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Folder in which to record the clients' updates.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in --output.")
    ] = False,
    output: Output = Path("train-output"),
    as_json: AsJson = False,
    jobs: Annotated[int, typer.Option(help="Threads of the local training.")] = 1,
    seed: Annotated[
        int, typer.Option(help="Cohorts, batches, sketches, simulated noise.", min=0)
    ] = 0,
    data: Annotated[
        Path | None, typer.Option(help="Folder or file of data; else SPARSE_SECAGG_DATA.")
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|N",
            help="heavy-hitters: a public list of items, one a line, or a number of hash cells "
            "such as 2**20. [default: the public list of the data, else 2**17]",
        ),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(help="heavy-hitters: a public list that names hash cells; costs no privacy."),
    ] = None,
) -> None:
    """Train a model by federated averaging through the private pipeline."""
    from experiments.train_command import train as run

    run(
        {
            "task": task,
            "rounds": rounds,
            "clients": clients,
            "noise_multiplier": noise_multiplier,
            "epsilon": epsilon,
            "delta": delta,
            "compression": compression,
            "n_bits": n_bits,
            "encoder": encoder,
            "n_rows": n_rows,
            "mechanism": mechanism,
            "decoder": decoder,
            "debias": debias,
            "clip_norm": clip_norm,
            "client_rate": client_rate,
            "server_rate": server_rate,
            "momentum": momentum,
            "colluders": colluders,
            "private_noise": private_noise,
            "seed": seed,
            "data": None if data is None else str(data),
            "domain": domain,
        },
        candidates=candidates,
        output=output,
        record=record,
        resume=resume,
        jobs=jobs,
        as_json=as_json,
    )


if __name__ == "__main__":
    app()
