"""Pictures of a sweep: curves with confidence bands over one axis, heat maps over two.

Theory is drawn in grey beside what was measured, and lower bounds as the edge of a shaded region.
Two axes, one of them the compression, are also drawn as the paper does: one line per rate, and a
band for the slack. Shares of recovered means over s/m and m/d make a phase diagram.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.report.style import (
    PALETTE,
    apart,
    decoder_label,
    decoder_style,
    decoder_styles,
    finish,
    mark_values,
    new_figure,
    plain_logarithms,
    readable_on,
    shades,
    tidy,
)
from experiments.results.table import Summary, SweepTable
from experiments.sweeps.axes import AXES
from sparse_secagg.decoder_texts import split_decoder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "relative_error": "‖μ̂ − μ‖² / ‖μ‖²",
    "accuracy": "test accuracy",
    "best_accuracy": "best test accuracy",
    "cosine": "cosine of μ̂ and μ",
    "covered": "share of 95 % intervals that cover",
    "interval_width": "mean width of 95 % intervals",
    "bits_per_parameter": "bits per parameter",
}
#: Predictions by metric: how they are drawn and called.
THEORY = {
    "theory_linear": ("--", "theory: linear"),
    "theory_lasso": (":", "theory: Lasso, s·σ²(2 ln d + 1)"),
    "theory_central": ("-.", "no compression, trusted server"),
}
#: Parameters that have panels of their own, unless curves of one panel are their values.
_PANELS = ("encoder", "mechanism", "per_layer", "task", "fixed_sketch", "noise_multiplier")
MAX_COLUMNS = 3
FRAME = PALETTE[1]
#: Relative error below which a mean counts as recovered, in a phase diagram.
RECOVERED = 0.01


def draw_sweep(
    table: SweepTable,
    metric: str | None = None,
    marked: Sequence[dict[str, Any]] | None = None,
    *,
    width: float = 1.0,
) -> Figure:
    """Draw curves over one axis, or heat maps over two with some settings (or the best) framed.

    ``metric`` is the sweep's own by default; ``width`` is a factor on that of a panel.
    """
    metric = metric or table.metric
    if len(table.axes) == 2:
        return _heat_maps(table, metric, marked, width)
    if len({row.setting[table.axes[0]] for row in table.summary()}) == 1:
        return _bars(table, metric, width)
    return _curves(table, metric, width)


def caption(table: SweepTable) -> str:
    """Return what does not vary: d, n, r, ε or z, bits and seeds."""
    fixed, first = table.fixed, table.results[0]
    parts = [str(fixed[name]) for name in ("task", "mean") if fixed.get(name)]
    dim = fixed.get("dim") or first.metrics.get("dim")
    clients = fixed.get("clients") or first.metrics.get("n_clients")
    parts += [f"d = {dim:,.0f}"] if dim and "dim" not in table.axes else []
    parts += [f"n = {clients:,.0f}"] if clients and "clients" not in table.axes else []
    for name, text in (
        ("sparsity", "s = {:g}"),
        ("compression", "r = {:g}"),
        ("epsilon", "ε = {:g}"),
        ("noise_multiplier", "z = {:g}"),
        ("n_bits", "b = {:g}"),
        ("rounds", "{:g} rounds"),
    ):
        if fixed.get(name) is not None:
            parts.append(text.format(fixed[name]))
    for name in ("encoder", "mechanism", "decoder"):
        if name in fixed:
            parts.append(decoder_label(str(fixed[name])).replace("_", " "))
    seeds = sorted({result.cell.seed for result in table.results})
    rounds = sorted({result.cell.block for result in table.results})
    if first.cell.kind == "recording":
        parts.append(f"recorded round{'s' * (len(rounds) > 1)} {_few(rounds)}")
    parts.append(f"seed{'s' * (len(seeds) > 1)} {_few(seeds)}")
    return ", ".join(parts)


def _few(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}–{numbers[-1]}"
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown}, … ({len(numbers)})"


def _label(metric: str) -> str:
    return LABELS.get(metric, metric.replace("_", " "))


def _is_logarithmic(metric: str) -> bool:
    return metric in ("relative_error", "squared_error")


def _panels(table: SweepTable, rows: Sequence[Summary], *more: str) -> dict[str, list[Summary]]:
    """Return the rows of each panel by its title; whatever varies beside the axes has its own."""
    names = [name for name in (*_PANELS, *more) if name not in table.axes]
    panels: dict[str, list[Summary]] = {}
    for row in rows:
        title = ", ".join(_word(name, row.setting[name]) for name in names if name in row.setting)
        panels.setdefault(title, []).append(row)
    return panels


def _word(name: str, value: Any) -> str:
    if name == "per_layer":
        return "each layer by itself" if value else "the whole vector"
    if name == "fixed_sketch":
        return "the same sketch in all rounds" if value else "a fresh sketch in every round"
    if name == "noise_multiplier":
        return f"z = {value:g}"
    return decoder_label(str(value))


def _grid(n_panels: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(n_panels, MAX_COLUMNS)
    lines = -(-n_panels // columns)
    figure = new_figure(width * columns + 0.6, height * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for empty in axes[n_panels:]:
        empty.set_visible(False)
    return figure, list(axes[:n_panels])


# --- curves


def _curves(table: SweepTable, metric: str, width: float) -> Figure:
    (axis,) = table.axes
    rows = [row for row in table.summary(metric) if row.interval is not None]
    panels = _panels(table, rows)
    figure, axes = _grid(max(len(panels), 1), 5.2 * width, 3.7)
    logarithmic = _is_logarithmic(metric)
    only = str(table.fixed.get("decoder", ""))
    names = list(dict.fromkeys(str(row.setting.get("decoder", only)) for row in rows))
    looks = decoder_styles(names)
    for panel, (title, members) in zip(axes, panels.items()):
        found = _by(members, lambda row: str(row.setting.get("decoder", only)), axis)
        curves = {name: found[name] for name in names if name in found}
        _draw(panel, axis, curves, looks, decoder_label, logarithmic)
        if metric == "relative_error":
            _own_limits(panel, axis, curves, looks)
            _theory(panel, axis, members, table)
        _decorate(panel, axis, [row.setting[axis] for row in members], logarithmic)
        panel.set_title(title)
        if logarithmic:
            _limit(panel, members)
    axes[0].set_ylabel(_label(metric))
    finish(figure, axes, caption(table))
    return figure


def _by(
    rows: Sequence[Summary], key: Callable[[Summary], Any], axis: str
) -> dict[Any, list[Summary]]:
    """Return the rows of each curve, along the axis."""
    found: dict[Any, list[Summary]] = {}
    for row in sorted(rows, key=lambda row: float(row.setting[axis])):
        found.setdefault(key(row), []).append(row)
    return found


def _draw(
    panel: Axes,
    axis: str,
    curves: Mapping[Any, Sequence[Summary]],
    looks: Mapping[Any, dict[str, Any]],
    name: Callable[[Any], str],
    logarithmic: bool,
    *,
    whiskers: bool = False,
) -> dict[Any, dict[str, Any]]:
    """Draw curves with their intervals, told apart where they coincide; return how they look."""
    means = {key: [row.interval.mean for row in c if row.interval] for key, c in curves.items()}
    lines = {key: {"linestyle": line} for key, line in apart(means).items()}
    drawn = {key: looks[key] | lines.get(key, {}) for key in curves}
    for key, look in drawn.items():
        _curve(panel, axis, curves[key], name(key), look, logarithmic, whiskers)
    return drawn


def _curve(
    panel: Axes,
    axis: str,
    rows: Sequence[Summary],
    name: str,
    look: dict[str, Any],
    logarithmic: bool,
    whiskers: bool,
) -> None:
    x = np.array([row.setting[axis] for row in rows], dtype=float)
    intervals = [row.interval for row in rows if row.interval is not None]
    y, low, high = (
        np.array([getattr(interval, side) for interval in intervals])
        for side in ("mean", "low", "high")
    )
    panel.plot(x, y, label=name or "measured", linewidth=1.6, markersize=5, **look)
    known = np.isfinite(high) & np.isfinite(low) & (high > 0)
    if whiskers and known.any():
        reach = np.where(known, (y - low, high - y), 0.0)
        panel.errorbar(x, y, yerr=reach, fmt="none", ecolor=look["color"], capsize=3, elinewidth=1)
    elif known.any():
        floor = y / 10 if logarithmic else low  # a band may reach zero, a logarithm cannot
        low = np.maximum(low, floor)
        panel.fill_between(x, low, high, where=known, color=look["color"], alpha=0.15, lw=0)


def _own_limits(
    panel: Axes,
    axis: str,
    curves: Mapping[str, Sequence[Summary]],
    looks: Mapping[str, dict[str, Any]],
) -> None:
    """Draw what state evolution says that message passing can reach, in its decoder's colour.

    Forms of one decoder have one colour: the dots of each are farther apart than the last one's.
    """
    known = {name: _prediction(axis, rows, "theory_limit") for name, rows in curves.items()}
    for k, (name, (x, y)) in enumerate((n, found) for n, found in known.items() if len(found[0])):
        look = {"color": looks[name]["color"], "linestyle": (0, (1, 1.65 + 2.5 * k))}
        panel.plot(x, y, linewidth=1.3, label=f"limit of {decoder_label(name)}", **look)


def _theory(panel: Axes, axis: str, rows: Sequence[Summary], table: SweepTable) -> None:
    """Draw predictions, which do not depend on the decoder, and lower bounds."""
    only = table.results[0].cell.spec.decoder
    decoders = {split_decoder(str(row.setting.get("decoder", only)))[0] for row in rows}
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


def _prediction(
    axis: str, rows: Sequence[Summary], name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    points: dict[float, list[float]] = {}
    for row in rows:
        if name in row.extra:
            points.setdefault(float(row.setting[axis]), []).append(row.extra[name])
    x = np.array(sorted(points))
    return x, np.array([np.mean(points[value]) for value in x])


def _decorate(panel: Axes, axis: str, values: Sequence[float], logarithmic: bool) -> None:
    known = AXES[axis]
    if known.log and min(values) > 0 and len(set(values)) > 1:
        panel.set_xscale("log")
    mark_values(panel, values)
    panel.set_xlabel(known.label)
    if logarithmic:
        panel.set_yscale("log")
        panel.axhline(1, color="0.6", linewidth=0.8, zorder=0)  # no better than zero
    tidy(panel)


def _limit(panel: Axes, rows: Sequence[Summary]) -> None:
    """Show the measurements and nothing far below or above them."""
    means = [row.interval.mean for row in rows if row.interval is not None]
    positive = [mean for mean in means if mean > 0]
    if positive:
        low, high = panel.get_ylim()
        panel.set_ylim(max(low, min(positive) / 5), min(high, max(positive) * 4))
        plain_logarithms(panel.yaxis, *panel.get_ylim())


# --- bars


def _bars(table: SweepTable, metric: str, width: float) -> Figure:
    """Draw one bar a decoder, where the axis has one value."""
    rows = [row for row in table.summary(metric) if row.interval is not None]
    panels = _panels(table, rows)
    most = max([len(members) for members in panels.values()] or [1])
    figure, axes = _grid(max(len(panels), 1), 5.2 * width, 0.3 * most + 0.9)
    only = str(table.fixed.get("decoder", ""))
    for panel, (title, members) in zip(axes, panels.items()):
        names = [str(row.setting.get("decoder", only)) for row in members]
        intervals = [row.interval for row in members if row.interval is not None]
        y = np.array([each.mean for each in intervals])
        reach = np.array([(i.mean - i.low, i.high - i.mean) for i in intervals]).T
        reach[:, ~np.isfinite(reach).all(axis=0)] = 0.0
        looks = [decoder_style(name) for name in names]
        places = np.arange(len(names))
        panel.barh(
            places,
            y,
            xerr=reach,
            color=[look["color"] for look in looks],
            hatch=["//" if "markerfacecolor" in look else "" for look in looks],
            edgecolor="white",
            error_kw={"capsize": 2, "ecolor": "0.2", "elinewidth": 1},
        )
        beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points"}
        for place, mean, bar in zip(places, y, reach[1]):
            panel.annotate(f"{mean:.3g}", (mean + bar, place), va="center", fontsize=8, **beside)
        panel.set_yticks(places, list(map(decoder_label, names)))
        panel.set_title(title)
        panel.set_xlabel(_label(metric))
        if "error" in metric:
            panel.set_xscale("log")
            plain_logarithms(panel.xaxis, *panel.get_xlim())
            panel.axvline(1, color="0.5", linestyle="--", linewidth=0.8, zorder=0)
        panel.margins(x=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    (axis,) = table.axes
    value = table.results[0].cell.setting()[axis]
    finish(figure, axes, f"{AXES[axis].label} = {value:g}, {caption(table)}")
    return figure


# --- heat maps


def _heat_maps(
    table: SweepTable, metric: str, marked: Sequence[dict[str, Any]] | None, width: float
) -> Figure:
    first, second = table.axes
    rows = table.summary(metric)
    panels = _panels(table, rows, "decoder")
    n_first = len({row.setting[first] for row in rows})
    n_second = len({row.setting[second] for row in rows})
    wide = width * max(3.4, 0.85 * n_second + 0.8)
    figure, axes = _grid(len(panels), wide, max(2.6, 0.6 * n_first + 1))
    means = [row.interval.mean for row in rows if row.interval is not None]
    norm = _norm(means, metric)
    image = None
    for panel, (title, members) in zip(axes, panels.items()):
        image = _heat_map(panel, table, members, norm, marked)
        panel.set_title(title)
        panel.set_xlabel(AXES[second].label)
    for panel in axes[:: min(len(panels), MAX_COLUMNS)]:
        panel.set_ylabel(AXES[first].label)
    if image is not None:
        label = _label(metric)
        bar = figure.colorbar(image, ax=axes, label=label, shrink=0.9)
        if _is_logarithmic(metric):
            plain_logarithms(bar.ax.yaxis, min(means), max(means))
    finish(figure, axes, f"{caption(table)}; small numbers: bits per parameter", handles=())
    return figure


def _norm(means: Sequence[float], metric: str) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    if _is_logarithmic(metric) and low > 0:
        return LogNorm(low, high)
    return Normalize(low, high)


def _heat_map(
    panel: Axes,
    table: SweepTable,
    rows: Sequence[Summary],
    norm: Any,
    marked: Sequence[dict[str, Any]] | None,
) -> Any:
    """Draw numbers on colours, bits per parameter below them, marked cells in a frame."""
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
    places = [(ys.index(m[first]), xs.index(m[second])) for m in marked or ()]
    if not marked and np.isfinite(grid).any():
        best = np.nanargmin(grid) if table.lower_is_better else np.nanargmax(grid)
        places = [divmod(int(best), len(xs))]
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


# --- as the paper draws them


def draw_paper(table: SweepTable, slack: float, *, width: float = 1.0) -> Figure:
    """Draw the metric against z, b or n, one line per rate, and the slack below (or above) r = 1.

    Errors may be 1 + slack times, accuracies slack below those at the least compression.
    """
    (axis,) = [name for name in table.axes if name != "compression"]
    rows = [row for row in table.summary() if row.interval is not None]
    panels = _panels(table, rows, "decoder")
    figure, axes = _grid(max(len(panels), 1), 4.6 * width, 3.6)
    rates = sorted({row.setting["compression"] for row in rows})
    looks = dict(zip(rates, shades(len(rates))))
    logarithmic = table.lower_is_better
    for panel, (title, members) in zip(axes, panels.items()):
        curves = dict(sorted(_by(members, lambda row: row.setting["compression"], axis).items()))
        _draw(panel, axis, curves, looks, _rate, logarithmic, whiskers=True)
        _slack_band(panel, axis, curves[min(curves)], slack, table.lower_is_better)
        _decorate(panel, axis, [row.setting[axis] for row in members], logarithmic)
        panel.set_title(title)
        if logarithmic:
            plain_logarithms(panel.yaxis, *panel.get_ylim())
    axes[0].set_ylabel(_label(table.metric))
    finish(figure, axes, caption(table))
    return figure


def _rate(rate: float) -> str:
    return "r = 1: no sketch" if rate == 1 else f"r = {rate:g}"


def _slack_band(panel: Axes, axis: str, rows: Sequence[Summary], slack: float, lower: bool) -> None:
    x = [row.setting[axis] for row in rows]
    y = np.array([row.interval.mean for row in rows if row.interval is not None])
    edge = y * (1 + slack) if lower else y - slack
    points = f"{100 * slack:g} point{'s' * (slack != 0.01)}"
    label = f"within {1 + slack:g} times" if lower else f"within {points}"
    panel.fill_between(x, y, edge, color="0.87", lw=0, zorder=0, label=label)


# --- phase diagrams


def donoho_tanner(delta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ρ(δ): up to s/m = ρ the ℓ₁ minimum recovers most s-sparse x from m = δd measurements.

    Donoho and Tanner's weak threshold in the form of Donoho, Maleki and Montanari (2009),

        ρ(δ) = max_z (1 − (2/δ)·h(z)) / (1 + z² − 2h(z)),   h(z) = (1 + z²)Φ(−z) − zφ(z).
    """
    z = np.linspace(1e-3, 8.0, 4000)[:, None]
    h = (1 + z**2) * stats.norm.cdf(-z) - z * stats.norm.pdf(z)
    found = (1 - 2 * h / np.asarray(delta)[None, :]) / (1 + z**2 - 2 * h)
    return np.asarray(np.max(found, axis=0))


def draw_phase(table: SweepTable, *, width: float = 1.0) -> Figure:
    """Draw the share of recovered means over m/d and s/m, with the theoretical line."""
    shares: dict[str, dict[tuple[float, float], list[bool]]] = {}
    for result in table.results:
        setting, error = result.cell.setting(), result.metrics.get("relative_error")
        if error is not None:
            names = [name for name in ("encoder", "decoder") if name in table.varying]
            name = ", ".join(str(setting[each]) for each in names or ("encoder", "decoder"))
            place = 1 / setting["compression"], setting["density"]
            shares.setdefault(name, {}).setdefault(place, []).append(error < RECOVERED)
    figure, axes = _grid(max(len(shares), 1), 4.3 * width, 3.6)
    image: Any = None
    for panel, (name, found) in zip(axes, shares.items()):
        xs, ys = (sorted({place[k] for place in found}) for k in (0, 1))
        grid = np.full((len(ys), len(xs)), np.nan)
        for (x, y), hits in found.items():
            grid[ys.index(y), xs.index(x)] = np.mean(hits)
        image = panel.pcolormesh(
            _edges(xs), _edges(ys), grid, cmap="cividis", vmin=0, vmax=1, rasterized=True
        )
        delta = np.linspace(max(_edges(xs)[0], 0.01), min(_edges(xs)[-1], 1.0), 200)
        line = donoho_tanner(delta)
        label = "ℓ₁ theory (Donoho and Tanner)"
        panel.plot(delta, line, color="white", linewidth=3.6)
        panel.plot(delta, line, color=PALETTE[1], linewidth=1.8, label=label)
        panel.set_ylim(_edges(ys)[0], _edges(ys)[-1])
        panel.set_xlabel("m/d")
        panel.set_title(name)
    axes[0].set_ylabel("s/m")
    if image is not None:
        figure.colorbar(image, ax=axes, label=f"share with error below {RECOVERED:g}", shrink=0.9)
    finish(figure, axes, caption(table))
    return figure


def _edges(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the borders of cells around increasing values."""
    x = np.asarray(values, dtype=float)
    if len(x) == 1:
        return np.array([x[0] * 0.9, x[0] * 1.1])
    middle = (x[1:] + x[:-1]) / 2
    return np.concatenate([[x[0] - (middle[0] - x[0])], middle, [x[-1] + (x[-1] - middle[-1])]])
