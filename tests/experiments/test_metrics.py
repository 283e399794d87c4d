import math

import numpy as np
import pytest

from experiments.results.metrics import cosine, relative_error, top_support


def test_measures_of_a_small_example_by_hand():
    truth, estimate = np.array([3.0, 4.0, 0.0]), np.array([3.0, 0.0, 4.0])
    assert relative_error(estimate, truth) == pytest.approx(32 / 25)
    assert cosine(estimate, truth) == pytest.approx(9 / 25)


def test_a_perfect_estimate():
    truth = np.arange(1.0, 6.0)
    assert relative_error(truth, truth) == 0
    assert cosine(truth, truth) == pytest.approx(1)


def test_zero_vectors_give_no_false_praise():
    zero, truth = np.zeros(3), np.ones(3)
    assert relative_error(zero, truth) == 1
    assert cosine(zero, truth) == 0
    assert math.isnan(relative_error(truth, zero))


def test_float32_inputs_are_measured_in_float64():
    truth = np.full(1000, 1.0, dtype=np.float32)
    estimate = truth + np.float32(1e-4)
    expected = float((estimate.astype(float)[0] - 1) ** 2)
    assert relative_error(estimate, truth) == pytest.approx(expected, rel=1e-9)


def test_support_of_a_small_example_by_hand():
    truth = np.array([5.0, -4.0, 3.0, 0.0, 1.0])
    estimate = np.array([1.0, 0.0, 0.0, -9.0, 0.0])
    # reports 3 and 0; the three largest are 0, 1 and 2
    assert top_support(estimate, truth, 3) == (0.5, pytest.approx(1 / 3))
    assert top_support(truth, truth, 3) == (1, 1)
    assert top_support(np.zeros(5), truth, 3) == (0, 0)
    assert top_support(estimate, truth, 100) == (0.5, 0.25)


def test_support_of_a_histogram_counts_positive_entries_only():
    truth, estimate = np.array([3.0, 2.0, 0.0, 0.0]), np.array([1.0, 0.5, -9.0, 0.0])
    assert top_support(estimate, truth, 2) == (1, 1)


def test_entries_that_tie_for_the_last_place_are_all_right():
    truth = np.array([3.0, 1.0, 1.0, 1.0, 0.0])
    assert top_support(np.array([3.0, 0.0, 0.0, 1.0, 0.0]), truth, 2) == (1, 1)
    assert all(math.isnan(share) for share in top_support(truth, np.zeros(5), 2))
