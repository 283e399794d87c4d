"""
Decoders on recorded gradients
==============================

Which decoder is best depends on what clients really send. A recording keeps their updates, round
by round, and any decoder can be tried on it without training again. It holds clients' data in the
clear: for experiments only.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments import Grid, Recording, RecordingCell, TrainingConfig, run_sweep, run_training
from experiments.report.style import decoder_style
from experiments.sweeps.cell import Inputs

# %%
# Train a small network on scikit-learn's digits for three rounds, and keep every update.
folder = Path(tempfile.mkdtemp()) / "updates"
run_training(TrainingConfig(task="digits", rounds=3), record=folder)
recording = Recording.open(folder)
print(recording.shapes)

# %%
# How compressible are they? The share of the energy of each round's mean that its k largest
# entries hold.
figure, panel = plt.subplots(figsize=(7, 3.5), layout="constrained")
for number, updates in enumerate(recording):
    energy = np.sort(np.asarray(updates).mean(axis=0) ** 2)[::-1].cumsum()
    panel.plot(
        np.arange(1, len(energy) + 1), energy / energy[-1], label=f"round {number}",
        linestyle=("-", "--", ":")[number],
    )  # fmt: skip
panel.set(xscale="log", xlabel="largest entries", ylabel="share of the energy")
panel.legend()
plt.show()

# %%
# Every decoder on the same sketches of the same rounds, under the same noise. Gradients of a
# network are hardly sparse: what sparse decoders gain on heavy hitters, they do not gain here.
grid = Grid(
    {"compression": [10]},
    RecordingCell.of(folder, noise_multiplier=0.5),
    decoders=["linear", "ridge", "working_set", "amp", "amp:low_rank"],
    seeds=2,
    inputs=Inputs(recording=str(folder)),
)
table = run_sweep(grid, backend="sequential")
samples = {}
for row in table.summary():
    samples.setdefault(row.setting["decoder"], []).append(row.interval.mean)
figure, panel = plt.subplots(figsize=(7, 3), layout="constrained")
for place, (name, found) in enumerate(samples.items()):
    panel.barh(place, np.exp(np.mean(np.log(found))), color=decoder_style(name)["color"])
panel.axvline(1, color="0.4", linestyle="--", linewidth=1)
panel.set_yticks(range(len(samples)), list(samples))
panel.invert_yaxis()
panel.set(xscale="log", xlabel="‖μ̂−μ‖² / ‖μ‖², geometric mean over rounds (1: answering zero)")
plt.show()
