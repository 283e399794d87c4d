"""Linear, median, ridge, square-root Lasso and greedy solvers against plain computations."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import orthogonal_mp

import solvers
from sparse_secagg import CountSketchEncoder, HadamardEncoder
from tests.solvers.problems import sparse_problem

GREEDY = ["omp", "iht", "cosamp"]


def count_sketch(m=300, d=1000, n_rows=5):
    return CountSketchEncoder(n_components=m, n_rows=n_rows, random_state=0).fit_dimension(d)


# --- linear and median


def test_linear_is_the_transpose():
    A, y, *_ = sparse_problem()
    np.testing.assert_allclose(solvers.get("linear").fit(A, y).coef_, A.T @ y)


def test_median_is_the_median_of_the_row_estimates():
    S = count_sketch().operator_
    dense = S.toarray()
    rng = np.random.default_rng(0)
    y = rng.standard_normal(S.shape[0])
    found = solvers.get("median").fit(S, y).coef_
    # each column has one nonzero in each of the 5 rows of buckets
    slow = [np.median(5 * (dense[:, j] * y)[dense[:, j] != 0]) for j in range(S.shape[1])]
    np.testing.assert_allclose(found, slow, atol=1e-12)


def test_median_works_in_blocks(monkeypatch):
    S = count_sketch().operator_
    y = np.random.default_rng(0).standard_normal(S.shape[0])
    whole = solvers.get("median").fit(S, y).coef_
    monkeypatch.setattr("solvers.linear._MEDIAN_BLOCK", 37)
    np.testing.assert_array_equal(solvers.get("median").fit(S, y).coef_, whole)


def test_median_of_a_dense_matrix_is_refused():
    A, y, *_ = sparse_problem()
    with pytest.raises(ValueError, match="needs a count sketch"):
        solvers.get("median").fit(A, y)


# --- ridge


def test_ridge_is_the_closed_form():
    A, y, _, noise = sparse_problem()
    solver = solvers.get("ridge", tol=1e-12).fit(A, y, noise_std=noise)
    signal = (y @ y - len(y) * noise**2) / np.sum(A**2)
    assert solver.penalty_ == pytest.approx(noise**2 / signal)
    kernel = A @ A.T + solver.penalty_ * np.eye(len(y))
    np.testing.assert_allclose(solver.coef_, A.T @ np.linalg.solve(kernel, y), atol=1e-9)


def test_ridge_without_noise_is_the_minimum_norm_solution():
    A, y, *_ = sparse_problem()
    found = solvers.get("ridge", tol=1e-12).fit(A, y).coef_
    np.testing.assert_allclose(found, np.linalg.lstsq(A, y)[0], atol=1e-8)


def test_ridge_beats_the_linear_unsketch_in_squared_error():
    A, y, x, noise = sparse_problem()
    errors = {
        name: np.sum((solvers.get(name).fit(A, y, noise_std=noise).coef_ - x) ** 2)
        for name in ("ridge", "linear")
    }
    assert errors["ridge"] < errors["linear"]


def test_ridge_shrinks_pure_noise_to_nothing():
    A = sparse_problem()[0]
    y = 0.5 * np.random.default_rng(0).standard_normal(len(A))
    assert np.abs(solvers.get("ridge").fit(A, y, noise_std=1.0).coef_).max() < 1e-6


# --- square-root Lasso


def sqrt_gap(A, y, x, alpha):
    """Evaluate primal minus dual of 1/m ||y - A x|| + alpha ||x||_1, independently."""
    m = len(y)
    r = y - A @ x
    u = r / np.linalg.norm(r)
    u *= min(1, m * alpha / np.abs(A.T @ u).max())
    return np.linalg.norm(r) / m + alpha * np.abs(x).sum() - u @ y / m


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_sqrt_lasso_is_certified(scale):
    A, y, *_ = sparse_problem(noise=0.1)
    alpha = scale * np.sqrt(2 * np.log(A.shape[1])) / len(y) ** 1.5
    solver = solvers.get("sqrt_lasso", alpha=alpha, tol=1e-7).fit(A, y)
    assert sqrt_gap(A, y, solver.coef_, alpha) <= 1.001e-7 * np.linalg.norm(y) / len(y)


def test_sqrt_lasso_needs_no_noise_level():
    A, y, *_ = sparse_problem(noise=0.1)
    once = solvers.get("sqrt_lasso", tol=1e-9).fit(A, y)
    louder = solvers.get("sqrt_lasso", tol=1e-9).fit(A, 50 * y)
    assert louder.alpha_ == once.alpha_
    np.testing.assert_allclose(louder.coef_, 50 * once.coef_, atol=1e-3)


def test_a_start_with_the_wrong_signs_does_not_make_sqrt_lasso_negative():
    A, y, *_ = sparse_problem(noise=0.1)
    start = solvers.get("sqrt_lasso").fit(A, y).coef_
    assert start.min() < 0
    assert solvers.get("sqrt_lasso", positive=True).fit(A, y, x0=start).coef_.min() >= 0


# --- greedy


def test_omp_matches_scikit_learn():
    A, y, *_ = sparse_problem()
    A /= np.linalg.norm(A, axis=0)  # scikit-learn assumes unit columns
    found = solvers.get("omp", n_nonzero=12).fit(A, y).coef_
    np.testing.assert_allclose(found, orthogonal_mp(A, y, n_nonzero_coefs=12), atol=1e-10)


@pytest.mark.parametrize("name", GREEDY)
@pytest.mark.parametrize("kind", ["dense", "count_sketch", "hadamard"])
def test_greedy_solvers_find_the_support_and_stop_by_the_noise(name, kind):
    A, _, x, _ = sparse_problem(m=300, d=1000, s=8)
    if kind == "count_sketch":
        A = count_sketch(n_rows=15).operator_
    elif kind == "hadamard":
        A = HadamardEncoder(n_components=300, random_state=0).fit_dimension(1000).operator_
    y = A @ x + 0.01 * np.random.default_rng(1).standard_normal(A.shape[0])
    solver = solvers.get(name).fit(A, y, noise_std=0.01)
    assert set(np.flatnonzero(x)) <= set(np.flatnonzero(solver.coef_))
    assert np.count_nonzero(solver.coef_) <= 16
    assert np.linalg.norm(solver.coef_ - x) <= 0.2
    m = A.shape[0]
    bound = 0.01 * np.sqrt(m + 2 * np.sqrt(m * np.log(m)))
    assert np.linalg.norm(y - A @ solver.coef_) <= bound


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_solvers_find_nothing_in_pure_noise(name):
    A = sparse_problem()[0]
    y = 0.1 * np.random.default_rng(0).standard_normal(len(A))
    assert not solvers.get(name).fit(A, y, noise_std=0.1).coef_.any()


@pytest.mark.parametrize("name", ["iht", "cosamp"])
def test_a_signal_that_is_not_sparse_is_reported(name):
    A = sparse_problem()[0]
    y = A @ np.random.default_rng(0).standard_normal(A.shape[1])
    with pytest.warns(ConvergenceWarning, match="may not be sparse"):
        solver = solvers.get(name, max_iter=5).fit(A, y, noise_std=1e-6)
    assert np.isfinite(solver.coef_).all()


@pytest.mark.parametrize("name", GREEDY)
def test_impossible_numbers_of_nonzeros_are_refused(name):
    A, y, *_ = sparse_problem()
    with pytest.raises(ValueError, match="n_nonzero=0"):
        solvers.get(name, n_nonzero=0).fit(A, y)
