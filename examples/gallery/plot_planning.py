"""
Planning a round before it runs
===============================

How long a sketch, how many bits, which encoder and decoder? The planner needs d, n and ε, and no
data. It predicts the error of every scheme, takes the fewest bits that lose next to nothing, and
sets the theory's lower bounds beside its choice.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparse_secagg import SparseSecAgg, plan
from sparse_secagg.planner import trade_offs

# %%
# A mean of 5000 entries of which about fifty are not zero, held by 1000 clients.
request = {"d": 5000, "n_clients": 1000, "epsilon": 2.0, "sparsity": 50}
p = plan(**request)
print(p.explain())

# %%
# Error against the bytes that a client sends: each curve is a scheme, the star is the choice.
# The command line draws the same picture: ``sparse-secagg plan --dim 5000 --clients 1000
# --epsilon 2 --sparsity 50 --plot plan.png``.
colours = {"identity": "#000000", "hadamard": "#0072B2", "count_sketch": "#D55E00"}
lines = {"linear": "-", "working_set": "--", "amp": ":"}
figure, panel = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
for curve in trade_offs(**request):
    if curve.encoder in colours:
        panel.plot(
            curve.bytes_per_client, curve.relative_error, lines[curve.decoder],
            color=colours[curve.encoder], label=f"{curve.encoder}, {curve.decoder}",
        )  # fmt: skip
panel.plot(p.bytes_per_client, p.relative_error, "*", markersize=16, color="#E69F00", mec="black")
panel.set(yscale="log", xscale="log", ylim=(p.relative_error / 2, 20))
panel.set(xlabel="bytes per client", ylabel="predicted squared error / clip²")
panel.legend(fontsize=8)
plt.show()

# %%
# The plan is also an estimator, which does what was planned. The mean below is as long as the
# clip, and all clients hold it: what the prediction is about.
mean = np.zeros(5000)
mean[:50] = np.random.default_rng(0).standard_normal(50)
mean /= np.linalg.norm(mean)
round = SparseSecAgg.from_plan(p, random_state=0).fit(np.tile(mean, (1000, 1)))
print(f"predicted {p.relative_error:.3g}, came out {np.sum((round.mean_ - mean) ** 2):.3g}")
