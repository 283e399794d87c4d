"""What recorded rounds are like: how compressible their means are, and the errors by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report.figures import caption
from experiments.report.style import PALETTE, decoder_label, finish, new_figure, tidy
from experiments.report.tables import TextTable
from experiments.results.compressibility import SHARES, Compressibility, compressibility
from experiments.results.statistics import mean_of
from experiments.results.table import SweepTable
from experiments.sweeps.cells import RecordingCell
from experiments.sweeps.draws import LAYER
from experiments.sweeps.recorded import ClippedMean, prepared_round, recorded_round

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RoundSummary:
    """What one recorded round is like; measured on the updates themselves, **not private**."""

    number: int
    data: ClippedMean
    compressibility: Compressibility

    @property
    def shape(self) -> tuple[int, int]:
        """Clients, and length of a vector."""
        n, d = self.data.rows.shape
        return n, d


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
        (n, d), data, found = each.shape, each.data, each.compressibility.coordinates
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


def draw_energy(rounds: Sequence[RoundSummary], *, width: float = 1.0) -> Figure:
    """Draw how much of the mean's energy few coordinates, and low ranks, hold."""
    matrices = [layer for layer in rounds[0].compressibility.layers if layer.ranks]
    figure = new_figure(width * (9.5 if matrices else 5.5), 3.8)
    axes = list(figure.subplots(1, 2 if matrices else 1, squeeze=False)[0])
    shown = list(rounds) if len(rounds) <= 8 else [rounds[0], rounds[-1]]
    for k, summary in enumerate(shown):
        x, y = np.array(summary.compressibility.curve).T
        shade = 0.35 + 0.65 * (k + 1) / len(shown)
        line = ("-", "--", ":", "-.")[k % 4]
        axes[0].plot(
            x, y, line, color=PALETTE[0], alpha=shade, label=f"whole mean, round {summary.number}"
        )
    axes[0].set(xscale="log", xlabel="largest coordinates", ylabel="share of the energy")
    needed = shown[0].compressibility.coordinates[0.9]
    axes[0].annotate(
        f"90 % in {needed:,} of {shown[0].shape[1]:,}",
        (needed, 0.9),
        xytext=(-8, 6),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    axes[0].plot(needed, 0.9, "o", color=PALETTE[1])
    for k, layer in enumerate(matrices):
        squares = np.square(layer.singular_values)
        shares = np.cumsum(squares) / squares.sum()
        size = "×".join(map(str, layer.shape))
        axes[1].plot(
            np.arange(1, len(shares) + 1),
            shares,
            color=PALETTE[k % len(PALETTE)],
            linestyle=["-", "--", ":"][k // len(PALETTE) % 3],
            marker="os^Dv"[k % 5],
            markersize=3.5,
            label=f"{layer.name} ({size}), round {rounds[0].number}",
        )
    if matrices:
        axes[1].set(xscale="log", xlabel="rank", ylabel="share of the energy of the layer")
    for axis in axes:
        axis.set_ylim(0, 1.05)
        tidy(axis)
    n, d = rounds[0].shape
    finish(figure, axes, f"d = {d:,}, n = {n:,}, clip {rounds[0].data.clip_norm:.3g}")
    return figure


def draw_layers(table: SweepTable, *, width: float = 1.0) -> Figure | None:
    """Draw the error of each layer, one panel a setting, at most four; None without layers."""
    names = [name for name in table.results[0].metrics if name.startswith(LAYER)]
    if not names:
        return None
    groups = list(table.groups("decoder").values())[:4]
    height = 1.2 + (0.7 + 0.3 * len(names)) * len(groups)
    figure = new_figure(width * (3.4 + 0.55 * len(table.decoders)), height)
    axes = list(figure.subplots(len(groups), 1, squeeze=False, sharex=True)[:, 0])
    image: Any = None
    for axis, group in zip(axes, groups):
        values = np.array(
            [[_layer_error(group, d, name) for d in table.decoders] for name in names]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            image = axis.imshow(np.log10(values), cmap="RdBu_r", vmin=-1.5, vmax=1.5, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if math.isfinite(value):
                dark = abs(math.log10(max(value, 1e-9))) > 0.9
                text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
                ink = "w" if dark else "k"
                axis.text(j, i, text, ha="center", va="center", fontsize=7, color=ink)
        labels = list(map(decoder_label, table.decoders))
        axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
        axis.set_yticks(range(len(names)), [name.removeprefix(LAYER) for name in names])
        setting = group[0].cell.setting()
        axis.set_title(", ".join(f"{name} = {setting[name]:g}" for name in table.axes), fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    bar.set_ticks([-1, 0, 1], labels=["0.1", "1", "10"])
    bar.set_label("relative error", fontsize=9)
    finish(figure, axes, caption(table), handles=())
    return figure


def _layer_error(group: Sequence[Any], decoder: str, name: str) -> float:
    """Return the geometric mean of a layer's error, over draws in which the layer is not zero."""
    values = {
        (r.cell.block, r.cell.seed): value
        for r in group
        if r.cell.spec.decoder == decoder and (value := r.metrics.get(name)) is not None
    }
    return mean_of(values, geometric=True).mean if values else math.nan
