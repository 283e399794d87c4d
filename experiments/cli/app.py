"""The command line: ``sparse-secagg COMMAND``. The work is elsewhere."""

from __future__ import annotations

import typer

from experiments.cli.compare import compare
from experiments.cli.count import count
from experiments.cli.demo import demo
from experiments.cli.epsilon import epsilon
from experiments.cli.identity import identity
from experiments.cli.options import ManyNumbers
from experiments.cli.parties import budget, join, serve
from experiments.cli.plan import plan
from experiments.cli.sweep import sweep
from experiments.cli.train import train

app = typer.Typer(
    help="Private mean estimation from short integer sketches.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def main() -> None:
    """Private mean estimation from short integer sketches."""


app.command()(demo)
app.command()(plan)
app.command(cls=ManyNumbers)(epsilon)
app.command(cls=ManyNumbers)(sweep)
app.command(cls=ManyNumbers)(compare)
app.command()(train)
app.command()(count)
app.command()(budget)
app.command()(serve)
app.command()(join)
app.add_typer(identity, name="identity")
