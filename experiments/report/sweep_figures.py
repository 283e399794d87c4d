"""Pictures of a sweep: curves with confidence bands over one axis, heat maps over two.

Theory is drawn in grey beside what was measured, and lower bounds as the edge of a shaded region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from experiments.report.style import PALETTE, new_figure, readable_on, style
from experiments.results.summary import Summary
from experiments.sweeps.axes import AXES
from experiments.sweeps.store import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_sweep"]

LABELS = {
    "relative_error": "‖μ̂ − μ‖² / ‖μ‖²",
    "accuracy": "test accuracy",
    "best_accuracy": "best test accuracy",
    "cosine": "cosine of μ̂ and μ",
    "bits_per_parameter": "bits a parameter",
}
#: Predictions by metric: how they are drawn and called.
THEORY = {
    "theory_linear": ("--", "theory: linear"),
    "theory_lasso": (":", "theory: Lasso, s·σ²(2 ln d + 1)"),
    "theory_central": ("-.", "no compression, trusted server"),
}
MAX_COLUMNS = 3
FRAME = PALETTE[1]


class Table(Protocol):
    """What is drawn of a table of results; see :class:`experiments.results.table.SweepTable`."""

    axes: tuple[str, ...]
    lower_is_better: bool
    results: list[Result]

    @property
    def varying(self) -> list[str]:
        """Parameters with more than one value."""

    def summary(self, metric: str | None = None) -> list[Summary]:
        """Return one row for every setting."""


def draw_sweep(table: Table, metric: str, marked: Sequence[dict[str, Any]] | None = None) -> Figure:
    """Draw curves over one axis, or heat maps over two with some settings (or the best) framed."""
    if len(table.axes) == 1:
        return _curves(table, metric)
    return _heat_maps(table, metric, marked)


def _panels(rows: Sequence[Summary], names: Sequence[str]) -> dict[str, list[Summary]]:
    """Return the rows of each panel by its title."""
    panels: dict[str, list[Summary]] = {}
    for row in rows:
        title = ", ".join(str(row.setting[name]) for name in names if name in row.setting)
        panels.setdefault(title, []).append(row)
    return panels


def _grid(n_panels: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(n_panels, MAX_COLUMNS)
    lines = -(-n_panels // columns)
    figure = new_figure(width * columns + 0.6, height * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for empty in axes[n_panels:]:
        empty.set_visible(False)
    return figure, list(axes[:n_panels])


# --- curves


def _curves(table: Table, metric: str) -> Figure:
    (axis,) = table.axes
    rows = [row for row in table.summary(metric) if row.interval is not None]
    panels = _panels(rows, ("encoder", "mechanism"))
    variants = [name for name in ("layers", "task") if name in table.varying]
    figure, axes = _grid(max(len(panels), 1), 5.2, 4.2)
    logarithmic = metric in ("relative_error", "squared_error")
    names = list(dict.fromkeys(_series(row, variants) for row in rows))
    for panel, (title, members) in zip(axes, panels.items()):
        for index, name in enumerate(names):
            curve = [row for row in members if _series(row, variants) == name]
            if curve:
                _curve(panel, axis, curve, name, index, logarithmic)
        if metric == "relative_error":
            _theory(panel, axis, members, table)
        _decorate(panel, axis, [row.setting[axis] for row in members], logarithmic)
        panel.set_title(title, fontsize=11)
        if logarithmic:
            _limit(panel, members)
    axes[0].set_ylabel(LABELS.get(metric, metric.replace("_", " ")))
    _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Explain the curves once, below all panels."""
    handles: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=2 + len(axes),
        frameon=False,
        fontsize=9,
    )


def _series(row: Summary, variants: Sequence[str]) -> str:
    parts = [str(row.setting.get("decoder", ""))]
    return ", ".join([part for part in parts if part] + [str(row.setting[v]) for v in variants])


def _curve(
    panel: Axes, axis: str, rows: Sequence[Summary], name: str, index: int, logarithmic: bool
) -> None:
    rows = sorted(rows, key=lambda row: row.setting[axis])
    x = np.array([row.setting[axis] for row in rows], dtype=float)
    intervals = [row.interval for row in rows if row.interval is not None]
    y = np.array([interval.mean for interval in intervals])
    low = np.array([interval.low for interval in intervals])
    high = np.array([interval.high for interval in intervals])
    look = style(index)
    panel.plot(x, y, label=name or "measured", linewidth=1.6, markersize=4.5, **look)
    known = np.isfinite(low) & np.isfinite(high)
    if known.any():
        floor = y / 10 if logarithmic else low  # a band may reach zero, a logarithm cannot
        panel.fill_between(
            x, np.maximum(low, floor), high, where=known, color=look["color"], alpha=0.18, lw=0
        )


def _theory(panel: Axes, axis: str, rows: Sequence[Summary], table: Table) -> None:
    """Draw predictions, which do not depend on the decoder, and lower bounds."""
    decoders = {str(row.setting.get("decoder", table.results[0].cell.decoder)) for row in rows}
    sparse = bool(decoders - {"linear", "median", "ridge"})
    for name, (line, label) in THEORY.items():
        if name == "theory_lasso" and not sparse:
            continue
        x, y = _prediction(axis, rows, name)
        if len(x):
            panel.plot(x, y, line, color="0.2", linewidth=1.3, label=label, zorder=4)
    dense = getattr(table.results[0].cell, "mean", "") == "dense"
    bounds = [("theory_support", "lower bound, unbiased: least squares on the support", sparse)]
    bounds.append(("theory_bits", "lower bound: so few bits, worst mean", dense))
    for name, label, applies in bounds:
        x, y = _prediction(axis, rows, name)
        if applies and len(x):
            panel.fill_between(x, y / 1e6, y, color="0.85", lw=0, zorder=0, label=label)


def _prediction(axis: str, rows: Sequence[Summary], name: str) -> tuple[Any, Any]:
    points: dict[float, list[float]] = {}
    for row in rows:
        if name in row.extra:
            points.setdefault(float(row.setting[axis]), []).append(row.extra[name])
    x = np.array(sorted(points))
    return x, np.array([np.mean(points[value]) for value in x])


def _decorate(panel: Axes, axis: str, values: Sequence[float], logarithmic: bool) -> None:
    known = AXES[axis]
    ticks = sorted(set(values))
    if known.log and min(ticks) > 0 and len(ticks) > 1:
        panel.set_xscale("log")
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45 if len(ticks) > 6 else 0)
    panel.minorticks_off()
    panel.set_xlabel(known.label)
    if logarithmic:
        panel.set_yscale("log")
        panel.axhline(1, color="0.6", linewidth=0.8, zorder=0)  # no better than zero
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _limit(panel: Axes, rows: Sequence[Summary]) -> None:
    """Show the measurements and nothing far below or above them."""
    means = [row.interval.mean for row in rows if row.interval is not None]
    positive = [mean for mean in means if mean > 0]
    if positive:
        low, high = panel.get_ylim()
        panel.set_ylim(max(low, min(positive) / 5), min(high, max(positive) * 4))


# --- heat maps


def _heat_maps(table: Table, metric: str, marked: Sequence[dict[str, Any]] | None) -> Figure:
    first, second = table.axes
    rows = table.summary(metric)
    panels = _panels(rows, ("encoder", "mechanism", "layers", "decoder"))
    n_first = len({row.setting[first] for row in rows})
    n_second = len({row.setting[second] for row in rows})
    figure, axes = _grid(len(panels), max(3.4, 0.85 * n_second + 0.8), max(2.6, 0.6 * n_first + 1))
    means = [row.interval.mean for row in rows if row.interval is not None]
    norm = _norm(means, metric)
    image = None
    for panel, (title, members) in zip(axes, panels.items()):
        image = _heat_map(panel, table, members, norm, marked)
        panel.set_title(title, fontsize=11)
        panel.set_xlabel(AXES[second].label)
    for panel in axes[:: min(len(panels), MAX_COLUMNS)]:
        panel.set_ylabel(AXES[first].label)
    if image is not None:
        label = LABELS.get(metric, metric.replace("_", " "))
        figure.colorbar(image, ax=axes, label=label, shrink=0.9)
    return figure


def _norm(means: Sequence[float], metric: str) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    if metric in ("relative_error", "squared_error") and low > 0:
        return LogNorm(low, high)
    return Normalize(low, high)


def _heat_map(
    panel: Axes,
    table: Table,
    rows: Sequence[Summary],
    norm: Any,
    marked: Sequence[dict[str, Any]] | None,
) -> Any:
    """Draw numbers on colours, bits a parameter below them, marked cells in a frame."""
    first, second = table.axes
    ys = sorted({row.setting[first] for row in rows})
    xs = sorted({row.setting[second] for row in rows})
    grid = np.full((len(ys), len(xs)), np.nan)
    for row in rows:
        if row.interval is not None:
            place = ys.index(row.setting[first]), xs.index(row.setting[second])
            grid[place] = row.interval.mean
    # errors: dark is bad; accuracies: dark is bad as well
    colours = "cividis_r" if table.lower_is_better else "cividis"
    image = panel.imshow(grid, norm=norm, cmap=colours, aspect="auto", origin="lower")
    for row in rows:
        y, x = ys.index(row.setting[first]), xs.index(row.setting[second])
        if row.interval is None:
            panel.text(x, y, "–", ha="center", va="center", color="0.4")
            continue
        ink = readable_on(image.cmap(norm(grid[y, x])))
        panel.text(x, y + 0.1, _short(grid[y, x]), ha="center", va="center", fontsize=9, color=ink)
        if "bits_per_parameter" in row.extra:
            bits = f"{row.extra['bits_per_parameter']:.2g} b"
            panel.text(x, y - 0.28, bits, ha="center", va="center", fontsize=6.5, color=ink)
    if marked:
        places = [(ys.index(m[first]), xs.index(m[second])) for m in marked]
    elif np.isfinite(grid).any():
        best = np.nanargmin(grid) if table.lower_is_better else np.nanargmax(grid)
        places = [divmod(int(best), len(xs))]
    else:
        places = []
    _frame(panel, places)
    panel.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    panel.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    return image


def _frame(panel: Axes, places: Sequence[tuple[int, int]]) -> None:
    from matplotlib.patches import Rectangle

    for line, column in places:
        corner = column - 0.48, line - 0.48
        panel.add_patch(Rectangle(corner, 0.96, 0.96, fill=False, color=FRAME, lw=2.2))


def _short(value: float) -> str:
    return f"{value:.3f}" if 0 < value < 1 else f"{value:.3g}"
