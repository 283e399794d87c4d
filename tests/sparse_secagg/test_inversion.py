"""Sampling by inversion: digits against 400-bit floats, replay through a twin, forced refinement,
chi-square, mutations, and the choice between a table and rejection."""

import inspect
import math
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sparse_secagg.mechanisms import _inversion_kernels as kernels
from sparse_secagg.mechanisms import inversion, sampling, tail_sums
from sparse_secagg.mechanisms.inversion import build_table, draw, table_of
from sparse_secagg.mechanisms.randomness import Randomness, SimulationRandomness
from sparse_secagg.mechanisms.rejection import draw_by_rejection
from sparse_secagg.mechanisms.sampling import discrete_gaussian
from sparse_secagg.mechanisms.tail_sums import (
    Gaussian,
    Poisson,
    TailSums,
    Undecided,
    exp_rounded_down,
)

FALSE_ALARM = 1e-6

VARIANCES = [
    Fraction(1, 10),
    Fraction(1, 4),
    Fraction(3, 7),
    Fraction(1),
    Fraction(12),
    Fraction(2**31 - 1, 2**31),
    Fraction(2500 * 2**20 + 1, 2**20),
    Fraction(10**9 + 7, 10**3),
    Fraction(10**30 + 1, 10**29),  # beyond 128 bits in the rejection sampler
    Fraction(10**5, 3),
    Fraction(10**7),
    Fraction(10**8),
]
MEANS = [Fraction(1, 1000), Fraction(1, 10), Fraction(5, 2), Fraction(4), Fraction(1000, 3)]


# -- the twin: probabilities in 400-bit floats, straight from the definition ----------------------


@lru_cache(maxsize=32)
def exact_tails(distribution):
    """Return centre and the two lists of 2·P(tail beyond k), k = 0, 1, …, to below 2^-200."""
    with mpmath.workprec(400):
        if isinstance(distribution, Gaussian):
            sigma2 = as_mpf(distribution.sigma2)
            weights = {0: mpmath.mpf(1)}
            k = 0
            while weights[k] > mpmath.mpf(2) ** -230:
                k += 1
                weights[k] = weights[-k] = mpmath.exp(-(k**2) / (2 * sigma2))
        else:
            mean = as_mpf(distribution.mean)
            last = int(distribution.mean) + 40 + int(30 * math.sqrt(distribution.mean))
            weights = {k: mean**k / mpmath.factorial(k) for k in range(last + 100)}
        total = mpmath.fsum(weights.values())
        support = sorted(weights)
        cumulative, centre = mpmath.mpf(0), support[0]
        for centre in support:
            cumulative += weights[centre]
            if 2 * cumulative >= total:
                break
        upper = [k for k in support if k > centre]
        lower = [k for k in reversed(support) if k < centre]
        return centre, _tails(weights, upper, total), _tails(weights, lower, total)


def as_mpf(value):
    return mpmath.mpf(value.numerator) / value.denominator


def _tails(weights, outwards, total):
    sums, running = [], mpmath.mpf(0)
    for k in reversed(outwards):
        running += weights[k]
        sums.append(2 * running / total)
    return sums[::-1]


def floors(tails, bits):
    with mpmath.workprec(400):
        values = [int(mpmath.floor(tail * mpmath.mpf(2) ** bits)) for tail in tails]
    return [*[v for v in values if v > 0], 0]


def twin_samples(distribution, words, n_bits=63):
    """Invert uniforms of several words each: (first word, further words …)."""
    centre = exact_tails(distribution)[0]
    samples = []
    for word, *further in words:
        side, value, bits = word & 1, word >> (64 - n_bits), n_bits
        for more in further:
            value, bits = (value << 64) | more, bits + 64
        thresholds = cached_floors(distribution, side, bits)
        assert value not in thresholds
        k = sum(value < threshold for threshold in thresholds)
        samples.append(centre - k if side else centre + k)
    return samples


@lru_cache(maxsize=64)
def cached_floors(distribution, side, bits):
    return floors(exact_tails(distribution)[1 + side], bits)


class Scripted(Randomness):
    """Give out the words of a list, then of a simulation."""

    not_private = True

    def __init__(self, words=(), seed=0):
        self.words_left = list(words)
        self.inner = SimulationRandomness(seed)
        self.log = []

    def fill(self, out):
        self.inner.fill(out)
        n = min(out.size, len(self.words_left))
        out.view(np.uint64)[:n], self.words_left = self.words_left[:n], self.words_left[n:]
        self.log.extend(out.view(np.uint64).tolist())


def replay(distribution, size, seed=1, n_bits=63):
    """Draw, then draw again through the twin from the recorded words."""
    table = build_table(distribution, n_bits)
    source = Scripted(seed=seed)
    ours = draw(table, size, source).tolist()
    first, further = source.log[:size], source.log[size:]
    undecided = _ties(distribution, first, n_bits)
    assert len(further) == sum(undecided)
    further = iter(further)
    words = [(word, next(further) if tie else 0) for word, tie in zip(first, undecided)]
    # a word that is decided is so whatever follows
    ones = [(word, f if tie else 2**64 - 1) for (word, f), tie in zip(words, undecided)]
    twin = twin_samples(distribution, words, n_bits)
    assert twin == twin_samples(distribution, ones, n_bits)
    return ours, twin, sum(undecided)


def _ties(distribution, words, n_bits):
    _, above, below = exact_tails(distribution)
    sides = [set(floors(above, n_bits)), set(floors(below, n_bits))]
    return [word >> (64 - n_bits) in sides[word & 1] for word in words]


# -- digits ---------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    p=st.integers(0, 2**60),
    q=st.integers(1, 2**60),
    bits=st.sampled_from([1, 20, 95, 191, 400]),
)
def test_exponentials_are_rounded_down_by_less_than_two_units(p, q, bits):
    lower = exp_rounded_down(Fraction(p, q), bits)
    with mpmath.workprec(1200):
        exact = mpmath.exp(-mpmath.mpf(p) / q) * mpmath.mpf(2) ** bits
        assert lower <= exact < lower + 2


def random_variances(n, largest):
    rng = np.random.default_rng(7)
    for _ in range(n):
        denominator = int(rng.integers(1, 2**40))
        value = math.exp(rng.uniform(math.log(1e-3), math.log(largest)))
        yield Fraction(max(1, int(value * denominator)), denominator)


def assert_table_is_exact(distribution):
    table = build_table(distribution)
    centre, above, below = exact_tails(distribution)
    expected = floors(above, 63)
    assert table.centre == centre
    if isinstance(distribution, Poisson):
        assert table.mirror == len(expected) + 1
        expected += floors(below, 63)
    assert table.thresholds.tolist() == [2 * floor + 1 for floor in expected]


def test_thresholds_of_random_variances_equal_400_bit_arithmetic():
    for sigma2 in random_variances(50, largest=2000.0):
        assert_table_is_exact(Gaussian(sigma2))


@pytest.mark.slow
def test_thresholds_of_large_variances_equal_400_bit_arithmetic():
    for sigma2 in [Fraction(10**8), Fraction(2**28), *random_variances(10, largest=1e8)]:
        assert_table_is_exact(Gaussian(sigma2))


@pytest.mark.parametrize("mean", MEANS, ids=str)
def test_thresholds_of_poisson_equal_400_bit_arithmetic(mean):
    assert_table_is_exact(Poisson(mean))


@pytest.mark.parametrize("bits", [10, 63, 127, 300])
@pytest.mark.parametrize("distribution", [Gaussian(Fraction(50, 7)), Poisson(Fraction(50, 7))])
def test_tail_sums_enclose_the_probabilities(distribution, bits):
    sums = distribution.tail_sums(bits)
    centre, above, below = exact_tails(distribution)
    assert sums.centre == centre
    width = sums.width(bits)
    assert width <= 3
    with mpmath.workprec(400):
        for ours, exact in ((sums.above, above), (sums.below, below)):
            for x, probability in zip(sums.probabilities(ours, bits), exact):
                # the twin itself ends near 2^-200
                assert x <= probability * mpmath.mpf(2) ** bits + mpmath.mpf(2) ** (bits - 190)
                assert probability * mpmath.mpf(2) ** bits <= x + width


@pytest.mark.parametrize("distribution", [Gaussian(Fraction(50, 7)), Poisson(Fraction(1000))])
def test_error_bounds_hold_where_they_matter(distribution, monkeypatch):
    """Without guard bits, and with weights cut early, rounding shows, and the bound covers it."""
    _, above, below = exact_tails(distribution)
    for guard, last in [(0, 1), (0, 1 << 30), (0, 1 << 50), (4, 1 << 40)]:
        monkeypatch.setattr(tail_sums, "_GUARD_BITS", guard)
        monkeypatch.setattr(tail_sums, "_LAST_WEIGHT", last)
        sums = distribution.tail_sums(63)
        with mpmath.workprec(400):
            errors = [
                exact * mpmath.mpf(2) ** 63 - x
                for ours, tails in ((sums.above, above), (sums.below, below))
                for x, exact in zip(sums.probabilities(ours, 63), tails)
            ]
        assert min(errors) >= 0
        assert 2 < max(errors) <= sums.width(63)


def test_floors_that_the_digits_leave_open_are_computed_again(monkeypatch):
    """With digits that rounding has spoilt at first, the table is the same in the end."""
    expected = build_table(Gaussian(Fraction(9)))
    monkeypatch.setattr(inversion, "_SPARE_BITS", 0)
    monkeypatch.setattr(tail_sums, "_GUARD_BITS", 0)
    table = build_table(Gaussian(Fraction(9)))
    np.testing.assert_array_equal(table.thresholds, expected.thresholds)


def test_an_unproven_median_is_refused():
    with pytest.raises(Undecided, match="median"):
        TailSums(0, [50, 0], [10, 0], total=100, error=1)


# -- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "distribution",
    [*map(Gaussian, VARIANCES[:7]), *map(Poisson, MEANS)],
    ids=lambda d: f"{type(d).__name__}-{next(iter(vars(d).values()))}",
)
def test_recorded_words_give_the_twin_the_same_samples(distribution):
    ours, twin, _ = replay(distribution, 3000)
    assert ours == twin


@pytest.mark.parametrize(
    "distribution", [Gaussian(Fraction(12)), Gaussian(Fraction(1, 4)), Poisson(Fraction(5, 2))]
)
def test_words_at_a_threshold_are_decided_by_further_digits(distribution):
    """Words just below, at and just above every threshold, followed by digits on both sides."""
    table = build_table(distribution)
    _, above, below = exact_tails(distribution)
    for side, tails in enumerate((above, below)):
        long = floors(tails, 127)
        for k, floor in enumerate(floors(tails, 63)):
            digits = long[k] % 2**64 if k < len(long) else 0
            for word, further in [
                ((floor << 1) | side, max(digits - 1, 1)),
                ((floor << 1) | side, min(digits + 1, 2**64 - 1)),
                (((floor + 1) << 1) | side, 0),
                ((max(floor - 1, 0) << 1) | side, 2**64 - 1),
            ]:
                tie = _ties(distribution, [word], 63)[0]
                script = [word, further] if tie else [word]
                ours = draw(table, 1, Scripted(script)).tolist()
                assert ours == twin_samples(distribution, [(word, further)])


def test_words_that_agree_with_the_digits_again_take_a_third_word():
    distribution = Gaussian(Fraction(12))
    table = build_table(distribution)
    for side in (0, 1):
        short, long, longer = (cached_floors(distribution, side, bits) for bits in (63, 127, 191))
        for k in range(len(short)):
            word, further, digits = short[k] << 1 | side, long[k] % 2**64, longer[k] % 2**64
            for last in (digits // 2, digits + (2**64 - digits) // 2):
                script = [word, further, last]
                source = Scripted(script)
                assert draw(table, 1, source).tolist() == twin_samples(distribution, [script])
                assert source.log == script


def test_extreme_words():
    table = build_table(Gaussian(Fraction(10**8)))
    words = [0, 1, 2, 3, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2]
    samples = draw(table, 8, Scripted([*words, 2**64 - 1, 2**64 - 1]))
    # a uniform number just below 2^-63 is in the tail beyond 9 standard deviations
    assert 90_000 < samples[0] < 95_000
    assert samples[1] == -samples[0]
    assert samples[4] == -samples[5] == 6745  # σ·Φ⁻¹(¾) = 6744.9 has half of the mass within
    assert samples[6] == samples[7] == 0


@pytest.mark.parametrize(
    "distribution", [Gaussian(Fraction(9)), Poisson(Fraction(9, 2))], ids=["gaussian", "poisson"]
)
def test_forced_refinement_replays_and_follows_the_distribution(distribution):
    """Thresholds of 8 bits leave words open again and again: further bits must be right."""
    ours, twin, n_refined = replay(distribution, 2000, n_bits=8)
    assert ours == twin
    assert 0.01 < n_refined / 2000 < 0.3
    samples = draw(build_table(distribution, 8), 100_000, SimulationRandomness(3))
    assert exact_p_value(samples, distribution) > FALSE_ALARM


def exact_p_value(samples, distribution):
    """Chi-square over every integer that is expected twenty times, and the rest."""
    k, pmf = probabilities(distribution)
    counts = np.bincount(samples - k[0], minlength=len(k))
    return chi_square(counts, pmf * len(samples))


def probabilities(distribution):
    if isinstance(distribution, Poisson):
        k = np.arange(int(distribution.mean) * 3 + 60)
        return k, stats.poisson.pmf(k, float(distribution.mean))
    sigma2 = float(distribution.sigma2)
    reach = math.ceil(12 * math.sqrt(sigma2)) + 2
    k = np.arange(-reach, reach + 1)
    pmf = np.exp(-(k**2) / (2 * sigma2))
    return k, pmf / pmf.sum()


def chi_square(observed, expected):
    """Neighbouring integers share a bin until it is expected twenty times."""
    bins = np.floor(np.cumsum(expected) / max(20.0, expected.sum() / 1000)).astype(int)
    bins = np.unique(bins, return_inverse=True)[1]
    observed, expected = np.bincount(bins, observed), np.bincount(bins, expected)
    keep = expected >= 10
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return stats.chi2.sf(statistic, keep.sum() - 1)


def large_p_value(sigma2, size, seed):
    """Draw in pieces and compare the counts with the probabilities."""
    k, pmf = probabilities(Gaussian(sigma2))
    counts = np.zeros(len(k), dtype=np.int64)
    source, left = SimulationRandomness(seed), size
    while left:
        n = min(left, 10**7)
        counts += np.bincount(discrete_gaussian(sigma2, n, source) - k[0], minlength=len(k))
        left -= n
    return chi_square(counts, pmf * size)


@pytest.mark.parametrize("sigma2", VARIANCES, ids=str)
def test_chi_square(sigma2):
    assert large_p_value(sigma2, 10**6, seed=11) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("sigma2", VARIANCES, ids=str)
def test_chi_square_full(sigma2):
    assert large_p_value(sigma2, 10**8, seed=12) > FALSE_ALARM


def test_chi_square_has_power():
    """A variance wrong by 3 %, and a mean wrong by a twentieth of σ, are seen."""
    sigma2 = Fraction(10**4)
    k, pmf = probabilities(Gaussian(sigma2))
    counts = np.bincount(
        discrete_gaussian(sigma2 * 103 / 100, 10**6, SimulationRandomness(1)) - k[0]
    )
    counts = np.pad(counts, (0, len(k) - len(counts)))
    assert chi_square(counts, pmf * 10**6) < FALSE_ALARM
    counts = np.bincount(discrete_gaussian(sigma2, 10**6, SimulationRandomness(2)) + 5 - k[0])
    counts = np.pad(counts, (0, len(k) - len(counts)))
    assert chi_square(counts, pmf * 10**6) < FALSE_ALARM


@pytest.mark.parametrize("sigma2", [Fraction(1, 4), Fraction(7), Fraction(12345, 10)], ids=str)
def test_inversion_and_rejection_have_the_same_distribution(sigma2):
    n = 10**6
    one = draw(table_of(Gaussian(sigma2)), n, SimulationRandomness(21))
    two = draw_by_rejection(sigma2, n, SimulationRandomness(22))
    edges = np.unique(np.quantile(one, np.linspace(0, 1, 200)[1:-1]))
    counts = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (one, two)]
    difference, total = counts[0] - counts[1], counts[0] + counts[1]
    statistic = (difference[total > 20] ** 2 / total[total > 20]).sum()
    assert stats.chi2.sf(statistic, (total > 20).sum() - 1) > FALSE_ALARM


# -- mutations: each must be caught ---------------------------------------------------------------


def python_kernel(old, new):
    """Return ``invert`` with one change, run as Python."""
    source = inspect.getsource(kernels)
    assert old in source
    source = source.replace(old, new).replace("@numba.njit(cache=True, nogil=True)", "")
    namespace = {"__name__": "mutant"}
    exec(compile(source, "mutant", "exec"), namespace)
    namespace["leading_zeros"] = lambda u: np.uint64(64 - int(u).bit_length())
    return namespace["invert"]


def check_everything():
    with np.errstate(over="ignore"):
        for distribution in (Gaussian(Fraction(12)), Poisson(Fraction(5, 2))):
            ours, twin, _ = replay(distribution, 500)
            assert ours == twin
            ours, twin, _ = replay(distribution, 500, n_bits=8)
            assert ours == twin


def test_the_unmutated_kernel_run_as_python_passes(monkeypatch):
    monkeypatch.setattr(kernels, "invert", python_kernel("return i", "return i"))
    check_everything()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("u < thresholds[k]", "u < thresholds[k + 1]"),
        ("(k ^ side)", "k"),
        ("if (u ^ thresholds[k]) <= slack:", "if False:"),
        ("word = words[i]", "word = words[i & ~1]"),
        ("(side & stride)", "stride"),
    ],
    ids=["off by one", "dropped sign", "skipped refinement", "reused word", "one side only"],
)
def test_kernel_mutations_are_caught(monkeypatch, old, new):
    monkeypatch.setattr(kernels, "invert", python_kernel(old, new))
    with pytest.raises((AssertionError, IndexError)):
        check_everything()


def test_a_table_of_sigma_for_sigma2_is_caught(monkeypatch):
    honest = Gaussian.tail_sums

    def mutant(self, bits):
        return honest(Gaussian(Fraction(math.isqrt(int(self.sigma2)))), bits)

    monkeypatch.setattr(Gaussian, "tail_sums", mutant)
    with pytest.raises(AssertionError):
        check_everything()


def test_refinement_with_the_same_word_again_is_caught(monkeypatch):
    honest = inversion.Table._decide

    def mutant(self, word, rng):
        rng.words(1)
        return honest(self, word, Scripted([word]))

    monkeypatch.setattr(inversion.Table, "_decide", mutant)
    with pytest.raises(AssertionError):
        check_everything()


# -- which way ------------------------------------------------------------------------------------


@pytest.fixture
def ways(monkeypatch):
    """Record which sampler is used."""
    used = []
    for name in ("draw", "draw_by_rejection"):
        original = getattr(sampling, name)

        def recording(*args, original=original, name=name):
            used.append(name)
            return original(*args)

        monkeypatch.setattr(sampling, name, recording)
    return used


def test_small_requests_do_not_build_a_table(ways):
    discrete_gaussian(Fraction(1000**2), 500)
    discrete_gaussian(Fraction(1000**2), 2000)
    discrete_gaussian(Fraction((2**15) ** 2), 10**5)
    discrete_gaussian(Fraction(1, 100), 1)
    assert ways == ["draw_by_rejection", "draw", "draw_by_rejection", "draw"]


def test_the_choice_does_not_depend_on_what_is_cached():
    sigma2 = Fraction(10**6 + 1)
    table_of.cache_clear()
    cold = discrete_gaussian(sigma2, 500, SimulationRandomness(1))
    discrete_gaussian(sigma2, 5000)
    warm = discrete_gaussian(sigma2, 500, SimulationRandomness(1))
    np.testing.assert_array_equal(cold, warm)


def test_tables_are_kept_and_their_number_is_bounded():
    assert table_of(Gaussian(Fraction(5))) is table_of(Gaussian(Fraction(5)))
    assert table_of.cache_info().maxsize <= 32
    assert build_table(Gaussian(Fraction(2**28))).n_bytes < 6e6


def test_pieces_do_not_show(monkeypatch):
    """One stream gives the same samples however many words are inverted at a time."""
    table = build_table(Gaussian(Fraction(7, 2)))
    whole = draw(table, 5000, SimulationRandomness(3))
    monkeypatch.setattr(inversion, "_PIECE", 512)
    np.testing.assert_array_equal(whole, draw(table, 5000, SimulationRandomness(3)))
