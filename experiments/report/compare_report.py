"""The tables of a comparison, and its files."""

from __future__ import annotations

import json
import math
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.private_files import make_folder, write_text
from experiments.report.compare_figures import draw_energy, draw_errors, draw_layers
from experiments.report.terminal import literal
from experiments.results.comparison import CompareResult, Setting
from experiments.results.comparison_statistics import Interval
from experiments.results.compressibility import SHARES

__all__ = ["show", "write"]


def write(result: CompareResult, output: Path) -> list[Path]:
    """Write ``compare.json`` and the pictures; return their paths."""
    make_folder(output)
    document = output / "compare.json"
    write_text(document, json.dumps(result.as_dict(), indent=1, allow_nan=False) + "\n")
    paths = [document, *draw_errors(result, output / "errors")]
    paths += draw_energy(result, output / "energy")
    if any(len(summary.compressibility.layers) > 1 for summary in result.rounds):
        paths += draw_layers(result, output / "layers")
    return paths


def show(result: CompareResult, console: Console) -> None:
    """Print the tables and the recommendation."""
    console.print(_rounds_table(result))
    for setting in result.settings:
        console.print(_decoders_table(result, setting))
        if result.rounds[0].compressibility.layers:
            console.print(_layers_table(result, setting))
        if len(result.settings) > 1:
            for verdict in result.verdicts(setting):
                console.print(literal(verdict.sentence))
    heading = "over all settings" if len(result.settings) > 1 else "to use"
    console.print(f"\n[bold]Decoder {heading}[/bold]")
    for sentence in result.sentences:
        console.print(literal(sentence))


def _rounds_table(result: CompareResult) -> Table:
    task = f" ({result.task})" if result.task else ""
    about = f"{result.recording}{task}: how compressible the mean update is"
    table = Table(title=literal(about, "table.title"))
    headings = ["round", "clients × d", "clip (clipped)"]
    headings += [f"{q:.0%} of energy in" for q in SHARES]
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="left" if k == 0 else "right")
    for each in result.rounds:
        bad = f", {each.n_nonfinite} not finite" if each.n_nonfinite else ""
        found = each.compressibility.coordinates
        table.add_row(
            str(each.number),
            f"{each.n:,} × {each.d:,}",
            f"{each.clip_norm:.3g}, {each.clip_source} ({each.n_clipped / each.n:.0%}{bad})",
            *(f"{found[q]:,} ({found[q] / each.d:.1%})" for q in SHARES),
        )
    return table


def _decoders_table(result: CompareResult, setting: Setting) -> Table:
    draws = len(result.rounds) * result.config.draws
    table = Table(title=f"{setting} ({result.n_bits[setting]} bits): mean of {draws} draws")
    top = f"top {result.config.top}"
    for k, heading in enumerate(
        [
            "decoder",
            "unbiased",
            "‖μ̂−μ‖²/‖μ‖²",
            "× best",
            "cosine",
            f"{top} precision",
            "recall",
            "s",
        ]
    ):
        table.add_column(heading, justify="left" if k < 2 else "right")
    verdict = result.verdicts(setting)[0]
    ratios = {rival.decoder: rival.ratio for rival in verdict.rivals}
    for name, unbiased in result.decoders.items():
        error, cosine, precision, recall = (
            result.mean(setting, name, measure)
            for measure in ("relative_error", "cosine", "precision", "recall")
        )
        table.add_row(
            literal(name, "bold" if name == verdict.best else ""),
            "yes" if unbiased else "",
            _with_margin(error),
            _with_margin(ratios[name]) if name in ratios else "1",
            f"{cosine.mean:.3f}",
            f"{precision.mean:.0%}",
            f"{recall.mean:.0%}",
            f"{result.seconds(setting, name):.3f}",
        )
    return table


def _with_margin(found: Interval) -> str:
    if not math.isfinite(found.low):
        return f"{found.mean:.3g}"
    return f"{found.mean:.3g} ± {(found.high - found.low) / 2:.2g}"


def _layers_table(result: CompareResult, setting: Setting) -> Table:
    """Return the error by layer, of all decoders; ranks are of the first round."""
    table = Table(title=f"{setting}: relative error by layer")
    layers = result.rounds[0].compressibility.layers
    table.add_column("layer")
    for heading in ("energy", "rank of 90 %", *result.decoders):
        table.add_column(literal(heading), justify="right")
    for layer in layers:
        errors = [result.layer_error(setting, name, layer.name) for name in result.decoders]
        rank = str(layer.ranks[0.9]) if layer.ranks else "–"
        cells = [f"{error:.3g}" for error in errors]
        size = "×".join(map(str, layer.shape))
        table.add_row(literal(f"{layer.name} ({size})"), f"{layer.share:.0%}", rank, *cells)
    return table
