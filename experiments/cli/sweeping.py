"""From the words of ``sweep`` and ``compare`` to tables, pictures and a report: one way."""

from __future__ import annotations

import ast
import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from experiments.decoders import parse_decoder, with_prior
from experiments.recordings.importers import opened
from experiments.report.console import SweepProgress, show_verdicts, winners_text
from experiments.report.figures import draw_paper, draw_phase, draw_sweep
from experiments.report.html import (
    Picture,
    Section,
    configuration_table,
    version_tables,
    write_report,
)
from experiments.report.recording_figures import (
    draw_energy,
    draw_layers,
    rounds_table,
    summarise_rounds,
)
from experiments.report.style import save
from experiments.report.tables import TextTable, print_table, sweep_tables, write_tables
from experiments.report.terminal import literal
from experiments.results.conclusions import SLACK, Conclusion, conclude
from experiments.results.statistics import find_winner
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES, Value, parse_axis
from experiments.sweeps.cell import Cell, Inputs
from experiments.sweeps.cells import HittersCell, RecordingCell, TaskCell
from experiments.sweeps.claims import CLAIMS, Verdict
from experiments.sweeps.engine import (
    describe_failures,
    missing_draws,
    run_sweep,
)
from experiments.sweeps.grid import Grid
from experiments.sweeps.presets import PRESETS, SMALL_MODELS, Preset, get_preset
from experiments.sweeps.store import Store, StoreError
from experiments.sweeps.workers import check_backend
from experiments.training import tasks


@dataclass(frozen=True)
class SweepRequest:
    """What was asked for on the command line; None where nothing was said."""

    preset: str | None = None  # name of a preset, whose values the others replace
    axes: Sequence[str] = ()  # ``NAME`` or ``NAME=V1,V2,…``
    #: The same, as numbers.
    given_axes: Mapping[str, Sequence[Value]] = dataclasses.field(default_factory=dict)
    #: What the cells are about.
    mean: str | None = None
    recording: Path | None = None
    rounds: tuple[int, ...] = ()  # numbers of the recorded rounds; all by default
    task: str | None = None
    data: Path | None = None
    encoders: Sequence[str] = ()
    mechanisms: Sequence[str] = ()
    decoders: Sequence[str] = ()
    prior: str | None = None  # scores:FILE, for the decoders that take one
    seeds: int | None = None
    first_seed: int = 0
    #: Values of parameters that do not vary.
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Sequence[str] = ()  # ``NAME=VALUE`` for further fields of the cells

    @property
    def kind(self) -> str:
        """The kind of cell."""
        given = [name for name in ("mean", "recording", "task") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"--{given[0]} and --{given[1]} exclude each other; give one.")
        if self.task is not None and not tasks.get(self.task).trains:
            return "hitters"
        return given[0] if given else "mean"

    @property
    def title(self) -> str:
        """What the sweep is called in tables and pictures."""
        name = self.preset or " × ".join([*self.given_axes, *(parse_axis(t)[0] for t in self.axes)])
        about = self.task or (self.recording.name if self.recording else None)
        return name if about is None else f"{name}, {about}"


def make_grid(request: SweepRequest) -> Grid:
    """Return the grid of a request; ValueError names what is wrong with it."""
    kind = request.kind
    preset = get_preset(request.preset) if request.preset else Preset("", {}, {}, {})
    axes: dict[str, Sequence[Value]] = {**request.given_axes, **dict(map(parse_axis, request.axes))}
    if not axes:
        axes = dict(preset.axes_for(kind))
    if not axes:
        raise ValueError(
            f"--axis or --preset says what varies; axes are {', '.join(AXES)}, for example "
            "--axis sparsity=5,20,100."
        )
    fixed = {name: value for name, value in request.fixed.items() if value is not None}
    clash = sorted(axes.keys() & fixed.keys())
    if clash:
        raise ValueError(f"{clash[0]} is an axis and has a fixed value; leave one of them out.")
    base = _base(request, preset, kind, fixed | dict(map(_option, request.options)))
    seeds = preset.task_seeds if kind == "task" else preset.seeds
    seeds = seeds if request.seeds is None else request.seeds
    return Grid(
        axes,
        base,
        encoders=tuple(request.encoders) or (preset.encoders if request.preset else ()),
        mechanisms=tuple(request.mechanisms),
        decoders=with_prior(_decoders(request, preset, kind), request.prior),
        seeds=tuple(range(request.first_seed, request.first_seed + seeds)),
        variants=_variants(request, preset),
        inputs=Inputs(
            recording=None if request.recording is None else str(request.recording),
            data=None if request.data is None else str(request.data),
        ),
        adjust=preset.adjust,
    )


def _decoders(request: SweepRequest, preset: Preset, kind: str) -> tuple[str, ...]:
    usual = preset.task_decoders if kind == "task" else preset.decoders
    if kind == "recording" and not request.preset:
        first = (request.encoders or ("count_sketch",))[0]
        usual = default_decoders(first, _shapes(request))
    if kind == "hitters" and not request.preset:
        usual = ("linear", "amp")
    names = tuple(request.decoders) or usual
    if "all" not in names:
        return names
    from solvers import names as solver_names

    every = [name for name in solver_names() if name not in ("working_set", "median")]
    return tuple(dict.fromkeys([*(n for n in names if n != "all"), *usual, *every]))


def default_decoders(encoder: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return the decoders worth trying: fast ones of each kind, and their unbiased variants."""
    names = ["linear", "ridge", "lasso", "lasso:debias", "amp", "amp:debias", "auto"]
    if encoder == "count_sketch":
        names.insert(1, "median")
    if any(len(shape) > 1 for shape in shapes.values()):
        names += ["amp:low_rank", "amp:low_rank,debias", "amp:auto", "amp:auto,debias"]
    return tuple(names)


def _shapes(request: SweepRequest) -> Mapping[str, tuple[int, ...]]:
    from experiments.recordings.recording import Recording

    assert request.recording is not None
    return Recording.open(request.recording).shapes


def _variants(request: SweepRequest, preset: Preset) -> dict[str, Sequence[Any]]:
    variants = dict(preset.variants)
    if request.preset == "model-size" and request.task is not None:
        if request.task not in SMALL_MODELS:
            raise ValueError(
                f"--task {request.task} has no smaller model to compare with; there are: "
                f"{', '.join(SMALL_MODELS)}."
            )
        variants["task"] = (request.task, SMALL_MODELS[request.task][0])
    return variants


def _base(
    request: SweepRequest, preset: Preset, kind: str, fixed: dict[str, Any]
) -> Cell | Sequence[Cell]:
    if kind == "mean":
        named = {} if request.mean is None else {"mean": request.mean}
        return preset.mean.with_values(**named, **fixed)
    if kind == "task":
        return TaskCell.of(str(request.task), **{**preset.task, **fixed})
    if kind == "hitters":
        return HittersCell(task=str(request.task), **fixed)
    values = preset.recording_values() if request.preset else {}
    if "epsilon" in fixed or "noise_multiplier" in fixed:
        for name in ("epsilon", "noise_multiplier"):
            values.pop(name, None)  # the preset's; two that are given are refused by the cell
    assert request.recording is not None
    return RecordingCell.of(request.recording, request.rounds, **{**values, **fixed})


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set {text!r} must be NAME=VALUE, for example server_rate=0.3.")
    try:
        return name.strip(), ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name.strip(), value


def list_presets(console: Console) -> None:
    """Print the presets and the questions they answer."""
    for name, preset in PRESETS.items():
        axes = " × ".join(preset.axes)
        console.print(f"[bold]{name}[/bold]  {preset.question} ({axes})", highlight=False)
    console.print("[bold]claims[/bold]  Do the paper's headline claims hold? (pass or fail)")


def list_cells(grid: Grid, path: Path, console: Console) -> dict[str, Any]:
    """Print the cells that would run."""
    there = path.is_file()
    with Store(path if there else ":memory:", read_only=there) as store:
        draws = missing_draws(grid, store)
    cells = [cell for draw in draws for cell in draw]
    total = len(grid.cells())
    names = [*grid.axes, *grid.variants, "encoder", "mechanism", "decoder", "seed"]
    for cell in cells:
        console.print(literal(", ".join(f"{n}={cell.parameters().get(n)}" for n in names)))
    done = total - len(cells)
    text = f"{total} cells, {done} of them done before; {len(cells)} to run in {len(draws)} draws."
    console.print(text, highlight=False)
    missing = [cell.parameters() for cell in cells]
    return {"cells": total, "done": done, "draws": len(draws), "missing": missing}


@dataclass(frozen=True)
class RunOptions:
    """How to run and where to write."""

    name: str  # of the files
    output: Path  # folder of everything that is written
    store: Path | None = None  # file of results; in ``output`` by default
    #: As in :func:`experiments.sweeps.engine.run_sweep`.
    jobs: int = 1
    backend: str = "loky"
    scheduler: str | None = None
    #: Run failed cells again; run nothing.
    retry_failed: bool = False
    dry_run: bool = False
    export: str | None = None  # "csv" or "parquet"
    slack: float | None = None  # Δ; by the metric where None

    @property
    def store_path(self) -> Path:
        """The file of results."""
        return self.output / "results.sqlite" if self.store is None else self.store

    def check(self) -> None:
        """Raise ValueError for what could not work, before any work."""
        check_backend(self.backend, self.scheduler)
        if self.export not in (None, "csv"):
            raise ValueError(f"--export {self.export} must be csv.")
        if self.slack is not None and not self.slack >= 0:
            raise ValueError(f"--slack {self.slack} must be a number of at least 0.")


@dataclass(frozen=True)
class Found:
    """One sweep that was run."""

    #: What it is called and what it asks.
    title: str
    question: str
    table: SweepTable  # what was found
    conclusion: Conclusion  # the same in words
    recording: str | None  # folder of the recording it is about
    slack: float

    @property
    def lines(self) -> list[str]:
        """What was found, in words."""
        winners = winners_text(self.table)
        lines = [*self.conclusion.lines, *([winners] if winners else [])]
        return lines + (recommendations(self.table) if self.recording else [])

    @property
    def failures(self) -> list[str]:
        """Cells that failed, and why."""
        return describe_failures(self.table.results)

    def pictures(self) -> dict[str, Picture]:
        """Return every figure of the sweep by the end of its name."""
        table = self.table
        about = (
            f"{table.metric.replace('_', ' ')} over {' and '.join(table.axes)}, {table.mean_name}"
        )
        if set(table.axes) == {"density", "compression"}:
            return {"": Picture(draw_phase(table), "share of recovered means")}
        one = len(table.axes) == 1
        more = "; bands are 95 % intervals" if one else "; frames mark what the text names"
        drawn = {"": Picture(draw_sweep(table, marked=self.conclusion.marked), about + more)}
        if not one and "compression" in table.axes:
            drawn["-curves"] = Picture(draw_paper(table, self.slack), f"{about}, a line per rate")
        if self.recording:
            energy = draw_energy(summarise_rounds(self.recording, table))
            drawn["-energy"] = Picture(energy, "energy of the mean update; not private")
            layers = draw_layers(table)
            if layers is not None:
                drawn["-layers"] = Picture(layers, "relative error by layer, geometric mean")
        return drawn

    def tables(self) -> list[TextTable]:
        """Return the tables of the sweep."""
        found = sweep_tables(self.table, self.title, self.conclusion.marked)
        if self.recording:
            found = [rounds_table(summarise_rounds(self.recording, self.table)), *found]
        return found


def recommendations(table: SweepTable) -> list[str]:
    """Return which decoder to use for one estimate, and for training, over all settings."""
    purposes = [("one estimate", table.decoders, True)]
    shapes = {"": (2, 2)}
    fair = [name for name in table.decoders if not parse_decoder(name, shapes).biased]
    if fair:
        purposes.append(("training (unbiased)", fair, False))
    sentences = []
    for purpose, names, shrinks in purposes:
        samples: dict[str, dict[tuple[Any, int], float]] = {name: {} for name in names}
        for number, group in enumerate(table.groups("decoder").values()):
            for name, found in table.samples(group, table.metric).items():
                for (block, seed), value in found.items():
                    if name in samples:
                        samples[name][(number, block), seed] = value
        # a decoder that has no value somewhere cannot be compared over all
        most = max(map(len, samples.values()))
        whole = {name: found for name, found in samples.items() if found and len(found) == most}
        if whole:
            winner = find_winner(whole, lower_is_better=table.lower_is_better)
            sentences.append(winner.sentence(purpose, shrinks=shrinks))
    return sentences


def run_command(request: SweepRequest, options: RunOptions, *, as_json: bool) -> None:
    """Run a command to its end: tables or JSON, and an exit code of 1 where cells failed."""
    console = Console(stderr=as_json)
    try:
        with ExitStack() as stack:
            if request.recording is not None:
                recording = stack.enter_context(opened(request.recording))
                request = dataclasses.replace(request, recording=Path(recording.path))
            document, failures = run_request(request, options, console)
    except (ValueError, OSError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error
    except StoreError as error:
        Console(stderr=True).print("[red]error:[/red]", literal(error))
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    if failures:
        for line in failures:
            Console(stderr=True).print("[red]error:[/red]", literal(line), soft_wrap=True)
        raise typer.Exit(1)


def run_request(
    request: SweepRequest, options: RunOptions, console: Console
) -> tuple[dict[str, Any], list[str]]:
    """Run what was asked for, print it, write it; return it as JSON values, and what failed."""
    options.check()
    parts = _parts(request)
    grids = [make_grid(part) for part in parts]
    if options.dry_run:
        listed = [list_cells(g, options.store_path, console) for g in grids]
        return (listed[0] if len(listed) == 1 else {"sweeps": listed}), []
    found = []
    with Store(options.store_path) as store:
        if options.retry_failed:
            store.forget_failures()
        for part, grid in zip(parts, grids):
            table = _run(grid, store, options, console)
            slack = SLACK[table.metric] if options.slack is None else options.slack
            conclusion = conclude(table, part.preset, slack)
            question = PRESETS[part.preset].question if part.preset else ""
            recording = grid.inputs.recording
            found.append(Found(part.title, question, table, conclusion, recording, slack))
    verdicts: list[Verdict] = []
    if request.preset == "claims":
        verdicts = [claim.judge(each.table, each.slack) for claim, each in zip(CLAIMS, found)]
    files = _write(found, verdicts, options)
    for each in found:
        for shown in each.tables():
            print_table(shown, console)
        _show_refusals(each.table, console)
        for line in each.lines:
            console.print(literal(line))
        console.print()
    show_verdicts(verdicts, console)
    for file in files:
        console.print(literal(f"written: {file}"), soft_wrap=True)
    return _document(found, verdicts, files), [line for each in found for line in each.failures]


def _parts(request: SweepRequest) -> list[SweepRequest]:
    """Return the sweeps of a request: several for the claims, else one."""
    if request.preset != "claims":
        return [request]
    if request.axes:
        raise ValueError("--axis and --preset claims exclude each other; claims bring their own.")
    return [
        dataclasses.replace(request, preset=claim.preset, given_axes=claim.axes) for claim in CLAIMS
    ]


def _run(grid: Grid, store: Store, options: RunOptions, console: Console) -> SweepTable:
    todo = sum(map(len, missing_draws(grid, store)))
    total = len(grid.cells())
    if todo < total:
        console.print(f"{total - todo} of {total} cells were done before.", highlight=False)
    with ExitStack() as stack:
        progress = stack.enter_context(SweepProgress(todo, console)) if todo else None
        return run_sweep(
            grid,
            store=store,
            jobs=options.jobs,
            backend=options.backend,
            scheduler=options.scheduler,
            progress=progress,
        )


def _write(found: Sequence[Found], verdicts: Sequence[Verdict], options: RunOptions) -> list[Path]:
    """Write pictures, tables and report; return their paths."""
    files = [options.store_path]
    sections = []
    for number, each in enumerate(found, 1):
        stem = options.name if len(found) == 1 else f"{options.name}-{number}"
        pictures, tables = each.pictures(), each.tables()
        for end, picture in pictures.items():
            files += save(picture.figure, options.output / f"{stem}{end}")
        files += write_tables(tables, options.output / stem)
        if options.export is not None:
            files.append(each.table.export(options.output / f"{stem}-cells.{options.export}"))
        sections.append(
            Section(
                each.title,
                each.question,
                each.lines,
                list(pictures.values()),
                [*tables, configuration_table(each.table.fixed)],
                each.failures,
            )
        )
    made = version_tables(r.versions for each in found for r in each.table.results)
    report = write_report(
        options.output / "report.html",
        options.name,
        sections,
        verdicts=verdicts,
        command=_command(),
        versions=made,
    )
    return [*files, report]


def _command() -> str:
    return shlex.join(["sparse-secagg", *sys.argv[1:]])


def _show_refusals(table: SweepTable, console: Console) -> None:
    refused = [row for row in table.summary() if row.message]
    for reason in dict.fromkeys(row.message for row in refused):
        count = sum(row.message == reason for row in refused)
        console.print(literal(f"– {count} setting(s): {reason}", "dim"))


def _document(
    found: Sequence[Found], verdicts: Sequence[Verdict], files: Sequence[Path]
) -> dict[str, Any]:
    """Return everything as JSON values."""
    document: dict[str, Any] = {
        "command": _command(),
        "files": [str(file) for file in files],
        "claims": [dataclasses.asdict(verdict) for verdict in verdicts],
        "sweeps": [
            {
                "title": each.title,
                "metric": each.table.metric,
                "mean": each.table.mean_name,
                "axes": list(each.table.axes),
                "fixed": each.table.fixed,
                "conclusion": each.lines,
                "failures": each.failures,
                "marked": list(each.conclusion.marked),
                "summary": [dataclasses.asdict(row) for row in each.table.summary()],
                "winners": [dataclasses.asdict(row) for row in each.table.winners()],
                "results": each.table.to_records(),
            }
            for each in found
        ],
    }
    plain: dict[str, Any] = json.loads(json.dumps(document), parse_constant=lambda _: None)
    return plain
