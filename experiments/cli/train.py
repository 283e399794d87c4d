"""``sparse-secagg train``: federated training through the private pipeline."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from experiments.cli import options as opt


def _number(text: str) -> Any:
    return Annotated[float | None, typer.Option(parser=opt.number, metavar="X", help=text)]


@opt.takes(
    "rounds clients noise_multiplier epsilon delta compression n_bits encoder n_rows "
    "mechanism decoder prior colluders",
    clip_norm=opt.option(
        "clip_norm", kind="str", text="ℓ₂ clip of an update: a number, or adaptive."
    ),
    debias=Annotated[bool | None, typer.Option(help="Unbiased estimates; else the task's choice.")],
    layer_compression=Annotated[
        str | None,
        typer.Option(
            metavar="NAME=R,…", help="A rate for each group of layers: embedding=10,rest=50."
        ),
    ],
    clip_shares=Annotated[
        str | None,
        typer.Option(help="How these groups share the clip: size, equal or NAME=SHARE,…"),
    ],
    threshold=_number("Share of the entries set to zero, and added back in the next round."),
    fixed_sketch=Annotated[
        bool | None,
        typer.Option(
            "--fixed-sketch/--fresh-sketch",
            help="The same sketch in all rounds. [default: fresh, with --threshold fixed]",
        ),
    ],
    batch_size=Annotated[
        int | None, typer.Option(parser=opt.whole, metavar="N", help="Examples of a client's step.")
    ],
    client_rate=_number("Clients' learning rate."),
    server_rate=_number("Server's learning rate."),
    momentum=_number("Server's momentum."),
    data=opt.Data,
)
def train(
    given: opt.Given,
    task: Annotated[
        str,
        typer.Option(
            help="digits, digits-small, digits-300, mnist, mnist-small, mnist-cnn, fashion-mnist, "
            "emnist-cnn, emnist-dense, site, next-word or next-word-paper."
        ),
    ] = "digits",
    private_noise: Annotated[
        bool, typer.Option("--private-noise", help="Noise and cohorts that nobody can repeat.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Folder in which to record the clients' updates.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in --output.")
    ] = False,
    patience: Annotated[
        int | None,
        typer.Option(
            parser=opt.at_least_one, metavar="N", help="Stop after N rounds without a new best."
        ),
    ] = None,
    output: opt.Output = Path("train-output"),
    as_json: opt.AsJson = False,
    jobs: Annotated[
        int, typer.Option(parser=opt.jobs, metavar="N", help="Threads of the local training.")
    ] = 1,
    backend: Annotated[
        str, typer.Option(help="Local training and encoding: threading or dask.")
    ] = "threading",
    scheduler: opt.Scheduler = None,
    seed: Annotated[
        int,
        typer.Option(
            parser=opt.whole, metavar="N", help="Cohorts, batches, sketches, simulated noise."
        ),
    ] = 0,
) -> None:
    """Train a model by federated averaging through the private pipeline."""
    from experiments.report import training_report
    from experiments.report.console import bar
    from experiments.report.task_table import show_tasks
    from experiments.report.terminal import say
    from experiments.sweeps.workers import check_backend
    from experiments.training.callbacks import EarlyStop
    from experiments.training.config import TrainingConfig
    from experiments.training.loop import run_training
    from experiments.training.records import RoundRecord
    from experiments.training.tasks import names
    from sparse_secagg.decoder_texts import with_prior

    console = Console(stderr=as_json)
    if task == "list":
        show_tasks(names(), console)
        return
    check_backend(backend, scheduler, ("threading", "dask"))
    if "prior" in given:
        decoder = given.get("decoder", "linear")
        given["decoder"] = with_prior([decoder], given.pop("prior"))[0]
    if "clip_norm" in given:
        given["clip_norm"] = opt.number_or_word(given["clip_norm"])
    config = TrainingConfig(task=task, private_noise=private_noise, seed=seed, **given)
    warnings = [f"Not private: {r}." for r in training_report.not_private_because(config)]
    if given.get("noise_multiplier") != 0:  # who asks for none knows it
        for text in warnings:
            say(text, console, "yellow")
    else:
        warnings = ["Not private: no noise is added, as --noise-multiplier 0 asks."]
    with bar() as bars:
        line = bars.add_task(f"{config.task}: loading", total=config.spec.rounds)

        def progress(current: RoundRecord, resolved: TrainingConfig) -> None:
            text = training_report.progress_text(current, resolved)
            bars.update(line, description=text, completed=current.number)

        result = run_training(
            config,
            output=output,
            resume=resume,
            record=record,
            jobs=jobs,
            scheduler=scheduler,
            progress=progress,
            callbacks=[] if patience is None else [EarlyStop(patience)],
        )
    files = training_report.write(result, output, shlex.join(["sparse-secagg", *sys.argv[1:]]))
    if as_json:
        typer.echo(json.dumps(training_report.as_document(result), indent=2))
        return
    training_report.show(result, console)
    for path in files:
        say(f"written: {path}", console)
    for text in warnings:
        say(text, console, "yellow")
