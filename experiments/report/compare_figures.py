"""Pictures of a comparison: error against compression, energy, and layers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from experiments.report.style import PALETTE, new_figure, save
from experiments.results.comparison import CompareResult, Setting

_MARKERS = "osD^vP"


def _style(result: CompareResult, decoder: str) -> dict[str, Any]:
    """Return colour and line of a decoder: those of one family differ by their line."""
    families = list(dict.fromkeys(name.partition(":")[0] for name in result.decoders))
    family = decoder.partition(":")[0]
    members = [name for name in result.decoders if name.partition(":")[0] == family]
    lines = ["-", "--", ":", "-.", (0, (1, 2)), (0, (6, 1, 1, 1))]
    k = members.index(decoder)
    return {
        "color": PALETTE[families.index(family) % len(PALETTE)],
        "linestyle": lines[k % len(lines)],
        "marker": _MARKERS[k % len(_MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def draw_errors(result: CompareResult, stem: Path) -> list[Path]:
    """Draw the error against the compression, one panel a level of privacy.

    With one compression: bars, one a decoder.
    """
    compressions = list(dict.fromkeys(setting.compression for setting in result.settings))
    noises = list(
        dict.fromkeys((setting.epsilon, setting.noise_multiplier) for setting in result.settings)
    )
    width = 4.2 * len(noises) + 2.2
    figure = new_figure(width, max(3.6, 0.28 * len(result.decoders) + 1.2))
    axes = figure.subplots(1, len(noises), squeeze=False, sharey=True)[0]
    for axis, (epsilon, z) in zip(axes, noises):
        settings = [Setting(r, epsilon, z) for r in compressions]
        if len(compressions) == 1:
            _bars(axis, result, settings[0])
        else:
            _lines(axis, result, settings)
        axis.set_title(f"ε = {epsilon:g} a round" if epsilon else f"z = {z:g}")
    if len(compressions) > 1:
        axes[0].set_ylabel("relative error ‖μ̂−μ‖²/‖μ‖²")
        axes[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.suptitle(_title(result))
    return save(figure, stem)


def _title(result: CompareResult) -> str:
    name = result.task or Path(result.recording).name
    n, d = result.rounds[0].n, result.rounds[0].d
    rounds = f", {len(result.rounds)} rounds" if len(result.rounds) > 1 else ""
    return f"{name}: {n:,} clients, d = {d:,}{rounds}"


def _lines(axis: Any, result: CompareResult, settings: list[Setting]) -> None:
    r = np.array([setting.compression for setting in settings])
    order = np.argsort(r)
    shift = np.linspace(0.97, 1.03, len(result.decoders))  # intervals side by side
    for name, factor in zip(result.decoders, shift):
        means = [result.mean(setting, name, "relative_error") for setting in settings]
        y = np.array([each.mean for each in means])
        low = np.array([each.low if math.isfinite(each.low) else each.mean for each in means])
        high = np.array([each.high if math.isfinite(each.high) else each.mean for each in means])
        # on a logarithmic axis an interval that reaches zero has no lower end
        low = np.maximum(low, 0.5 * y)
        bars = np.maximum([(y - low)[order], (high - y)[order]], 0)
        axis.errorbar(
            (r * factor)[order], y[order], bars, label=name, capsize=2, **_style(result, name)
        )
    _mark_zero(axis.axhline)
    axis.set(xscale="log", yscale="log", xlabel="compression d/m")
    axis.set_xticks(np.sort(r), [f"{each:g}" for each in np.sort(r)])
    axis.minorticks_off()
    axis.grid(alpha=0.25)


def _bars(axis: Any, result: CompareResult, setting: Setting) -> None:
    names = list(result.decoders)
    means = [result.mean(setting, name, "relative_error") for name in names]
    y = np.array([each.mean for each in means])
    reach = np.array([each.high - each.mean if math.isfinite(each.high) else 0 for each in means])
    reach = np.array([np.minimum(reach, 0.5 * y), reach])
    colours = [_style(result, name)["color"] for name in names]
    axis.barh(names, y, xerr=reach, color=colours, error_kw={"capsize": 2, "ecolor": "0.3"})
    for name, value in zip(names, y):
        axis.annotate(
            f"{value:.3g}",
            (value, name),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    _mark_zero(axis.axvline)
    axis.set(xscale="log", xlabel=f"relative error ‖μ̂−μ‖²/‖μ‖², r = {setting.compression:g}")
    axis.margins(x=0.18)
    if not axis.yaxis_inverted():
        axis.invert_yaxis()


def _mark_zero(line: Any) -> None:
    """Mark the error of answering zero."""
    line(1, color="0.5", linestyle="--", linewidth=0.8, zorder=0)


def draw_energy(result: CompareResult, stem: Path) -> list[Path]:
    """Draw how much of the mean's energy few coordinates, and low ranks, hold."""
    matrices = [layer for layer in result.rounds[0].compressibility.layers if layer.ranks]
    figure = new_figure(9.5 if matrices else 5.5, 3.8)
    axes = figure.subplots(1, 2 if matrices else 1, squeeze=False)[0]
    shown = result.rounds if len(result.rounds) <= 8 else [result.rounds[0], result.rounds[-1]]
    for k, summary in enumerate(shown):
        x, y = np.array(summary.compressibility.curve).T
        shade = 0.35 + 0.65 * (k + 1) / len(shown)
        axes[0].plot(x, y, color=PALETTE[0], alpha=shade, label=f"round {summary.number}")
    axes[0].set(
        xscale="log", xlabel="largest coordinates", ylabel="share of the energy of the mean"
    )
    needed = shown[0].compressibility.coordinates[0.9]
    axes[0].annotate(
        f"90 % in {needed:,} of {shown[0].d:,}",
        (needed, 0.9),
        xytext=(-8, 6),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    axes[0].plot(needed, 0.9, "o", color=PALETTE[1])
    if len(shown) > 1:
        axes[0].legend(frameon=False, loc="lower right")
    for k, layer in enumerate(matrices):
        squares = np.square(layer.singular_values)
        shares = np.cumsum(squares) / squares.sum()
        size = "×".join(map(str, layer.shape))
        axes[1].plot(
            np.arange(1, len(shares) + 1),
            shares,
            color=PALETTE[k % len(PALETTE)],
            linestyle=["-", "--", ":"][k // len(PALETTE) % 3],
            label=f"{layer.name} ({size})",
        )
    if matrices:
        axes[1].set(
            xscale="log",
            xlabel=f"rank, round {result.rounds[0].number}",
            ylabel="share of the energy of the layer",
        )
        axes[1].legend(frameon=False, loc="lower right", fontsize=8)
    for axis in axes:
        axis.set_ylim(0, 1.03)
        axis.grid(alpha=0.25)
    figure.suptitle(_title(result))
    return save(figure, stem)


def draw_layers(result: CompareResult, stem: Path) -> list[Path]:
    """Draw the error of each layer, one panel a setting, at most four."""
    settings = result.settings[:4]
    layers = [layer.name for layer in result.rounds[0].compressibility.layers]
    height = 1.9 + (0.5 + 0.3 * len(layers)) * len(settings)
    figure = new_figure(3.4 + 0.55 * len(result.decoders), height)
    axes = figure.subplots(len(settings), 1, squeeze=False, sharex=True)[:, 0]
    tables = [
        np.array(
            [[result.layer_error(s, name, layer) for name in result.decoders] for layer in layers]
        )
        for s in settings
    ]
    image: Any = None
    for axis, setting, table in zip(axes, settings, tables):
        with np.errstate(divide="ignore", invalid="ignore"):
            image = axis.imshow(np.log10(table), cmap="RdBu_r", vmin=-1.5, vmax=1.5, aspect="auto")
        for (i, j), value in np.ndenumerate(table):
            if math.isfinite(value):
                dark = abs(math.log10(max(value, 1e-9))) > 0.9
                text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
                axis.text(
                    j, i, text, ha="center", va="center", fontsize=7, color="w" if dark else "k"
                )
        axis.set_xticks(range(len(result.decoders)), list(result.decoders), rotation=60, ha="right")
        axis.set_yticks(range(len(layers)), layers)
        axis.set_title(str(setting), fontsize=10)
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    ticks = [-1, 0, 1]
    bar.set_ticks(ticks, labels=["0.1", "1", "10"])
    bar.set_label("relative error of the layer")
    figure.suptitle(_title(result))
    return save(figure, stem)
