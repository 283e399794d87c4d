"""
Where recovery breaks down: a phase diagram
===========================================

For every sketch length m and number of nonzeros s, does message passing recover the mean? Below
a line it nearly always does, above it nothing can. State evolution draws the line without a
single experiment.
"""

import matplotlib.pyplot as plt
import numpy as np

import solvers
from experiments import Grid, MeanCell, run_sweep

# %%
# Two axes: compression d/m and density s/m. Little noise, so that what fails is recovery.
D = 1000
compressions, densities = (2, 3, 5, 8), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
base = MeanCell(dim=D, clients=100, noise_multiplier=0.05, encoder="hadamard", decoder="amp")
grid = Grid({"compression": compressions, "density": densities}, base, seeds=2)
table = run_sweep(grid, backend="sequential")
errors = np.array([row.interval.mean for row in table.summary()])
errors = errors.reshape(len(compressions), len(densities))

# %%
# The same by state evolution: no matrix, no measurements, only the scalar problem that message
# passing solves in each entry. ``solvers.state_evolution`` takes the mean itself, or a law.
noise = table.results[0].metrics["noise_std"]


def predicted(compression, density):
    m = int(D / compression)
    mean = np.zeros(D)
    s = max(int(density * m), 1)
    mean[:s] = 0.3 / np.sqrt(s) * np.random.default_rng(0).standard_normal(s)
    limit = solvers.state_evolution(mean, noise, m, ensemble="hadamard", n_draws=3)
    return limit.error / np.sum(mean**2)


expected = np.array([[predicted(r, q) for q in densities] for r in compressions])

# %%
# Dark: recovered. White line: where state evolution expects a tenth of the mean to be lost.
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
image = panel.pcolormesh(
    densities, np.arange(len(compressions)), np.log10(errors), cmap="viridis", shading="nearest"
)
panel.contour(
    densities, np.arange(len(compressions)), expected, levels=[0.1], colors="white", linewidths=2
)
panel.set_yticks(np.arange(len(compressions)), [f"d/m = {r}" for r in compressions])
panel.set(xlabel="density s/m", title="log₁₀ of the relative squared error, d = 1000")
figure.colorbar(image)
plt.show()
