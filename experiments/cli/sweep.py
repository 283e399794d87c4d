"""``sparse-secagg sweep``: trade-off curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console

from experiments.cli import options as opt

_ONE = "noise_multiplier delta clip_norm compression n_bits n_rows prior"
_MANY = "mechanism encoder decoder"
_DATA = "What is estimated"


@opt.takes(
    _ONE,
    many=_MANY,
    # what is not given is the preset's, the task's or the recording's: no one value
    defaults=dict.fromkeys(f"{_ONE} {_MANY}".split(), ""),
    epsilon=opt.option(
        "epsilon", text="ε of a round, or of all rounds of a training together.", default=""
    ),
    dim=opt.option("dim", group=_DATA),
    clients=opt.option("clients", group=_DATA),
    sparsity=opt.option("sparsity", text="Entries of the mean that are not zero.", group=_DATA),
    rounds=opt.option("rounds", text="Rounds of each training.", group=_DATA, default=""),
)
def sweep(
    *,
    preset: Annotated[str | None, opt.about("A ready-made sweep; list names them.")] = None,
    axis: Annotated[
        list[str] | None,
        opt.about(
            "What varies, NAME or NAME=V1,V2,…; once or twice. Names: sparsity, density, "
            "compression, n_bits, clients, epsilon, noise_multiplier, dim, n_rows, threshold, "
            "rounds."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        opt.about(
            "Repetitions of each setting.",
            default="5, 3 where a task is trained",
            parser=opt.at_least_one,
            metavar="N",
        ),
    ] = None,
    mean: Annotated[
        str | None,
        opt.about(
            "A synthetic mean: sparse, flat, power_law, laplace, dense, low_rank or layered.",
            _DATA,
            "sparse",
        ),
    ] = None,
    recording: Annotated[
        Path | None, opt.about("Recorded updates, in place of a synthetic mean.", _DATA)
    ] = None,
    recorded_round: Annotated[
        int | None,
        opt.about("Which round of the recording.", _DATA, "all", parser=opt.whole, metavar="N"),
    ] = None,
    task: Annotated[
        str | None,
        opt.about(
            "A task to train in every setting (train --task list names them), or heavy-hitters.",
            _DATA,
        ),
    ] = None,
    data: Annotated[
        Path | None, opt.about("Folder or file of the task's data.", _DATA, "SPARSE_SECAGG_DATA")
    ] = None,
    given: opt.Given,
    options: Annotated[
        list[str] | None,
        opt.about(
            "NAME=VALUE, a further parameter of all settings, such as server_rate=0.3.",
            _DATA,
            names=("--set",),
        ),
    ] = None,
    output: opt.Output = Path("sweep-output"),
    store: Annotated[
        Path | None,
        opt.about("File that keeps every result.", opt.RUNNING, "OUTPUT/results.sqlite"),
    ] = None,
    as_json: opt.AsJson = False,
    slack: opt.Slack = None,
    jobs: opt.Jobs = -1,
    backend: opt.Backend = "loky",
    scheduler: opt.Scheduler = None,
    retry_failed: opt.RetryFailed = False,
    seed: opt.Seed = 0,
) -> None:
    """Compare decoders over compression, noise, sparsity and more, on the same noise.

    Curves, tables and a page go to --output; what is done is kept, and an interrupted sweep goes
    on. What is not given is the preset's, the task's or the recording's; a synthetic mean has
    d = 5000, 500 clients, 50 nonzero entries, r = 10, 18 bits and z = 1.
    """
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
