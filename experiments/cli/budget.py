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
    as_json: AsJson = False,
) -> None:
    """Show what a client has spent of its lifetime budget."""
    from sparse_secagg import Budget

    try:
        account = Budget(path)
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
