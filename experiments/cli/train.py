"""``sparse-secagg train``: federated training through the private pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import AsJson, Output

__all__ = ["train"]


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
    from experiments.cli.train_run import train as run

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
