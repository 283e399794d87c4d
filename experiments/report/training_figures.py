"""Curves of accuracy against compression, one a decoder and a panel a noise level.

    python -m experiments.report.training_figures sweep-output/results.sqlite picture.png

draws a sweep over ``compression`` and ``noise_multiplier`` of a task, against the uncompressed runs
(r = 1) of the same noise.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from experiments.report.style import PALETTE, new_figure
from experiments.sweeps.cells import TaskCell
from experiments.sweeps.store import Result, Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_decoders"]

_MARKERS = "osv^DPX*"

#: (noise multiplier, decoder, compression) to accuracies in per cent, one a seed.
Accuracies = dict[tuple[float, str, float], list[float]]


def draw_decoders(results: Iterable[Result], slack: float = 1.0) -> Figure:
    """Return the picture of a sweep of training runs.

    Parameters
    ----------
    results : iterable of Result
        Of task cells that differ by decoder, compression, noise and seed.
    slack : float
        Points of accuracy below the uncompressed run that are shaded.
    """
    found: Accuracies = defaultdict(list)
    tasks: dict[str, None] = {}
    for result in results:
        cell = result.cell
        if result.status == "done" and isinstance(cell, TaskCell):
            key = (cell.noise_multiplier or 0.0, cell.decoder, cell.compression or 1.0)
            found[key].append(100 * (result.metrics["accuracy"] or 0.0))
            tasks.setdefault(cell.task)
    if len(tasks) != 1:
        raise ValueError(f"the results are of {len(tasks)} tasks ({', '.join(tasks)}); need one.")
    noises = sorted({key[0] for key in found})
    decoders = sorted({key[1] for key in found})
    figure = new_figure(5 * len(noises), 4.2)
    panels = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    for panel, noise in zip(panels, noises):
        _panel(panel, found, noise, decoders, slack)
    panels[0].set_ylabel("test accuracy, %")
    panels[-1].legend(loc="lower right", fontsize="small")
    figure.suptitle(f"{next(iter(tasks))}: accuracy at the end, mean ± standard deviation of seeds")
    return figure


def _panel(panel: Axes, found: Accuracies, noise: float, decoders: list[str], slack: float) -> None:
    rates = sorted({key[2] for key in found if key[0] == noise and key[2] > 1})
    for k, decoder in enumerate(decoders):
        own = [rate for rate in rates if (noise, decoder, rate) in found]
        values = [found[noise, decoder, rate] for rate in own]
        panel.errorbar(
            [rate * 1.04 ** (k - len(decoders) / 2) for rate in own],  # side by side
            [mean(v) for v in values],
            yerr=[stdev(v) if len(v) > 1 else 0.0 for v in values],
            color=PALETTE[k % len(PALETTE)],
            marker=_MARKERS[k % len(_MARKERS)],
            markersize=4.5,
            linewidth=1.2,
            capsize=2,
            label=decoder,
        )
    baseline = [v for decoder in decoders for v in found.get((noise, decoder, 1.0), [])]
    if baseline:
        level = mean(baseline)
        panel.axhline(level, color="0.3", linestyle="--", linewidth=1, label="r = 1, no sketch")
        panel.axhspan(level - slack, level, color="0.85", zorder=0, label=f"within {slack:g} point")
        # what is far below would hide the differences that matter
        panel.set_ylim(level - 20 * slack, level + 2 * slack)
    panel.set(xscale="log", xlabel="compression r = d/m", title=f"noise multiplier z = {noise:g}")
    panel.set_xticks(rates, [f"{rate:g}" for rate in rates])
    panel.minorticks_off()
    panel.grid(alpha=0.3)


def main() -> None:
    """Draw a store of results; see the module's documentation."""
    store, picture = map(Path, sys.argv[1:3])
    with Store(store, read_only=True) as results:
        draw_decoders(results.results()).savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
