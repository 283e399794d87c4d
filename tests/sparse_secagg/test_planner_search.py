"""The planner's search against brute force, and against the planner it replaces."""

import itertools
import math

import numpy as np
import pytest

from sparse_secagg import plan
from sparse_secagg.planning.clips import clipping_error, length_spread
from sparse_secagg.planning.predictions import Situation, message_passing_error

BETA = math.exp(-0.5)
BITS = np.arange(1, 41)


def next_power(d):
    return 1 << (d - 1).bit_length()


def sketch_lengths(d, step):
    """Every short even length, then lengths half a per cent apart."""
    short = np.arange(2, min(d, 1000) + 1, 2)
    long = np.exp(np.arange(math.log(1000), math.log(d), 0.005)) if d > 1000 else []
    lengths = np.unique(np.concatenate([short, 2 * np.round(np.asarray(long) / 2)]).astype(int))
    return np.unique(lengths // step * step)[int(step > 2) :]


def noise_variance(m, b, n, z):
    """Variance of a coordinate of the mean of n sketches of length m at clip 1; slow and obvious.

    The largest u = c/γ for which 4 standard deviations of the sum of n rounded, noisy and aligned
    clients fit b bits, found by halving an interval; arrays of m broadcast against arrays of b.
    """
    D = m + m % 2

    def bound(u):
        k = math.sqrt(2 * math.log(1 / BETA))
        return np.minimum(u + np.sqrt(D), np.sqrt(u**2 + D / 4 + k * (u + np.sqrt(D) / 2)))

    def variance(u):
        return (z * bound(u)) ** 2 / n

    def fits(u):
        spread = u**2 * n**2 / D + n * (0.25 + variance(u))
        return (8 * np.sqrt(spread) <= 2.0**b) & (variance(u) <= 2.0**44)

    def fine_enough(u):
        return (bound(u) <= 10 * u) & (variance(u) >= 0.25)

    low, high = np.full(np.broadcast(m, b).shape, -20.0), np.full(np.broadcast(m, b).shape, 50.0)
    for _ in range(60):
        middle = (low + high) / 2
        good = fits(np.exp(middle))
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    u = np.exp(low)
    return np.where(fine_enough(u), (variance(u) + 1 / 6) / (u**2 * n), np.inf)


def brute_force(d, n, z, clip):
    """Every scheme's errors and bits, over a fine grid of lengths and all widths."""
    D = next_power(d)
    schemes = [
        (np.array([d]), lambda m: 0 * m),
        (sketch_lengths(d, 2), lambda m: (d - 1) / m * (D - m) / (D - 1)),
        (sketch_lengths(d, 15), lambda m: (d - 1) / m),
        (sketch_lengths(d, 2), lambda m: (d + 1) / m),
    ]
    errors, bits = [], []
    for lengths, compression in schemes:
        m, b = lengths[:, None].astype(float), BITS[None, :].astype(float)
        errors.append((clip**2 * (compression(m) + d * noise_variance(m, b, n, z))).ravel())
        bits.append(((m + m % 2) * b).ravel())
    return np.concatenate(errors), np.concatenate(bits)


GRID = list(
    itertools.product([10**k for k in range(2, 8)], [10**k for k in range(2, 6)], [0.1, 1, 10])
)


def check_against_brute_force(d, n, z, slack, clip=1.0):
    p = plan(d, n, noise_multiplier=z, error_slack=slack, clip_norm=clip)
    errors, bits = brute_force(d, n, z, clip)
    budget = (1 + slack) * errors.min()
    assert p.predicted_mse <= budget * (1 + 1e-6)
    assert p.bits_per_client <= 1.05 * bits[errors <= budget].min()


@pytest.mark.parametrize(("d", "n", "z"), GRID[1::6], ids=str)
def test_bits_are_the_fewest_within_the_slack(d, n, z):
    check_against_brute_force(d, n, z, slack=1.0)


@pytest.mark.parametrize(("slack", "clip"), [(0.05, 1.0), (0.3, 7.0), (1.0, 0.02), (10.0, 3.0)])
def test_bits_are_the_fewest_at_any_slack_and_clip(slack, clip):
    check_against_brute_force(10_000, 100, 1.5, slack, clip)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n", "z"), GRID, ids=str)
def test_bits_are_the_fewest_within_the_slack_everywhere(d, n, z):
    for slack in (0.1, 1.0):
        check_against_brute_force(d, n, z, slack)


def test_bits_for_sparse_means_are_the_fewest_too():
    d, n, z, s = 600, 300, 1.0, 40
    p = plan(d, n, noise_multiplier=z, sparsity=s, encoder="count_sketch", sketch_clip=1.02)
    lengths = np.arange(15, d + 1, 15)
    variances = noise_variance(lengths[:, None].astype(float), BITS[None, :24].astype(float), n, z)

    def error(m, variance):
        at = Situation(d, int(m), math.inf, (d - 1) / m, 1.02 * math.sqrt(variance), 1.0, s)
        return message_passing_error(at) + clipping_error(1.02, length_spread(int(m)))

    best = min(error(m, (z / n) ** 2) for m in lengths)
    costs = [
        (m + m % 2) * b
        for (i, m), (j, b) in itertools.product(enumerate(lengths), enumerate(BITS[:24]))
        if variances[i, j] < math.inf and error(m, variances[i, j]) <= 2 * best
    ]
    assert p.predicted_mse <= 2 * best * (1 + 1e-6)
    assert p.bits_per_client <= 1.05 * min(costs)


#: d, n, z and, of the planner that knew count sketches at a clip of 1.1c only, the bits of its plan
#: and their error.
COUNT_SKETCH_PLANS = [
    (10_000, 100, 2.0, 17160, 11.6396814080727),
    (100_000, 100, 1.0, 83666, 26.188880429898838),
    (100_000, 300, 2.0, 181558, 12.749290810820867),
    (1_000_000, 100, 1.0, 97350, 243.997230213849),
    (1_000_000, 1000, 4.05, 704940, 41.69135772698498),
    (1_000_000, 1000, 2.0, 2208360, 11.679596333506879),
    (1_000_000, 300, 0.5, 2461680, 8.722083051878581),
    (10_000_000, 1000, 1.0, 10885740, 26.1997390583046),
    (10_000_000, 1000, 4.05, 770850, 398.9299310439317),
    (10_000_000, 3000, 4.0, 7222080, 45.02216803629781),
    (10_000_000, 100, 0.1, 8302646, 26.19999862840288),
    (100_000, 1000, 10.0, 109350, 26.186513717199638),
    (10_000, 300, 5.0, 24960, 8.71481090719351),
    (1_000_000, 1000, 1.2, 3899280, 5.484689909618189),
]


@pytest.mark.parametrize(("d", "n", "z", "bits", "error"), COUNT_SKETCH_PLANS)
def test_fewer_bits_than_count_sketches_at_the_papers_clip_for_the_same_error(d, n, z, bits, error):
    assert (n / z) ** 2 < d
    p = plan(d, n, noise_multiplier=z, target_error=error)
    assert p.predicted_mse <= error
    assert p.bits_per_client <= 0.85 * bits
    # and the paper's scheme is still planned as it was
    paper = plan(
        d, n, noise_multiplier=z, target_error=error, encoder="count_sketch", sketch_clip="jl"
    )
    assert paper.bits_per_client == pytest.approx(bits, rel=0.01)
