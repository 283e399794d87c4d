"""The demo's picture: a panel for each of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.report.style import PALETTE, decoder_style, finish, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_demo(found: dict[str, Any], *, width: float = 1.0) -> Figure:
    """Draw a panel for each part of what the demo found."""
    training, counting = found["train"], found["count"]
    figure = new_figure(14.0 * width, 4.6)
    left, middle, right = figure.subplots(1, 3)
    rounds = range(1, len(training["private"]) + 1)
    left.plot(rounds, training["plain"], "k--", label="no noise, no compression")
    left.plot(rounds, training["private"], label=training["budget"])
    left.set(xlabel="round", ylabel="test accuracy", title="Private training")
    top = counting["top"]
    value, low, high = (np.array([r[key] for r in top]) for key in ("count", "low", "high"))
    places, names = range(len(top)), [r["item"].replace("$", r"\$") for r in top]
    middle.barh(places, [r["exact"] for r in top], color="0.88", label="exact (not private)")
    whiskers = {"fmt": "o", "color": PALETTE[1], "label": counting["budget"]}
    middle.errorbar(value, places, xerr=[value - low, high - value], **whiskers)
    middle.set_yticks(places, names, fontsize=8)
    middle.invert_yaxis()
    middle.set(xlabel=f"of {counting['n']:,} files", title="Private counts")
    for name in dict.fromkeys(v["decoder"] for v in found["decode"]):
        points = [v for v in found["decode"] if v["decoder"] == name]
        x, y = ([v[key] for v in points] for key in ("sparsity", "relative_error"))
        right.plot(x, y, label=name, **decoder_style(name))
    right.set(xscale="log", yscale="log", xlabel="nonzeros of 2000", ylabel="‖μ̂ − μ‖² / ‖μ‖²")
    right.set_title("Decoders against sparsity")
    for panel in (left, middle, right):
        tidy(panel)
    caption = (
        f"training: digits of 300 clients, r = 10, {len(rounds)} rounds; counts: names in files of "
        "Python's library, ranks of words in docstrings known; decoders: d = 2000, n = 200, r = 5, "
        f"z = 1; seed {found['seed']}"
    )
    finish(figure, [left, middle, right], caption)
    return figure
