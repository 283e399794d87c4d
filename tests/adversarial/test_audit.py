"""An empirical privacy audit: a canary against zero, attacked with the best linear test."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from sparse_secagg.mechanisms import DiscreteGaussian, SimulationRandomness, Skellam
from sparse_secagg.mechanisms.base import centre
from sparse_secagg.mechanisms.rotation import Rotation

CONFIDENCE = 0.99
M_DIM, N_CLIENTS = 4, 2


def statistic(mechanism, canary, trials, seed):
    """The server's best view: the decoded sum along the canary's direction, for every trial."""
    p = mechanism.parameters_
    vectors = np.zeros((trials * N_CLIENTS, M_DIM))
    vectors[::N_CLIENTS] = canary
    messages = mechanism.encode(vectors, SimulationRandomness(seed))
    totals = messages.reshape(trials, N_CLIENTS, -1).sum(axis=1, dtype=np.uint64)
    sums = centre(totals & np.uint64(p.modulus - 1), p.modulus) * p.gamma
    return Rotation(p.rotation, p.dim, p.seed).inverse(sums)[:, 0]


def gaussian_dp_lower_bound(mechanism, trials, seed):
    """Return a lower bound on μ of Gaussian DP, from Clopper–Pearson bounds on the two errors."""
    canary = np.zeros(M_DIM)
    canary[0] = mechanism.parameters_.clip_norm
    with_canary = statistic(mechanism, canary, trials, seed)
    without = statistic(mechanism, np.zeros(M_DIM), trials, seed + 1)
    threshold = canary[0] / 2  # fixed beforehand: no multiple testing
    missed = int((with_canary <= threshold).sum())
    false_alarms = int((without > threshold).sum())
    miss = stats.beta.ppf(1 - (1 - CONFIDENCE) / 2, missed + 1, trials - missed)
    alarm = stats.beta.ppf(1 - (1 - CONFIDENCE) / 2, false_alarms + 1, trials - false_alarms)
    return stats.norm.isf(alarm) - stats.norm.ppf(miss)


def calibrated(cls):
    mechanism = cls(noise_multiplier=1.0, n_bits=14, random_state=3)
    mechanism.calibrate(N_CLIENTS, M_DIM)
    return mechanism


@pytest.mark.parametrize("cls", [DiscreteGaussian, pytest.param(Skellam, marks=pytest.mark.slow)])
def test_audit_stays_below_the_claim_and_catches_less_noise(cls):
    trials = 20_000
    mechanism = calibrated(cls)
    p = mechanism.parameters_
    claim = 1.0 / p.noise_multiplier
    audited = gaussian_dp_lower_bound(mechanism, trials, seed=10)
    assert audited <= claim
    assert audited > 0.85 * claim  # the attack is a good one
    mechanism.parameters_ = dataclasses.replace(p, variance=p.variance / 2)
    assert gaussian_dp_lower_bound(mechanism, trials, seed=20) > claim


@pytest.mark.slow
def test_audit_with_more_trials():
    mechanism = calibrated(DiscreteGaussian)
    claim = 1.0 / mechanism.parameters_.noise_multiplier
    assert 0.9 * claim < gaussian_dp_lower_bound(mechanism, 60_000, seed=30) <= claim


def test_a_forgotten_clip_is_caught():
    """Negative control: a client that may send three times its clip."""
    mechanism = calibrated(DiscreteGaussian)
    p = mechanism.parameters_
    claim = 1.0 / p.noise_multiplier
    mechanism.parameters_ = dataclasses.replace(
        p, clip_norm=3 * p.clip_norm, squared_bound=10 * p.squared_bound
    )
    assert gaussian_dp_lower_bound(mechanism, 5_000, seed=40) > claim
