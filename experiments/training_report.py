"""What a training run leaves behind: a table, curves as pictures, and machine-readable results."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from experiments.federated import RoundRecord, TrainingConfig, TrainingResult
from experiments.heavy_hitters import HeavyHittersResult
from experiments.plots import PALETTE, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["as_document", "progress_text", "show", "write"]

#: Most rounds of a run that the table shows; the others are in the JSON.
_ROWS = 12


def as_document(result: TrainingResult) -> dict[str, Any]:
    """Return the result, its weights aside, as JSON values; infinite ε is null."""
    document: dict[str, Any] = {
        "config": asdict(result.config),
        "n_parameters": result.n_parameters,
        "population": result.population,
        "accuracy": result.accuracy,
        "epsilon_server": [_finite(record.privacy.server) for record in result.history],
        "epsilon_colluders": [_finite(record.privacy.colluders) for record in result.history],
        "epsilon_release": [_finite(record.privacy.release) for record in result.history],
        "clip_norm": [record.clip_norm for record in result.history],
        "seconds": [record.seconds for record in result.history],
        "final_accuracy": result.accuracy[-1],
        "epsilon": _finite(result.epsilon),
        "observer": result.observer,
        "delta": result.config.delta,
        "bits_per_parameter": result.bits_per_parameter,
        "unconverged": result.unconverged,
        "not_private": result.not_private,
    }
    if isinstance(result, HeavyHittersResult):
        document |= {
            "relative_error": result.relative_error,
            "precision": result.precision,
            "recall": result.recall,
            "top": list(result.top),
        }
    return document


def write(result: TrainingResult, folder: Path) -> list[Path]:
    """Write ``training.json`` and the curves as ``training.png`` and ``.svg``; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "training.json"
    path.write_text(json.dumps(as_document(result), indent=2) + "\n")
    if isinstance(result, HeavyHittersResult):
        return [path]
    return [path, *save(draw(result), folder / "training")]


def show(result: TrainingResult, console: Console) -> None:
    """Print the run: what it was, a table of rounds, and what it cost."""
    config = result.config
    console.print(
        f"[bold]{config.task}[/bold]: {result.n_parameters:,} parameters, "
        f"{config.encoder if config.compression != 1 else 'no sketch'}, r = "
        f"{config.compression:g}, b = {config.n_bits}: {result.bits_per_parameter:.3g} bits a "
        f"parameter; decoder {config.decoder}."
    )
    if isinstance(result, HeavyHittersResult):
        console.print(
            f"Relative error {result.relative_error:.3f}; top {len(result.top)}: precision "
            f"{result.precision:.0%}, recall {result.recall:.0%}; ε = {result.epsilon:.3g} at "
            f"δ = {config.delta:g}.\nMost common: {', '.join(result.top[:15])}, …"
        )
    else:
        console.print(_table(result))
    if result.unconverged:
        console.print(f"The decoder stopped early in {result.unconverged} rounds.")
    if result.not_private:
        reason = (
            "no noise was added; give --noise-multiplier or --epsilon"
            if math.isinf(result.epsilon)
            else "the noise came from the seed, so that the run can be repeated; for a model that "
            "leaves this machine, use --private-noise"
        )
        console.print(f"[yellow]Not private[/yellow]: {reason}.")


def progress_text(record: RoundRecord, config: TrainingConfig) -> str:
    """Return one line about a round: accuracy and ε so far."""
    spent = record.privacy.release if config.mechanism == "central" else record.privacy.colluders
    return f"{config.task}: accuracy {record.accuracy:.1%}, ε {_epsilon(spent)}"


def draw(result: TrainingResult) -> Figure:
    """Return the curves of accuracy and of ε over rounds."""
    config, rounds = result.config, [record.number for record in result.history]
    private = not math.isinf(result.epsilon)
    figure = new_figure(10 if private else 6, 4)
    left, *right = figure.subplots(1, 2 if private else 1, squeeze=False)[0]
    left.plot(rounds, result.accuracy, color=PALETTE[0])
    noise = f", z = {config.noise_multiplier:g}" if config.noise_multiplier else ""
    left.set(
        xlabel="round",
        ylabel="test accuracy",
        title=f"{config.task}: r = {config.compression:g}{noise}, {config.decoder}",
    )
    left.set_xlim(0, rounds[-1])
    left.grid(alpha=0.3)
    for panel in right:
        for colour, style, name, label in (
            (PALETTE[0], "-", "server", "against the server"),
            (PALETTE[1], "--", "release", "to anyone who sees only the models"),
        ):
            spent = [getattr(record.privacy, name) for record in result.history]
            panel.plot(rounds, spent, color=colour, linestyle=style, label=label)
        panel.set(xlabel="round", ylabel=f"ε at δ = {config.delta:g}", title="Privacy spent so far")
        panel.set_xlim(0, rounds[-1])
        panel.grid(alpha=0.3)
        panel.legend()
    return figure


def _table(result: TrainingResult) -> Table:
    table = Table(title=f"{len(result.history)} rounds, {result.seconds:.1f} s")
    for heading in ("round", "accuracy", "ε (server)", "ε (release)", "clip"):
        table.add_column(heading, justify="right")
    history = result.history
    step = math.ceil(len(history) / _ROWS)
    for record in history:
        if record.number % step == 0 or record is history[-1]:
            table.add_row(
                str(record.number),
                f"{record.accuracy:.2%}",
                _epsilon(record.privacy.server),
                _epsilon(record.privacy.release),
                f"{record.clip_norm:.3g}",
            )
    return table


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3g}"


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
