"""``sparse-secagg reproduce``: one figure, table or theorem of the paper, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from experiments.cli import options as opt

if TYPE_CHECKING:
    from experiments.cli.sweeping import RunOptions
    from experiments.reproduce.entry import Entry, Setting


def reproduce(
    name: Annotated[
        str, typer.Argument(help="What to reproduce; list says what there is, and what it needs.")
    ],
    task: Annotated[
        str | None,
        opt.about("What to train, or means, which are synthetic and quick.", default="digits"),
    ] = None,
    data: opt.Data = None,
    scale: Annotated[
        str,
        opt.about(
            "How much of it: quick, which takes minutes, or full, with all values and seeds."
        ),
    ] = "quick",
    seeds: Annotated[
        int | None,
        opt.about(
            "Repetitions of each setting.",
            default="3, with --scale full 5",
            parser=opt.at_least_one,
            metavar="N",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        opt.about("Rounds of each training.", default="the task's", parser=opt.whole, metavar="N"),
    ] = None,
    options: Annotated[
        list[str] | None,
        opt.about(
            "NAME=VALUE, a parameter of all settings, such as server_rate=0.3.", names=("--set",)
        ),
    ] = None,
    output: Annotated[
        Path | None, opt.about("Folder for everything.", opt.RUNNING, "reproduce/NAME")
    ] = None,
    as_json: opt.AsJson = False,
    slack: Annotated[
        float | None,
        opt.about(
            "What counts as no loss: 0.01 is a point of accuracy, 1 twice the error.",
            opt.RUNNING,
            "0.04, with --scale full 0.01; 1 for errors",
            parser=opt.number,
            metavar="X",
        ),
    ] = None,
    jobs: opt.Jobs = -1,
    seed: opt.Seed = 0,
) -> None:
    """Reproduce a figure, table or theorem of the paper, with a verdict on its claim."""
    from experiments.cli.sweeping import RunOptions, parse_option, reported
    from experiments.reproduce.entries import ENTRIES, get_entry
    from experiments.reproduce.entry import Setting

    if name == "list":
        _list(ENTRIES, as_json)
        return

    def work(console: Console) -> tuple[dict[str, Any], list[str]]:
        entry = get_entry(name)
        if scale not in ("quick", "full"):
            raise ValueError(f"--scale {scale} must be quick or full.")
        if task is not None and task not in entry.tasks:
            there = ", ".join(entry.tasks) or "none: it trains nothing"
            raise ValueError(f"--task {task} is none of {entry.name}; there are: {there}.")
        fixed = dict(map(parse_option, options or ()))
        setting = Setting(
            task=task or (entry.tasks or ("",))[0],
            quick=scale == "quick",
            seeds=seeds,
            first_seed=seed,
            data=None if data is None else str(data),
            fixed=fixed if rounds is None else {**fixed, "rounds": rounds},
        )
        run = RunOptions(name, output or Path("reproduce") / name, jobs=jobs, slack=slack)
        run.check()
        return _run(entry, setting, run, console)

    reported(work, as_json=as_json)


def _run(
    entry: Entry, setting: Setting, options: RunOptions, console: Console
) -> tuple[dict[str, Any], list[str]]:
    from experiments.cli.sweeping import finish, opened_store, run_grid
    from experiments.report.html import Finding, Picture
    from experiments.report.tables import sweep_tables
    from experiments.reproduce.training import slack_of
    from experiments.sweeps.engine import describe_failures

    found: list[Finding] = list(entry.findings(setting)) if entry.findings else []
    if entry.sweeps is not None:
        asked = entry.sweeps(setting)
        with opened_store(options) as store:
            tables = [run_grid(each.grid, store, options, console) for each in asked]
        for each, table in zip(asked, tables):
            slack = slack_of(setting, table.metric) if options.slack is None else options.slack
            drawn = each.draw(table, slack)
            found.append(
                Finding(
                    each.title,
                    "",
                    pictures={end: Picture(figure, each.title) for end, figure in drawn.items()},
                    tables=sweep_tables(table, each.title),
                    verdicts=[judge(table, slack) for judge in each.judges],
                    failures=describe_failures(table.results),
                    table=table,
                )
            )
    claims = Finding(f"the paper, {entry.where}", "", [entry.claim], tables=entry.paper)
    document = finish([*found, claims], options, console)
    return document, [line for each in found for line in each.failures]


def _list(entries: dict[str, Entry], as_json: bool) -> None:
    """Print what there is, what the paper claims, how long it takes, and what its tasks need."""
    import json

    from rich.padding import Padding

    from experiments.report.task_table import needs, show_tasks
    from experiments.report.terminal import literal, say

    if as_json:
        kept = ("name", "where", "claim", "minutes", "tasks")
        rows = [
            {key: getattr(entry, key) for key in kept}
            | {"needs": {t: needs(t) for t in entry.tasks}}
            for entry in entries.values()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    console = Console()
    for entry in entries.values():
        quick, full = entry.minutes
        console.print(
            literal(entry.name, "bold") + literal(f" ({entry.where}; {quick:g} / {full:g} min)")
        )
        on = f"Tasks: {', '.join(entry.tasks)}." if entry.tasks else "Trains nothing."
        console.print(Padding(literal(f"{entry.claim}\n{on}"), (0, 0, 1, 4)))
    say("Minutes: --scale quick / full, of the first task, on two cores.", console)
    console.print()
    show_tasks(dict.fromkeys(task for entry in entries.values() for task in entry.tasks), console)
