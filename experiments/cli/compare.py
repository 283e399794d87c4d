"""``sparse-secagg compare``: every decoder on recorded updates, a sweep over their rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli import options as opt


def compare(
    recording: Annotated[Path, typer.Argument(help="Folder of a recording, or .npy or .npz.")],
    compression: opt.Compressions = None,
    epsilon: opt.Epsilons = None,
    noise_multiplier: opt.NoiseMultipliers = None,
    delta: opt.Delta = None,
    decoder: opt.Decoders = None,
    prior: opt.Prior = None,
    encoder: opt.Encoder = None,
    mechanism: opt.Mechanism = None,
    n_rows: opt.NRows = None,
    n_bits: opt.NBits = None,
    clip_norm: opt.ClipNorm = None,
    rounds: Annotated[
        list[str] | None, typer.Option("--round", metavar="N,…", help="Rounds by number; else all.")
    ] = None,
    draws: Annotated[
        int,
        typer.Option(parser=opt.whole, metavar="N", help="Draws of sketch and noise a round."),
    ] = 3,
    top: Annotated[
        int, typer.Option(parser=opt.whole, metavar="K", help="K of top-K precision and recall.")
    ] = 100,
    jobs: opt.Jobs = 1,
    backend: opt.Backend = "loky",
    scheduler: opt.Scheduler = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed cells again.")
    ] = False,
    output: opt.Output = Path("compare-output"),
    as_json: opt.AsJson = False,
    seed: opt.Seed = 0,
) -> None:
    """Decode recorded updates with every decoder and say which one to use."""
    from experiments.cli.sweeping import RunOptions, SweepRequest, run_command

    if epsilon and noise_multiplier:
        raise typer.BadParameter("give --epsilon or --noise-multiplier, not both.")
    if draws < 1:
        raise typer.BadParameter(f"--draws {draws} must be at least 1.")
    rates = opt.numbers("--compression", compression) or (10.0,)
    noises = opt.numbers("--epsilon", epsilon), opt.numbers("--noise-multiplier", noise_multiplier)
    name = "noise_multiplier" if noises[1] else "epsilon"
    noise = noises[1] or noises[0] or (1.0,)
    axes = {"compression": tuple(dict.fromkeys(rates))}
    fixed: dict[str, object] = {
        "delta": delta,
        "n_rows": n_rows,
        "n_bits": n_bits,
        "clip_norm": clip_norm,
        "top": top,
    }
    if len(noise) > 1:
        axes = {name: tuple(dict.fromkeys(noise)), **axes}
    else:
        fixed[name] = noise[0]
    request = SweepRequest(
        given_axes=axes,
        recording=recording,
        rounds=tuple(map(opt.whole, opt.words(rounds))),
        encoders=() if encoder is None else (encoder,),
        mechanisms=() if mechanism is None else (mechanism,),
        decoders=opt.words(decoder),
        prior=prior,
        seeds=draws,
        first_seed=seed,
        fixed=fixed,
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
