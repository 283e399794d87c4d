"""The automatic choice: close to the best decoder, and for a stated reason."""

import pickle

import numpy as np
import pytest

import solvers
from solvers.amp import Ensemble
from solvers.auto import lasso_risk, linear_risk, ridge_risk
from solvers.operators import as_operator
from tests.solvers import grid
from tests.solvers.grid import draw, ensemble, noise_level, relative_error

CANDIDATES = ["linear", "ridge", "working_set", "amp"]


def compare(A, kind, noise, seed):
    """Return the errors of all candidates and of the automatic choice."""
    x, y = draw(kind, A, noise, seed)
    fitted = {name: solvers.get(name).fit(A, y, noise_std=noise) for name in CANDIDATES}
    errors = {name: relative_error(solver.coef_, x) for name, solver in fitted.items()}
    auto = solvers.get("auto").fit(A, y, noise_std=noise)
    return errors, relative_error(auto.coef_, x), auto


def check_grid(cells):
    near = []
    for name, kind, epsilon, seed, d, m in cells:
        A = ensemble(name, d, m, seed)
        errors, found, auto = compare(A, kind, noise_level(epsilon), seed + 20)
        assert found == errors[str(auto.choice_)]
        assert found <= 1.05 * errors["linear"]
        near.append(found <= 1.1 * min(errors.values()))
    assert np.mean(near) >= 0.9


def test_near_the_best_decoder():
    check_grid(
        (name, kind, epsilon, 6, 2000, 400)
        for name in ("hadamard", "count_4", "count_15")
        for kind in ("20-sparse", "k^-1", "Laplace", "dense")
        for epsilon in (1, 0.2)
    )


@pytest.mark.slow
def test_near_the_best_decoder_on_the_whole_grid():
    check_grid(
        (name, kind, epsilon, seed, 10_000, 2000)
        for name in grid.ENSEMBLES
        for kind in grid.SIGNALS
        for epsilon in (1, 0.2)
        for seed in (6, 7)
    )


@pytest.mark.parametrize("name", ["gaussian", "hadamard", "count_8"])
@pytest.mark.parametrize("kind", ["300-sparse", "k^-0.7", "dense"])
def test_the_risk_estimates_are_right(name, kind):
    d, m, noise = 4000, 1000, noise_level(0.2)
    A = ensemble(name, d, m, 0)
    x, y = draw(kind, A, noise, 1)
    world = (0.09, noise, d, m, Ensemble.of(A))
    linear = np.sum((A.rmatvec(y) - x) ** 2)
    assert linear_risk(*world) == pytest.approx(linear, rel=0.1)
    ridge = np.sum((solvers.get("ridge").fit(A, y, noise_std=noise).coef_ - x) ** 2)
    assert ridge_risk(*world) == pytest.approx(ridge, rel=0.1)
    coef = solvers.get("working_set").fit(A, y, noise_std=noise).coef_
    found = lasso_risk(y - A.matvec(coef), np.count_nonzero(coef), noise, Ensemble.of(A))
    chance = 5 * noise**2 * np.sqrt(2 * m)
    assert abs(found - np.sum((coef - x) ** 2)) <= 0.1 * np.sum((coef - x) ** 2) + chance


def test_the_choice_says_why():
    A, noise = ensemble("count_8", 2000, 400, 0), noise_level(1)
    _, y = draw("20-sparse", A, noise, 0)
    choice = solvers.get("auto").fit(A, y, noise_std=noise).choice_
    assert choice == "amp"
    assert set(choice.risks) == set(CANDIDATES)
    assert "linear" in choice.reason
    again = pickle.loads(pickle.dumps(choice))
    assert (again, again.risks, again.reason) == (choice, choice.risks, choice.reason)


def test_enough_measurements_of_a_small_dense_mean_are_left_to_a_linear_method():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 50)) / np.sqrt(40)
    x = rng.standard_normal(50)
    auto = solvers.get("auto").fit(A, A @ x + 0.01 * rng.standard_normal(40), noise_std=0.01)
    assert auto.choice_ == "ridge"
    assert relative_error(auto.coef_, x) < 0.6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_matrix_far_from_random_is_judged_by_held_out_measurements():
    rng = np.random.default_rng(0)
    A = 1.0 + 0.3 * rng.standard_normal((200, 300))
    x = np.zeros(300)
    x[:3] = [1, -1, 2]
    y = A @ x + 0.01 * rng.standard_normal(200)
    auto = solvers.get("auto").fit(A, y, noise_std=0.01)
    assert "held-out" in auto.choice_.reason
    assert auto.choice_ in ("working_set", "amp")
    assert relative_error(auto.coef_, x) < 0.05


def test_shapes_let_it_find_low_rank():
    rng = np.random.default_rng(0)
    x = np.outer(rng.standard_normal(80), rng.standard_normal(50)).ravel()
    x *= 0.3 / np.linalg.norm(x)
    A, noise = ensemble("count_8", 4000, 1000, 0), noise_level(1)
    y = A.matvec(x) + noise * rng.standard_normal(A.shape[0])
    blind = solvers.get("auto").fit(A, y, noise_std=noise)
    told = solvers.get("auto", shapes=[(80, 50)]).fit(A, y, noise_std=noise)
    assert relative_error(told.coef_, x) < 0.2 * relative_error(blind.coef_, x)


def test_unknown_noise_is_estimated():
    A, noise = as_operator(np.random.default_rng(0).standard_normal((400, 2000)) / 20), 0.002
    x, y = draw("20-sparse", A, noise, 0)
    auto = solvers.get("auto").fit(A, y)
    assert 0.5 * noise < auto.noise_std_ < 2.5 * noise
    assert relative_error(auto.coef_, x) < 0.05


def test_a_prior_is_used_where_it_helps_and_left_where_it_does_not():
    rng = np.random.default_rng(0)
    x = np.zeros(4000)
    x[:80] = rng.standard_normal(80)
    A = ensemble("hadamard", 4000, 500, 0)
    y = A.matvec(x) + 0.05 * rng.standard_normal(500)
    plain = solvers.get("auto").fit(A, y, noise_std=0.05)
    good = solvers.get("auto", prior=solvers.priors.Scores(-np.arange(4000)))
    good.fit(A, y, noise_std=0.05)
    assert relative_error(good.coef_, x) < 0.7 * relative_error(plain.coef_, x)
    assert "with the prior" in good.choice_.reason
    other = solvers.priors.Previous(rng.standard_normal(4000), 0.01)  # of something else
    bad = solvers.get("auto", prior=other).fit(A, y, noise_std=0.05)
    assert relative_error(bad.coef_, x) <= 1.1 * relative_error(plain.coef_, x)


def test_rows_that_are_active_together_are_chosen_by_risk():
    rng = np.random.default_rng(1)
    rows = np.zeros((200, 20))
    rows[rng.choice(200, 12, replace=False)] = rng.standard_normal((12, 20))
    x = rows.ravel()
    A = ensemble("hadamard", 4000, 600, 0)
    y = A.matvec(x) + 0.05 * rng.standard_normal(600)
    found = solvers.get("amp", denoiser="auto", shapes=[(200, 20)]).fit(A, y, noise_std=0.05)
    assert found.choice_ == {"layer_0": "rows"}
    plain = solvers.get("amp").fit(A, y, noise_std=0.05)
    assert relative_error(found.coef_, x) < 0.5 * relative_error(plain.coef_, x)
