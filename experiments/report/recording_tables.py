"""What recorded rounds are like: how compressible their means are, and the errors by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.report.tables import TextTable, label
from experiments.results.compressibility import SHARES, Compressibility, compressibility
from experiments.results.statistics import Samples, mean_of
from experiments.results.table import SweepTable
from experiments.sweeps.cells import RecordingCell
from experiments.sweeps.draws import LAYER
from experiments.sweeps.recorded import ClippedMean, prepared_round, recorded_round


@dataclass(frozen=True)
class RoundSummary:
    """What one recorded round is like; measured on the updates themselves, **not private**."""

    number: int
    data: ClippedMean
    energy: Compressibility


def summarise_rounds(path: str, table: SweepTable) -> list[RoundSummary]:
    """Return what the recorded rounds of a sweep are like."""
    found = {}
    for cell in (result.cell for result in table.results):
        if isinstance(cell, RecordingCell) and cell.round not in found:
            data = prepared_round(path, cell.round, cell.clients, cell.spec.clip_norm)
            energy = compressibility(data.mean, recorded_round(path, cell.round).shapes)
            found[cell.round] = RoundSummary(cell.round, data, energy)
    return list(found.values())


def rounds_table(rounds: Sequence[RoundSummary]) -> TextTable:
    """Return how many coordinates hold the energy of each round's mean."""
    heads = ("round", "clients × d", "clip (clipped)", *(f"{q:.0%} of energy in" for q in SHARES))
    body = []
    for each in rounds:
        (n, d), data, found = each.data.rows.shape, each.data, each.energy.coordinates
        bad = f", {data.n_nonfinite} not finite" if data.n_nonfinite else ""
        body.append(
            (
                str(each.number),
                f"{n:,} × {d:,}",
                f"{data.clip_norm:.3g} ({data.n_clipped / n:.0%}{bad})",
                *(f"{found[q]:,} ({found[q] / d:.1%})" for q in SHARES),
            )
        )
    return TextTable("How compressible the mean update is", heads, tuple(body))


def ranks_table(rounds: Sequence[RoundSummary]) -> TextTable | None:
    """Return how low a rank holds the energy of each matrix; None without matrices."""
    body = [
        (
            str(each.number),
            f"{layer.name} ({'×'.join(map(str, layer.shape))})",
            f"{layer.share:.1%}",
            *(str(layer.ranks[q]) for q in SHARES),
        )
        for each in rounds
        for layer in each.energy.layers
        if layer.ranks is not None
    ]
    heads = ("round", "matrix", "of all energy", *(f"{q:.0%} of its in rank" for q in SHARES))
    return TextTable("How low a rank holds its layers", heads, tuple(body), 2) if body else None


def layers_table(table: SweepTable) -> TextTable | None:
    """Return the error of each layer by setting and decoder; None without layers."""
    names = [name for name in table.results[0].metrics if name.startswith(LAYER)]
    if not names:
        return None
    body = []
    for group in table.groups("decoder").values():
        setting = group[0].cell.setting()
        where = [f"{setting[name]:g}" for name in table.axes]
        for name in names:
            found = table.samples(group, name)
            means = [_mean(found.get(decoder, {})) for decoder in table.decoders]
            body.append((*where, name.removeprefix(LAYER), *means))
    heads = (*map(label, table.axes), "layer", *table.decoders)
    left = len(table.axes) + 1
    return TextTable("Relative error by layer, geometric mean", heads, tuple(body), left)


def _mean(values: Samples) -> str:
    return f"{mean_of(values, geometric=True).mean:.3g}" if values else "–"
