"""The ledger behind Flower's privacy-accountant protocol, beside Flower's own accountant."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)

from sparse_secagg.accounting import Ledger
from sparse_secagg.flower import LedgerAccountant

PLAIN = (SamplingMethod.NO_AMPLIFICATION, NeighboringRelation.ADD_OR_REMOVE_ONE)
POISSON = (SamplingMethod.POISSON, NeighboringRelation.ADD_OR_REMOVE_ONE)
FIXED = (SamplingMethod.WITHOUT_REPLACEMENT, NeighboringRelation.REPLACE_ONE)


def config(model=PLAIN, **options):
    method, relation = model
    return PrivacyConfig(1e-5, 1000, relation, method, **options)


def test_gaussian_rounds_cost_what_the_literature_says():
    accountant = LedgerAccountant(config())
    accountant.compose(GaussianPrivacyEvent(10.0, 100, 1000), count=4)
    # (ε, δ) of one Gaussian with z = 5: between the exact 0.79 and the classical zCDP bound
    assert 0.77 < accountant.get_epsilon(1e-5) < 0.04 / 2 + 2 * np.sqrt(0.02 * np.log(1e5))
    assert accountant.num_releases == 4
    spent = accountant.get_privacy_spent()
    assert (spent.epsilon, spent.delta) == (accountant.get_epsilon(1e-5), 1e-5)


@pytest.mark.parametrize("model", [POISSON, FIXED])
def test_sampling_lowers_epsilon(model):
    all_of_them, some = LedgerAccountant(config(model)), LedgerAccountant(config(model))
    all_of_them.compose(GaussianPrivacyEvent(2.0, 1000, 1000), count=10)
    some.compose(GaussianPrivacyEvent(2.0, 10, 1000), count=10)
    assert some.get_epsilon(1e-5) < all_of_them.get_epsilon(1e-5) / 3


def test_poisson_is_never_below_flowers_own_accountant():
    pytest.importorskip("dp_accounting")
    from flwr.serverapp import RdpAccountant

    event = GaussianPrivacyEvent(1.0, 50, 1000)
    ours, theirs = LedgerAccountant(config(POISSON)), RdpAccountant(config(POISSON))
    for accountant in (ours, theirs):
        accountant.compose(event, count=100)
    assert theirs.get_epsilon(1e-5) * (1 - 1e-6) <= ours.get_epsilon(1e-5)
    assert ours.get_epsilon(1e-5) < 3 * theirs.get_epsilon(1e-5)


def test_delta_inverts_epsilon():
    accountant = LedgerAccountant(config())
    accountant.compose(GaussianPrivacyEvent(3.0, 10, 1000))
    delta = accountant.get_delta(1.0)
    assert accountant.get_epsilon(delta) <= 1.0 < accountant.get_epsilon(delta * 0.99)


def test_a_limit_is_seen_before_it_is_passed():
    accountant = LedgerAccountant(config(max_epsilon=1.0))
    event = GaussianPrivacyEvent(10.0, 10, 1000)
    done = 0
    while not accountant.would_exceed(event):
        accountant.compose(event)
        done += 1
    assert accountant.get_epsilon(1e-5) <= 1.0
    assert done == rounds_within_one(10.0)
    with pytest.raises(ValueError, match="max_epsilon"):
        LedgerAccountant(config()).would_exceed(event)


def rounds_within_one(z):
    from functools import partial

    from sparse_secagg.accounting import gaussian_rdp

    ledger = Ledger(1e-5)
    ledger.spend(partial(gaussian_rdp, noise_multiplier=z))
    return 1 + ledger.rounds_left(1.0)


def test_state_goes_on_elsewhere():
    first = LedgerAccountant(config())
    first.compose(GaussianPrivacyEvent(3.0, 10, 1000), count=2)
    second = LedgerAccountant(config())
    second.load_state_dict(first.state_dict())
    assert second.get_epsilon(1e-5) == first.get_epsilon(1e-5)
    with pytest.raises(ValueError, match="charges already"):
        second.load_state_dict(first.state_dict())


def test_one_delta():
    with pytest.raises(ValueError, match="one delta"):
        LedgerAccountant(config(), Ledger(1e-6))
