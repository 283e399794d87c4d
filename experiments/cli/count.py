"""``sparse-secagg count``: private counts of users by item, from a table."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli import options as opt

if TYPE_CHECKING:
    from experiments.report.tables import TextTable
    from sparse_secagg import PrivateCounts


#: Characters by which spreadsheets tell a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

#: A number of hash cells.
_CELLS = re.compile(r"[\d_.eE*+ -]+")


def _whole(text: str, group: str, default: str = "") -> Any:
    return Annotated[int | None, opt.about(text, group, default, parser=opt.whole, metavar="N")]


@opt.takes(
    "",
    domain=Annotated[
        str | None,
        opt.about(
            "What may be counted, which must be public: a file of items, one per line; a number "
            "of hash cells, such as 2**17; or open, for items that nobody can list."
        ),
    ],
    weight=Annotated[
        str | None, opt.about("Column of numbers to add up for each item.", metavar="COLUMN")
    ],
    max_weight=Annotated[
        float | None,
        opt.about(
            "Largest sum of one user for one item; more is cut off. Needed with --weight.",
            parser=opt.number,
            metavar="X",
        ),
    ],
    epsilon=opt.option("epsilon", text="ε of all rounds of this count together."),
    delta=opt.option("delta", text="δ of all rounds of this count together.", default="1e-6"),
    max_items=_whole(
        "Items that count for each user; of more a random part does.",
        opt.PRIVACY,
        "chosen privately",
    ),
    n_users=_whole(
        "Number of users, where it is public beforehand.", opt.PRIVACY, "that of the table"
    ),
    ledger=Annotated[
        Path | None,
        opt.about("File that adds up what all counts have spent.", opt.PRIVACY),
    ],
    simulation_seed=_whole(
        "Seed of the noise, to repeat an experiment; nothing is private then.", opt.PRIVACY
    ),
    max_bytes=_whole("Longest message that a user may send.", opt.SKETCH),
    prior=opt.option(
        "prior", text="Public scores of which items are common: a CSV file of items and scores."
    ),
)
def count(
    table: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with a row for each user and item.")
    ],
    user: Annotated[str, opt.about("Column that says whose row it is.", metavar="COLUMN")],
    item: Annotated[str, opt.about("Column of what is counted.", metavar="COLUMN")],
    given: opt.Given,
    candidates: Annotated[
        Path | None,
        opt.about("File of items, one per line, that may name the hash cells.", opt.DECODING),
    ] = None,
    top: Annotated[
        int,
        opt.about(
            "How many of the largest counts to show.",
            opt.RUNNING,
            parser=opt.at_least_one,
            metavar="N",
        ),
    ] = 100,
    output: Annotated[
        Path | None,
        opt.about("Folder for counts.csv, .tex, .json and report.html.", opt.RUNNING),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Count how many users have each item of a table, privately."""
    from sparse_secagg import PrivateCounts
    from sparse_secagg.private_files import make_folder

    _check_domain(given.get("domain"))
    weight = given.pop("weight", None)
    if "max_weight" in given and weight is None:
        raise typer.BadParameter(f"--max-weight {given['max_weight']} needs --weight, a column.")
    if "prior" in given:
        given["prior"] = _prior(given["prior"], given.get("domain"))
    counts = PrivateCounts(progress=lambda text: typer.echo(text, err=True), **given)
    names = None if candidates is None else _candidates(candidates, given.get("domain"))
    if output is not None:
        make_folder(output)  # a place that cannot be written must not cost a round
    counts.fit(table, user=user, item=item, weight=weight)
    summary = counts.summary(top, candidates=names)
    # shown first: the privacy is spent, whatever becomes of the files
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        _show(counts, top, names, sums=weight is not None)
    if output is not None:
        _write(counts, summary, output, top, names)


def _write(
    counts: PrivateCounts, summary: dict[str, Any], folder: Path, top: int, names: list[str] | None
) -> None:
    from sparse_secagg.counting.report import shown
    from sparse_secagg.private_files import write_text

    write_text(folder / "counts.tex", _counts_table(counts, top, names).to_latex())
    counts.to_csv(folder / "counts.csv", top, candidates=names)
    write_text(folder / "counts.json", json.dumps(summary, indent=1))
    command = shlex.join(["sparse-secagg", *sys.argv[1:]])
    counts.report(folder / "report.html", top, candidates=names, command=command)
    typer.echo(f"written: {folder}", err=True)
    found = counts.top(top, candidates=names)
    formulas = [r.item for r in found if r.item[:1] in _FORMULAS]
    if formulas:
        typer.echo(
            f"counts.csv has names such as {shown(formulas[0])!r}, which a spreadsheet takes for "
            "formulas: import its columns as text.",
            err=True,
        )


def _show(counts: PrivateCounts, top: int, names: list[str] | None, *, sums: bool) -> None:
    """Print counts, and sums, with their intervals, and what is promised of them."""
    from rich.console import Console

    from experiments.report.layout import print_table
    from experiments.report.terminal import say

    console = Console()
    print_table(_counts_table(counts, top, names), console)
    if sums:
        print_table(_sums_table(counts, top, names), console)
    for line in _remarks(counts, top, names):
        say(line, console)


def _counts_table(counts: PrivateCounts, top: int, names: list[str] | None) -> TextTable:
    from experiments.report.tables import TextTable
    from sparse_secagg.counting.report import shown

    found = [(shown(r.item), r) for r in counts.top(top, candidates=names)]
    rows = [
        (name, *(f"{x:,.0f}" for x in (r.count, r.low, r.high)), "" if r.significant else "?")
        for name, r in found
    ]
    for name, r in counts.total(top).items():
        numbers = (f"{x:,.0f}" for x in (r.count, r.low, r.high))
        rows.append((f"{name} (pairs of user and item)", *numbers, ""))
    return TextTable("users of each item", ("item", "users", "low", "high", ""), tuple(rows))


def _sums_table(counts: PrivateCounts, top: int, names: list[str] | None) -> TextTable:
    from experiments.report.tables import TextTable
    from sparse_secagg.counting.report import shown

    rows = [
        (shown(r.item), *(f"{x:,.4g}" for x in (r.sum, r.sum_low, r.sum_high)), f"{r.mean:.4g}")
        for r in counts.sums(top, candidates=names)
    ]
    heads = ("item", "sum", "low", "high", "mean")
    return TextTable("sum of the weights of each item", heads, tuple(rows))


def _remarks(counts: PrivateCounts, top: int, names: list[str] | None) -> list[str]:
    from sparse_secagg.counting.report import UNTRUSTED

    found = counts.top(top, candidates=names)
    spent = ", ".join(f"{b:,} in the round of {s}" for s, b in counts.bytes_per_client_.items())
    lines = (
        [] if all(r.significant for r in found) else ["? marks items that may be held by nobody."]
    )
    lines += [counts.statement(), f"Bytes per user: {spent}."]
    if not counts.trusted_:
        lines += [UNTRUSTED]
    if not any(r.significant for r in found):
        lines += [
            "No item stands out of the noise: this takes more users or a larger ε, unless --user "
            "and --item are the wrong way round or another column was meant."
        ]
    if counts.not_private_:
        lines += ["NOT PRIVATE: the randomness of this run was seeded."]
    return lines


def _check_domain(domain: str | None) -> None:
    """Raise unless what may be counted is said: a file, a number of cells, or "open"."""
    choices = (
        "a file of items, one per line; a number of hash cells, such as 2**17; or open, for items "
        "that nobody can list"
    )
    if domain is None:
        raise typer.BadParameter(
            f"--domain says what is counted, for the data must not: give it {choices}."
        )
    if domain != "open" and not _CELLS.fullmatch(domain) and not Path(domain).is_file():
        raise typer.BadParameter(f"--domain {domain} is no file; give {choices}.")


def _candidates(path: Path, domain: str | None) -> list[str]:
    from sparse_secagg.counting.domains import HashedItems, ListedItems, make_domain

    if not isinstance(make_domain(domain), HashedItems):
        raise ValueError(
            f"candidates={str(path)!r} name the cells of a hash, and items of a list have their "
            "names; leave --candidates out."
        )
    if not path.is_file():
        raise ValueError(f"candidates={str(path)!r} is no file; give one of an item per line.")
    listed = make_domain(str(path))
    if not isinstance(listed, ListedItems):
        raise ValueError(f"candidates={str(path)!r} must be a file of items, one per line.")
    return list(listed.items)


def _prior(prior: str, domain: str | None) -> Any:
    from sparse_secagg.counting.domains import make_domain
    from sparse_secagg.decoder_texts import scores_prior

    return scores_prior(prior.partition(":")[2], make_domain(domain))
