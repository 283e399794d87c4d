"""``sparse-secagg sweep``: from the words of the command line to tables, pictures and a report."""

from __future__ import annotations

import ast
import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.axes import AXES, Value, parse_axis
from experiments.cells import Cell, MeanCell, RecordingCell, TaskCell
from experiments.evaluation import Inputs
from experiments.presets import PRESETS, Preset, get_preset
from experiments.recorded_rounds import recorded_cell
from experiments.store import Store
from experiments.sweep import Grid, estimate_seconds, missing_draws, run_sweep
from experiments.sweep_console import SweepProgress, duration, show_table, show_winners
from experiments.sweep_table import SweepTable
from experiments.workers import check_backend

__all__ = ["SweepRequest", "list_cells", "make_grid", "run_request"]


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
        variants=preset.variants,
        inputs=inputs,
        adjust=preset.adjust,
    )


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
    values = preset.recording_values() | fixed
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
        console.print(", ".join(f"{name}={getattr(cell, name)}" for name in names), highlight=False)
    seconds = estimate_seconds(draws, grid.inputs)
    wall = seconds / max(jobs, 1)
    console.print(
        f"{total} cells, {total - len(cells)} of them done before; {len(cells)} to run in "
        f"{len(draws)} draws: about {duration(wall)} with {max(jobs, 1)} job(s), from a probe.",
        highlight=False,
    )
    return {
        "cells": total,
        "done": total - len(cells),
        "draws": len(draws),
        "seconds": wall,
        "missing": [cell.parameters() for cell in cells],
    }


def run_request(
    request: SweepRequest,
    *,
    output: Path,
    store: Path | None = None,
    jobs: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
    retry_failed: bool = False,
    export: str | None = None,
    dry_run: bool = False,
    command: Sequence[str] = (),
    console: Console,
) -> dict[str, Any]:
    """Run what was asked for, print it, write it, and return it as JSON values."""
    grid = make_grid(request)
    check_backend(backend, scheduler)
    path = output / "results.sqlite" if store is None else store
    if dry_run:
        return list_cells(grid, path, jobs, console)
    with Store(path) as opened:
        todo = sum(map(len, missing_draws(grid, opened)))
        done = len(grid.cells()) - todo
        if done:
            console.print(f"{done} of {len(grid.cells())} cells were done before.", highlight=False)
        with SweepProgress(todo, console) as progress:
            table = run_sweep(
                grid,
                store=opened,
                jobs=jobs,
                backend=backend,
                scheduler=scheduler,
                retry_failed=retry_failed,
                progress=progress,
            )
    files = [path]
    if export is not None:
        files.append(table.export(output / f"results.{export}"))
    show_table(table, console, request.title)
    show_winners(table, console)
    for file in files:
        console.print(f"written: {file}", highlight=False)
    return as_json(table, request.title, shlex.join(command), files)


def as_json(table: SweepTable, title: str, command: str, files: Sequence[Path]) -> dict[str, Any]:
    """Return the sweep as JSON values."""
    return {
        "title": title,
        "command": command,
        "metric": table.metric,
        "axes": list(table.axes),
        "fixed": table.fixed,
        "summary": [dataclasses.asdict(row) for row in table.summary()],
        "winners": [dataclasses.asdict(row) for row in table.winners()],
        "results": json.loads(json.dumps(table.to_records())),
        "files": [str(file) for file in files],
    }
