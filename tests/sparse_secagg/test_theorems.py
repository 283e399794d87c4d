"""The paper's theorems hold for the code as built."""

import pytest

from benchmarks.theorems import measure


@pytest.fixture(scope="module")
def measured():
    return measure(quick=True)


@pytest.mark.parametrize(
    "claim",
    [
        "slope in n at m = n²ε²",
        "slope in ε at m = n²ε²",
        "slope in d at m = n²ε²",
        "slope in m without noise",
        "error over that without compression",
        "the same with a tight clip",
    ],
)
def test_main_scheme_within_ten_percent(measured, claim):
    value, expected = measured[claim]
    assert value == pytest.approx(expected, rel=0.1)


def test_sparse_scheme_grows_like_s_log_d_and_not_d(measured):
    value, expected = measured["sparse scheme: error at 4d over error at d"]
    assert value < 1.5 * expected < 2  # a factor 4 would be linear in d
    value, _ = measured["sparse scheme: slope in s"]
    assert 0.7 < value < 1.4
