"""
Auditing a mechanism
====================

A claim of privacy can be attacked. Run the mechanism many times with and without one client's
vector, tell the two apart by the best test there is, and turn its errors into a lower bound on
the privacy loss. If the bound exceeds the claim, the claim is false: below, a mechanism with half
its noise is caught.
"""

import dataclasses
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from sparse_secagg import DiscreteGaussian
from sparse_secagg.mechanisms import SimulationRandomness
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.mechanisms.sums import centre

# %%
# Two clients, four coordinates. The claim: the sum is as private as Gaussian noise of multiplier
# z = 1, that is μ = 1 in Gaussian differential privacy.
TRIALS, N, M = 20_000, 2, 4
mechanism = DiscreteGaussian(noise_multiplier=1.0, n_bits=14, random_state=3)
mechanism.calibrate(N, M)


def observe(mechanism, canary, seed):
    """Return what the server sees of the canary's direction, in every trial."""
    p = mechanism.parameters_
    vectors = np.zeros((TRIALS * N, M))
    vectors[::N, 0] = canary
    messages = mechanism.encode(vectors, SimulationRandomness(seed)).reshape(TRIALS, N, -1)
    total = messages.sum(axis=1, dtype=np.uint64) & np.uint64(p.modulus - 1)
    return Rotation(p.rotation, p.dim, p.seed).inverse(centre(total, p.modulus) * p.gamma)[:, 0]


def lower_bound(present, absent, cut):
    """Return a 99 % lower bound on μ from the errors of the test "more than ``cut``"."""
    missed, alarms = int((present <= cut).sum()), int((absent > cut).sum())
    miss = stats.beta.ppf(0.995, missed + 1, TRIALS - missed)
    alarm = stats.beta.ppf(0.995, alarms + 1, TRIALS - alarms)
    return stats.norm.isf(alarm) - stats.norm.ppf(miss)


# %%
# Once as claimed, once with the noise variance halved behind the accountant's back.
clip = mechanism.parameters_.clip_norm
figure, panels = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
for panel, share, name in zip(panels, (1, Fraction(1, 2)), ("as claimed", "half the noise")):
    tested = DiscreteGaussian(noise_multiplier=1.0, n_bits=14, random_state=3)
    tested.calibrate(N, M)
    p = tested.parameters_
    tested.parameters_ = dataclasses.replace(p, variance=p.variance * share)
    present, absent = observe(tested, clip, 1), observe(tested, 0.0, 2)
    bound = lower_bound(present, absent, clip / 2)
    verdict = "consistent" if bound <= 1 else "caught"
    panel.hist([absent, present], bins=60, histtype="step", label=["without", "with the client"])
    panel.axvline(clip / 2, color="0.4", linestyle="--", linewidth=1)
    panel.set(title=f"{name}: μ ≥ {bound:.2f}, claim 1 ({verdict})", xlabel="decoded coordinate")
    print(f"{name}: audited {bound:.3f}, claimed 1: {verdict}")
panels[0].legend(fontsize=8)
plt.show()
