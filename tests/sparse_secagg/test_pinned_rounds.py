"""The same spec and seeds give the same numbers as version 0.1.0 did."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sparse_secagg.pinned_rounds import (
    numbers_of_plan,
    numbers_of_round,
    plans,
    rounds,
    run_round,
)

RECORD = json.loads((Path(__file__).parent / "data" / "pinned_rounds.json").read_text())
#: Another processor or BLAS may add in another order; on one machine the numbers are equal.
RTOL = 1e-12
#: Message passing multiplies such differences: what is decoded agrees to less.
RTOL_DECODED = 1e-6


def assert_same(found, expected, where=""):
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for name in expected:
            assert_same(found[name], expected[name], f"{where}/{name}")
    elif isinstance(expected, list | float) and expected != []:
        rtol = RTOL_DECODED if where in ("/mean", "/mean_norm") else RTOL
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-15, err_msg=where)
    elif isinstance(expected, str) and _is_number(expected):
        assert float(found) == pytest.approx(float(expected), rel=RTOL), where
    else:
        assert found == expected, where


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", rounds())
def test_a_round_is_what_it_was(name):
    assert_same(numbers_of_round(run_round(*rounds()[name])), RECORD["rounds"][name])


@pytest.mark.parametrize("name", plans())
def test_a_plan_is_what_it_was(name):
    assert_same(json.loads(json.dumps(numbers_of_plan(plans()[name]))), RECORD["plans"][name])


def test_the_record_is_about_these_rounds():
    assert set(RECORD["rounds"]) == set(rounds())
    assert len(RECORD["rounds"]) >= 20
    assert set(RECORD["plans"]) == set(plans())
