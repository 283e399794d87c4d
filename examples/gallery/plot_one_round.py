"""
One private round
=================

500 clients hold a vector of length 5000 each. The server wants their mean, under
(2, 1e-5)-differential privacy, and may see one modular sum of sketches ten times shorter than
the vectors. Decoding that sum costs no privacy, so every decoder can be tried on it.
"""

import matplotlib.pyplot as plt
import numpy as np

from experiments.report.style import decoder_style
from sparse_secagg import SparseSecAgg

# %%
# The mean of the clients is sparse: 20 of its 5000 entries are 0.2, the others almost nothing.
rng = np.random.default_rng(0)
X = 0.002 * rng.standard_normal((500, 5000))
X[:, :20] += 0.2

# %%
# ``fit`` is one private round: each client clips, sketches, rotates, rounds and adds its share of
# exact integer noise, and secure aggregation opens the sum. Here ε is spent, once. The record
# says what it cost.
round = SparseSecAgg(compression=10, epsilon=2.0, delta=1e-5, decoder="amp", random_state=0)
round.fit(X)
print(round.result_)

# %%
# The linear decoder is unbiased and noisy. Decoders that expect few nonzeros see twenty entries
# rise out of the noise.
truth = X.mean(axis=0)
decoders = ["linear", "ridge", "working_set", "amp"]
figure, panels = plt.subplots(2, 2, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
for panel, name in zip(panels.flat, decoders):
    estimate = round.decode(name)
    error = np.sum((estimate - truth) ** 2) / np.sum(truth**2)
    panel.plot(estimate[:200], ".", color=decoder_style(name)["color"], label="estimate")
    panel.plot(truth[:200], color="0.3", linewidth=1, label="true mean")
    panel.set_title(f"{name}: relative squared error {error:.2g}", fontsize=10)
figure.supxlabel("first 200 of 5000 entries")
panels[0, 0].legend(fontsize=8)
plt.show()
