"""``sparse-secagg budget FILE``: what a client has spent of its lifetime budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import AsJson

__all__ = ["budget"]


def budget(
    path: Annotated[Path, typer.Argument(help="The client's budget, a SQLite file.")],
    epsilon: Annotated[float | None, typer.Option(help="Make a budget: ε of a lifetime.")] = None,
    delta: Annotated[float | None, typer.Option(help="Make a budget: δ of a lifetime.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a client has spent of its lifetime budget; with ε and δ, make a new one."""
    from sparse_secagg import Budget

    try:
        account = Budget(path, epsilon, delta)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    values = {
        "epsilon": account.epsilon,
        "delta": account.delta,
        "rounds": account.rounds,
        "spent": account.spent,
        "left": account.left,
    }
    if as_json:
        typer.echo(json.dumps(values))
        return
    typer.echo(
        f"{account.rounds} rounds: epsilon {account.spent:.4g} of {account.epsilon:.4g} spent, "
        f"{account.left:.4g} left (delta {account.delta:.3g})"
    )
