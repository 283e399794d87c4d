"""Accounting against golden values, dp_accounting and exact enumeration."""

import math
from functools import partial

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as oracle
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from sparse_secagg.accounting import (
    DEFAULT_ORDERS,
    INTEGER_ORDERS,
    Ledger,
    ddg_grid_rdp,
    ddg_rdp,
    discrete_sum_gap,
    gaussian_rdp,
    norm_bound,
    poisson_subsampled_rdp,
    rdp_to_dp,
    skellam_grid_rdp,
    skellam_rdp,
    subsampled_rdp_without_replacement,
)
from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms import DiscreteGaussian
from sparse_secagg.privacy.conversion import smallest_epsilon, stated

BETA = math.exp(-0.5)
ORDERS = np.array(INTEGER_ORDERS)


def epsilon(rdp, orders=ORDERS, delta=1e-5):
    return rdp_to_dp(orders, rdp, delta)


@pytest.mark.parametrize(
    ("z", "golden"), [(0.1, 110.12663), (0.5, 10.801691), (1.0, 4.752728), (10.0, 0.3752912)]
)
def test_gaussian_golden_values(z, golden):
    assert epsilon(gaussian_rdp(ORDERS, z)) == pytest.approx(golden, rel=1e-7)


def test_fractional_orders_tighten_large_epsilon():
    orders = np.array(DEFAULT_ORDERS)
    assert epsilon(gaussian_rdp(orders, 0.1), orders) == pytest.approx(96.0, abs=0.1)


@pytest.mark.parametrize(
    ("u", "dim", "beta", "golden"),
    [
        (10, 256, BETA, 13.490738),
        (100, 256, BETA, 100.856333),
        (1000, 2**20, BETA, 1124.124548),
        (5, 4, BETA, 5.656854),
        (10, 256, 0.0, 26.0),
    ],
)
def test_norm_bound_golden_values(u, dim, beta, golden):
    assert norm_bound(u, dim, beta) == pytest.approx(golden, abs=5e-7)


@pytest.mark.parametrize(("alpha", "golden"), [(2, 1.718134e-4), (8, 1.403643e-3), (32, 11.281715)])
def test_poisson_subsampling_golden_values(alpha, golden):
    value = poisson_subsampled_rdp([alpha], lambda a: a / 2, 0.01)[0]
    assert value == pytest.approx(golden, rel=5e-7)


@pytest.mark.parametrize(
    ("curve", "gamma", "golden"),
    [
        (ddg_rdp, 0.01, 4.755408),
        (ddg_rdp, 1.0, 6.767894),
        (skellam_rdp, 0.01, 4.755411),
        (skellam_rdp, 1.0, 6.787012),
    ],
)
def test_integer_mechanisms_golden_values(curve, gamma, golden):
    rdp = curve(ORDERS, gamma=gamma, sigma=1, n_clients=100, clip_norm=10, dim=256)
    assert epsilon(rdp) == pytest.approx(golden, abs=5e-7)


@given(
    z=st.floats(0.05, 100), delta=st.floats(1e-12, 0.1), orders=st.sampled_from(["int", "default"])
)
def test_conversion_equals_dp_accounting(z, delta, orders):
    orders = INTEGER_ORDERS if orders == "int" else DEFAULT_ORDERS
    rdp = gaussian_rdp(orders, z)
    assert rdp_to_dp(orders, rdp, delta) == pytest.approx(
        oracle.compute_epsilon(orders, rdp, delta)[0], rel=1e-9, abs=1e-12
    )


def test_gaussian_composition_equals_dp_accounting():
    accountant = oracle.RdpAccountant(list(INTEGER_ORDERS))
    accountant.compose(dp_accounting.GaussianDpEvent(5.0), 1500)
    ledger = Ledger(1e-6, INTEGER_ORDERS)
    ledger.spend(partial(gaussian_rdp, noise_multiplier=5.0), rounds=1500)
    assert ledger.epsilon_server == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)


def test_poisson_bound_lies_above_the_exact_subsampled_gaussian():
    orders = list(range(2, 40))
    for q, z in [(0.01, 1.0), (0.1, 2.0), (0.5, 4.0)]:
        accountant = oracle.RdpAccountant(orders)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)))
        ours = poisson_subsampled_rdp(orders, partial(gaussian_rdp, noise_multiplier=z), q)
        assert (ours >= accountant._rdp * (1 - 1e-9)).all()
        assert ours[0] < gaussian_rdp([2], z)[0]


def test_subsampling_at_the_ends():
    curve = partial(gaussian_rdp, noise_multiplier=3.0)
    np.testing.assert_array_equal(poisson_subsampled_rdp(ORDERS, curve, 1.0), curve(ORDERS))
    np.testing.assert_array_equal(poisson_subsampled_rdp(ORDERS, curve, 0.0), 0)
    # (α−1)ε(α) is convex and 0 at α = 1, so between integers it lies below the chord
    at = poisson_subsampled_rdp([1.5, 2.0, 2.25, 3.0], curve, 0.01)
    assert at[0] == pytest.approx(at[1], rel=1e-12)
    assert at[2] == pytest.approx((0.75 * at[1] + 0.25 * 2 * at[3]) / 1.25, rel=1e-12)
    assert at[1] < curve(np.array([2.0]))[0]


def test_fixed_size_cohorts_are_bounded_by_the_replace_one_curve():
    def curve(a):
        return ddg_grid_rdp(a, 50.0, 400.0, 100, 64, "replace_one")

    amplified = subsampled_rdp_without_replacement(ORDERS, curve, 0.02)
    assert (amplified <= curve(ORDERS)).all()
    assert amplified[0] < 0.01 * curve(ORDERS)[0]
    full = subsampled_rdp_without_replacement(ORDERS, curve, 1.0)
    np.testing.assert_array_equal(full, curve(ORDERS))


def convolved_noise(variance, n):
    """Sum of n discrete Gaussians by direct convolution; the slow obvious way."""
    half = math.ceil(14 * math.sqrt(variance)) + 2
    k = np.arange(-half, half + 1)
    one = np.exp(-(k**2) / (2 * variance))
    one /= one.sum()
    total = one
    for _ in range(n - 1):
        total = np.convolve(total, one)
    return total


def renyi(p, q, alpha):
    keep = (p > 1e-250) & (q > 1e-250)
    terms = alpha * np.log(p[keep]) + (1 - alpha) * np.log(q[keep])
    return float(logsumexp(terms)) / (alpha - 1)


@pytest.mark.parametrize("s", [0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("n", [1, 2, 10])
def test_ddg_curve_lies_above_the_enumerated_divergence(s, n):
    noise = convolved_noise(s**2, n)
    for alpha in (2, 4, 8):
        exact = renyi(np.append(noise, 0), np.append(0, noise), alpha)
        ours = ddg_grid_rdp([alpha], 1.0, s**2, n, 1)[0]
        assert ours >= exact * (1 - 1e-9)


def test_coarse_noise_is_not_a_gaussian():
    noise = convolved_noise(0.09, 10)
    exact = renyi(np.append(noise, 0), np.append(0, noise), 2)
    assert exact / (1.0 / (10 * 0.09)) == pytest.approx(2.9, abs=0.1)


def test_skellam_curve_lies_above_the_enumerated_divergence():
    from scipy.stats import skellam

    for v in (2.0, 10.0, 60.0):
        k = np.arange(-200, 201)
        p, q = skellam.pmf(k, v / 2, v / 2), skellam.pmf(k - 1, v / 2, v / 2)
        for alpha in (2, 4, 8):
            assert skellam_grid_rdp([alpha], 1.0, v, 1, 1)[0] >= renyi(p, q, alpha) * (1 - 1e-9)


def test_skellam_claims_nothing_at_fractional_orders():
    assert np.isinf(skellam_grid_rdp([2.5], 1.0, 4.0, 1, 1)).all()


def test_sum_gap_is_the_plain_sum():
    for s2, n in [(0.25, 2), (1.0, 10), (1.5, 1000)]:
        plain = 10 * sum(math.exp(-2 * math.pi**2 * s2 * k / (k + 1)) for k in range(1, n))
        assert discrete_sum_gap(s2, n) == pytest.approx(plain, rel=1e-12)
    assert discrete_sum_gap(1.0, 1) == 0
    # Beyond the terms summed one by one the value is an upper bound, and a close one.
    n = 50_000
    k = np.arange(1, n)
    plain = 10 * np.exp(-2 * math.pi**2 * 0.25 * k / (k + 1)).sum()
    assert plain <= discrete_sum_gap(0.25, n) <= plain * 1.001


def ddg_forms_by_hand(alpha, bound, s2, n, dim):
    """The three forms of the bound, each by itself, and the terms that make up the first."""
    l2 = bound / math.sqrt(n * s2)
    l1 = bound * min(math.sqrt(dim), bound) / math.sqrt(n * s2)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * s2 * k / (k + 1)) for k in range(1, n))
    gaussian = alpha / 2 * l2**2
    return {
        "first, τD": gaussian + tau * dim,
        "first, ατD/4": gaussian + alpha * tau * dim / 4,
        "second": alpha / 2 * (l2**2 + 2 * l1 * tau + tau**2 * dim),
        "third": alpha / 2 * (l2 + math.sqrt(dim) * tau) ** 2,
    }


@pytest.mark.parametrize(
    ("decisive", "alpha", "bound", "s2", "n", "dim"),
    [
        ("first, τD", 2, 1000.0, 1.0, 10, 16),
        ("first, ατD/4", 64, 1000.0, 1.0, 10, 16),
        ("second", 2, 1.0, 1.0, 10, 64),
        ("second", 2, 1.0, 1.0, 10, 4),
    ],  # the third is never below the second, since l₁ ≤ √D·l₂
)
def test_every_form_of_the_ddg_bound_is_the_least_one_somewhere(decisive, alpha, bound, s2, n, dim):
    forms = ddg_forms_by_hand(alpha, bound, s2, n, dim)
    first = max(forms["first, τD"], forms["first, ατD/4"])
    least = min(first, forms["second"], forms["third"])
    assert least == forms[decisive]
    assert ddg_grid_rdp([alpha], bound, s2, n, dim)[0] == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize(
    ("alpha", "bound", "variance", "dim", "decisive"),
    [(2, 3.0, 50.0, 4, "square"), (128, 30.0, 4.0, 4, "linear")],
)
def test_both_forms_of_the_skellam_bound_are_the_least_one_somewhere(
    alpha, bound, variance, dim, decisive
):
    n, l1 = 5, bound * min(math.sqrt(dim), bound)
    v = n * variance
    forms = {
        "square": ((2 * alpha - 1) * bound**2 + 6 * l1) / (4 * v * v),
        "linear": 3 * l1 / (2 * v),
    }
    assert min(forms, key=forms.get) == decisive
    by_hand = alpha * bound**2 / (2 * v) + forms[decisive]
    assert skellam_grid_rdp([alpha], bound, variance, n, dim)[0] == pytest.approx(by_hand, rel=1e-9)


def test_replace_one_costs_twice_the_sensitivity():
    zero = ddg_grid_rdp(ORDERS, 100.0, 1e4, 10, 64)
    one = ddg_grid_rdp(ORDERS, 100.0, 1e4, 10, 64, "replace_one")
    np.testing.assert_allclose(one, 4 * zero, rtol=1e-9)


def test_dropout_shortfall():
    """Losing 10, 20, 30, 50 % of the noise shares from ε = 1 costs 1.06, 1.13, 1.21, 1.46."""
    z = 4.0464
    for lost, expected in [(0.0, 1.0), (0.1, 1.06), (0.2, 1.13), (0.3, 1.21), (0.5, 1.46)]:
        value = epsilon(gaussian_rdp(ORDERS, z * math.sqrt(1 - lost)))
        assert value == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("digits", [2, 3, 4])
def test_what_is_stated_is_never_less(digits):
    rng = np.random.default_rng(0)
    for value in (*(10 ** rng.uniform(-9, 4, 500)), 1.1, 0.12345, 1.2344999, 1.2345e-6, 139.0):
        text = stated(value, digits)
        assert value <= float(text) <= value * (1 + 10.0 ** (1 - digits))
    assert [stated(v, digits) for v in (1.1, 2.0, 0.0, math.inf)] == ["1.1", "2", "0", "inf"]


def test_an_epsilon_that_cannot_be_told_from_0_is_refused():
    """Its noise was 300 times what a slightly larger ε takes, and ε was stated as 0."""
    least = smallest_epsilon(DEFAULT_ORDERS, 1e-6)
    mechanism = DiscreteGaussian(epsilon=0.999 * least, delta=1e-6, n_bits=40)
    with pytest.raises(InfeasibleError, match=r"is not above 0.0011, the least"):
        mechanism.calibrate(100, 50)
    found = mechanism.set_params(epsilon=1.3 * least).calibrate(100, 50)
    noise = math.sqrt(float(found.variance) * 100) * found.gamma / found.clip_norm
    assert noise == pytest.approx(math.sqrt(2 * math.log(1e6)) / (1.3 * least), rel=0.6)


def test_total_variation_is_charged_to_delta():
    rdp = gaussian_rdp(ORDERS, 1.0)
    tv = 1e-8
    value = rdp_to_dp(ORDERS, rdp, 1e-5, total_variation=tv)
    assert value > epsilon(rdp)
    assert value >= epsilon(rdp, delta=1e-5 - (1 + math.exp(value)) * tv)
    assert rdp_to_dp(ORDERS, rdp, 1e-5, total_variation=1e-5) == math.inf


def test_1500_ledger_rounds_equal_the_direct_computation():
    def curve(a):
        return ddg_grid_rdp(a, 1000.0, 4e5, 100, 4096)

    def released(a):
        return poisson_subsampled_rdp(a, curve, 0.001)

    ledger = Ledger(1e-6, INTEGER_ORDERS)
    for _ in range(1500):
        ledger.spend(curve, release_rdp=released)
    orders = ORDERS
    direct = rdp_to_dp(orders, 1500 * curve(orders), 1e-6)
    amplified = rdp_to_dp(orders, 1500 * poisson_subsampled_rdp(orders, curve, 0.001), 1e-6)
    assert ledger.rounds == 1500
    assert ledger.epsilon_server == pytest.approx(direct, rel=1e-10)
    assert ledger.epsilon_release == pytest.approx(amplified, rel=1e-10)
    assert ledger.epsilon_release < ledger.epsilon_server / 10


def test_several_rounds_at_once_cost_what_they_cost_one_by_one():
    curve = partial(gaussian_rdp, noise_multiplier=8.0)
    together, apart = Ledger(1e-5), Ledger(1e-5)
    together.spend(curve, release_rdp=partial(gaussian_rdp, noise_multiplier=20.0), rounds=7)
    for _ in range(7):
        apart.spend(curve, release_rdp=partial(gaussian_rdp, noise_multiplier=20.0))
    for observer in ("server", "colluders", "release"):
        assert together.epsilon(observer) == pytest.approx(apart.epsilon(observer), rel=1e-12)
    assert together.epsilon_release < together.epsilon_server / 2


def test_rounds_left_is_exact():
    curve = partial(gaussian_rdp, noise_multiplier=8.0)
    ledger = Ledger(1e-5)
    ledger.spend(curve)
    left = ledger.rounds_left(3.0)
    ledger.spend(curve, rounds=left)
    assert ledger.epsilon_server <= 3.0
    assert ledger.rounds_left(3.0) == 0
    ledger.spend(curve)
    assert ledger.epsilon_server > 3.0
    assert ledger.rounds_left(1.0) == 0


def test_ledger_survives_json_without_loss():
    ledger = Ledger(1e-5)
    ledger.spend(partial(skellam_grid_rdp, bound=3.3, variance=7.1, n_shares=9, dim=5))
    curve = partial(gaussian_rdp, noise_multiplier=1 / 3)
    ledger.spend(curve, release_rdp=partial(poisson_subsampled_rdp, curve=curve, rate=0.1))
    again = Ledger.from_json(ledger.to_json())
    assert again.to_json() == ledger.to_json()
    assert again.epsilon_server == ledger.epsilon_server
    assert again.epsilon_release == ledger.epsilon_release
    assert again.rounds_left(500.0) == ledger.rounds_left(500.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian_rdp(ORDERS, math.nan),
        lambda: gaussian_rdp(ORDERS, -1.0),
        lambda: gaussian_rdp([1.0], 1.0),
        lambda: rdp_to_dp(ORDERS, np.full(len(ORDERS), math.nan), 1e-5),
        lambda: rdp_to_dp(ORDERS, -np.ones(len(ORDERS)), 1e-5),
        lambda: rdp_to_dp(ORDERS, np.ones(len(ORDERS)), 0.0),
        lambda: rdp_to_dp(ORDERS, np.ones(len(ORDERS)), math.nan),
        lambda: rdp_to_dp(ORDERS, np.ones(3), 1e-5),
        lambda: norm_bound(math.nan, 4, BETA),
        lambda: norm_bound(1.0, 4, 1.0),
        lambda: norm_bound(1.0, 4, math.nan),
        lambda: ddg_grid_rdp(ORDERS, math.nan, 1.0, 2, 2),
        lambda: ddg_grid_rdp(ORDERS, 1.0, math.nan, 2, 2),
        lambda: ddg_grid_rdp(ORDERS, 1.0, 1.0, 2, 2, "replace"),
        lambda: skellam_grid_rdp(ORDERS, 1.0, math.nan, 2, 2),
        lambda: poisson_subsampled_rdp(ORDERS, lambda a: a, math.nan),
        lambda: poisson_subsampled_rdp(ORDERS, lambda a: a * math.nan, 0.1),
        lambda: Ledger(math.nan),
        lambda: Ledger(1e-5).spend(np.full(len(DEFAULT_ORDERS), math.nan)),
        lambda: Ledger(1e-5).spend(np.ones(3)),
        lambda: Ledger(1e-5).rounds_left(1.0),
    ],
)
def test_nan_and_nonsense_raise(call):
    with pytest.raises(ValueError, match=r"must|holds|has shape|NaN|needs|empty|not known"):
        call()


@pytest.mark.parametrize("n", [1, 2, 40])
def test_below_half_a_grid_step_ddg_claims_nothing(n):
    just_below = math.nextafter(0.25, 0)
    assert np.isinf(ddg_grid_rdp(DEFAULT_ORDERS, 1.0, just_below, n, 2)).all()
    assert np.isfinite(ddg_grid_rdp(DEFAULT_ORDERS, 1.0, 0.25, n, 2)).all()


def test_no_noise_is_no_privacy():
    assert epsilon(gaussian_rdp(ORDERS, 0.0)) == math.inf
    assert epsilon(ddg_grid_rdp(ORDERS, 1.0, 0.0, 5, 4)) == math.inf
