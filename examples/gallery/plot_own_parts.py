"""
Your own solver, encoder and prior
==================================

Each part of a round is a small contract. A solver implements ``_solve`` for one right-hand side,
an encoder returns an operator for a seed, a prior refines a denoiser. Together they are twenty
lines, and they run in rounds, sweeps and workers like those that are built in.
"""

import matplotlib.pyplot as plt
import numpy as np

import solvers
from solvers.operators import as_operator
from solvers.priors import Groups
from sparse_secagg import SparseSecAgg
from sparse_secagg.encoders import LinearEncoder

# %%
# A solver that keeps what noise alone would not reach:


class HardThreshold(solvers.Solver):
    """Keep the entries of Aᵀy above what noise and collisions would reach."""

    def _solve(self, A, y, noise_std, x0):
        estimate = A.rmatvec(y)
        level = np.sqrt(y @ y / len(y)) * np.sqrt(2 * np.log(A.shape[1]))
        return solvers.Solution(coef=np.where(np.abs(estimate) > level, estimate, 0.0))


# %%
# An encoder of independent signs, scaled so that E‖Sx‖² = ‖x‖²:


class Signs(LinearEncoder):
    """Independent signs ±1/√m."""

    def __init__(self, compression=2, random_state=None):
        self.compression = compression
        self.random_state = random_state

    def _make_operator(self, d, seed):
        m = int(d // self.compression)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], (m, d))
        return as_operator(signs / np.sqrt(m))


# %%
# A prior is anything with ``refine(denoiser)``. This one wraps a built-in prior and says what it
# was given: entries 0–9, 10–19, … are active together.


class Tens(Groups):
    """Runs of ten entries that are active together."""

    def __init__(self, d):
        super().__init__(labels=np.arange(d) // 10)


# %%
# All three in one round. The mean has ten groups of ten entries.
rng = np.random.default_rng(0)
mean = np.zeros(2000)
for start in rng.choice(200, 10, replace=False) * 10:
    mean[start : start + 10] = 0.08 * rng.standard_normal(10)
X = mean + 0.002 * rng.standard_normal((400, 2000))
round = SparseSecAgg(Signs(8), epsilon=4.0, clip_norm=1.2, decoder=HardThreshold(), random_state=0)
round.fit(X)

estimates = {
    "HardThreshold": round.mean_,
    "amp": round.decode("amp"),
    "amp with Tens": round.decode("amp", prior=Tens(2000)),
}
figure, panels = plt.subplots(3, 1, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
for panel, (name, estimate) in zip(panels, estimates.items()):
    error = np.sum((estimate - mean) ** 2) / np.sum(mean**2)
    panel.plot(mean, color="0.75", linewidth=3, label="true mean")
    panel.plot(estimate, color="#D55E00", linewidth=0.8, label="estimate")
    panel.set_title(f"{name}: relative squared error {error:.2g}", fontsize=10)
panels[0].legend(fontsize=8)
panels[-1].set_xlabel("entry")
plt.show()
