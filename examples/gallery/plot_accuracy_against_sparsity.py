"""
Accuracy against sparsity
=========================

Sparse decoders win while the mean is sparse. Up to how many nonzeros? A sweep answers: a grid of
settings, several decoders on the same draws, and an error that is paired between them.
"""

import matplotlib.pyplot as plt

from experiments import Grid, MeanCell, run_sweep
from experiments.report.style import decoder_style

# %%
# Everything that stays fixed is in one cell; the axis and the decoders are the grid. Results would
# be kept, and the sweep resumed after a crash, with ``store="results.sqlite"``.
grid = Grid(
    {"sparsity": [5, 20, 80, 320, 1280]},
    MeanCell(dim=2000, clients=200, compression=5, noise_multiplier=1.0),
    decoders=["linear", "ridge", "working_set", "amp"],
    seeds=2,
)
table = run_sweep(grid, backend="sequential")

# %%
# The mean over draws is geometric, since errors span decades. Above 1 an estimate is worse than
# answering zero.
figure, panel = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name in grid.decoders:
    rows = [row for row in table.summary() if row.setting["decoder"] == name]
    x = [row.setting["sparsity"] for row in rows]
    panel.plot(x, [row.interval.mean for row in rows], label=name, **decoder_style(name))
panel.axhline(1, color="0.6", linestyle=":", linewidth=1)
panel.set(xscale="log", yscale="log", xlabel="nonzeros s of 2000", ylabel="‖μ̂−μ‖² / ‖μ‖²")
panel.legend(title="m = 400, n = 200, z = 1", fontsize=8)
plt.show()
