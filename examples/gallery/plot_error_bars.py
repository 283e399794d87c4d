"""
Error bars and discoveries
==========================

The noise in a private round is ours, so its size is known, and every unbiased decoder says how
sure it is of each entry. From that follow intervals, and a list of entries that are not zero in
which false discoveries are rare.
"""

import matplotlib.pyplot as plt
import numpy as np

import solvers
from experiments.report.style import decoder_style
from sparse_secagg import SparseSecAgg

# %%
# Thirty entries of different sizes, some too small to be seen at this noise.
rng = np.random.default_rng(1)
mean = np.zeros(4000)
mean[:30] = np.geomspace(0.4, 0.01, 30)
X = mean + 0.005 * rng.standard_normal((400, 4000))
round = SparseSecAgg(compression=8, epsilon=2.0, clip_norm=1.5, decoder="amp", random_state=0)
round.fit(X)

# %%
# Intervals stand around the *unbiased* estimate, not around ``mean_``, which is shrunk towards
# zero. ``discoveries`` bounds the expected share of zeros among the entries it names.
estimate, std_err = round.decode(solvers.get("amp", debias=True), return_std=True)
low, high = round.confidence_interval(0.95).T
found = round.discoveries(fdr=0.05)
covered = np.mean((low <= X.mean(axis=0)) & (X.mean(axis=0) <= high))
print(f"{covered:.1%} of all 4000 intervals cover the mean of the clients")
print(f"{len(found)} discoveries, of which {np.sum(found >= 30)} are zeros")

# %%
# Below: the first 45 entries. Filled points are discoveries.
shown = np.arange(45)
is_found = np.isin(shown, found)
figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
centre = (low + high)[shown] / 2
colour = decoder_style("amp")["color"]
panel.errorbar(shown, centre, (high - low)[shown] / 2, fmt="none", color=colour, alpha=0.6)
panel.plot(shown[is_found], centre[is_found], "o", color=colour, label="discovered, FDR 5 %")
panel.plot(shown[~is_found], centre[~is_found], "o", mfc="white", color=colour, label="not")
panel.step(shown, mean[shown], where="mid", color="0.3", linewidth=1, label="true mean")
panel.set(xlabel="entry", ylabel="estimate with 95 % interval")
panel.legend()
plt.show()
