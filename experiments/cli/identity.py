"""``sparse-secagg identity new|show|enrol|revoke``: signing keys of clients, and rosters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.command import Command

identity = typer.Typer(
    help="Make and show clients' keys, and keep the roster of who takes part.", no_args_is_help=True
)
File = Annotated[Path, typer.Argument(help="File of the identity; only its owner can read it.")]


@identity.command(cls=Command, epilog="sparse-secagg identity new ann.json")
def new(path: File) -> None:
    """Make an identity and print its public key, which goes on rosters."""
    from sparse_secagg import Identity

    fresh = Identity.new()
    fresh.save(path)
    typer.echo(fresh.public.hex())


@identity.command(cls=Command, epilog="sparse-secagg identity show ann.json")
def show(path: File) -> None:
    """Print the public key of an identity."""
    from sparse_secagg import Identity

    typer.echo(Identity.load(path).public.hex())


RosterFile = Annotated[Path, typer.Argument(help="File of the roster.")]
Name = Annotated[str, typer.Argument(help="The member's name on the roster.")]


@identity.command(cls=Command, epilog="sparse-secagg identity enrol roster.json ann PUBLIC_KEY")
def enrol(
    path: RosterFile,
    name: Name,
    key: Annotated[
        str, typer.Argument(help="The member's public key, as identity new and show print it.")
    ],
) -> None:
    """Put a member on a roster, or give it a new key; the file becomes the next version."""
    from sparse_secagg import Roster

    roster = Roster.load(path) if path.exists() else Roster(path.stem)
    known = name in {member.name for member in roster.members}
    change = roster.rotate if known else roster.add
    roster = change(name, _key(key))
    roster.save(path)
    typer.echo(f"{roster.name}: version {roster.version}, {len(roster)} members")


def _key(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(
            f"key={text!r} must be hexadecimal digits, as 'sparse-secagg identity show' prints "
            "them."
        ) from None


@identity.command(cls=Command, epilog="sparse-secagg identity revoke roster.json ann")
def revoke(path: RosterFile, name: Name) -> None:
    """Take a member off a roster for good; the file becomes the next version."""
    from sparse_secagg import Roster

    roster = Roster.load(path).revoke(name)
    roster.save(path)
    typer.echo(f"{roster.name}: version {roster.version}, {len(roster)} members")
