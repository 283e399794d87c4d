import math

import numpy as np
import pytest
from scipy import stats

from experiments.results.statistics import find_winner, mean_interval, paired_difference


def test_the_interval_is_students():
    values = np.random.default_rng(0).normal(size=7)
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 6, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.n == 7


def test_one_value_has_no_interval():
    found = mean_interval([2.0])
    assert found.mean == 2
    assert math.isinf(found.high)
    assert not found.excludes_zero
    assert str(found) == "2"


def test_the_paired_difference_agrees_with_a_paired_t_test():
    rng = np.random.default_rng(1)
    common = rng.normal(size=8)
    a = {k: common[k] + rng.normal(scale=0.1) for k in range(8)}
    b = {k: common[k] + 0.3 + rng.normal(scale=0.1) for k in range(8)}
    expected = stats.ttest_rel(list(a.values()), list(b.values())).confidence_interval(0.95)
    found = paired_difference(a, b)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_only_common_seeds_are_compared():
    found = paired_difference({0: 1.0, 1: 2.0, 5: 99.0}, {0: 0.5, 1: 1.5, 7: -99.0})
    assert (found.mean, found.n) == (0.5, 2)
    with pytest.raises(ValueError, match="no seed in common"):
        paired_difference({0: 1.0}, {1: 1.0})


def test_a_small_but_paired_lead_wins_where_the_intervals_overlap():
    draws = {k: float(v) for k, v in enumerate([1, 5, 2, 8, 3])}
    samples = {"a": draws, "b": {k: v + 0.1 + 0.001 * k for k, v in draws.items()}}
    winner = find_winner(samples, lower_is_better=True)
    assert (winner.best, winner.tied) == ("a", ())
    assert winner.lead.high < 0
    assert find_winner(samples, lower_is_better=False).best == "b"


def test_differences_that_change_sign_are_a_tie():
    samples = {
        "a": {0: 1.0, 1: 2.0, 2: 3.0},
        "b": {0: 1.2, 1: 1.9, 2: 3.0},
        "c": {0: 9.0, 1: 9.5, 2: 10.1},
    }
    winner = find_winner(samples, lower_is_better=True)
    assert winner.best == "a"
    assert winner.tied == ("b",)
    assert str(winner) == "a ≈ b"


def test_equal_numbers_are_a_tie():
    assert find_winner({"a": {0: 1.0, 1: 1.0}, "b": {0: 1.0, 1: 1.0}}, lower_is_better=True).tied
