"""alpha="paper": the corollary's lambda, as printed, in this package's objective."""

import numpy as np
import pytest

import solvers


def lambda_as_printed(S, n, sigma, gamma, beta, failure):
    m, d = S.shape
    logs = np.log(d) - n * np.log1p(-beta) + np.log(2 / failure)
    largest = np.max(np.sum(S**2, axis=0))
    return np.sqrt(logs / n * (gamma**2 + 4 * sigma**2) / 8 * largest / m)


@pytest.fixture
def problem():
    m, d, n = 100, 400, 10_000
    rng = np.random.default_rng(0)
    S = rng.standard_normal((m, d))
    x = np.zeros(d)
    x[:5] = 3.0
    sigma, gamma = 2.0, 0.5
    noise_std = np.sqrt((gamma**2 + 4 * sigma**2) / (4 * n))
    return S, S @ x + noise_std * rng.standard_normal(m), n, sigma, gamma, noise_std


@pytest.mark.parametrize("name", ["ista", "fista", "working_set", "sklearn_lasso"])
def test_alpha_is_the_papers_lambda(problem, name):
    S, y, n, sigma, gamma, noise_std = problem
    fitted = solvers.get(name, alpha="paper").fit(S, y, noise_std=noise_std)
    expected = lambda_as_printed(S, n, sigma, gamma, beta=1 / n, failure=0.01)
    assert fitted.alpha_ == pytest.approx(expected, rel=1e-4)
    ordinary = solvers.get(name).fit(S, y, noise_std=noise_std).alpha_
    assert 0.2 * len(y) ** 0.5 < fitted.alpha_ / ordinary < 2 * len(y) ** 0.5


def test_scaling_matrix_and_measurements_changes_nothing(problem):
    S, y, *_, noise_std = problem
    scale = len(y) ** -0.5
    plain = solvers.get("working_set", alpha="paper", tol=1e-12).fit(S, y, noise_std=noise_std)
    scaled = solvers.get("working_set", alpha="paper", tol=1e-12).fit(
        scale * S, scale * y, noise_std=scale * noise_std
    )
    assert plain.coef_.any()
    np.testing.assert_allclose(scaled.coef_, plain.coef_, atol=1e-8)


def test_an_unknown_noise_level_is_estimated(problem):
    S, y, *_, noise_std = problem
    known = solvers.get("working_set", alpha="paper").fit(S, y, noise_std=noise_std)
    estimated = solvers.get("working_set", alpha="paper").fit(S, y)
    assert estimated.noise_std_ > 0
    ratio = estimated.noise_std_ / noise_std
    assert estimated.alpha_ == pytest.approx(ratio * known.alpha_)


def test_other_words_are_refused(problem):
    with pytest.raises(ValueError, match='"noise", "cv" or "paper"'):
        solvers.get("working_set", alpha="papers").fit(problem[0], problem[1])
