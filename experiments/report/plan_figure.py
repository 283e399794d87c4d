"""The picture of a plan: error against bytes for all schemes, the choice, and lower bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report.style import PALETTE, finish, new_figure, tidy
from sparse_secagg.planner import Plan, TradeOff, trade_offs
from sparse_secagg.privacy.conversion import stated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".svg", ".pdf")
#: A colour for each encoder, a line for each decoder.
_COLOURS = {
    "identity": PALETTE[6],
    "hadamard": PALETTE[0],
    "count_sketch": PALETTE[1],
    "gaussian": PALETTE[2],
}
_NAMES = {
    "identity": "unsketched",
    "hadamard": "Hadamard",
    "count_sketch": "count sketch",
    "gaussian": "Gaussian",
    "linear": "linear",
    "working_set": "Lasso",
    "amp": "message passing",
}
_LINES: dict[str, Any] = {"linear": "-", "working_set": "--", "amp": ":"}
#: Curves of different encoders may coincide: the last drawn are the thinnest.
_WIDTHS = {"gaussian": 4.5, "count_sketch": 2.8, "identity": 1.3, "hadamard": 1.3}
#: Bytes that differ by less than this factor are drawn on a linear axis.
_NARROW = 3.0


def check_picture(path: Path) -> None:
    """Raise unless the suffix names a format that can be drawn."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"plot={path} must end in one of {', '.join(_SUFFIXES)}.")


def draw_plan(made: Plan, request: dict[str, Any], *, width: float = 7.2) -> Figure:
    """Draw what :func:`~sparse_secagg.plan` chose among, by its arguments, and its choice."""
    curves = trade_offs(**request)
    figure = new_figure(width, 4.4)
    axis = figure.subplots()
    for curve in curves:
        _draw_curve(axis, curve)
    _draw_bounds(axis, made)
    star: dict[str, Any] = {
        "color": PALETTE[4],
        "markeredgecolor": "black",
        "markersize": 16,
        "zorder": 5,
    }
    axis.plot(made.bytes_per_client, made.relative_error, "*", label="chosen", **star)
    axis.set(
        yscale="log",
        xlabel="bytes per client" + (", protocol included" if made.protocol_bytes else ""),
        ylabel="predicted squared error / clip²",
    )
    _set_limits(axis, made, curves)
    tidy(axis)
    handles = [*_legend(curves), *axis.get_legend_handles_labels()[0]]
    finish(figure, [axis], f"{_caption(made)}; {_choice(made)}", handles=handles)
    return figure


def _draw_curve(axis: Any, curve: TradeOff) -> None:
    axis.plot(
        curve.bytes_per_client,
        curve.relative_error,
        color=_COLOURS[curve.encoder],
        linestyle=_LINES.get(curve.decoder, "-."),
        marker="o" if curve.encoder == "identity" else None,
        markersize=3,
        linewidth=_WIDTHS[curve.encoder],
        drawstyle="steps-post",
        zorder=3 - _WIDTHS[curve.encoder] / 10,
    )


def _legend(curves: list[TradeOff]) -> list[Any]:
    """Return a handle for each encoder, by its colour, and for each decoder, by its line."""
    from matplotlib.lines import Line2D

    encoders = dict.fromkeys(curve.encoder for curve in curves)
    decoders = dict.fromkeys(curve.decoder for curve in curves)
    handles = [
        Line2D([], [], color=_COLOURS[name], linewidth=_WIDTHS[name], label=_NAMES[name])
        for name in encoders
    ]
    for name in decoders:
        label, line = f"{_NAMES.get(name, name)} decoder", _LINES.get(name, "-.")
        handles.append(Line2D([], [], color="0.2", linestyle=line, label=label))
    return handles


def _draw_bounds(axis: Any, made: Plan) -> None:
    axis.axhline(1.0, color="0.5", linewidth=0.9, linestyle="--", zorder=0, label="answering zero")
    sparse = made.decoder != "linear" and made.sparsity is not None
    k, name = (made.sparsity or 0, "s") if sparse else (made.d, "d")
    errors = np.geomspace(1e-12, 0.999, 400)
    bits = np.maximum(k / 2 * np.log2(1 / errors), 1.0)
    size = bits / 8 + made.protocol_bytes
    axis.plot(size, errors, color="0.45", linewidth=1.2, label="lower bound, any scheme")
    unbiased: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (1, 2))}
    label = f"order of unbiased ones, min(n²ε², {name})"
    axis.axvline(_unbiased_bytes(made), color="0.45", label=label, **unbiased)


def _unbiased_bytes(made: Plan) -> float:
    return made.lower_bound_bits.unbiased_order / 8 + made.protocol_bytes


def _set_limits(axis: Any, made: Plan, curves: list[TradeOff]) -> None:
    """Show the choice, the errors around it, answering zero and the bounds."""
    best = min(curve.relative_error[-1] for curve in curves)
    low = 0.5 * min(best, made.relative_error, 1.0)
    high = 30.0 * max(made.relative_error, 1.0)
    points = (zip(each.bytes_per_client, each.relative_error) for each in curves)
    shown = [size for each in points for size, error in each if low <= error <= high]
    sizes = [*shown, made.bytes_per_client, _unbiased_bytes(made)]
    left, right = min(sizes), max(sizes)
    axis.set_ylim(low, high)
    if right < _NARROW * left:  # a protocol larger than any payload
        axis.set_xlim(left - 0.1 * (right - left), right + 0.1 * (right - left))
    else:
        axis.set_xscale("log")
        axis.set_xlim(0.7 * left, 1.4 * right)


def _choice(made: Plan) -> str:
    return (
        f"chosen: {_NAMES[made.encoder]}, {_NAMES.get(made.decoder, made.decoder)}, "
        f"m = {made.n_components:,}, {made.n_bits} bits"
    )


def _caption(made: Plan) -> str:
    target = f"ε = {stated(made.epsilon_server, 3)}, δ = {stated(made.delta, 1)}"
    if made.target is not None and made.target["noise_multiplier"] is not None:
        target = f"z = {made.noise_multiplier:.3g}"
    parts = [f"d = {made.d:,}", f"n = {made.n_clients:,}", target]
    if made.rounds > 1:
        parts.append(f"{made.rounds} rounds")
    if made.sparsity is not None:
        parts.append(f"{made.sparsity:,} nonzeros")
    if made.colluders:
        parts.append(f"{made.colluders} colluders")
    return ", ".join(parts)
