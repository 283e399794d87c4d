"""``sparse-secagg train``: a run with a progress bar, its table, pictures and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.datasets import read_items
from experiments.report import training_report
from experiments.report.terminal import literal
from experiments.training.config import TrainingConfig
from experiments.training.heavy_hitters import HeavyHittersResult
from experiments.training.loop import run_training
from experiments.training.records import RoundRecord

__all__ = ["train"]


def train(
    options: dict[str, Any],
    *,
    output: Path,
    record: Path | None,
    resume: bool,
    jobs: int,
    as_json: bool,
    candidates: Path | None = None,
) -> None:
    """Run ``sparse-secagg train``; ``options`` are fields of :class:`TrainingConfig`.

    ``candidates`` is a public list that names the hash cells of heavy hitters.
    """
    console = Console(stderr=as_json)
    columns = (
        TextColumn("{task.description:<44}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    try:
        config = TrainingConfig(**{**options, "clip_norm": _number(options["clip_norm"])})
        names = None if candidates is None else read_items(candidates)
        with Progress(*columns, console=console) as bars:
            bar = bars.add_task(f"{config.task}: loading", total=config.resolved().rounds)

            def progress(current: RoundRecord, resolved: TrainingConfig) -> None:
                text = training_report.progress_text(current, resolved)
                bars.update(bar, description=text, completed=current.number)

            result = run_training(
                config, output=output, resume=resume, record=record, jobs=jobs, progress=progress
            )
    except (ValueError, ImportError, FileExistsError) as error:
        raise typer.BadParameter(str(error)) from error
    if names is not None and isinstance(result, HeavyHittersResult):
        result = result.named(names)
    files = training_report.write(result, output)
    if as_json:
        typer.echo(json.dumps(training_report.as_document(result), indent=2))
        return
    training_report.show(result, console)
    for path in files:
        console.print(literal(f"written: {path}"))


def _number(text: str | None) -> float | str | None:
    """Return the number that a text is; any other text is for the configuration to judge."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
