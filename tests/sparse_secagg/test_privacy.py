"""One object for the privacy of a round: against exact enumeration, and every door's number."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from sparse_secagg import CentralGaussian, DiscreteGaussian, Skellam
from sparse_secagg.accounting import (
    DEFAULT_ORDERS,
    INTEGER_ORDERS,
    ddg_grid_rdp,
    discrete_sum_gap,
    gaussian_rdp,
    rdp_to_dp,
    rdp_to_zcdp,
    skellam_grid_rdp,
)
from sparse_secagg.mechanisms.central import central_grid_rdp
from sparse_secagg.privacy import NoisySum, RoundPrivacy, Sampling, fixed_cohort_rdp
from sparse_secagg.privacy.sampling import _log_moments

ORDERS = (2, 3, 8, 32)


# -- exact enumeration ------------------------------------------------------------------------


def discrete_gaussian_shares(variance, n):
    """Sum of n discrete Gaussians by convolution: the slow obvious way."""
    half = math.ceil(37 * math.sqrt(variance))  # e^-684: all that doubles hold
    k = np.arange(-half, half + 1)
    one = np.exp(-(k**2) / (2 * variance))
    one /= one.sum()
    total = one
    for _ in range(n - 1):
        total = np.convolve(total, one)
    return total


def skellam_shares(variance, n):
    """Difference of two Poisson variables of mean n·variance/2 each, by convolution."""
    mean = n * variance / 2
    k = np.arange(math.ceil(mean + 40 * math.sqrt(mean) + 40))
    poisson = np.exp(k * math.log(mean) - mean - np.array([math.lgamma(j + 1) for j in k]))
    return np.convolve(poisson, poisson[::-1])


def shifted_divergence(noise, shift, alpha):
    """D_α(noise + shift ‖ noise) of one coordinate, over the integers where both live."""
    p, q = (np.log(np.maximum(noise, 1e-300)) for _ in range(2))
    p, q = p[: len(p) - shift], q[shift:]
    return float(logsumexp(alpha * p + (1 - alpha) * q)) / (alpha - 1)


def worst_shifts(bound_squared, dim, factor):
    """Non-negative integer vectors that are extreme among those a neighbour may differ by."""
    limit = math.isqrt(factor**2 * bound_squared)
    vectors = itertools.combinations_with_replacement(range(limit + 1), dim)
    allowed = [v for v in vectors if sum(x * x for x in v) <= factor**2 * bound_squared]
    return [v for v in allowed if sum(x * x for x in v) >= 0.7 * factor**2 * bound_squared]


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("colluders", [0, 1, 3])
@pytest.mark.parametrize("family", ["ddg", "skellam"])
def test_no_curve_lies_below_the_enumerated_divergence(family, colluders, adjacency):
    shares_of = discrete_gaussian_shares if family == "ddg" else skellam_shares
    curve = ddg_grid_rdp if family == "ddg" else skellam_grid_rdp
    factor = 2 if adjacency == "replace_one" else 1
    n = 5
    for variance, dim, squared in itertools.product((0.25, 0.36, 1.0, 4.0), (1, 2, 4), (1, 9, 25)):
        noise = shares_of(variance, n - colluders)
        part = NoisySum(curve, math.sqrt(squared), variance, n - colluders, dim)
        privacy = RoundPrivacy((part,), 1e-5, adjacency, n, colluders)
        claimed = privacy.rdp(np.array(ORDERS, dtype=float))
        for alpha, ours in zip(ORDERS, claimed):
            one = [
                shifted_divergence(noise, x, alpha) for x in range(factor * math.isqrt(squared) + 1)
            ]
            exact = max(sum(one[x] for x in v) for v in worst_shifts(squared, dim, factor))
            assert ours >= exact * (1 - 1e-9), (variance, dim, squared, alpha)


def test_the_enumeration_would_notice_a_share_too_many():
    """Negative control: claiming the noise of one more client lies below the truth."""
    noise = discrete_gaussian_shares(4.0, 2)
    exact = shifted_divergence(noise, 5, 2)
    assert ddg_grid_rdp([2.0], 5.0, 4.0, 3, 1)[0] < exact
    assert ddg_grid_rdp([2.0], 5.0, 4.0, 2, 1)[0] >= exact * (1 - 1e-9)


def test_sums_of_discrete_gaussians_stay_within_the_gap():
    """|log P(sum) − log P(one discrete Gaussian)| ≤ τ, wherever either has any weight."""
    for variance, n in [(0.25, 2), (0.25, 5), (0.5, 5), (1.0, 3)]:
        total = discrete_gaussian_shares(variance, n)
        k = np.arange(len(total)) - len(total) // 2
        one = np.exp(-(k**2) / (2 * n * variance))
        one /= one.sum()
        inside = np.abs(k) <= 6 * math.sqrt(n * variance)
        off = np.abs(np.log(total[inside]) - np.log(one[inside])).max()
        assert 0 < off <= discrete_sum_gap(variance, n)


# -- secret cohorts of fixed size -------------------------------------------------------------


def mixture_divergence(a, b, rate, noise, alpha, reverse):
    """D_α of the two worlds, on a grid in the plane of the centres a, b and 0, noise N(0, s²)."""
    step = noise / 8
    reach = np.arange(-4.0 * alpha, 4.0 * alpha + step, step)
    x, y = np.meshgrid(reach, reach)

    def log_density(centre):
        return -((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * noise**2)

    def mixture(centre):
        return np.logaddexp(
            math.log1p(-rate) + log_density(a), math.log(rate) + log_density(centre)
        )

    p, q = mixture(b), mixture((0.0, 0.0))
    p, q = (q, p) if reverse else (p, q)
    area = 2 * math.log(step) - math.log(2 * math.pi * noise**2)
    return (float(logsumexp(alpha * p + (1 - alpha) * q)) + area) / (alpha - 1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rate", "noise"), [(0.03, 1.0), (0.03, 2.0), (0.3, 1.5), (0.9, 3.0)])
def test_fixed_cohorts_are_bounded_in_every_geometry(rate, noise, reverse):
    orders = (2, 3, 4)
    claimed = fixed_cohort_rdp(orders, 1 / noise**2, rate)
    rng = np.random.default_rng(0)
    angles = [0.0, math.pi / 2, math.pi, *rng.uniform(0, 2 * math.pi, 4)]
    worst = np.zeros(len(orders))
    for angle, radius in itertools.product(angles, (0.5, 1.0)):
        a = (radius * math.cos(angle), radius * math.sin(angle))
        exact = [mixture_divergence(a, (1.0, 0.0), rate, noise, o, reverse) for o in orders]
        worst = np.maximum(worst, exact)
        assert (claimed >= np.array(exact) * (1 - 1e-6) - 1e-12).all()
    assert reverse or claimed[0] <= 3 * worst[0]  # and it is not far above


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 16.0])
def test_moments_beyond_those_that_are_integrated_are_bounded(ratio, opposite):
    """H_l and G_l of docs/privacy.md by a plain sum, where only a closed bound is used."""
    largest = int(60 / math.sqrt(ratio))
    l = np.arange(2.0, 2 * largest)
    claimed = _log_moments(l, ratio, opposite=opposite)
    for k in range(largest + 3, 2 * largest, 5):
        shift, root = (k - 1) * ratio if opposite else 0.0, math.sqrt(ratio)
        g = np.linspace(-30.0, 2 * k * root + 30.0, 400_001)
        exponent = root * g - ratio / 2 + shift
        log_abs = np.maximum(exponent, 0) + np.log(np.maximum(-np.expm1(-abs(exponent)), 1e-300))
        total = float(logsumexp(k * log_abs - g * g / 2)) + math.log(g[1] - g[0])
        total += (k * (k - 1) * ratio / 2 if opposite else 0.0) - math.log(2 * math.pi) / 2
        assert total <= claimed[k - 2] * (1 + 1e-12)
        assert claimed[k - 2] <= total * (1 + 1e-3) + 1


def test_as_many_rounds_fit_as_their_cost_says():
    part = NoisySum(ddg_grid_rdp, 10, 100.0, 50, 16, near_gaussian=True)
    privacy = RoundPrivacy((part,), 1e-5, "zero_out", 50)
    for rounds in (1, 3, 10):
        cost = privacy.epsilon(rounds=rounds)
        assert privacy.rounds_within(cost) == rounds
        assert privacy.rounds_within(cost * (1 - 1e-12)) == rounds - 1


def test_fixed_cohorts_of_discrete_gaussians_are_bounded():
    """The same by enumeration on the integers, for the sum of three clients' noise."""
    variance, shares, bound, rate = 4.0, 3, 2, 0.1
    noise = np.log(np.maximum(discrete_gaussian_shares(variance, shares), 1e-300))
    part = NoisySum(ddg_grid_rdp, bound, variance, shares, 1, near_gaussian=True)
    privacy = RoundPrivacy((part,), 1e-5, "zero_out", shares, sampling=Sampling(10, 100))
    claimed = privacy.rdp(np.array(ORDERS, dtype=float), "release")
    plain = privacy.rdp(np.array(ORDERS, dtype=float), "server")
    assert claimed[0] < plain[0] / 3

    def shifted(centre):
        return np.pad(noise, (bound + centre, bound - centre), constant_values=-690.0)

    for a, b in itertools.product(range(-bound, bound + 1), repeat=2):
        p, q = (
            np.logaddexp(math.log1p(-rate) + shifted(a), math.log(rate) + shifted(c))
            for c in (b, 0)
        )
        for one, other in ((p, q), (q, p)):
            for alpha, ours in zip(ORDERS, claimed):
                exact = float(logsumexp(alpha * one + (1 - alpha) * other)) / (alpha - 1)
                assert ours >= exact - 1e-12, (a, b, alpha)


def test_moments_of_fixed_cohorts_equal_their_alternating_sums():
    """E|W e^t − 1|^l by expanding the power, in 600 digits, for both kinds of moments."""
    import mpmath

    from sparse_secagg.privacy.sampling import _log_moments

    with mpmath.workdps(600):
        for ratio, opposite in itertools.product((1e-3, 0.06, 1.0), (False, True)):
            ours = _log_moments(np.arange(2.0, 43.0), ratio, opposite=opposite)
            for l in (2, 4, 10, 40):
                exponent = (
                    (lambda k, l=l: (l + k) ** 2 - 3 * k - l) if opposite else lambda k: k * k - k
                )
                exact = mpmath.log(
                    mpmath.fsum(
                        (-1) ** (l - k) * mpmath.binomial(l, k)
                        * mpmath.exp(mpmath.mpf(ratio) / 2 * exponent(k))
                        for k in range(l + 1)
                    )
                )  # fmt: skip
                assert 0 <= ours[l - 2] - float(exact) < 1e-8
            assert (ours[1:-1:2] <= (ours[:-2:2] + ours[2::2]) / 2 + 1e-12).all()  # odd ones


def test_small_orders_divide_epsilon_by_the_rate():
    """log(1 − q + q·e^{(α−1)ε}), the convexity bound, where noise is small; and it is not below."""
    mechanism = DiscreteGaussian(noise_multiplier=0.5, n_bits=30)
    mechanism.calibrate(100, 10)
    q, alpha = 100 / 3400, 1.25
    privacy = mechanism.privacy(sampling=Sampling(100, 3400))
    plain = privacy.rdp([alpha], "server")[0]
    by_hand = math.log(1 - q + q * math.exp((alpha - 1) * plain)) / (alpha - 1)
    assert privacy.rdp([alpha], "release")[0] == pytest.approx(by_hand, rel=1e-9)
    assert by_hand < 1.5 * q * plain
    exact = mixture_divergence((-1.0, 0.0), (1.0, 0.0), q, 0.5, alpha, reverse=False)
    assert exact <= by_hand


def test_release_of_a_secret_cohort_by_hand():
    """Wang, Balle and Kasiviswanathan's bound on the replace-one curve, written out at α = 2.

    Skellam is not close to one discrete Gaussian, so nothing tighter applies to it.
    """
    mechanism = Skellam(noise_multiplier=4.0, n_bits=24)
    mechanism.calibrate(50, 10)
    rate = 50 / 1000
    privacy = mechanism.privacy(sampling=Sampling(50, 1000))
    p = mechanism.parameters_
    v, l2 = 50 * float(p.variance), 2 * p.norm_bound
    l1 = l2 * math.sqrt(10)
    replace_one = l2**2 / v + min((3 * l2**2 + 6 * l1) / (4 * v * v), 3 * l1 / (2 * v))
    by_hand = math.log(1 + rate**2 * min(4 * math.expm1(replace_one), 2 * math.exp(replace_one)))
    assert privacy.rdp([2.0], "release")[0] == pytest.approx(by_hand, rel=1e-9)
    assert by_hand < privacy.rdp([2.0], "server")[0] / 5


def test_zero_out_tightens_the_release_of_a_gaussian_sum_by_hand():
    """At α = 2: 1 + q²[(1−q)(e^{4ρ} + e^ρ − 2e^{2ρ}) + q(e^ρ − 1)], ρ = 1/z²."""
    mechanism = DiscreteGaussian(noise_multiplier=2.0, n_bits=30)
    mechanism.calibrate(100, 10)
    q, rho = 100 / 3400, 1 / 4
    opposite = math.exp(4 * rho) + math.exp(rho) - 2 * math.exp(2 * rho)
    by_hand = math.log1p(q * q * ((1 - q) * opposite + q * math.expm1(rho)))
    released = mechanism.privacy(sampling=Sampling(100, 3400)).rdp([2.0], "release")[0]
    assert released == pytest.approx(by_hand, rel=1e-6)


def test_tiny_costs_are_not_rounded_away():
    """z = 1000 and q = 1e-6: nothing is free, and nothing is negative."""
    mechanism = DiscreteGaussian(noise_multiplier=1000.0, n_bits=40)
    mechanism.calibrate(100, 2)
    released = mechanism.privacy(sampling=Sampling(100, 10**8)).rdp(observer="release")
    assert (released > 0).all()
    q, rho = 1e-6, 1e-6
    assert released[DEFAULT_ORDERS.index(2.0)] == pytest.approx(q * q * rho, rel=1e-3)


@pytest.mark.parametrize("population", [math.inf, 3400.5, math.nan, 99])
def test_populations_are_counts(population):
    with pytest.raises(ValueError, match="population"):
        Sampling(100, population)


def test_more_survivors_than_clients_protect_nobody():
    mechanism = DiscreteGaussian(noise_multiplier=1.0, n_bits=20)
    mechanism.calibrate(100, 10)
    with pytest.raises(ValueError, match="n_survivors=101"):
        mechanism.privacy(101)
    with pytest.raises(ValueError, match="more than the cohort"):
        mechanism.privacy(100, sampling=Sampling(1, 1000))


def test_text_names_observers_and_neighbours():
    mechanism = DiscreteGaussian(noise_multiplier=1.0, n_bits=20, adjacency="replace_one")
    mechanism.calibrate(100, 10)
    text = str(mechanism.privacy(colluders=3, sampling=Sampling(100, 1000)))
    for words in ("the server with 3 colluding", "cohorts stay secret", "(replace_one)"):
        assert words in text


def test_a_way_of_sampling_cannot_change_under_its_account():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sampling(10, 100).cohort = 1


def test_a_known_seed_amplifies_nothing():
    mechanism = DiscreteGaussian(noise_multiplier=4.0, n_bits=20)
    mechanism.calibrate(100, 10)
    known = mechanism.privacy(sampling=Sampling(100, 10_000, secret=False))
    secret = mechanism.privacy(sampling=Sampling(100, 10_000))
    assert known.epsilon("release") == known.epsilon("server")
    assert secret.epsilon("release") < 0.2 * secret.epsilon("server")


def test_poisson_cohorts_under_replacement_lie_above_the_exact_divergence():
    """Worst case: the two vectors opposite to each other, against the exact integral."""
    mechanism = CentralGaussian(noise_multiplier=2.0, adjacency="replace_one")
    mechanism.calibrate(100, 2)
    for population in (300, 1000, 10_000):
        privacy = mechanism.privacy(sampling=Sampling(100, population, "poisson"))
        q, step = 100 / population, 0.01
        x = np.arange(-60, 60, step)

        def mixture(centre, q=q, x=x):
            return np.logaddexp(
                math.log1p(-q) - x**2 / 8, math.log(q) - (x - centre) ** 2 / 8
            ) - math.log(math.sqrt(8 * math.pi))

        for alpha in (2, 4, 16):
            logs = alpha * mixture(1.0) + (1 - alpha) * mixture(-1.0)
            exact = (float(logsumexp(logs)) + math.log(step)) / (alpha - 1)
            assert privacy.rdp([float(alpha)], "release")[0] >= exact * (1 - 1e-6)


def test_poisson_sampling_is_for_a_trusted_server_only():
    poisson = Sampling(100, 10_000, "poisson")
    for cls in (DiscreteGaussian, Skellam):
        mechanism = cls(noise_multiplier=1.0, n_bits=20)
        mechanism.calibrate(100, 10)
        with pytest.raises(ValueError, match="fixed size"):
            mechanism.privacy(sampling=poisson)
    mechanism = CentralGaussian(noise_multiplier=1.0)
    mechanism.calibrate(100, 10)
    privacy = mechanism.privacy(sampling=poisson)
    assert privacy.epsilon("release") < 2 < mechanism.privacy().epsilon("release")


# -- observers --------------------------------------------------------------------------------


def test_observers_of_a_trusted_server():
    mechanism = CentralGaussian(epsilon=1.0)
    mechanism.calibrate(100, 10)
    privacy = mechanism.privacy()
    assert privacy.observer == "release"
    assert privacy.epsilon() == pytest.approx(1.0, abs=1e-6)
    assert privacy.epsilon("server") == privacy.epsilon("colluders") == math.inf
    assert "trusted" in privacy.describe_observer()


@pytest.mark.parametrize("cls", [DiscreteGaussian, Skellam])
def test_colluders_take_their_noise_with_them(cls):
    """60 clients of whom 39 collude: the noise of 21 remains (ε 0.80 becomes 1.42)."""
    plain = cls(epsilon=0.8, n_bits=20)
    plain.calibrate(60, 40)
    betrayed = plain.privacy(colluders=39)
    twenty_one = plain.privacy(n_survivors=21)
    assert betrayed.epsilon("server") == pytest.approx(0.8, abs=1e-6)
    assert betrayed.epsilon("colluders") == twenty_one.epsilon("server")
    assert betrayed.epsilon() == pytest.approx(1.42, abs=0.01)
    sized = cls(epsilon=0.8, n_bits=20, colluders=39)
    sized.calibrate(60, 40)
    assert sized.privacy().epsilon() == pytest.approx(0.8, abs=1e-6)
    assert sized.parameters_.noise_shares == 21
    assert plain.privacy(colluders=60).epsilon() == math.inf


def test_zcdp_epsilon_is_the_supremum_of_the_curve():
    for adjacency, factor in (("zero_out", 1), ("replace_one", 2)):
        mechanism = DiscreteGaussian(noise_multiplier=5.0, n_bits=30, adjacency=adjacency)
        mechanism.calibrate(100, 20)
        assert mechanism.privacy().zcdp_epsilon() == pytest.approx(factor / 5.0, rel=1e-6)
        assert mechanism.privacy().zcdp_epsilon(rounds=9) == pytest.approx(
            3 * factor / 5.0, rel=1e-6
        )


def test_zcdp_epsilon_takes_the_worst_order_that_is_claimed():
    assert rdp_to_zcdp([2.0, 4.0], [1.0, 3.0]) == pytest.approx(math.sqrt(1.5))
    assert rdp_to_zcdp([2.0, 2.5, 4.0], [1.0, math.inf, 3.0]) == pytest.approx(math.sqrt(1.5))
    assert rdp_to_zcdp([2.0], [math.inf]) == math.inf


def test_coarse_noise_pays_for_not_being_one_discrete_gaussian():
    """The gap D·τ enters the release of secret cohorts with the factor (2α−1)/(α−1)."""
    without = fixed_cohort_rdp([2.0, 5.0], 0.1, 0.1)
    paid = fixed_cohort_rdp([2.0, 5.0], 0.1, 0.1, gap=1e-3)
    np.testing.assert_allclose(paid - without, [3e-3, 9 / 4 * 1e-3], rtol=1e-9)
    part = NoisySum(ddg_grid_rdp, 1.0, 0.5, 100, 50, near_gaussian=True)
    assert part.gap(100) == 50 * discrete_sum_gap(0.5, 100) > 0
    privacy = RoundPrivacy((part,), 1e-5, "zero_out", 100, sampling=Sampling(100, 200))
    bound = fixed_cohort_rdp([64.0], 1 / 50, 0.5, part.gap(100))
    assert privacy.rdp([64.0], "release") == pytest.approx(bound, rel=1e-12)


def test_outside_its_theorem_nothing_is_claimed():
    def privacy(**changes):
        part = NoisySum(ddg_grid_rdp, 3.0, 1.0, 10, 4)
        return RoundPrivacy((dataclasses.replace(part, **changes),), 1e-5, "zero_out", 10)

    assert privacy().epsilon() < math.inf
    assert privacy(variance=0.24).epsilon() == math.inf
    assert privacy(variance=0.0).epsilon() == math.inf
    assert privacy(total_variation=1e-5).epsilon() == math.inf  # δ is exhausted
    assert privacy(variance=0.24).zcdp_epsilon() == math.inf
    for field in ("bound", "variance"):
        with pytest.raises(ValueError, match="nan"):
            privacy(**{field: math.nan}).epsilon()
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            dataclasses.replace(privacy(), delta=delta)
    with pytest.raises(ValueError, match="observer='nobody'"):
        privacy().epsilon("nobody")


def test_total_variation_of_all_sums_is_charged():
    part = NoisySum(central_grid_rdp, 1.0, 4.0, 1, 1, 1e-13, central=True)
    two = RoundPrivacy((part, part), 1e-5, "zero_out", 5)
    rdp = 2 * gaussian_rdp(DEFAULT_ORDERS, 2.0)
    assert two.epsilon() == rdp_to_dp(DEFAULT_ORDERS, rdp, 1e-5, 2e-13)
    ten = rdp_to_dp(DEFAULT_ORDERS, 10 * rdp, 1e-5, 2e-12)
    assert rdp_to_dp(DEFAULT_ORDERS, 10 * rdp, 1e-5, 2e-13) < ten < math.inf
    assert two.epsilon(rounds=10) == ten
    assert two.epsilon(delta=1e-6) > two.epsilon()


def test_rounds_within_a_budget_is_exact():
    mechanism = DiscreteGaussian(noise_multiplier=20.0, n_bits=20)
    mechanism.calibrate(100, 10)
    privacy = mechanism.privacy()
    rounds = privacy.rounds_within(2.0)
    assert privacy.epsilon(rounds=rounds) <= 2.0 < privacy.epsilon(rounds=rounds + 1)
    assert privacy.rounds_within(0.01) == 0


def test_integer_orders_suffice_for_skellam():
    mechanism = Skellam(noise_multiplier=1.0, n_bits=20)
    mechanism.calibrate(10, 10)
    privacy = mechanism.privacy()
    assert privacy.epsilon() == rdp_to_dp(
        INTEGER_ORDERS, privacy.rdp(INTEGER_ORDERS), 1e-5, privacy.total_variation
    )
