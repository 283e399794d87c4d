"""The command line: ``sparse-secagg COMMAND``. The work is elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import Annotated, Any

import typer

from experiments.cli.compare import compare
from experiments.cli.count import count
from experiments.cli.demo import demo
from experiments.cli.epsilon import epsilon
from experiments.cli.identity import identity
from experiments.cli.options import ManyNumbers
from experiments.cli.parties import budget, join, serve
from experiments.cli.plan import plan
from experiments.cli.reproduce import reproduce
from experiments.cli.sweep import sweep
from experiments.cli.train import train
from sparse_secagg import __version__

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
_LOGGERS = ("sparse_secagg", "solvers", "experiments")


class _Messages(logging.Handler):
    """Messages on standard error as it is by then: a progress bar has them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparse-secagg {__version__}")
        raise typer.Exit


@app.callback()
def main(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show results and errors only.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what is being done, too.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Learn the mean of many clients' vectors, or who holds which item, privately.

    sparse-secagg COMMAND --help shows its options and examples that run.

    Exit codes: 0 done, 1 failed or refused on the way, 2 wrong command line.
    """
    if quiet and verbose:
        raise typer.BadParameter("give --quiet or --verbose, not both.")
    logging.basicConfig(format="%(name)s: %(message)s", handlers=[_Messages()])
    for name in _LOGGERS:
        level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
        logging.getLogger(name).setLevel(level)
    logging.getLogger("experiments.cli").debug("sparse-secagg %s", " ".join(sys.argv[1:]))


def warmup() -> None:
    """Compile the numerical kernels once, so that no first round waits for them."""
    from sparse_secagg.warmup import warm_up

    start = time.perf_counter()
    compiling = warm_up()
    typer.echo(f"compiled in {compiling:.1f} s of {time.perf_counter() - start:.1f} s")


_START, _ROUNDS, _STUDY = "Start here", "Between real parties", "Experiments"
#: A command, where the help lists it, and examples.
_COMMANDS: tuple[tuple[Any, str, str, *tuple[str, ...]], ...] = (
    (demo, _START, "", "--seed 1 --output another-demo"),
    (
        count,
        _START,
        "sales.csv --user user_id --item product --domain catalogue.txt --epsilon 1",
        "sales.csv --user user_id --item product --domain open --output out",
    ),
    (plan, _START, "--dim 1e6 --clients 1e4 --epsilon 1 --sparsity 1000 --plot plan.png"),
    (
        epsilon,
        _START,
        "--preset f-emnist",
        "--clients 100 --population 3400 --rounds 1500 --noise-multiplier 0.5,1,2",
    ),
    (warmup, _START, ""),
    (budget, _ROUNDS, "ann.sqlite --epsilon 8 --delta 1e-5", "ann.sqlite"),
    (serve, _ROUNDS, "--round spec.json --roster roster.json --output mean.npy"),
    (
        join,
        _ROUNDS,
        "--server 127.0.0.1:8443 --certificate server.pem --identity ann.json "
        "--roster roster.json --vector x.npy --budget ann.sqlite --max-epsilon 1",
    ),
    (
        train,
        _STUDY,
        "--epsilon 20 --compression 10",
        "--epsilon 20 --compression 10 --private-noise --output private",
        "--task digits --noise-multiplier 0 --record updates --output recorded",
    ),
    (
        sweep,
        _STUDY,
        "--preset sparsity --jobs 2",
        "--axis compression=5,10,50 --axis epsilon=0.5,1,2 --decoder linear,lasso,amp",
        "--axis n_bits --recording updates",
    ),
    (
        reproduce,
        _STUDY,
        "list",
        "compression-vs-noise --task means",
        "compression-vs-noise --task mnist --scale full --data DIR",
    ),
    (compare, _STUDY, "updates --compression 10,50 --epsilon 1,4"),
)
for _command, _panel, *_examples in _COMMANDS:
    _lines = [f"sparse-secagg {_command.__name__} {example}".rstrip() for example in _examples]
    app.command(cls=ManyNumbers, rich_help_panel=_panel, epilog="\n".join(_lines))(_command)
app.add_typer(identity, name="identity", rich_help_panel=_ROUNDS)
