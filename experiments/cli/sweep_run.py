"""``sparse-secagg sweep``: from the words of the command line to tables, pictures and a report."""

from __future__ import annotations

import ast
import dataclasses
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joblib import effective_n_jobs
from rich.console import Console

from experiments.report.html import Section, write_report
from experiments.report.sweep_console import (
    SweepProgress,
    duration,
    show_table,
    show_verdicts,
    show_winners,
)
from experiments.report.terminal import literal
from experiments.results.conclusions import SLACK, conclude
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES, Value, parse_axis
from experiments.sweeps.cells import Cell, MeanCell, RecordingCell, TaskCell
from experiments.sweeps.claims import CLAIMS, Verdict
from experiments.sweeps.evaluation import Inputs
from experiments.sweeps.grid import Grid, estimate_seconds, missing_draws, run_sweep
from experiments.sweeps.presets import PRESETS, SMALL_MODELS, Preset, get_preset
from experiments.sweeps.recorded import recorded_cell
from experiments.sweeps.store import Store
from experiments.sweeps.workers import check_backend

__all__ = ["RunOptions", "SweepRequest", "list_presets", "make_grid", "run_request"]


@dataclass(frozen=True)
class SweepRequest:
    """What was asked for on the command line; None where nothing was said.

    Attributes
    ----------
    preset : str or None
        Name of a preset, whose values the others replace.
    axes : sequence of str
        ``NAME`` or ``NAME=V1,V2,…``.
    mean, recording, task : str or None
        What the cells are about.
    fixed : dict
        Values of parameters that do not vary.
    options : sequence of str
        ``NAME=VALUE`` for further fields of the training.
    """

    preset: str | None = None
    axes: Sequence[str] = ()
    mean: str | None = None
    recording: Path | None = None
    recorded_round: int | None = None
    task: str | None = None
    data: Path | None = None
    encoders: Sequence[str] = ()
    mechanisms: Sequence[str] = ()
    decoders: Sequence[str] = ()
    seeds: int | None = None
    first_seed: int = 0
    fixed: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """The kind of cell."""
        given = [name for name in ("mean", "recording", "task") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"--{given[0]} and --{given[1]} exclude each other; give one.")
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
    axes: dict[str, Sequence[Value]] = dict(map(parse_axis, request.axes))
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
    base = _base(request, preset, kind, fixed)
    several = preset.task_decoders if kind == "task" else preset.decoders
    seeds = request.seeds or (preset.task_seeds if kind == "task" else preset.seeds)
    inputs = Inputs(
        recording=None if request.recording is None else str(request.recording),
        data=None if request.data is None else str(request.data),
    )
    return Grid(
        axes,
        base,
        encoders=tuple(request.encoders) or preset.encoders,
        mechanisms=tuple(request.mechanisms),
        decoders=tuple(request.decoders) or several,
        seeds=tuple(range(request.first_seed, request.first_seed + seeds)),
        variants=_variants(request, preset),
        inputs=inputs,
        adjust=preset.adjust,
    )


def _variants(request: SweepRequest, preset: Preset) -> dict[str, Sequence[str]]:
    variants = dict(preset.variants)
    if request.preset == "model-size" and request.task is not None:
        if request.task not in SMALL_MODELS:
            raise ValueError(
                f"--task {request.task} has no smaller model to compare with; there are: "
                f"{', '.join(SMALL_MODELS)}."
            )
        variants["task"] = (request.task, SMALL_MODELS[request.task][0])
    return variants


def _base(request: SweepRequest, preset: Preset, kind: str, fixed: dict[str, Any]) -> Cell:
    classes: dict[str, type[Cell]] = {
        "mean": MeanCell,
        "recording": RecordingCell,
        "task": TaskCell,
    }
    known = {field.name for field in dataclasses.fields(classes[kind])}
    unknown = sorted(set(fixed) - known)
    if unknown:
        raise ValueError(f"{unknown[0]}={fixed[unknown[0]]} does not apply to a {kind}.")
    if kind == "mean":
        named = {} if request.mean is None else {"mean": request.mean}
        return preset.mean.with_values(**named, **fixed)
    if kind == "task":
        options = tuple(map(_option, request.options))
        return TaskCell(task=str(request.task), options=options).with_values(
            **{**preset.task, **fixed}
        )
    assert request.recording is not None
    if not request.recording.exists():
        raise ValueError(f"--recording {request.recording} does not exist.")
    values = preset.recording_values()
    if "epsilon" in fixed:
        values.pop("noise_multiplier", None)  # the preset's; one given with ε is refused below
    if "noise_multiplier" in fixed:
        values.pop("epsilon", None)
    values |= fixed
    return recorded_cell(request.recording, request.recorded_round, **values)


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


def list_cells(grid: Grid, path: Path, jobs: int, console: Console) -> dict[str, Any]:
    """Print the cells that would run and the time they would take; nothing is kept."""
    if path.is_file():
        with Store(path, read_only=True) as store:
            draws = missing_draws(grid, store)
    else:
        with Store(":memory:") as store:
            draws = missing_draws(grid, store)
    cells = [cell for draw in draws for cell in draw]
    total = len(grid.cells())
    names = [*grid.axes, *grid.variants, "encoder", "mechanism", "decoder", "seed"]
    for cell in cells:
        console.print(literal(", ".join(f"{name}={getattr(cell, name)}" for name in names)))
    seconds = estimate_seconds(draws, grid.inputs)
    jobs = effective_n_jobs(jobs)
    wall = seconds / jobs
    console.print(
        f"{total} cells, {total - len(cells)} of them done before; {len(cells)} to run in "
        f"{len(draws)} draws: about {duration(wall)} with {jobs} job(s), from a probe.",
        highlight=False,
    )
    return {
        "cells": total,
        "done": total - len(cells),
        "draws": len(draws),
        "seconds": wall,
        "missing": [cell.parameters() for cell in cells],
    }


@dataclass(frozen=True)
class RunOptions:
    """How to run and where to write.

    Attributes
    ----------
    output : Path
        Folder of everything that is written.
    store : Path or None
        File of results; in ``output`` by default.
    jobs, backend, scheduler
        As in :func:`experiments.sweeps.grid.run_sweep`.
    retry_failed, dry_run : bool
        Run failed cells again; run nothing.
    export : str or None
        "csv" or "parquet".
    slack : float or None
        Δ; by the metric where None.
    command : sequence of str
        What was typed.
    """

    output: Path
    store: Path | None = None
    jobs: int = 1
    backend: str = "loky"
    scheduler: str | None = None
    retry_failed: bool = False
    dry_run: bool = False
    export: str | None = None
    slack: float | None = None
    command: Sequence[str] = ()

    @property
    def store_path(self) -> Path:
        """The file of results."""
        return self.output / "results.sqlite" if self.store is None else self.store

    def check(self) -> None:
        """Raise ValueError for what could not work, before any work."""
        check_backend(self.backend, self.scheduler)
        if self.export not in (None, "csv", "parquet"):
            raise ValueError(f"--export {self.export} must be csv or parquet.")
        if self.slack is not None and not self.slack >= 0:
            raise ValueError(f"--slack {self.slack} must be a number of at least 0.")


def run_request(request: SweepRequest, options: RunOptions, console: Console) -> dict[str, Any]:
    """Run what was asked for, print it, write it, and return it as JSON values."""
    options.check()
    parts = _parts(request)
    grids = [make_grid(part) for part in parts]
    if options.dry_run:
        listed = [list_cells(g, options.store_path, options.jobs, console) for g in grids]
        return listed[0] if len(listed) == 1 else {"sweeps": listed}
    sections = []
    with Store(options.store_path) as store:
        if options.retry_failed:
            store.forget_failures()
        for part, grid in zip(parts, grids):
            table = _run(grid, store, options, console)
            found = conclude(table, part.preset, options.slack)
            question = PRESETS[part.preset].question if part.preset else ""
            sections.append(Section(part.title, question, table, found))
    verdicts = _judge(request, sections, options)
    files = _write(request, sections, verdicts, options)
    for section in sections:
        _show(section, console)
    show_verdicts(verdicts, console)
    for file in files:
        console.print(literal(f"written: {file}"), soft_wrap=True)
    return as_json(sections, verdicts, shlex.join(options.command), files)


def _parts(request: SweepRequest) -> list[SweepRequest]:
    """Return the sweeps of a request: several for the claims, else one."""
    if request.preset != "claims":
        return [request]
    if request.axes:
        raise ValueError("--axis and --preset claims exclude each other; claims bring their own.")
    parts = []
    for claim in CLAIMS:
        axes = [f"{name}={','.join(f'{v:g}' for v in vs)}" for name, vs in claim.axes.items()]
        parts.append(dataclasses.replace(request, preset=claim.preset, axes=axes))
    return parts


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


def _judge(
    request: SweepRequest, sections: Sequence[Section], options: RunOptions
) -> list[Verdict]:
    if request.preset != "claims":
        return []
    return [
        claim.judge(
            section.table,
            SLACK[section.table.metric] if options.slack is None else options.slack,
        )
        for claim, section in zip(CLAIMS, sections)
    ]


def _write(
    request: SweepRequest,
    sections: Sequence[Section],
    verdicts: Sequence[Verdict],
    options: RunOptions,
) -> list[Path]:
    """Write pictures, report and tables; return their paths."""
    name = request.preset or "sweep"
    files = [options.store_path]
    for number, section in enumerate(sections, 1):
        stem = name if len(sections) == 1 else f"{name}-{number}"
        section.table.plot(options.output / stem, marked=section.conclusion.marked)
        files += [options.output / f"{stem}.{kind}" for kind in ("png", "svg")]
        if options.export is not None:
            files.append(section.table.export(options.output / f"{stem}.{options.export}"))
    command = shlex.join(options.command)
    files.append(write_report(options.output / "report.html", name, sections, verdicts, command))
    return files


def _show(section: Section, console: Console) -> None:
    show_table(section.table, console, section.title, section.conclusion.marked)
    show_winners(section.table, console)
    for line in section.conclusion.lines:
        console.print(literal(line))
    console.print()


def as_json(
    sections: Sequence[Section],
    verdicts: Sequence[Verdict],
    command: str,
    files: Sequence[Path],
) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "command": command,
        "files": [str(file) for file in files],
        "claims": [dataclasses.asdict(verdict) for verdict in verdicts],
        "sweeps": [
            {
                "title": section.title,
                "metric": section.table.metric,
                "axes": list(section.table.axes),
                "fixed": section.table.fixed,
                "conclusion": list(section.conclusion.lines),
                "marked": list(section.conclusion.marked),
                "summary": [dataclasses.asdict(row) for row in section.table.summary()],
                "winners": [dataclasses.asdict(row) for row in section.table.winners()],
                "results": section.table.to_records(),
            }
            for section in sections
        ],
    }
