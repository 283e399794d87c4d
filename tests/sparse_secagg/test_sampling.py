"""Sampling by rejection: replay through a slow twin, chi-square, mutations; the random source."""

import inspect
import math
import multiprocessing
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sparse_secagg.mechanisms import _sampling_kernels as kernels
from sparse_secagg.mechanisms import rejection
from sparse_secagg.mechanisms.randomness import (
    PrivateRandomness,
    Randomness,
    SimulationRandomness,
    as_randomness,
)
from sparse_secagg.mechanisms.rejection import draw_by_rejection
from sparse_secagg.mechanisms.sampling import discrete_gaussian, round_up_variance

FALSE_ALARM = 1e-6

#: What the compiled paths draw (64 bits, 128 bits), then what only Python integers can.
COMPILED = [
    Fraction(1, 10),
    Fraction(1, 4),
    Fraction(3, 7),
    Fraction(1),
    Fraction(12),  # gcd(qt, p) = 4
    Fraction(2**31 - 1, 2**31),
    Fraction(2500 * 2**20 + 1, 2**20),  # 2pqt² < 2^64, yet some proposals exceed 64 bits
    Fraction(10**9 + 7, 10**3),
    Fraction(2**31 - 1),
    Fraction(2**31 + 11, 7),
    Fraction(4 * 10**8 * 3 + 1, 3),  # σ = 20 000
    Fraction(10**15),
]
PYTHON = [
    Fraction(10**30 + 1, 10**29),
    Fraction(10**21 + 3, 10**18),
    Fraction(10**50),
]


class Recorded(Randomness):
    """Pass a source through and remember every word."""

    not_private = True

    def __init__(self, seed):
        self.inner = SimulationRandomness(seed)
        self.log = []

    def fill(self, out):
        self.inner.fill(out)
        self.log.append(out.copy())

    def spawn(self, n):
        raise AssertionError("one stream is enough here")

    def recorded(self):
        return iter(np.concatenate(self.log).tolist())


# -- the slow twin: fractions, written from the paper's description -----------------------------


def twin_below(b, words):
    if b <= 2**32:
        size = 32
    elif b < 2**64:
        size = 64
    else:
        n_bits = (b - 1).bit_length()
        while True:
            value = 0
            for i in range(math.ceil(n_bits / 32)):
                value += next(words) * 2 ** (32 * i)
            value %= 2**n_bits
            if value < b:
                return value
    while True:
        word = next(words)
        if size == 64:
            word += next(words) * 2**32
        if word * b % 2**size >= 2**size % b:
            return word * b // 2**size


def twin_exp(x, denominator, words):
    """Bernoulli(exp(-x)) for a Fraction x, with uniform draws below ``denominator``."""
    while x >= 1:
        if not twin_exp_one(words):
            return False
        x -= 1
    k = 1
    while k == 1 or twin_below(k, words) == 0:
        if Fraction(twin_below(denominator, words), denominator) >= x:
            break
        k += 1
    return k % 2 == 1


def twin_sample(sigma2, words):
    t = math.isqrt(int(sigma2)) + 1
    assert (t - 1) ** 2 <= sigma2 < t**2
    p, q = sigma2.numerator, sigma2.denominator
    denominator = 2 * p * q * t * t // math.gcd(p, q * t) ** 2
    while True:
        u = 0
        if t > 1:
            u = twin_below(t, words)
            if not twin_exp(Fraction(u, t), t, words):
                continue
        v = 0
        while twin_exp_one(words):
            v += 1
        negative = next(words) % 2 == 1
        y = u + t * v
        if negative and y == 0:
            continue
        if twin_exp((y - sigma2 / t) ** 2 / (2 * sigma2), denominator, words):
            return -y if negative else y


def twin_exp_one(words):
    k = 2
    while twin_below(k, words) == 0:
        k += 1
    return k % 2 == 1


def replay(sigma2, size, seed):
    """Draw, then draw again through the twin from the recorded words."""
    source = Recorded(seed)
    ours = draw_by_rejection(sigma2, size, source)
    words = source.recorded()
    return ours.tolist(), [twin_sample(sigma2, words) for _ in range(size)]


@pytest.mark.parametrize("sigma2", COMPILED + PYTHON, ids=str)
def test_recorded_stream_gives_the_twin_the_same_samples(sigma2):
    ours, twin = replay(sigma2, 3000 if sigma2 in COMPILED else 300, seed=1)
    assert ours == twin


@settings(max_examples=60, deadline=None)
@given(
    p=st.integers(1, 2**40),
    q=st.integers(1, 2**40),
    seed=st.integers(0, 2**32),
)
def test_any_rational_replays(p, q, seed):
    ours, twin = replay(Fraction(p, q), 20, seed)
    assert ours == twin


def test_samples_too_large_for_the_kernel_fall_back_one_by_one(monkeypatch):
    """slope = 5·2^59 leaves |y| <= 6 to the kernel; the rest is drawn from the same words."""
    sigma2 = Fraction(16 * 2**59 + 3, 2**59)
    setup = rejection.prepare(sigma2)
    assert setup.fits_kernel
    assert (2**64 - 1) // setup.slope == 6
    fallen_back = []
    original = rejection.sample_big

    def counting(*args):
        fallen_back.append(1)
        return original(*args)

    monkeypatch.setattr(rejection, "sample_big", counting)
    ours, twin = replay(sigma2, 500, seed=2)
    assert ours == twin
    assert 50 < len(fallen_back) < 450


def test_refills_do_not_show(monkeypatch):
    whole = draw_by_rejection(Fraction(7, 2), 5000, SimulationRandomness(3))
    real = rejection.WordBuffer
    monkeypatch.setattr(rejection, "WordBuffer", lambda rng, size=0: real(rng, 256))
    np.testing.assert_array_equal(
        whole, draw_by_rejection(Fraction(7, 2), 5000, SimulationRandomness(3))
    )


# -- mutations: each must be caught ---------------------------------------------------------------


def mutated_kernels(old, new):
    source = inspect.getsource(kernels)
    assert old in source
    source = source.replace(old, new).replace("@numba.njit(cache=True, nogil=True)", "")
    namespace = {"__name__": "mutant"}
    exec(compile(source, "mutant", "exec"), namespace)
    return namespace["fill_gaussian"]


def check_replay():
    for sigma2 in (Fraction(1, 4), Fraction(12), Fraction(81, 2)):
        with np.errstate(over="ignore"):
            ours, twin = replay(sigma2, 400, seed=5)
        assert ours == twin


def test_the_unmutated_kernel_run_as_python_passes(monkeypatch):
    monkeypatch.setattr(kernels, "fill_gaussian", mutated_kernels("DONE, i, pos", "DONE, i, pos"))
    check_replay()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if not u < a:", "if not u <= a:"),
        ("if negative and magnitude == _ZERO:", "if False:"),
    ],
    ids=["<= for <", "no sign rejection"],
)
def test_kernel_mutations_are_caught(monkeypatch, old, new):
    monkeypatch.setattr(kernels, "fill_gaussian", mutated_kernels(old, new))
    with pytest.raises(AssertionError):
        check_replay()


def sigma_for_sigma2(sigma2):
    t = rejection.laplace_scale(sigma2)
    root = Fraction(math.isqrt(sigma2.numerator), math.isqrt(sigma2.denominator))
    return rejection.Setup(
        t,
        root.denominator * t,
        root.numerator,
        2 * root.numerator * root.denominator * t * t,
    )


def floor_scale(sigma2):
    t = max(1, math.isqrt(int(sigma2)))
    slope, offset = sigma2.denominator * t, sigma2.numerator
    return rejection.Setup(t, slope, offset, 2 * offset * slope * t)


def wrong_gcd(sigma2):
    t = rejection.laplace_scale(sigma2)
    slope, offset = sigma2.denominator * t, sigma2.numerator
    common = math.gcd(slope, offset)
    return rejection.Setup(t, slope // common, offset, 2 * offset * slope * t // common)


@pytest.mark.parametrize("mutant", [sigma_for_sigma2, floor_scale, wrong_gcd])
def test_setup_mutations_are_caught(monkeypatch, mutant):
    monkeypatch.setattr(rejection, "prepare", mutant)
    with pytest.raises(AssertionError):
        check_replay()


# -- chi-square -----------------------------------------------------------------------------------


def chi_square_p_value(samples, sigma2, max_bins=400):
    """Compare counts with the probabilities, in bins of about equal probability."""
    sigma = math.sqrt(sigma2)
    n = len(samples)
    if sigma < 2000:
        k = np.arange(-math.ceil(40 * sigma) - 2, math.ceil(40 * sigma) + 3)
        pmf = np.exp(-(k.astype(float) ** 2) / (2 * float(sigma2)))
        cdf = np.cumsum(pmf / pmf.sum())
    else:  # discrete and continuous differ by exp(-2π²σ²) only
        k = np.unique(np.round(np.linspace(-6 * sigma, 6 * sigma, 4000)))
        cdf = stats.norm.cdf((k + 0.5) / sigma)
    if sigma < 20:  # every integer is a bin
        edges = np.flatnonzero(np.abs(k) <= 8 * sigma + 1)
    else:
        edges = np.unique(np.searchsorted(cdf, np.linspace(0, 1, max_bins + 1)[1:-1]))
    probabilities = np.diff(np.concatenate([[0.0], cdf[edges], [1.0]]))
    enough = probabilities * n >= 20
    counts = np.bincount(
        np.searchsorted(k[edges], np.asarray(samples, dtype=np.float64)), minlength=len(edges) + 1
    )
    # Bins too thin for the chi-square approximation go into one.
    observed = np.append(counts[enough], counts[~enough].sum())
    expected = np.append(probabilities[enough], probabilities[~enough].sum()) * n
    if expected[-1] < 20:
        observed[0] += observed[-1]
        expected[0] += expected[-1]
        observed, expected = observed[:-1], expected[:-1]
    statistic = ((observed - expected) ** 2 / expected).sum()
    return stats.chi2.sf(statistic, len(expected) - 1)


@pytest.mark.parametrize("sigma2", COMPILED, ids=str)
def test_chi_square_compiled(sigma2):
    samples = draw_by_rejection(sigma2, 200_000, SimulationRandomness(11))
    assert chi_square_p_value(samples, sigma2) > FALSE_ALARM


@pytest.mark.parametrize("sigma2", PYTHON, ids=str)
def test_chi_square_python(sigma2):
    samples = draw_by_rejection(sigma2, 5_000, SimulationRandomness(12))
    assert chi_square_p_value(samples.astype(float), sigma2, 50) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("sigma2", COMPILED, ids=str)
def test_chi_square_compiled_full(sigma2):
    samples = draw_by_rejection(sigma2, 10_000_000, SimulationRandomness(13))
    assert chi_square_p_value(samples, sigma2) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("sigma2", PYTHON, ids=str)
def test_chi_square_python_full(sigma2):
    samples = draw_by_rejection(sigma2, 100_000, SimulationRandomness(14))
    assert chi_square_p_value(samples.astype(float), sigma2, 100) > FALSE_ALARM


def test_chi_square_has_power():
    """A variance wrong by 3 %, or the rounded continuous Gaussian at small σ, is seen."""
    samples = draw_by_rejection(Fraction(103, 4), 200_000, SimulationRandomness(15))
    assert chi_square_p_value(samples, Fraction(100, 4)) < FALSE_ALARM
    rounded = np.round(np.random.default_rng(0).normal(0, 0.5, 200_000)).astype(np.int64)
    assert chi_square_p_value(rounded, Fraction(1, 4)) < FALSE_ALARM


# -- interface ------------------------------------------------------------------------------------


def test_shapes_types_and_default_source():
    assert discrete_gaussian((9, 4), (3, 5)).shape == (3, 5)
    assert discrete_gaussian(4, 0).shape == (0,)
    assert discrete_gaussian(Fraction(4), 10).dtype == np.int64
    huge = discrete_gaussian((10**60, 1), 20)
    assert huge.dtype == object
    assert max(abs(v) for v in huge) > 2**63
    assert not np.array_equal(discrete_gaussian(10**8, 100), discrete_gaussian(10**8, 100))


def test_large_requests_do_not_depend_on_the_number_of_threads(monkeypatch):
    draws = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        draws.append(discrete_gaussian(50, 200_000, SimulationRandomness(4)))
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("bad", [0, -1, (1, 0), (-3, 4)])
def test_nonpositive_variance_raises(bad):
    with pytest.raises(ValueError, match="sigma2"):
        discrete_gaussian(bad, 3)


@pytest.mark.parametrize("bad", [2.0, "3", None, True])
def test_other_types_raise(bad):
    with pytest.raises(TypeError, match="sigma2"):
        discrete_gaussian(bad, 3)


@given(st.floats(1e-3, 1e30))
def test_rounded_variance_is_never_smaller_and_very_close(variance):
    rounded = round_up_variance(variance)
    assert rounded >= Fraction(variance)
    assert rounded - Fraction(variance) <= Fraction(1, 10**7) * max(1, Fraction(variance))
    if variance < 1e8:
        assert rejection.prepare(rounded).d < 2**64


# -- the source of randomness ---------------------------------------------------------------------


def test_key_stream_is_aes_256_ctr():
    """The published vector of SP 800-38A, F.5.5, with zeros in place of its plain text."""
    from sparse_secagg.mechanisms.randomness import _encrypt_zeros, _key_stream

    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    out = np.empty(16, np.uint8)
    _encrypt_zeros(_key_stream(key, 16 * counter), out)
    assert out.tobytes().hex() == "0bdf7df1591716335e9a8b15c860c502"


def test_simulation_streams_repeat_and_differ():
    a, b = SimulationRandomness(5), SimulationRandomness(5)
    np.testing.assert_array_equal(a.words(100), b.words(100))
    assert not np.array_equal(a.words(100), SimulationRandomness(5).words(100))
    children = a.spawn(3) + a.spawn(3) + [SimulationRandomness(6)]
    firsts = {tuple(child.words(2)) for child in children}
    assert len(firsts) == len(children)
    assert a.not_private
    assert not PrivateRandomness().not_private


def test_simulation_source_continues_after_pickling():
    a = SimulationRandomness(8)
    a.fill(np.empty(7, np.uint8))
    b = pickle.loads(pickle.dumps(a))
    np.testing.assert_array_equal(a.words(5), b.words(5))
    np.testing.assert_array_equal(a.spawn(1)[0].words(5), b.spawn(1)[0].words(5))


def test_private_source_shows_and_pickles_no_secret():
    source = PrivateRandomness()
    words = source.words(4)
    pickled = pickle.dumps(source)
    assert len(pickled) < 120
    assert repr(source) == "PrivateRandomness()"
    assert not np.array_equal(pickle.loads(pickled).words(4), words)
    first = {int(child.words(1)[0]) for child in source.spawn(50)}
    assert len(first) == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_get_streams_of_their_own():
    source = PrivateRandomness()
    source.words(1)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        seen = pool.map(_first_word, [source] * 4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.words(1).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    forked = int.from_bytes(os.read(read, 8), "little")
    mine = int(source.words(1)[0])
    assert len({*seen, forked, mine}) == 6


def _first_word(source):
    return int(source.words(1)[0])


def test_only_private_sources_are_accepted():
    for wrong in (0, np.random.default_rng(0), "seed"):
        with pytest.raises(TypeError, match="SimulationRandomness"):
            as_randomness(wrong)
    with pytest.raises(ValueError, match="seed"):
        SimulationRandomness(-1)
