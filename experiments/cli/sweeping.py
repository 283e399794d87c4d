"""From the words of ``sweep`` and ``compare`` to tables, pictures and a report: one way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from experiments.recordings.importers import opened
from experiments.recordings.recording import Recording
from experiments.report.console import sweep_progress
from experiments.report.figures import draw_paper, draw_phase, draw_sweep
from experiments.report.findings import as_document, show_findings, write_findings
from experiments.report.html import Finding, Picture
from experiments.report.recording_tables import (
    layers_table,
    ranks_table,
    rounds_table,
    summarise_rounds,
)
from experiments.report.tables import sweep_tables
from experiments.report.terminal import literal
from experiments.results.conclusions import SLACK, Conclusion, conclude
from experiments.results.statistics import find_winner
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES, Value, parse_axis
from experiments.sweeps.cell import Cell, Inputs
from experiments.sweeps.cells import HittersCell, RecordingCell, TaskCell
from experiments.sweeps.engine import describe_failures, missing_draws, run_sweep
from experiments.sweeps.grid import Grid
from experiments.sweeps.presets import PRESETS, Preset, get_preset
from experiments.sweeps.store import Store, StoreError, UnusableStoreError
from experiments.sweeps.workers import check_backend
from experiments.training import tasks
from sparse_secagg.decoder_texts import parse_decoder, read_value, with_prior


@dataclass(frozen=True)
class SweepRequest:
    """What was asked for on the command line; None where nothing was said."""

    preset: str | None = None  # name of a preset, whose values the others replace
    axes: Sequence[str] = ()  # ``NAME`` or ``NAME=V1,V2,…``
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
        if self.task == tasks.HEAVY_HITTERS:
            return "hitters"
        return given[0] if given else "mean"

    @property
    def title(self) -> str:
        """What the sweep is called in tables and pictures."""
        name = self.preset or " × ".join(parse_axis(text)[0] for text in self.axes)
        about = self.task or (self.recording.name if self.recording else None)
        return name if about is None else f"{name}, {about}"


def make_grid(request: SweepRequest) -> Grid:
    """Return the grid of a request; ValueError names what is wrong with it."""
    kind = request.kind
    preset = get_preset(request.preset) if request.preset else Preset("", {}, {}, {})
    given = list(map(parse_axis, request.axes))
    axes: dict[str, Sequence[Value]] = dict(given)
    if len(axes) < len(given):
        name = next(n for n in axes if sum(n == other for other, _ in given) > 1)
        raise ValueError(f"--axis {name} is given twice; give its values at once: {name}=V1,V2,….")
    if len(given) > 2:
        raise ValueError(f"--axis is given {len(given)} times; a sweep has one or two axes.")
    if request.rounds and request.recording is None:
        raise ValueError(
            f"--recorded-round {request.rounds[0]} is one of a recording; give it by --recording."
        )
    axes = axes or dict(preset.axes_for(kind))
    if not axes:
        raise ValueError(
            f"--axis or --preset says what varies; axes are {', '.join(AXES)}, for example "
            "--axis sparsity=5,20,100."
        )
    fixed = {name: value for name, value in request.fixed.items() if value is not None}
    clash = sorted(axes.keys() & fixed.keys())
    if clash:
        raise ValueError(f"{clash[0]} is an axis and has a fixed value; leave one of them out.")
    base = _base(request, preset, kind, fixed | dict(map(parse_option, request.options)))
    seeds = preset.task_seeds if kind == "task" else preset.seeds
    seeds = seeds if request.seeds is None else request.seeds
    return Grid(
        axes,
        base,
        encoders=tuple(request.encoders) or (preset.encoders if request.preset else ()),
        mechanisms=tuple(request.mechanisms),
        decoders=with_prior(_decoders(request, preset, kind), request.prior),
        seeds=tuple(range(request.first_seed, request.first_seed + seeds)),
        inputs=Inputs(
            recording=None if request.recording is None else str(request.recording),
            data=None if request.data is None else str(request.data),
        ),
    )


def _decoders(request: SweepRequest, preset: Preset, kind: str) -> tuple[str, ...]:
    usual = preset.task_decoders if kind == "task" else preset.decoders
    if kind == "recording" and not request.preset:
        first = (request.encoders or ("count_sketch",))[0]
        usual = default_decoders(first, Recording.open(str(request.recording)).shapes)
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


def _base(
    request: SweepRequest, preset: Preset, kind: str, fixed: dict[str, Any]
) -> Cell | Sequence[Cell]:
    if kind == "mean":
        named = {} if request.mean is None else {"mean": request.mean}
        return preset.mean.with_values(**named, **fixed)
    if kind == "task":
        return TaskCell.of(str(request.task), **fixed)
    if kind == "hitters":
        return HittersCell(task=str(request.task), **fixed)
    values = preset.recording_values() if request.preset else {}
    if "epsilon" in fixed or "noise_multiplier" in fixed:
        for name in ("epsilon", "noise_multiplier"):
            values.pop(name, None)  # the preset's; two that are given are refused by the cell
    assert request.recording is not None
    return RecordingCell.of(request.recording, request.rounds, **{**values, **fixed})


def parse_option(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set {text!r} must be NAME=VALUE, for example server_rate=0.3.")
    return name.strip(), read_value(value)


def list_presets(console: Console) -> None:
    """Print the presets and the questions they answer."""
    for name, preset in PRESETS.items():
        axes = " × ".join(preset.axes)
        console.print(f"[bold]{name}[/bold]  {preset.question} ({axes})", highlight=False)
    console.print("The paper's own analyses: sparse-secagg reproduce list", highlight=False)


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
    retry_failed: bool = False  # run failed cells again
    slack: float | None = None  # Δ; by the metric where None

    @property
    def store_path(self) -> Path:
        """The file of results."""
        return self.output / "results.sqlite" if self.store is None else self.store

    def slack_of(self, table: SweepTable) -> float:
        """Return Δ, or what is usual for the metric of the table."""
        return SLACK[table.metric] if self.slack is None else self.slack

    def check(self) -> None:
        """Raise ValueError for what could not work, before any work."""
        check_backend(self.backend, self.scheduler)
        if self.slack is not None and not self.slack >= 0:
            raise ValueError(f"--slack {self.slack} must be a number of at least 0.")


def opened_store(options: RunOptions) -> Store:
    """Open the file of results, or raise for the option that says where it is."""
    try:
        return Store(options.store_path)
    except UnusableStoreError as error:
        given = (
            f"--output {options.output}" if options.store is None else f"--store {options.store}"
        )
        raise typer.BadParameter(f"{given}: {error}") from error


def describe(asked: SweepRequest, grid: Grid, table: SweepTable, slack: float) -> Finding:
    """Return what a sweep found."""
    recording = grid.inputs.recording
    conclusion = conclude(table, asked.preset, slack)
    lines = list(conclusion.lines)
    tables = sweep_tables(table, asked.title, conclusion.marked)
    if recording is not None:
        lines += recommendations(table)
        rounds = summarise_rounds(recording, table)
        more = (ranks_table(rounds), layers_table(table))
        tables = [rounds_table(rounds), *tables, *filter(None, more)]
    return Finding(
        asked.title,
        PRESETS[asked.preset].question if asked.preset else "",
        lines,
        _pictures(table, conclusion, slack),
        tables,
        failures=describe_failures(table.results),
        table=table,
        details={"marked": list(conclusion.marked)},
    )


def _pictures(table: SweepTable, conclusion: Conclusion, slack: float) -> dict[str, Picture]:
    """Return every figure of a sweep by the end of its name."""
    about = f"{table.metric.replace('_', ' ')} over {' and '.join(table.axes)}, {table.mean_name}"
    if set(table.axes) == {"density", "compression"}:
        return {"": Picture(draw_phase(table), "share of recovered means")}
    one = len(table.axes) == 1
    more = "; bands are 95 % intervals" if one else "; frames mark what the text names"
    drawn = {"": Picture(draw_sweep(table, marked=conclusion.marked), about + more)}
    if not one and "compression" in table.axes:
        drawn["-curves"] = Picture(draw_paper(table, slack), f"{about}, a line per rate")
    return drawn


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

    def work(console: Console) -> tuple[dict[str, Any], list[str]]:
        if request.recording is None:
            return run_request(request, options, console)
        with opened(request.recording) as recording:
            unpacked = dataclasses.replace(request, recording=Path(recording.path))
            return run_request(unpacked, options, console)

    reported(work, as_json=as_json)


def reported(work: Callable[[Console], tuple[dict[str, Any], list[str]]], *, as_json: bool) -> None:
    """Do some work; turn its errors and failures into words and exit codes."""
    console = Console(stderr=as_json)
    try:
        document, failures = work(console)
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
    grid = make_grid(request)
    with opened_store(options) as store:
        if options.retry_failed:
            store.forget_failures()
        table = run_grid(grid, store, options, console)
    found = describe(request, grid, table, options.slack_of(table))
    return finish([found], options, console), list(found.failures)


def finish(found: Sequence[Finding], options: RunOptions, console: Console) -> dict[str, Any]:
    """Write and print what was found; return it as JSON values."""
    files = write_findings(found, options.output, options.name)
    if any(each.table is not None for each in found):
        files = [options.store_path, *files]
    show_findings(found, files, console)
    return as_document(found, files)


def run_grid(grid: Grid, store: Store, options: RunOptions, console: Console) -> SweepTable:
    """Run what has no result yet, with a progress bar."""
    todo = sum(map(len, missing_draws(grid, store)))
    total = len(grid.cells())
    if todo < total:
        console.print(f"{total - todo} of {total} cells were done before.", highlight=False)
    try:
        with sweep_progress(todo) as progress:
            return run_sweep(
                grid,
                store=store,
                jobs=options.jobs,
                backend=options.backend,
                scheduler=options.scheduler,
                progress=progress,
            )
    except KeyboardInterrupt:
        left = sum(map(len, missing_draws(grid, store)))
        text = f"interrupted: {total - left} of {total} cells are kept; the same command goes on."
        Console(stderr=True).print(text, highlight=False)
        raise
