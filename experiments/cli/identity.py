"""``sparse-secagg identity new|show``: the signing key of a client, in a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["identity"]

identity = typer.Typer(help="Make or show a client's identity.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="File of the identity; only its owner can read it.")]


@identity.command()
def new(path: File) -> None:
    """Make an identity and print its public key, which goes on rosters."""
    from sparse_secagg import Identity

    fresh = Identity.new()
    try:
        fresh.save(path)
    except OSError as error:
        raise typer.BadParameter(f"{error}. Choose a path where no file is.") from None
    typer.echo(fresh.public.hex())


@identity.command()
def show(path: File) -> None:
    """Print the public key of an identity."""
    from sparse_secagg import Identity

    try:
        typer.echo(Identity.load(path).public.hex())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
