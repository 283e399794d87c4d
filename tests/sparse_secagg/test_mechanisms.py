"""The mechanisms: calibration, the integer bound, rounding, bad clients, end-to-end error."""

import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone

from sparse_secagg.accounting import DEFAULT_ORDERS, INTEGER_ORDERS, rdp_to_dp
from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.mechanisms import (
    CentralGaussian,
    DiscreteGaussian,
    MechanismParameters,
    SimulationRandomness,
    Skellam,
    from_parameters,
    get,
    names,
)
from sparse_secagg.mechanisms.poisson import skellam
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.mechanisms.rounding import conditional_rounding, within_bound
from sparse_secagg.mechanisms.sums import centre
from sparse_secagg.privacy import Sampling

FALSE_ALARM = 1e-6
DISTRIBUTED = [DiscreteGaussian, Skellam]
ALL = [*DISTRIBUTED, CentralGaussian]


def modular_sum(messages, modulus):
    return messages.sum(axis=0, dtype=np.uint64) & np.uint64(modulus - 1)


def on_sphere(n, m, seed, norm=1.0):
    Y = np.random.default_rng(seed).normal(size=(n, m))
    return norm * Y / np.linalg.norm(Y, axis=1, keepdims=True)


# -- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_bits", "gamma", "sigma"), [(10, 0.29480115, 4.2274832), (16, 0.0045443667, 4.0463345)]
)
def test_calibration_golden_values(n_bits, gamma, sigma):
    mechanism = DiscreteGaussian(
        epsilon=1.0, delta=1e-5, clip_norm=10.0, n_bits=n_bits, wrap_deviations=2.0
    )
    p = mechanism.calibrate(100, 256)
    assert p.gamma == pytest.approx(gamma, rel=1e-7)
    assert p.sigma == pytest.approx(sigma, rel=1e-7)
    assert rdp_to_dp(INTEGER_ORDERS, mechanism.rdp(INTEGER_ORDERS), 1e-5) <= 1.0


@settings(max_examples=40, deadline=None)
@given(
    cls=st.sampled_from(ALL),
    epsilon=st.floats(0.02, 60),
    log_delta=st.floats(-12, -2),
    n=st.integers(1, 5000),
    dim=st.integers(1, 10**6),
    n_bits=st.integers(6, 40),
    survivors=st.floats(0.3, 1.0),
    adjacency=st.sampled_from(["zero_out", "replace_one"]),
    beta=st.sampled_from([0.0, math.exp(-0.5), "theory"]),
    rounds=st.sampled_from([1, 1, 10, 1500]),
    rate=st.sampled_from([None] * 7 + [0.01]),
)
def test_calibration_lands_on_the_private_side(
    cls, epsilon, log_delta, n, dim, n_bits, survivors, adjacency, beta, rounds, rate
):
    mechanism = cls(
        epsilon=epsilon,
        delta=10**log_delta,
        n_bits=n_bits,
        min_survivors=max(1, int(survivors * n)),
        adjacency=adjacency,
        beta=beta,
        rounds=rounds,
        sampling=None if rate is None else Sampling(n, round(n / rate)),
    )
    error = None
    try:
        p = mechanism.calibrate(n, dim)
    except InfeasibleError as caught:
        error = caught
    if error is not None:
        assert error.argument == "n_bits"
        assert n_bits < error.smallest <= 63
        p = mechanism.set_params(n_bits=error.smallest).calibrate(n, dim)
        with pytest.raises(InfeasibleError):
            clone(mechanism).set_params(n_bits=error.smallest - 1).calibrate(n, dim)
    observer = "server" if rate is None and cls is not CentralGaussian else "release"
    spent = mechanism.privacy().epsilon(observer, rounds=rounds)
    assert spent <= epsilon
    # At large ε the tables of Skellam cost more than δ can pay: more noise is the only way.
    charge = (1 + math.exp(epsilon)) * rounds * mechanism.total_variation()
    if p.variance > Fraction(26, 100) and charge < 1e-3 * mechanism.delta:
        assert spent >= 0.98 * epsilon
    # The sum fits the modulus: k deviations of the worst-case aligned sum.
    if cls is not CentralGaussian:
        u = p.clip_norm / p.gamma
        spread = u * u * n * n / p.padded_dim + (0.25 + float(p.variance)) * n
        assert 2 * 4.0 * math.sqrt(spread) <= p.modulus * (1 + 1e-6)


@pytest.mark.parametrize("cls", ALL)
def test_noise_multiplier_is_what_was_asked_for(cls):
    mechanism = cls(noise_multiplier=0.7, n_bits=20)
    p = mechanism.calibrate(50, 300)
    assert p.noise_multiplier == pytest.approx(0.7, rel=1e-6)
    assert p.noise_multiplier >= 0.7 * (1 - 1e-12)
    assert p.inflation >= 1


def test_too_little_noise_for_the_grid_is_refused_with_the_bits_that_work():
    mechanism = DiscreteGaussian(noise_multiplier=0.01, n_bits=8)
    with pytest.raises(InfeasibleError, match="the smallest that can is") as caught:
        mechanism.calibrate(100, 100)
    p = mechanism.set_params(n_bits=caught.value.smallest).calibrate(100, 100)
    assert p.variance >= Fraction(1, 4)


@pytest.mark.parametrize("cls", ALL)
def test_zero_noise_is_quantisation_and_says_so(cls):
    mechanism = cls(noise_multiplier=0.0, n_bits=20)
    p = mechanism.calibrate(10, 40)
    assert mechanism.not_private
    assert p.variance == 0
    assert mechanism.epsilon_spent() == math.inf
    Y = on_sphere(10, 40, 0)
    total = modular_sum(mechanism.encode(Y, SimulationRandomness(0)), p.modulus)
    error = mechanism.decode(total, 10) - Y.mean(axis=0)
    assert np.abs(error).max() < 6 * mechanism.noise_std()


@pytest.mark.parametrize("cls", ALL)
def test_parameters_survive_json_and_pickle_without_loss(cls):
    mechanism = cls(epsilon=1 / 3, delta=1e-7, clip_norm=math.pi, n_bits=19, random_state=2**63)
    p = mechanism.calibrate(77, 1001)
    assert MechanismParameters.from_json(p.to_json()) == p
    assert pickle.loads(pickle.dumps(mechanism)).parameters_ == p
    with pytest.raises(ValueError, match="unexpected or missing"):
        MechanismParameters.from_json("{}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.gamma = 1.0


@pytest.mark.parametrize("cls", ALL)
def test_published_parameters_make_the_same_mechanism(cls):
    """A client that knows only the JSON encodes, and accounts, as the server planned."""
    server = cls(epsilon=0.7, n_bits=20, adjacency="replace_one", min_survivors=30, random_state=4)
    p = server.calibrate(40, 25)
    client = from_parameters(MechanismParameters.from_json(p.to_json()))
    Y = on_sphere(3, 25, 8)
    np.testing.assert_array_equal(
        client.encode(Y, SimulationRandomness(1)), server.encode(Y, SimulationRandomness(1))
    )
    np.testing.assert_array_equal(client.rdp(DEFAULT_ORDERS), server.rdp(DEFAULT_ORDERS))
    assert client.noise_std(40) == server.noise_std(40)
    # The curve belongs to the parameters, whatever the constructor says later.
    server.set_params(adjacency="zero_out")
    np.testing.assert_array_equal(client.rdp(DEFAULT_ORDERS), server.rdp(DEFAULT_ORDERS))


@pytest.mark.parametrize("cls", ALL)
def test_scikit_learn_conventions(cls):
    mechanism = cls(epsilon=2.0, n_bits=20)
    assert clone(mechanism).get_params() == mechanism.get_params()
    assert type(get(cls.name, epsilon=3.0)) is cls
    assert cls.name in names()
    with pytest.raises(ValueError, match="ddg"):
        get("gauss")
    with pytest.raises(ValueError, match="not calibrated"):
        mechanism.encode(np.zeros(3))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"delta": 0.0}, "delta=0"),
        ({"delta": math.nan}, "delta=nan"),
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
        ({"clip_norm": math.inf}, "clip_norm=inf"),
        ({"n_bits": 64}, "n_bits=64"),
        ({"n_bits": 8.0}, "n_bits=8.0"),
        ({"rotation": "haar"}, "rotation='haar'"),
        ({"beta": 1.0}, "beta=1.0"),
        ({"beta": "best"}, "beta='best'"),
        ({"adjacency": "swap"}, "adjacency='swap'"),
        ({"min_survivors": 11}, "min_survivors=11"),
        ({"rounds": 0}, "rounds=0"),
        ({"colluders": 10}, "colluders=10"),
        ({"colluders": -1}, "colluders=-1"),
        ({"alignment": 2.0}, "alignment=2"),
        ({"wrap_deviations": 0.0}, "wrap_deviations=0"),
        ({"random_state": -1}, "random_state=-1"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        DiscreteGaussian(**parameters).calibrate(10, 10)


# -- rotation and clipping ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dft", "hadamard"])
@pytest.mark.parametrize("dim", [1, 2, 3, 37, 64, 1001])
def test_rotation_is_orthogonal_and_inverts(kind, dim):
    Y = np.random.default_rng(dim).normal(size=(3, dim))
    rotation = Rotation(kind, dim, seed=9)
    Z = rotation.forward(Y)
    assert Z.shape == (3, rotation.padded_dim)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), np.linalg.norm(Y, axis=1), rtol=1e-12)
    np.testing.assert_allclose(rotation.inverse(Z), Y, atol=1e-12)
    if dim > 1:
        assert not np.allclose(Z, Rotation(kind, dim, seed=10).forward(Y))


@pytest.mark.parametrize("kind", ["dft", "hadamard"])
def test_rotation_flattens_every_direction_to_the_same_variance(kind):
    dim = 64
    for y in (np.eye(dim)[5], np.ones(dim) / 8, np.eye(dim)[[3, 4]].sum(0) / math.sqrt(2)):
        squares = np.mean(
            [Rotation(kind, dim, s).forward(y[None])[0] ** 2 for s in range(3000)], axis=0
        )
        # 3000 squares of mean 1/D and standard deviation at most 2/D each.
        assert np.abs(squares * dim - 1).max() < 6 * 2 / math.sqrt(3000)


# -- rounding and the integer check ---------------------------------------------------------------


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12),
    st.integers(-3, 3),
)
def test_integer_check_is_exact(values, offset):
    exact = sum(v * v for v in values)
    if exact + offset < 0 or exact + offset >= 2**127:
        return
    assert within_bound(np.array(values, dtype=np.int64), exact + offset) == (offset >= 0)


@pytest.mark.parametrize("largest", [1, 1000, 2**26 - 1, 2**26, 2**31, 2**40, 2**56])
@pytest.mark.parametrize("length", [1023, 1024, 1025, 5000])
def test_integer_check_is_exact_for_long_vectors(largest, length):
    values = np.random.default_rng(length).integers(-largest, largest, length, endpoint=True)
    values[::700] = -largest
    exact = sum(int(v) ** 2 for v in values)
    assert within_bound(values, exact)
    assert not within_bound(values, exact - 1)


def adversarial(n, dim, seed):
    """Rows that try the bound: halves, one-hot, at the bound, huge, subnormal, random."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(n, dim))
    Y[0::6] = np.floor(Y[0::6] * 3) + 0.5
    Y[1::6] = 0.0
    Y[1::6, rng.integers(dim)] = 1.0
    Y[2::6] /= np.linalg.norm(Y[2::6], axis=1, keepdims=True)
    Y[3::6] *= 1e200
    Y[4::6] *= 5e-324
    return Y


def count_violations(n, seed):
    """Encode without noise and without wrapping; see every integer vector that would be sent."""
    violations = 0
    for dim, n_bits, beta in [(15, 10, math.exp(-0.5)), (15, 16, 0.01), (16, 20, 0.9)]:
        mechanism = DiscreteGaussian(noise_multiplier=2.0, n_bits=n_bits, beta=beta)
        p = mechanism.calibrate(4, dim)
        mechanism.parameters_ = dataclasses.replace(p, variance=Fraction(0), n_bits=62)
        sent = centre(mechanism.encode(adversarial(n // 6, dim, seed)), 2**62)
        violations += int(((sent**2).sum(axis=1) > p.squared_bound).sum())
        # Rounding alone, at the bound, with every fraction one half.
        u = p.clip_norm / p.gamma
        half = np.floor(u / math.sqrt(p.padded_dim)) + 0.5
        x = np.full(p.padded_dim, half) * np.random.default_rng(seed).choice([-1, 1], p.padded_dim)
        rng = SimulationRandomness(seed)
        for _ in range(n // 6):
            rounded = conditional_rounding(x, p.squared_bound, rng)
            # Beyond the clip rounding toward zero may fail; then the check must say so.
            inside = int((rounded**2).sum()) <= p.squared_bound
            violations += inside != within_bound(rounded, p.squared_bound)
    return violations


def test_no_adversarial_vector_exceeds_the_bound():
    assert count_violations(30_000, seed=0) == 0


@pytest.mark.slow
def test_no_adversarial_vector_exceeds_the_bound_full():
    assert count_violations(1_000_000, seed=1) == 0


def test_the_check_alone_protects_against_broken_rounding(monkeypatch):
    """Negative control: with everything before the check broken, the sum stays within B."""
    from sparse_secagg.mechanisms import base

    mechanism = DiscreteGaussian(noise_multiplier=2.0, n_bits=16)
    p = mechanism.calibrate(4, 10)
    mechanism.parameters_ = dataclasses.replace(p, variance=Fraction(0))
    monkeypatch.setattr(
        base, "conditional_rounding", lambda x, *_: np.full(len(x), 10**6, dtype=np.int64)
    )
    sent = mechanism.encode(on_sphere(5, 10, 0), SimulationRandomness(0))
    assert not sent.any()
    assert mechanism.report_.n_rejected == 5


def test_unconditional_rounding_is_unbiased():
    x = np.array([0.0, 0.5, -0.5, 0.01, -3.3, 1e6 + 0.25, 0.999])
    rng = SimulationRandomness(3)
    n = 40_000
    rounded = np.array([conditional_rounding(x, 2**120, rng) for _ in range(n)])
    assert np.abs(rounded - x).max() <= 1
    variance = (x - np.floor(x)) * (1 - (x - np.floor(x)))
    z = (rounded.mean(axis=0) - x)[variance > 0] / np.sqrt(variance[variance > 0] / n)
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 2 / len(x))


@pytest.mark.parametrize("beta", [math.exp(-0.5), 0.3, 0.05])
def test_bias_of_conditional_rounding_is_within_its_bound(beta):
    """All fractions one half, at the clip: where conditioning acts most."""
    from sparse_secagg.accounting import norm_bound

    dim, n = 32, 20_000
    x = np.full(dim, 1.5)
    bound = norm_bound(float(np.linalg.norm(x)), dim, beta)
    squared = math.floor(Fraction(bound) ** 2)
    rng = SimulationRandomness(4)
    rounded = np.array([conditional_rounding(x, squared, rng) for _ in range(n)])
    bias = np.linalg.norm(rounded.mean(axis=0) - x)
    sampling = math.sqrt(dim * 0.25 / n)
    assert bias <= beta / (1 - beta) * math.sqrt(dim) + 6 * sampling
    if beta > 0.5:
        assert bias > 3 * sampling  # the bias is real: conditioning costs something


# -- clients that misbehave -----------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_nonfinite_client_contributes_zero_bit_for_bit(cls, poison):
    mechanism = cls(epsilon=3.0, n_bits=18, random_state=1)
    p = mechanism.calibrate(20, 33)
    Y = on_sphere(20, 33, 1)
    zeroed, poisoned = Y.copy(), Y.copy()
    zeroed[7] = 0.0
    poisoned[7, 3] = poison
    expected = mechanism.encode(zeroed, SimulationRandomness(2))
    assert mechanism.report_.n_nonfinite == 0
    got = mechanism.encode(poisoned, SimulationRandomness(2))
    assert mechanism.report_.n_nonfinite == 1
    np.testing.assert_array_equal(modular_sum(got, p.modulus), modular_sum(expected, p.modulus))
    assert np.isnan(poisoned[7, 3]) or np.isinf(poisoned[7, 3])  # the caller's array is not touched


@pytest.mark.parametrize("cls", ALL)
def test_messages_are_in_range_and_fresh(cls):
    mechanism = cls(epsilon=3.0, n_bits=18)
    p = mechanism.calibrate(6, 20)
    Y = on_sphere(6, 20, 3)
    first, second = mechanism.encode(Y), mechanism.encode(Y)
    assert first.dtype == np.uint64
    assert first.max() < p.modulus
    assert first.shape == (6, p.padded_dim)
    assert not np.array_equal(first, second)
    assert mechanism.encode(Y[0]).shape == (p.padded_dim,)
    with pytest.raises(ValueError, match="shape"):
        mechanism.encode(np.zeros((2, 21)))
    if cls is not CentralGaussian:
        # The same vector twice: two clients never share their randomness.
        twins = mechanism.encode(np.array([Y[0], Y[0]]), SimulationRandomness(0))
        assert not np.array_equal(twins[0], twins[1])


def test_modular_centring():
    np.testing.assert_array_equal(
        centre(np.arange(8, dtype=np.uint64), 8), [0, 1, 2, 3, -4, -3, -2, -1]
    )
    big = np.array([0, 2**62 - 1, 2**62, 2**63 - 1], dtype=np.uint64)
    assert centre(big, 2**63).tolist() == [0, 2**62 - 1, -(2**62), -1]


def test_a_modulus_of_63_bits_still_decodes():
    mechanism = DiscreteGaussian(epsilon=5.0, n_bits=63)
    p = mechanism.calibrate(3, 8)
    Y = on_sphere(3, 8, 4)
    total = modular_sum(mechanism.encode(Y, SimulationRandomness(5)), p.modulus)
    error = mechanism.decode(total, 3) - Y.mean(axis=0)
    assert np.abs(error).max() < 6 * mechanism.noise_std()


# -- end to end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rotation", ["dft", "hadamard"])
@pytest.mark.parametrize("cls", DISTRIBUTED)
def test_mean_squared_error_is_the_planned_one(cls, rotation):
    """n = 1000 clients, b = 18: within 5 % of noise_std² and of the central Gaussian's."""
    n, m, repeats = 1000, 4096, 3
    Y = on_sphere(n, m, 5)
    mechanism = cls(epsilon=1.0, n_bits=18, rotation=rotation, random_state=0)
    central = CentralGaussian(epsilon=1.0)
    errors = {}
    for one in (mechanism, central):
        p = one.calibrate(n, m)
        squares = []
        for r in range(repeats):
            total = modular_sum(one.encode(Y, SimulationRandomness(r)), p.modulus)
            decoded = one.decode(total, n)
            squares.append(((decoded - Y.mean(axis=0)) ** 2).mean())
        errors[one.name] = np.mean(squares)
        assert errors[one.name] == pytest.approx(one.noise_std(n) ** 2, rel=0.05)
    assert mechanism.noise_std(n) == pytest.approx(central.noise_std(n), rel=0.025)
    # Two noisy estimates, each of 12288 squares: 1.3 % standard error each.
    assert errors[mechanism.name] == pytest.approx(errors["central"], rel=0.11)


@pytest.mark.slow
def test_mean_squared_error_matches_the_central_gaussian_full():
    n, m, repeats = 1000, 8192, 8
    Y = on_sphere(n, m, 6)
    errors = []
    for one in (DiscreteGaussian(epsilon=1.0, n_bits=18), CentralGaussian(epsilon=1.0)):
        p = one.calibrate(n, m)
        squares = []
        for _ in range(repeats):
            decoded = one.decode(modular_sum(one.encode(Y), p.modulus), n)
            squares.append(((decoded - Y.mean(axis=0)) ** 2).mean())
        errors.append(np.mean(squares))
        assert errors[-1] == pytest.approx(one.noise_std(n) ** 2, rel=0.05)
    assert errors[0] == pytest.approx(errors[1], rel=0.05)


@pytest.mark.parametrize("rotation", ["dft", "hadamard"])
def test_wrap_rate_of_aligned_clients_is_not_larger_than_planned(rotation):
    n, m, repeats = 10, 4096, 40
    planned = 2 * stats.norm.sf(4.0)
    mechanism = DiscreteGaussian(epsilon=2.0, n_bits=12, rotation=rotation)
    p = mechanism.calibrate(n, m)
    rng = np.random.default_rng(7)
    wrapped = trials = 0
    for seed in range(repeats):
        y = [np.ones(m), rng.normal(size=m), np.eye(m)[seed], rng.laplace(size=m)][seed % 4]
        # The same grid and noise with room for everything: what would have wrapped is seen.
        mechanism.parameters_ = dataclasses.replace(p, n_bits=40, seed=seed)
        messages = mechanism.encode(
            np.tile(y / np.linalg.norm(y), (n, 1)), SimulationRandomness(seed)
        )
        sums = centre(modular_sum(messages, 2**40), 2**40)
        wrapped += int(((sums < -p.modulus // 2) | (sums >= p.modulus // 2)).sum())
        trials += sums.size
    assert stats.binom.sf(wrapped - 1, trials, planned) > FALSE_ALARM
    # Power: with one deviation less of room the same count would be far above the plan.
    assert stats.binom.sf(wrapped - 1, trials, planned / 100) < FALSE_ALARM or wrapped == 0


def test_survivors_are_charged_as_they_are():
    mechanism = DiscreteGaussian(epsilon=1.0, n_bits=18, min_survivors=80)
    mechanism.calibrate(100, 512)
    assert mechanism.epsilon_spent() == pytest.approx(1.0, abs=1e-6)
    assert mechanism.epsilon_spent(n_survivors=100) < 0.9
    assert mechanism.epsilon_spent(n_survivors=40) > 1.4
    assert (mechanism.rdp(DEFAULT_ORDERS, 100) <= mechanism.rdp(DEFAULT_ORDERS, 90)).all()
    assert mechanism.noise_std(50) == pytest.approx(mechanism.noise_std(100) * math.sqrt(2))


# -- Skellam draws --------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(9), Fraction(10**5, 7)])
def test_skellam_chi_square(variance):
    n = 200_000
    samples = skellam(variance, n, SimulationRandomness(6))
    sd = math.sqrt(variance)
    edges = np.unique(np.round(np.linspace(-3 * sd, 3 * sd, 41)))
    cdf = stats.skellam.cdf(edges, float(variance) / 2, float(variance) / 2)
    expected = np.diff(np.concatenate([[0.0], cdf, [1.0]])) * n
    observed = np.bincount(np.searchsorted(edges, samples), minlength=len(edges) + 1)
    keep = expected > 20
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    assert stats.chi2.sf(statistic, keep.sum() - 1) > FALSE_ALARM


def test_large_skellam_variances_are_sums_of_parts():
    variance = Fraction(10**8)
    samples = skellam(variance, 100_000, SimulationRandomness(7))
    assert samples.var() == pytest.approx(float(variance), rel=6 * math.sqrt(2 / 100_000))
    # More bits than the finest grid needs are simply not used.
    p = Skellam(epsilon=1.0, n_bits=50).calibrate(10, 10)
    assert 1e8 < p.variance <= 2.0001e8


def test_noise_that_is_not_exact_is_charged_to_delta():
    class Approximate(Skellam):
        def _draw_total_variation(self, variance):
            return 2.0**-40

    ours = [m(epsilon=1.0, n_bits=18) for m in (Skellam, Approximate)]
    for mechanism in ours:
        mechanism.calibrate(10, 1000)
    exact, approximate = ours
    assert exact.total_variation() == 0
    assert approximate.total_variation() == 10 * 1000 * 2.0**-40
    without = rdp_to_dp(DEFAULT_ORDERS, approximate.rdp(DEFAULT_ORDERS), 1e-5)
    assert without < approximate.epsilon_spent() <= 1
