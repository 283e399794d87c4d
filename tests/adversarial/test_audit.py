"""An empirical privacy audit: a canary against zero, attacked with the best linear test."""

import dataclasses

import numpy as np
import pytest

from sparse_secagg import (
    ClientPolicy,
    IdentityEncoder,
    MaskedSecAgg,
    RoundConfig,
    client_encode,
    server_decode,
)
from sparse_secagg.mechanisms import DiscreteGaussian, SimulationRandomness, Skellam
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.mechanisms.sums import centre
from sparse_secagg.rounds import unpack_message
from tests.statistics import gaussian_dp_lower_bound

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


def attack(mechanism, trials, seed):
    """Return a lower bound on μ of Gaussian DP: the canary's direction, cut at half its size."""
    canary = np.zeros(M_DIM)
    canary[0] = mechanism.parameters_.clip_norm
    with_canary = statistic(mechanism, canary, trials, seed)
    without = statistic(mechanism, np.zeros(M_DIM), trials, seed + 1)
    return gaussian_dp_lower_bound(with_canary, without, threshold=canary[0] / 2)


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
    audited = attack(mechanism, trials, seed=10)
    assert audited <= claim
    assert audited > 0.85 * claim  # the attack is a good one
    mechanism.parameters_ = dataclasses.replace(p, variance=p.variance / 2)
    assert attack(mechanism, trials, seed=20) > claim


@pytest.mark.slow
def test_audit_with_more_trials():
    mechanism = calibrated(DiscreteGaussian)
    claim = 1.0 / mechanism.parameters_.noise_multiplier
    assert 0.9 * claim < attack(mechanism, 60_000, seed=30) <= claim


def test_a_forgotten_clip_is_caught():
    """Negative control: a client that may send three times its clip."""
    mechanism = calibrated(DiscreteGaussian)
    p = mechanism.parameters_
    claim = 1.0 / p.noise_multiplier
    mechanism.parameters_ = dataclasses.replace(
        p, clip_norm=3 * p.clip_norm, squared_bound=10 * p.squared_bound
    )
    assert attack(mechanism, 5_000, seed=40) > claim


def message(config, row, rng):
    """What a client sends that agrees to everything."""
    policy = ClientPolicy(max_epsilon=np.inf, max_delta=1.0)
    return unpack_message(config, client_encode(config, row, policy=policy, rng=rng))


class TestWholeProtocol:
    """The same attack on real messages: bytes from clients, masked sums, the server's decoder."""

    @staticmethod
    def config(variance_factor=1):
        config = RoundConfig.create(
            dim=M_DIM,
            n_clients=N_CLIENTS,
            encoder=IdentityEncoder(),
            mechanism=DiscreteGaussian(noise_multiplier=1.0, n_bits=14),
            random_state=3,
        )
        p = config.mechanism
        weaker = dataclasses.replace(p, variance=p.variance / variance_factor)
        return config, dataclasses.replace(config, mechanism=weaker, epsilon=1e9)

    def attack(self, config, trials):
        seen = {}
        for number, world in enumerate(("canary", "zero")):
            x = np.zeros((N_CLIENTS, M_DIM))
            x[0, 0] = 1.0 if world == "canary" else 0.0
            seen[world] = np.empty(trials)
            secagg = MaskedSecAgg(threshold=2, masks="seeded", modulus=config.mechanism.modulus)
            for trial in range(trials):
                streams = SimulationRandomness(50 + number, (trial,)).spawn(N_CLIENTS)
                messages = [message(config, row, rng) for row, rng in zip(x, streams)]
                result = secagg.aggregate(np.array(messages))
                mean = server_decode(config, result.total, result.n_survivors)
                seen[world][trial] = N_CLIENTS * mean[0]
        return gaussian_dp_lower_bound(seen["canary"], seen["zero"], threshold=0.5)

    @pytest.mark.parametrize("trials", [500, pytest.param(20_000, marks=pytest.mark.slow)])
    def test_audit_stays_below_the_claim(self, trials):
        config, _ = self.config()
        claim = 1.0 / config.mechanism.noise_multiplier
        audited = self.attack(config, trials)
        assert audited <= claim
        assert audited > (0.45 if trials < 20_000 else 0.85) * claim

    @pytest.mark.parametrize(
        ("factor", "trials"), [(4, 500), pytest.param(2, 20_000, marks=pytest.mark.slow)]
    )
    def test_less_noise_is_caught(self, factor, trials):
        config, weaker = self.config(factor)
        assert self.attack(weaker, trials) > 1.0 / config.mechanism.noise_multiplier
