"""Pictures of the paper's theorems, bounds and tables; its sweeps are drawn by ``figures``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report.figures import LABELS, caption
from experiments.report.style import (
    PALETTE,
    finish,
    mark_values,
    new_figure,
    plain_logarithms,
    readable_on,
    shades,
    tidy,
)
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES
from experiments.training.layers import parse_groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_power(
    table: SweepTable,
    axis: str,
    expected: float,
    scale: Callable[[Any], float] = float,
    *,
    width: float = 1.0,
) -> Figure:
    """Draw errors with their intervals, a fitted power, and the power that theory foretells."""
    rows = sorted(
        (row for row in table.summary() if row.interval is not None), key=lambda r: r.setting[axis]
    )
    logs = np.log([scale(row.setting[axis]) for row in rows])
    x = np.array([row.setting[axis] for row in rows], dtype=float)
    found = [row.interval for row in rows if row.interval is not None]
    y = np.array([each.mean for each in found])
    reach = np.array([(each.mean - each.low, each.high - each.mean) for each in found]).T
    slope, start = np.polyfit(logs, np.log(y), 1)
    figure = new_figure(5.0 * width, 3.6)
    panel = figure.subplots()
    middle = np.log(y).mean() - expected * logs.mean()
    theory = np.exp(middle + expected * logs)
    # wide and pale below the fit, which lies on it where theory is right
    panel.plot(x, theory, color="0.75", linewidth=5, label=f"theory: exponent {expected:g}")
    fit = np.exp(start + slope * logs)
    panel.plot(x, fit, color=PALETTE[0], label=f"fit: exponent {slope:.3f}")
    panel.errorbar(x, y, yerr=reach, fmt="o", color=PALETTE[0], capsize=3, label="measured")
    panel.set(xscale="log", yscale="log", xlabel=AXES[axis].label, ylabel=LABELS["relative_error"])
    mark_values(panel, x.tolist())
    plain_logarithms(panel.yaxis, *panel.get_ylim())
    tidy(panel)
    finish(figure, [panel], caption(table))
    return figure


def draw_bounds(table: SweepTable, *, width: float = 1.0) -> Figure:
    """Draw bits per parameter against error, a line per scheme and rate, above the bounds."""
    figure = new_figure(6.2 * width, 4.4)
    panel = figure.subplots()
    rows = [row for row in table.summary() if row.interval is not None]
    rates = sorted({row.setting["compression"] for row in rows})
    marks = dict(zip(("count_sketch", "hadamard", "gaussian"), "os^"))
    for rate, look in zip(rates, shades(len(rates))):
        for row in rows:
            if row.setting["compression"] == rate and row.interval is not None:
                scheme = str(row.setting.get("encoder", "count_sketch"))
                name = (
                    "r = 1: no sketch" if rate == 1 else f"r = {rate:g}, {scheme.replace('_', ' ')}"
                )
                mark = "D" if rate == 1 else marks.get(scheme, "x")
                whole = row.setting.get("mechanism", "ddg") == "ddg"
                face = look["color"] if whole else "none"
                panel.plot(
                    row.extra["bits_per_parameter"],
                    row.interval.mean,
                    mark,
                    color=look["color"],
                    markerfacecolor=face,
                    markersize=5 if whole else 8,  # a ring around, where the two agree
                    label=name if whole else None,
                    linestyle="none",
                )
    low, high = panel.get_xlim()
    bits = np.geomspace(max(low, 0.05), high, 200)
    panel.plot(bits, 2.0 ** (-2 * bits), color="0.2", label="no scheme below: 2^(−2B/d)")
    unbiased = bits[bits < 1]
    panel.plot(
        unbiased, 1 / unbiased, "--", color="0.2", label="no unbiased one below: C₀d/B, C₀ = 1"
    )
    panel.set(
        xscale="log", yscale="log", xlabel="bits per parameter B/d", ylabel=LABELS["relative_error"]
    )
    panel.set_ylim(1e-3, None)
    plain_logarithms(panel.xaxis, *panel.get_xlim())
    tidy(panel)
    finish(figure, [panel], f"{caption(table)}; filled: ddg, hollow: skellam")
    return figure


def draw_tail(lengths: Sequence[float], m: int, *, width: float = 1.0) -> Figure:
    """Draw how often the sketch lengthens a vector, and the bound."""
    figure = new_figure(5.0 * width, 3.4)
    panel = figure.subplots()
    alpha = np.linspace(0.02, 0.35, 100)
    share = np.mean(np.asarray(lengths)[:, None] >= 1 + alpha, axis=0)
    panel.plot(alpha, np.where(share > 0, share, np.nan), color=PALETTE[0], label="measured share")
    panel.plot(alpha, np.exp(-(alpha**2) * m / 8), "--", color="0.3", label="exp(−α²m/8)")
    panel.set(yscale="log", xlabel="α", ylabel="share with ‖Sg‖² ≥ (1 + α)‖g‖²")
    panel.axvline(0.21, color="0.6", linewidth=0.8, label="the clip at 1.1c")
    tidy(panel)
    finish(figure, [panel], f"count sketch, m = {m}, t = 10, {len(lengths)} sketches")
    return figure


def draw_epsilon(rows: Mapping[str, Sequence[Any]], *, width: float = 1.0) -> Figure:
    """Draw ε against z for every observer, a panel for each setting."""
    figure = new_figure(8.6 * width, 3.6)
    panels = list(figure.subplots(1, len(rows), sharey=True))
    lines = {
        "server": ("against the server", "o-"),
        "release": ("models only, fixed cohorts", "s-"),
        "trusted_server": ("trusted server, Poisson cohorts", "^:"),
    }
    for panel, (name, found) in zip(panels, rows.items()):
        z = [row.noise_multiplier for row in found]
        for k, (field, (text, line)) in enumerate(lines.items()):
            panel.plot(
                z, [getattr(row, field) for row in found], line, color=PALETTE[k], label=text
            )
        panel.axhspan(5, 10, color="0.87", label="the paper's ε = 5 to 10")
        panel.set(xscale="log", yscale="log", xlabel=AXES["noise_multiplier"].label, title=name)
        mark_values(panel, z)
        tidy(panel)
    panels[0].set_ylabel("ε of 1500 rounds")
    finish(figure, panels, "n = 100, δ = 1/N, distributed discrete Gaussian")
    return figure


def draw_layer_rates(table: SweepTable, *, width: float = 1.0) -> Figure:
    """Draw accuracy over the rates of two groups of layers, beside those of the whole vector."""
    import matplotlib

    rows = [row for row in table.summary() if row.interval is not None]
    apart = {t: row for row in rows if (t := str(row.setting["layer_compression"] or ""))}
    whole = [row for row in rows if not row.setting["layer_compression"]]
    groups = {text: parse_groups("layer_compression", text) for text in apart}
    name = next(iter(next(iter(groups.values()))))
    xs = sorted({found["rest"] for found in groups.values()})
    ys = sorted({found[name] for found in groups.values()})
    scale = matplotlib.colors.Normalize(
        min(r.interval.mean for r in rows if r.interval),
        max(r.interval.mean for r in rows if r.interval),
    )
    colours = matplotlib.colormaps["cividis"]
    figure = new_figure(width * (1.3 * (len(xs) + 1) + 2.4), 0.75 * max(len(ys), len(whole)) + 1.2)
    left, right = figure.subplots(1, 2, width_ratios=(len(xs), 1))
    places = [
        (left, xs.index(groups[t]["rest"]), ys.index(groups[t][name]), r) for t, r in apart.items()
    ]
    places += [(right, 0, k, row) for k, row in enumerate(whole)]
    for panel, x, y, row in places:
        assert row.interval is not None
        colour = colours(scale(row.interval.mean))
        panel.add_patch(matplotlib.patches.Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour))
        text = f"{row.interval.mean:.3f}\nr = {row.setting['compression']:.3g}"
        panel.text(x, y, text, ha="center", va="center", fontsize=8, color=readable_on(colour))
    left.set(xlabel="rate of the rest", ylabel=f"rate of {name}", title="by themselves")
    left.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    left.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    right.set(title="whole\nvector")
    right.set_xticks([])
    right.set_yticks(range(len(whole)), [f"{row.setting['compression']:g}" for row in whole])
    left.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5))
    right.set(xlim=(-0.5, 0.5), ylim=(-0.5, len(whole) - 0.5))
    finish(figure, [left, right], f"{caption(table)}; r: of the whole message", handles=())
    return figure
