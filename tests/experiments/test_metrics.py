import math

import numpy as np
import pytest

from experiments.metrics import cosine, relative_error, top_recall


def test_measures_of_a_small_example_by_hand():
    truth, estimate = np.array([3.0, 4.0, 0.0]), np.array([3.0, 0.0, 4.0])
    assert relative_error(estimate, truth) == pytest.approx(32 / 25)
    assert cosine(estimate, truth) == pytest.approx(9 / 25)
    assert top_recall(estimate, truth, 2) == 0.5


def test_a_perfect_estimate():
    truth = np.arange(1.0, 6.0)
    assert relative_error(truth, truth) == 0
    assert cosine(truth, truth) == pytest.approx(1)
    assert top_recall(truth, truth, 3) == 1


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
