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

_TASKS = "the task's"


def _number(text: str, group: str, default: str) -> Any:
    made = opt.about(text, group, default, parser=opt.number, metavar="X")
    return Annotated[float | None, made]


@opt.takes(
    "epsilon noise_multiplier delta mechanism colluders compression n_bits encoder n_rows decoder "
    "prior",
    defaults={
        "epsilon": "none",
        "noise_multiplier": "0",
        "compression": "1",
        "n_bits": _TASKS,
        "encoder": "count_sketch",
        "n_rows": _TASKS,
        "decoder": "linear",
    },
    clip_norm=opt.option(
        "clip_norm",
        kind="str",
        text="Largest norm of a client's update: a number, or adaptive, which follows the median.",
        default=_TASKS,
    ),
    debias=Annotated[
        bool | None,
        opt.about(
            "Whether decoders that can make unbiased estimates do so.", opt.DECODING, "--debias"
        ),
    ],
    layer_compression=Annotated[
        str | None,
        opt.about(
            "A compression for each group of layers, such as embedding=10,rest=50.",
            opt.SKETCH,
            metavar="NAME=R,…",
        ),
    ],
    clip_shares=Annotated[
        str | None,
        opt.about(
            "How these groups share the clip: size, equal or NAME=SHARE,….", opt.SKETCH, "size"
        ),
    ],
    threshold=_number(
        "Share of the entries set to zero, and added back in the next round.", opt.SKETCH, "0"
    ),
    fixed_sketch=Annotated[
        bool | None,
        opt.about(
            "Whether all rounds have the same sketch.",
            opt.SKETCH,
            "fresh, with --threshold fixed",
            ("--fixed-sketch/--fresh-sketch",),
        ),
    ],
    rounds=opt.option("rounds", text="Rounds of training.", group=opt.TRAINING, default=_TASKS),
    clients=opt.option("clients", group=opt.TRAINING, default=_TASKS),
    batch_size=Annotated[
        int | None,
        opt.about(
            "Examples in each step of a client.",
            opt.TRAINING,
            _TASKS,
            parser=opt.whole,
            metavar="N",
        ),
    ],
    client_rate=_number("Learning rate of the clients.", opt.TRAINING, _TASKS),
    server_rate=_number("Learning rate of the server.", opt.TRAINING, _TASKS),
    momentum=_number("Momentum of the server.", opt.TRAINING, "0.9"),
    patience=Annotated[
        int | None,
        opt.about(
            "Stop after so many rounds without a better accuracy.",
            opt.TRAINING,
            parser=opt.at_least_one,
            metavar="N",
        ),
    ],
)
def train(
    task: Annotated[
        str,
        opt.about(
            "What to train: digits, digits-small, digits-300, mnist, mnist-small, mnist-cnn, "
            "fashion-mnist, emnist-cnn, emnist-dense, site, next-word or next-word-paper; list "
            "says what each of them needs."
        ),
    ] = "digits",
    data: opt.Data = None,
    private_noise: Annotated[
        bool,
        opt.about(
            "Draw noise and cohorts so that nobody can repeat them; without it nothing is private.",
            opt.PRIVACY,
            names=("--private-noise",),
        ),
    ] = False,
    *,
    given: opt.Given,
    output: opt.Output = Path("train-output"),
    record: Annotated[
        Path | None, opt.about("Folder in which to record the clients' updates.", opt.RUNNING)
    ] = None,
    resume: Annotated[
        bool,
        opt.about("Go on from the checkpoint in --output.", opt.RUNNING, names=("--resume",)),
    ] = False,
    as_json: opt.AsJson = False,
    jobs: Annotated[
        int,
        opt.about(
            "Threads that train clients at a time.", opt.RUNNING, parser=opt.jobs, metavar="N"
        ),
    ] = 1,
    backend: Annotated[
        str, opt.about("What trains the clients: threading or dask.", opt.RUNNING)
    ] = "threading",
    scheduler: opt.Scheduler = None,
    seed: Annotated[
        int,
        opt.about(
            "Seed of weights, cohorts, batches, sketches and noise.",
            opt.RUNNING,
            parser=opt.whole,
            metavar="N",
        ),
    ] = 0,
) -> None:
    """Train a model by federated averaging; with --epsilon and --private-noise, privately."""
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
    patience = given.pop("patience", None)
    check_backend(backend, scheduler, ("threading", "dask"))
    if "prior" in given:
        decoder = given.get("decoder", "linear")
        given["decoder"] = with_prior([decoder], given.pop("prior"))[0]
    if "clip_norm" in given:
        given["clip_norm"] = opt.number_or_word(given["clip_norm"])
    config = TrainingConfig(task=task, data=data, private_noise=private_noise, seed=seed, **given)
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
