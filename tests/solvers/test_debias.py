"""The debiased Lasso is unbiased over fresh draws of A and the noise."""

import numpy as np
import pytest

import solvers
from solvers.lasso import debiased
from solvers.operators import as_operator
from sparse_secagg import CountSketchEncoder

M, D, SPARSITY, NOISE = 200, 400, 20, 0.005


def standardised_bias(draws, factor, kind):
    """Return the bias in standard errors, along the signal and 20 random directions."""
    rng = np.random.default_rng(0)
    x = np.zeros(D)
    x[:SPARSITY] = rng.standard_normal(SPARSITY)
    x *= 0.3 / np.linalg.norm(x)
    directions = np.vstack([x, rng.standard_normal((20, D))])
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    errors = np.empty((draws, 21))
    for k in range(draws):
        if kind == "gaussian":
            A = rng.standard_normal((M, D)) / np.sqrt(M)
        else:
            A = CountSketchEncoder(n_components=M, n_rows=8, random_state=k)
            A = A.fit_dimension(D).operator_
        y = A @ x + NOISE * rng.standard_normal(M)
        solver = solvers.get("working_set", debias=factor).fit(A, y, noise_std=NOISE)
        estimate = solver.coef_
        if not factor:  # the control: the same correction without the degrees of freedom
            norms = as_operator(A).column_norms()
            left = 1 - np.count_nonzero(estimate) / M
            full = debiased(as_operator(A), y, estimate, norms)
            estimate = estimate + left * (full - estimate)
        errors[k] = directions @ (estimate - x)
    return errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(draws))


@pytest.mark.parametrize("kind", ["gaussian", "count_sketch"])
@pytest.mark.parametrize("draws", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_debiased_lasso_has_no_bias(draws, kind):
    assert np.abs(standardised_bias(draws, True, kind)).max() < 5.5


@pytest.mark.parametrize("draws", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_without_the_degrees_of_freedom_the_bias_shows(draws):
    assert standardised_bias(draws, False, "gaussian")[0] < -5.5


def test_debias_states_that_it_is_unbiased():
    assert solvers.get("working_set").biased
    assert not solvers.get("working_set", debias=True).biased
    assert not solvers.get("linear").biased


def test_debias_of_a_batch_equals_one_at_a_time():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 100)) / np.sqrt(60)
    Y = rng.standard_normal((3, 60))
    solver = solvers.get("working_set", alpha=0.01, tol=1e-10, debias=True).fit(A, Y[0])
    for row, y in zip(solver.decode(Y), Y):
        plain = solvers.get("working_set", alpha=0.01, tol=1e-10).fit(A, y).coef_
        left = 1 - np.count_nonzero(plain) / 60
        expected = plain + A.T @ (y - A @ plain) / np.sum(A**2, axis=0) / left
        np.testing.assert_allclose(row, expected, atol=1e-5)
