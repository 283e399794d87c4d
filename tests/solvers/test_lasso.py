"""The Lasso family: right answers, honest certificates, and the choice of alpha."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, lasso_path

import solvers
from solvers.lasso import alpha_from_noise, certify
from solvers.operators import as_operator
from sparse_secagg import CountSketchEncoder, GaussianEncoder, HadamardEncoder
from tests.solvers.problems import lasso_gap, lasso_objective, sparse_problem

OURS = ["ista", "fista", "working_set"]
FAMILY = [*OURS, "sklearn_lasso"]
ADAPTERS = [name for name in ("celer", "skglm") if name in solvers.names()]


def operators(d=400, m=120):
    """Return each kind of operator, with the same matrix as a float64 array."""
    A = sparse_problem(m=m, d=d)[0]
    thinned = np.where(np.abs(A) > 0.1, A, 0.0)
    sketch = CountSketchEncoder(n_components=m, n_rows=8, random_state=0).fit_dimension(d)
    hadamard = HadamardEncoder(n_components=m, random_state=0).fit_dimension(d)
    kinds = {
        "dense": A,
        "fortran": np.asfortranarray(A),
        "float32": A.astype(np.float32),
        "csc": sp.csc_array(thinned),
        "count_sketch": sketch.operator_,
        "hadamard": hadamard.operator_,
    }
    return {
        kind: (op, np.asarray(as_operator(op).toarray(), np.float64)) for kind, op in kinds.items()
    }


OPERATORS = operators()


def measurements(dense, noise=0.02, seed=3):
    rng = np.random.default_rng(seed)
    x = np.zeros(dense.shape[1])
    x[rng.choice(len(x), 8, replace=False)] = rng.standard_normal(8)
    return dense @ x + noise * rng.standard_normal(len(dense))


def alpha_max(dense, y):
    return np.abs(dense.T @ y).max() / len(y)


@pytest.mark.parametrize("fraction", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("name", FAMILY)
def test_objective_is_that_of_scikit_learn_and_the_gap_is_certified(name, kind, fraction):
    op, dense = OPERATORS[kind]
    tol = 1e-6 if kind == "float32" else 1e-8
    y = measurements(dense)
    alpha = fraction * alpha_max(dense, y)
    with warnings.catch_warnings():
        # scikit-learn on float32 works in float32, and says so when it cannot go on
        warnings.simplefilter("ignore" if name == "sklearn_lasso" else "error", ConvergenceWarning)
        solver = solvers.get(name, alpha=alpha, tol=tol, max_iter=20_000).fit(op, y)
    unit = y @ y / (2 * len(y))
    best = Lasso(alpha=alpha, tol=1e-14, max_iter=100_000, fit_intercept=False).fit(dense, y).coef_
    found = lasso_objective(dense, y, solver.coef_, alpha)
    assert abs(found - lasso_objective(dense, y, best, alpha)) <= tol * unit
    gap = lasso_gap(dense, y, solver.coef_, alpha)
    assert gap <= tol * unit * (1 + 1e-6) + 1e-14 * unit
    # the certificate may keep a better dual point than the referee's, never claim more than true
    assert solver.dual_gap_ <= tol * unit
    assert found - solver.dual_gap_ <= lasso_objective(dense, y, best, alpha) + 1e-13 * unit


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_of_other_packages_reach_the_tolerance(name):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    alpha = 0.1 * alpha_max(dense, y)
    solver = solvers.get(name, alpha=alpha, tol=1e-7).fit(op, y)
    assert lasso_gap(dense, y, solver.coef_, alpha) <= 1e-7 * (y @ y) / (2 * len(y))


@pytest.mark.parametrize("kind", ["dense", "csc", "count_sketch", "hadamard"])
@pytest.mark.parametrize("name", FAMILY)
def test_positive_solutions_match_scikit_learn(name, kind):
    op, dense = OPERATORS[kind]
    y = measurements(dense)
    alpha = 0.05 * alpha_max(dense, y)
    solver = solvers.get(name, alpha=alpha, tol=1e-8, positive=True).fit(op, y)
    model = Lasso(alpha=alpha, tol=1e-13, max_iter=100_000, fit_intercept=False, positive=True)
    best = model.fit(dense, y).coef_
    unit = y @ y / (2 * len(y))
    assert (solver.coef_ >= 0).all()
    difference = lasso_objective(dense, y, solver.coef_, alpha) - lasso_objective(
        dense, y, best, alpha
    )
    assert abs(difference) <= 1e-8 * unit
    assert lasso_gap(dense, y, solver.coef_, alpha, positive=True) <= 1.001e-8 * unit


@pytest.mark.parametrize("noise", [1.0, 0.02])
@pytest.mark.parametrize("fraction", [0.3, 0.03, 0.003])
def test_working_set_on_supports_as_large_as_the_number_of_measurements(fraction, noise):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((100, 1000)) / 10
    y = A[:, :10].sum(axis=1) + noise * rng.standard_normal(100)
    alpha = fraction * alpha_max(A, y)
    solver = solvers.get("working_set", alpha=alpha, tol=1e-9).fit(A, y)
    assert lasso_gap(A, y, solver.coef_, alpha) <= 1.001e-9 * (y @ y) / 200


@pytest.mark.parametrize("kind", ["dense", "csc"])
@pytest.mark.parametrize("name", FAMILY)
def test_degenerate_columns_do_no_harm(name, kind):
    A = sparse_problem()[0]
    A[:, 10] = A[:, 3]
    A[:, 11] = -A[:, 3]
    A[:, 20:30] = 0
    A[:, 40] *= 1e-6
    y = measurements(A)
    alpha = 0.05 * alpha_max(A, y)
    solver = solvers.get(name, alpha=alpha, tol=1e-7)
    solver.fit(A if kind == "dense" else sp.csc_array(A), y)
    assert lasso_gap(A, y, solver.coef_, alpha) <= 1.001e-7 * (y @ y) / (2 * len(y))
    assert not solver.coef_[20:30].any()


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 30),
    d=st.integers(1, 40),
    fraction=st.floats(1e-3, 1.5),
    seed=st.integers(0, 2**32 - 1),
    sparse=st.booleans(),
)
def test_working_set_certifies_whatever_it_is_given(m, d, fraction, seed, sparse):
    rng = np.random.default_rng(seed)
    A = rng.integers(-2, 3, (m, d)) * rng.choice([0.01, 1.0, 100.0], d)
    y = rng.standard_normal(m)
    if not A.any() or not alpha_max(A, y) > 0:
        return
    alpha = fraction * alpha_max(A, y)
    solver = solvers.get("working_set", alpha=alpha, tol=1e-6)
    solver.fit(sp.csc_array(A) if sparse else A, y)
    assert lasso_gap(A, y, solver.coef_, alpha) <= 1.001e-6 * (y @ y) / (2 * m)


@pytest.mark.parametrize("name", FAMILY)
def test_alpha_max_returns_zero_at_once(name):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    solver = solvers.get(name, alpha=1.0001 * alpha_max(dense, y)).fit(op, y)
    assert not solver.coef_.any()
    assert solver.n_iter_ == 0
    assert solver.dual_gap_ == 0


@pytest.mark.parametrize("name", FAMILY)
def test_zero_measurements_give_zero(name):
    A = OPERATORS["dense"][0]
    assert not solvers.get(name).fit(A, np.zeros(len(A)), noise_std=0.1).coef_.any()


@pytest.mark.parametrize("name", FAMILY)
def test_stopping_early_warns_and_returns_the_true_gap(name):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    alpha = 0.01 * alpha_max(dense, y)
    solver = solvers.get(name, alpha=alpha, tol=1e-12, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
        solver.fit(op, y)
    assert np.isfinite(solver.coef_).all()
    assert solver.dual_gap_ > 1e-12 * (y @ y) / (2 * len(y))
    gap = lasso_gap(dense, y, solver.coef_, alpha)
    assert solver.dual_gap_ <= gap * (1 + 1e-9)
    assert_certified(dense, y, solver)


def assert_certified(dense, y, solver):
    """The minimum is not further below the objective than ``dual_gap_`` says."""
    alpha = solver.alpha_
    best = Lasso(alpha=alpha, tol=1e-14, max_iter=100_000, fit_intercept=False).fit(dense, y).coef_
    found = lasso_objective(dense, y, solver.coef_, alpha)
    least = lasso_objective(dense, y, best, alpha)
    assert found - solver.dual_gap_ <= least + 1e-13 * (y @ y) / (2 * len(y))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 2, 3])
@pytest.mark.parametrize("name", FAMILY)
def test_the_gap_of_a_bad_start_is_not_that_of_zero(name, max_iter):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    solver = solvers.get(name, alpha=0.01 * alpha_max(dense, y), tol=1e-12, max_iter=max_iter)
    solver.fit(op, y, x0=np.full(dense.shape[1], 10.0))
    assert_certified(dense, y, solver)


@pytest.mark.parametrize("name", FAMILY)
def test_a_warm_start_at_the_solution_costs_less(name):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    solver = solvers.get(name, alpha=0.05 * alpha_max(dense, y), tol=1e-9)
    cold = solver.fit(op, y).n_iter_
    x = solver.coef_
    solver.fit(op, y, x0=x)
    assert solver.n_iter_ < cold
    np.testing.assert_allclose(solver.coef_, x, atol=1e-4)


@pytest.mark.parametrize("name", ["working_set", "fista"])
def test_path_matches_scikit_learn(name):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    path = solvers.get(name, tol=1e-8).path(op, y, n_alphas=8, eps=0.02)
    _, coefs, _ = lasso_path(dense, y, alphas=path.alphas, tol=1e-12, max_iter=100_000)
    for alpha, ours, theirs in zip(path.alphas, path.coefs, coefs.T):
        difference = lasso_objective(dense, y, ours, alpha) - lasso_objective(
            dense, y, theirs, alpha
        )
        assert difference <= 1e-8 * (y @ y) / (2 * len(y))


# --- alpha


def test_alpha_from_the_noise_is_the_stated_formula():
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    solver = solvers.get("working_set").fit(op, y, noise_std=0.02)
    m, d = dense.shape
    expected = 0.02 * np.sqrt(2 * np.log(d)) * np.linalg.norm(dense, axis=0).max() / m
    assert solver.alpha_ == pytest.approx(expected, rel=1e-12)
    assert solver.noise_std_ == 0.02


def test_alpha_from_the_noise_exceeds_what_noise_alone_correlates():
    rng = np.random.default_rng(0)
    A = OPERATORS["dense"][1]
    alpha = alpha_from_noise(1.0, np.linalg.norm(A, axis=0), len(A))
    noise = rng.standard_normal((2000, len(A)))
    selected = np.abs(noise @ A).max(axis=1) / len(A) > alpha
    assert selected.mean() < 0.5


@pytest.mark.parametrize("name", ["working_set", "fista"])
def test_unknown_noise_is_estimated_by_the_scaled_lasso(name):
    A, y, _, noise = sparse_problem(m=400, d=600, s=5, noise=0.05)
    solver = solvers.get(name).fit(A, y)
    # the fixed point of the scaled Lasso
    residual = y - A @ solver.coef_
    assert solver.noise_std_ == pytest.approx(np.linalg.norm(residual) / np.sqrt(400), rel=5e-3)
    assert solver.noise_std_ == pytest.approx(noise, rel=0.5)
    norms = np.linalg.norm(A, axis=0)
    assert solver.alpha_ == pytest.approx(alpha_from_noise(solver.noise_std_, norms, 400))


def test_zero_noise_recovers_the_signal():
    A, y, x, _ = sparse_problem(noise=0.0)
    solver = solvers.get("working_set", tol=1e-12).fit(A, y, noise_std=0.0)
    np.testing.assert_allclose(solver.coef_, x, atol=1e-4)


@pytest.mark.parametrize("kind", ["dense", "count_sketch"])
def test_cv_predicts_held_out_measurements_nearly_as_well_as_the_best_alpha(kind):
    op, dense = OPERATORS[kind]
    y = measurements(dense, noise=0.1)
    fresh = measurements(dense, noise=0.0)  # same x, no noise
    chosen = solvers.get("working_set", alpha="cv").fit(op, y)
    grid = solvers.get("working_set").path(op, y)
    errors = np.sum((grid.coefs @ dense.T - fresh) ** 2, axis=1)
    assert np.sum((dense @ chosen.coef_ - fresh) ** 2) <= 2 * errors.min()


def test_cv_needs_enough_measurements():
    with pytest.raises(ValueError, match="needs at least 10"):
        solvers.get("working_set", alpha="cv").fit(np.eye(4), np.ones(4))


@pytest.mark.parametrize("bad", [{"alpha": -1.0}, {"alpha": "often"}, {"tol": 0}, {"max_iter": 0}])
def test_bad_parameters_are_named(bad):
    A, y, *_ = sparse_problem()
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        solvers.get("working_set", **bad).fit(A, y)


# --- batches


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("same_support", [True, False])
def test_a_batch_is_certified_row_by_row(kind, same_support):
    op, dense = OPERATORS[kind]
    Y = np.stack([measurements(dense, seed=0 if same_support else k) for k in range(6)])
    Y += 0.01 * np.random.default_rng(0).standard_normal(Y.shape)
    alpha = 0.05 * alpha_max(dense, Y[0])
    tol = 1e-6 if kind == "float32" else 1e-8
    X = solvers.get("working_set", alpha=alpha, tol=tol).fit(op, Y[0]).decode(Y)
    for x, y in zip(X, Y):
        assert lasso_gap(dense, y, x, alpha) <= 1.001 * tol * (y @ y) / (2 * len(y))


# --- certificate


def test_the_certificate_is_the_gap_of_the_definition():
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    x = np.random.default_rng(0).standard_normal(dense.shape[1]) * 0.01
    alpha = 0.1 * alpha_max(dense, y)
    found = certify(as_operator(op), y, x, alpha)
    assert found.primal == pytest.approx(lasso_objective(dense, y, x, alpha))
    assert found.gap <= lasso_gap(dense, y, x, alpha) * (1 + 1e-12)
    u = found.scale * (y - dense @ x)
    assert np.abs(dense.T @ u).max() <= len(y) * alpha * (1 + 1e-12)
    assert found.dual == pytest.approx((y @ y - np.sum((y - u) ** 2)) / (2 * len(y)))


def test_fista_restarts_when_its_momentum_points_uphill(monkeypatch):
    """On an ill-conditioned problem the restart saves most steps; a wrong sign costs many."""
    import solvers.lasso._kernels as kernels

    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 400)) * np.geomspace(1, 0.05, 400)
    x = rng.standard_normal(400) * (rng.random(400) < 0.1)
    y = A @ x + 0.1 * rng.standard_normal(200)
    alpha = 0.01 * np.abs(A.T @ y).max() / 200
    solver = solvers.get("fista", alpha=alpha, tol=1e-9, max_iter=20_000)
    steps = solver.fit(A, y).n_iter_

    step = kernels.proximal_step
    monkeypatch.setattr(kernels, "proximal_step", lambda *args: (step(*args)[0], -1.0))
    assert steps < 0.5 * solver.fit(A, y).n_iter_


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_descent_that_is_cut_off_returns_the_residual_of_its_x(monkeypatch, order):
    """The certificate rests on it: a residual of another x would certify what is not there."""
    import solvers.lasso.pools as pools

    monkeypatch.setattr(pools, "_MAX_CALLS", 1)
    monkeypatch.setattr(pools, "_MAX_ROUNDS", 1)
    rng = np.random.default_rng(0)
    A = np.asarray(rng.standard_normal((30, 60)) + 3 * rng.standard_normal((30, 1)), order=order)
    y = rng.standard_normal(30)
    x = np.zeros(20)
    pool = pools.new_pool(as_operator(A), np.arange(20))
    first = pools.Pass(y, A.T @ y)
    r = pool.minimize(first, first, x, lam=0.1, target=0.0, positive=False)
    np.testing.assert_allclose(r, y - A[:, :20] @ x, atol=1e-10)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("moved", [0.0, 1e-3, 0.1, 10.0])
def test_columns_are_left_out_of_a_descent_only_where_a_bound_allows_it(moved, positive):
    from solvers.lasso._kernels import _correlate

    rng = np.random.default_rng(0)
    C = rng.standard_normal((300, 50)) * rng.uniform(0.1, 3, (300, 1))
    reference = rng.standard_normal(50)
    r = reference + moved * rng.standard_normal(50) / np.sqrt(50)
    q, truth = C @ reference, C @ r
    x = np.where(rng.random(300) < 0.1, 1.0, 0.0)
    lam = np.quantile(np.abs(truth), 0.9)
    norms = np.linalg.norm(C, axis=1)
    needed = (q if positive else np.abs(q)) + norms * np.linalg.norm(r - reference) >= lam
    few = 2 * np.count_nonzero(needed | (x != 0)) <= 300
    if few:  # the others must not even be looked at
        C = np.where((needed | (x != 0))[:, None], C, np.nan)
    active = np.empty(300, dtype=np.int64)
    n_active, largest = _correlate(
        C, np.arange(300), norms**2, r, x, reference, q, lam, positive, active
    )
    press = truth if positive else np.abs(truth)
    np.testing.assert_array_equal(active[:n_active], np.flatnonzero((press > lam) | (x != 0)))
    assert largest == pytest.approx(press.max())
    assert few == (moved < 1)
    # where nothing is violated, a bound on the largest correlation is returned
    lam = 2 * np.abs(truth).max() + 1
    _, largest = _correlate(
        np.nan_to_num(C), np.arange(300), norms**2, r, 0 * x, reference, q, lam, positive, active
    )
    assert press.max() * (1 - 1e-12) <= largest


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("kind", ["fortran", "dense", "float32", "count_sketch", "gaussian"])
def test_bounds_save_passes_and_the_gap_is_still_that_of_all_columns(kind, positive, monkeypatch):
    from solvers.lasso import LassoProblem

    m, d = 300, 6000
    op = GaussianEncoder(n_components=m, random_state=0).fit_dimension(d).operator_
    dense = op.toarray()
    if kind == "count_sketch":
        op = CountSketchEncoder(n_components=m, n_rows=8, random_state=0).fit_dimension(d).operator_
        dense = op.toarray()
    elif kind != "gaussian":
        op = np.asarray(dense, order="F" if kind == "fortran" else "C")
        op = op.astype(np.float32) if kind == "float32" else op
        dense = np.asarray(op, dtype=np.float64)
    passes = []
    correlate = LassoProblem.correlate
    monkeypatch.setattr(
        LassoProblem, "correlate", lambda self, R: passes.append(len(R)) or correlate(self, R)
    )
    saved = 0
    for seed in range(10):
        y = measurements(dense, noise=0.1, seed=seed)
        passes.clear()
        solver = solvers.get("working_set", tol=1e-9, positive=positive)
        solver.fit(op, y, noise_std=0.05)
        unit = y @ y / (2 * m)
        assert lasso_gap(dense, y, solver.coef_, solver.alpha_, positive) <= 1.001e-9 * unit
        saved += solver.n_iter_ - 1 - len(passes)  # the first, A^T y, comes with the norms
    assert saved > 0


def test_a_column_that_follows_the_residual_is_not_left_out_of_a_certificate():
    from solvers.lasso import LassoProblem
    from solvers.lasso.pools import Pass, new_pool
    from solvers.lasso.working_set import _State

    rng = np.random.default_rng(0)
    m, d, alpha = 50, 1000, 0.02
    lam = m * alpha
    before = rng.standard_normal(m)
    step = rng.standard_normal(m)
    step -= before * (step @ before) / (before @ before)
    step *= 0.1 / np.linalg.norm(step)
    A = 0.001 * rng.standard_normal((m, d))
    A[:, 500] = 0.5 * lam * before / (before @ before) + 0.6 * lam * step / (step @ step)
    problem = LassoProblem(as_operator(A), before[None], with_norms=True)
    state = _State(problem, 0, alpha, new_pool(problem.A, np.array([3])), None)
    state.whole = Pass(before, A.T @ before)
    state.residual = before + step
    assert state.certify_by_bounds()
    assert state.correlations[500] == pytest.approx(1.1 * lam)
    assert np.count_nonzero(state.correlations) == 2  # and the pool's one


def test_a_warm_start_just_short_of_the_solution_is_finished():
    """All correlations lie a little below m alpha there, where a bound serves as the largest."""
    A, y, x0 = np.eye(64), np.zeros(64), np.zeros(64)
    y[0], x0[0] = 1.9, 0.90001
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for matrix in (A, sp.csc_array(A)):
            solver = solvers.get("working_set", alpha=1 / 64, tol=1e-6, debias=True)
            assert solver.fit(matrix, y, x0=x0).n_iter_ <= 3


def test_alpha_within_rounding_of_alpha_max_is_no_error():
    rng = np.random.default_rng(0)
    m, hits = 7, 0
    for top in rng.uniform(1, 2, 200):
        alpha = np.nextafter(top / m, 0)
        hits += not top > m * alpha  # below alpha_max, and yet nothing is violated
        found = solvers.get("working_set", alpha=alpha).fit(np.eye(m), top * np.eye(m)[0])
        assert np.abs(found.coef_).max() < 1e-9
    assert hits


@pytest.mark.parametrize("name", ["working_set", "fista", "sklearn_lasso", *ADAPTERS])
def test_no_solution_of_a_path_is_overwritten_by_the_next(name):
    op, dense = OPERATORS["dense"]
    y = measurements(dense)
    path = solvers.get(name, tol=1e-7).path(op, y, n_alphas=5, eps=0.05)
    assert not path.coefs[0].any()
    for alpha, x in zip(path.alphas, path.coefs):
        assert lasso_gap(dense, y, x, alpha) <= 1.001e-7 * (y @ y) / (2 * len(y)) + 1e-15


@pytest.mark.parametrize("bad", [[0.1, -1.0], [0.1, np.nan], [[0.1]]])
def test_a_path_of_impossible_alphas_is_refused(bad):
    A, y, *_ = sparse_problem()
    with pytest.raises(ValueError, match="alphas="):
        solvers.get("working_set").path(A, y, alphas=bad)


def test_a_path_checks_its_measurements():
    A, y, *_ = sparse_problem()
    y[0] = np.nan
    with pytest.raises(ValueError, match="y contains NaN"):
        solvers.get("working_set").path(A, y)
    with pytest.raises(ValueError, match="y has shape"):
        solvers.get("working_set").path(A, y[1:])


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("size", [1e6, 1e13, 1e100, 1e200])
@pytest.mark.parametrize("kind", ["dense", "csc"])
@pytest.mark.parametrize("name", OURS)
def test_a_start_far_away_does_no_harm(name, kind, size):
    op, dense = OPERATORS[kind]
    y = measurements(dense)
    solver = solvers.get(name, alpha=0.1 * alpha_max(dense, y), tol=1e-8)
    solver.fit(op, y, x0=np.full(dense.shape[1], size))
    assert lasso_gap(dense, y, solver.coef_, solver.alpha_) <= 1.001e-8 * (y @ y) / (2 * len(y))


@pytest.mark.parametrize("kind", [np.asarray, sp.csc_array])
def test_the_residual_is_free_of_the_rounding_of_large_starts(kind):
    """The descent updates it a step at a time, and the certificate believes it."""
    from solvers.lasso.pools import Pass, new_pool

    rng = np.random.default_rng(0)
    A = np.linalg.qr(rng.standard_normal((50, 20)))[0]
    y, x = rng.standard_normal(50), np.full(20, 1e8)
    first = Pass(y, A.T @ y)
    pool = new_pool(as_operator(kind(A)), np.arange(20))
    r = pool.minimize(first, first, x, lam=0.1, target=1e-3, positive=False)
    np.testing.assert_allclose(r, y - A @ x, rtol=0, atol=1e-13)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_dependent_columns_are_exchanged_at_once(sparse, seed):
    rng = np.random.default_rng(seed)
    for A in (rng.standard_normal((1, 5)), (rng.random((9, 182)) < 0.3) * 1.0):
        y = rng.standard_normal(len(A))
        solver = solvers.get("working_set", tol=1e-9, max_iter=20)
        solver.fit(sp.csc_array(A) if sparse else A, y, noise_std=0)
        assert lasso_gap(A, y, solver.coef_, solver.alpha_) <= 1.001e-9 * (y @ y) / (2 * len(y))


@pytest.mark.parametrize("kind", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("name", FAMILY)
def test_a_start_on_a_column_of_zeros_is_taken_back(name, kind):
    A, y, *_ = sparse_problem()
    A[:, 50:60] = 0
    alpha = 0.1 * alpha_max(A, y)
    start = solvers.get(name, alpha=alpha).fit(kind(A), y).coef_
    start[50:60] = 1e-3
    found = solvers.get(name, alpha=alpha, tol=1e-9).fit(kind(A), y, x0=start)
    assert not found.coef_[50:60].any()
    assert lasso_gap(A, y, found.coef_, alpha) <= 1.001e-9 * (y @ y) / (2 * len(y))


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["repeated", "correlated"])
def test_hard_designs_with_weak_penalties_are_solved_in_few_passes(kind, sparse):
    """Columns that repeat, or that correlate by 0.99 with the next, on a full support."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((80, 300))
    if kind == "repeated":
        A[:, 150:] = A[:, :150]
    else:
        for j in range(1, 300):
            A[:, j] = 0.99 * A[:, j - 1] + np.sqrt(1 - 0.99**2) * A[:, j]
    y = rng.standard_normal(80)
    solver = solvers.get("working_set", alpha=1e-3 * alpha_max(A, y), tol=1e-9, max_iter=15)
    solver.fit(sp.csc_array(A) if sparse else A, y)
    assert lasso_gap(A, y, solver.coef_, solver.alpha_) <= 1.001e-9 * (y @ y) / 160


def test_fista_starts_at_the_solution_though_the_first_column_is_zero():
    A = np.array([[0.0, 1, 0], [0, 0, 1]])
    found = solvers.get("fista", alpha=0.1, tol=1e-9).fit(A, [1.0, 2.0], x0=[0.0, 1, 2]).coef_
    np.testing.assert_allclose(found, [0, 0.8, 1.8], atol=1e-4)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
@pytest.mark.parametrize("name", FAMILY)
def test_measurements_beyond_floating_point_are_refused(name, scale):
    A, y, *_ = sparse_problem()
    with pytest.raises(OverflowError, match="rescale y"):
        solvers.get(name).fit(A, y * scale, noise_std=scale)


@pytest.mark.parametrize("name", ["fista", "working_set"])
def test_decode_after_a_fit_that_saw_nothing(name):
    A, y, *_ = sparse_problem()
    solver = solvers.get(name).fit(A, 0 * y, noise_std=0)
    assert solver.decode(y).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("place", [(0, 0), (299, 299), (137, 298)])
def test_nan_is_found_on_the_way(dtype, order, place):
    A = np.asarray(np.random.default_rng(0).standard_normal((300, 300)), dtype=dtype, order=order)
    A[place] = np.nan
    with pytest.raises(ValueError, match="A contains NaN"):
        solvers.get("working_set").fit(A, np.ones(300), noise_std=0.1)


@pytest.mark.parametrize("name", ["working_set", "fista"])
def test_norms_that_overflow_are_an_error_not_a_penalty(name):
    A, y, *_ = sparse_problem()
    A[:, 3] *= 1e200
    with pytest.raises(OverflowError, match="rescale A"):
        solvers.get(name).fit(A, y, noise_std=0.1)
