"""Estimator, planner, training and ledger tell one ε for one round: that of the round's curve."""

import itertools
import math
import warnings

import numpy as np
import pytest

from experiments.models import multilayer_perceptron
from experiments.training.aggregation import Aggregator
from experiments.training.config import TrainingConfig
from sparse_secagg import AdaptiveClip, PrivacyWarning, SparseSecAgg, plan
from sparse_secagg.accounting import DEFAULT_ORDERS, Ledger, rdp_to_dp, rdp_to_zcdp
from sparse_secagg.mechanisms import from_parameters

N, D, DELTA = 30, 400, 1e-5
ARCH = multilayer_perceptron(4, 4, 4)


def slow_twin(est, n_survivors, clip, colluders):
    """The curve of the round written out again: grid formulas, shares and clip added by hand."""
    p = est.config_.mechanism
    mechanism = type(from_parameters(p))
    shares = 1 if p.mechanism == "central" else n_survivors - colluders
    variance = math.nextafter(float(p.variance), 0)
    orders = np.array(DEFAULT_ORDERS)

    def curve(count):
        return mechanism.grid_rdp(orders, p.norm_bound, variance, count, p.padded_dim, p.adjacency)

    rdp = np.minimum(curve(shares), curve(min(shares, p.noise_shares)))
    if clip is not None:
        count = clip.mechanism(n_survivors, adjacency=p.adjacency, colluders=colluders)
        # who sees only the results of a trusted server colludes with nobody
        observer = "server" if p.mechanism == "central" else "colluders"
        rdp = rdp + count.privacy(n_survivors).rdp(orders, observer)
    return rdp, from_parameters(p).total_variation()


@pytest.mark.parametrize(
    ("mechanism", "adjacency", "adaptive", "dropped", "colluders"),
    list(
        itertools.product(
            ("ddg", "skellam", "central"),
            ("zero_out", "replace_one"),
            (False, True),
            (0, 9),
            (0, 5),
        )
    ),
)
def test_one_round_has_one_epsilon(mechanism, adjacency, adaptive, dropped, colluders, tmp_path):
    X = np.random.default_rng(0).standard_normal((N, D)) / 30
    clip = AdaptiveClip(0.5) if adaptive else None
    ledger = Ledger(DELTA, path=tmp_path / "ledger.sqlite")
    est = SparseSecAgg(
        mechanism=mechanism,
        adjacency=adjacency,
        noise_multiplier=2.0,
        n_bits=20,
        clip_norm=clip if adaptive else 0.5,
        decoder="linear",
        colluders=colluders,
        ledger=ledger,
        simulation_seed=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        est.fit(X, dropouts=list(range(dropped)))
    rdp, tv = slow_twin(est, N - dropped, clip, colluders)
    epsilon = rdp_to_dp(DEFAULT_ORDERS, rdp, DELTA, tv)
    assert est.epsilon_ == pytest.approx(epsilon, rel=1e-9)
    assert est.result_.epsilon == est.epsilon_
    assert est.zcdp_epsilon_ == pytest.approx(rdp_to_zcdp(DEFAULT_ORDERS, rdp), rel=1e-9)
    observer = est.privacy_.observer
    assert observer == (
        "release" if mechanism == "central" else "colluders" if colluders else "server"
    )
    assert ledger.epsilon(observer) == pytest.approx(epsilon, rel=1e-9)
    assert ledger.zcdp_epsilon(observer) == pytest.approx(est.zcdp_epsilon_, rel=1e-9)
    again = Ledger(DELTA, path=tmp_path / "ledger.sqlite")
    assert again.epsilon(observer) == ledger.epsilon(observer)
    if mechanism == "central":
        assert est.privacy_.epsilon("server") == ledger.epsilon("server") == math.inf


@pytest.mark.parametrize("colluders", [0, 5])
@pytest.mark.parametrize("mechanism", ["ddg", "skellam"])
def test_the_plan_of_a_round_has_its_epsilon(mechanism, colluders):
    X = np.random.default_rng(0).standard_normal((N, D)) / 30
    p = plan(
        D, N, epsilon=1.0, delta=DELTA, mechanism=mechanism, colluders=colluders, compression=4,
        encoder="count_sketch", n_rows=8, n_bits=16,
    )  # fmt: skip
    fitted = SparseSecAgg.from_plan(p).fit(X)
    assert fitted.epsilon_ == pytest.approx(p.epsilon_server, rel=1e-9)
    assert fitted.zcdp_epsilon_ == pytest.approx(p.zcdp_epsilon, rel=1e-9)
    assert fitted.noise_std_ == pytest.approx(p.noise_std, rel=1e-9)


@pytest.mark.parametrize("clip_norm", [0.5, "adaptive"])
@pytest.mark.parametrize("colluders", [0, 5])
@pytest.mark.parametrize("mechanism", ["ddg", "skellam", "central"])
def test_training_and_plan_charge_what_the_round_costs(mechanism, colluders, clip_norm):
    """Against the server and for the release of secret cohorts, over five rounds."""
    config = TrainingConfig(
        task="digits", rounds=5, clients=N, noise_multiplier=3.0, compression=1, n_bits=18,
        clip_norm=clip_norm, mechanism=mechanism, colluders=colluders, private_noise=True,
    )  # fmt: skip
    aggregator = Aggregator(config, ARCH, population=900)
    updates = np.random.default_rng(0).standard_normal((N, ARCH.n_parameters)) / 10
    for number in range(5):
        aggregator.mean(updates, number)
    privacy = aggregator.round_privacy()
    for observer in ("server", "colluders", "release"):
        expected = privacy.epsilon(observer, rounds=5)
        assert aggregator.ledger.epsilon(observer) == pytest.approx(expected, rel=1e-9)
    assert aggregator.spent.release < 0.6 * privacy.sampled(None).epsilon("release", rounds=5)
    if mechanism != "central" and clip_norm != "adaptive":
        p = plan(
            ARCH.n_parameters, N, noise_multiplier=3.0, delta=DELTA, clip_norm=0.5,
            mechanism=mechanism, colluders=colluders, compression=1, n_bits=18,
            population=900, rounds=5,
        )  # fmt: skip
        observer = "colluders" if colluders else "server"
        assert p.epsilon_server == pytest.approx(privacy.epsilon(observer, rounds=5), rel=1e-9)
        assert p.epsilon_release == pytest.approx(privacy.epsilon("release", rounds=5), rel=1e-9)
