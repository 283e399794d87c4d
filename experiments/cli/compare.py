"""``sparse-secagg compare``: every decoder on recorded updates, a sweep over their rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options as opt


@opt.takes(
    "mechanism clip_norm encoder n_bits n_rows prior",
    many="noise_multiplier compression decoder",
    defaults={
        "encoder": "count_sketch",
        "n_bits": "chosen",
        "clip_norm": "the median norm of a round",
        "decoder": "all that suit",
    },
    epsilon=opt.option("epsilon", several=True, text="ε of each round. Several by commas."),
    delta=opt.option("delta", text="δ of each round."),
)
def compare(
    recording: Annotated[
        Path, typer.Argument(help="Folder of a recording, or a .npy or .npz file.")
    ],
    recorded_round: Annotated[
        list[str] | None,
        opt.about("Rounds by number, by commas.", default="all", names=("--round",), metavar="N,…"),
    ] = None,
    *,
    given: opt.Given,
    draws: Annotated[
        int,
        opt.about(
            "Draws of sketch and noise for each round.", parser=opt.at_least_one, metavar="N"
        ),
    ] = 3,
    top: Annotated[
        int,
        opt.about(
            "How many of the largest entries precision and recall are about.",
            parser=opt.at_least_one,
            metavar="N",
        ),
    ] = 100,
    output: opt.Output = Path("compare-output"),
    as_json: opt.AsJson = False,
    jobs: opt.Jobs = 1,
    backend: opt.Backend = "loky",
    scheduler: opt.Scheduler = None,
    retry_failed: opt.RetryFailed = False,
    seed: opt.Seed = 0,
) -> None:
    """Decode recorded updates with every decoder, and say which one to use."""
    from experiments.cli.sweeping import RunOptions, SweepRequest, run_command

    if "epsilon" in given and "noise_multiplier" in given:
        raise typer.BadParameter("give --epsilon or --noise-multiplier, not both.")
    name = "noise_multiplier" if "noise_multiplier" in given else "epsilon"
    noise = opt.numbers(f"--{name.replace('_', '-')}", given.pop(name, None)) or (1.0,)
    rates = opt.numbers("--compression", given.pop("compression", None)) or (10.0,)
    several = {name: noise} if len(noise) > 1 else {}
    axes = {**several, "compression": rates}
    request = SweepRequest(
        axes=[f"{n}={','.join(map(str, dict.fromkeys(values)))}" for n, values in axes.items()],
        recording=recording,
        rounds=tuple(map(_round, opt.words(recorded_round))),
        encoders=given.pop("encoder", "").split(),
        mechanisms=given.pop("mechanism", "").split(),
        decoders=opt.words(given.pop("decoder", None)),
        prior=given.pop("prior", None),
        seeds=draws,
        first_seed=seed,
        fixed={**given, "top": top, **({} if several else {name: noise[0]})},
    )
    options = RunOptions(
        name="compare",
        output=output,
        jobs=jobs,
        backend=backend,
        scheduler=scheduler,
        retry_failed=retry_failed,
    )
    run_command(request, options, as_json=as_json)


def _round(text: str) -> int:
    try:
        return opt.whole(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(f"--round {error.message}") from None
