"""
Federated training under a budget
=================================

Each round, clients train on their own digits and the server learns one noisy sketch of the mean
of their clipped updates. All rounds together stay within the ε that was asked for, and the
training reports ε as it goes, for every observer.
"""

import matplotlib.pyplot as plt

from experiments import TrainingConfig, run_training

# %%
# 300 clients with a handful of handwritten digits each; ε = 4 for all 30 rounds together, against
# the server itself. Messages are ten times shorter than the model.
plain = TrainingConfig(task="digits-300", seed=0)
private = plain.with_values(compression=10, epsilon=4.0)
runs = {"no noise, no compression": run_training(plain), "ε = 4, r = 10": run_training(private)}

# %%
# The decoder is linear. A single round's estimate is mostly noise, but its error has mean zero
# and averages out over rounds, which the smaller error of a biased decoder does not.
figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(7, 5.5), sharex=True, layout="constrained", height_ratios=[2, 1]
)
for (name, result), line in zip(runs.items(), ("--", "-")):
    rounds = range(1, len(result.history) + 1)
    top.plot(rounds, result.accuracy, line, label=name)
top.set(ylabel="test accuracy")
top.legend()
found = runs["ε = 4, r = 10"]
bottom.plot(range(1, len(found.history) + 1), [r.privacy.server for r in found.history], color="C1")
bottom.set(xlabel="round", ylabel="ε so far")
plt.show()

bits = f"{found.bits_per_parameter:.2g} bits per parameter and round"
print(f"{found.accuracy[-1]:.1%} at ε = {found.epsilon:.3g}, {bits}")
