"""The contract that every solver keeps, and the registry."""

import importlib
import pickle
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from sklearn.base import clone

import solvers
from solvers import registry
from tests.solvers.problems import sparse_problem

# celer's and skglm's adapters differ from sklearn_lasso's in one call, which test_lasso checks.
ON_ARRAYS = sorted(set(solvers.names()) - {"median", "celer", "skglm"})


@pytest.fixture
def forget_registrations(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


# --- registry


def test_importing_solvers_loads_nothing_heavy():
    code = "import sys, solvers; print([m for m in ('numba', 'sklearn') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_an_unknown_name_is_answered_with_suggestions():
    with pytest.raises(ValueError, match=r"no solver 'linaer'; did you mean 'linear'"):
        solvers.get("linaer")


def test_get_passes_parameters_to_the_constructor():
    assert solvers.get("sklearn_lasso", tol=1e-3).tol == 1e-3


def test_get_returns_an_instance_as_it_is():
    solver = solvers.get("linear")
    assert solvers.get(solver) is solver


def test_register_makes_a_solver_known_by_name(forget_registrations):
    @solvers.register("zeros")
    class Zeros(solvers.Solver):
        def _solve(self, A, y, noise_std, x0):
            return solvers.Solution(coef=np.zeros(A.shape[1]))

    assert "zeros" in solvers.names()
    A, y, *_ = sparse_problem()
    solver = solvers.get("zeros").fit(A, y)
    assert not solver.coef_.any()
    assert solver.decode(np.stack([y, y])).shape == (2, A.shape[1])


def test_a_taken_name_is_refused(forget_registrations):
    with pytest.raises(ValueError, match="taken"):
        solvers.register("linear", solvers.Solver)


def test_entry_points_are_found(monkeypatch):
    point = metadata.EntryPoint("elsewhere", "solvers.linear:LinearUnsketch", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: metadata.EntryPoints([point]))
    assert "elsewhere" in solvers.names()
    assert type(solvers.get("elsewhere")).__name__ == "LinearUnsketch"


# --- every solver


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_decode_of_a_batch_equals_a_loop_over_fits(name):
    A, y, _, noise = sparse_problem()
    rng = np.random.default_rng(1)
    Y = np.stack([y, -2 * y, y + 0.1 * rng.standard_normal(len(y)), np.zeros(len(y))])
    solver = solvers.get(name).fit(A, y, noise_std=noise)
    if hasattr(solver, "tol"):
        solver.set_params(tol=1e-10)
    batch = solver.decode(Y)
    for row, found in zip(Y, batch):
        alone = clone(solver)
        if hasattr(solver, "alpha_"):
            alone.set_params(alpha=solver.alpha_)
        alone.fit(A, row, noise_std=noise)
        np.testing.assert_allclose(found, alone.coef_, atol=2e-5)


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_dense_sparse_and_matrix_free_agree(name):
    A, _, x, noise = sparse_problem()
    A[np.abs(A) < 0.1] = 0
    y = A @ x + noise * np.random.default_rng(1).standard_normal(len(A))
    params = {"tol": 1e-11} if "tol" in solvers.get(name).get_params() else {}
    dense = solvers.get(name, **params).fit(A, y, noise_std=noise).coef_
    for other in (sp.csr_array(A), sp.csc_matrix(A), aslinearoperator(A), np.asfortranarray(A)):
        found = solvers.get(name, **params).fit(other, y, noise_std=noise).coef_
        np.testing.assert_allclose(found, dense, atol=1e-5)


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_a_read_only_memory_map_is_enough(name, tmp_path):
    A, y, _, noise = sparse_problem()
    np.save(tmp_path / "A.npy", A)
    mapped = np.load(tmp_path / "A.npy", mmap_mode="r")
    found = solvers.get(name).fit(mapped, y, noise_std=noise).coef_
    np.testing.assert_allclose(found, solvers.get(name).fit(A, y, noise_std=noise).coef_)


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_fitted_solvers_can_be_pickled(name):
    A, y, _, noise = sparse_problem()
    solver = solvers.get(name).fit(A, y, noise_std=noise)
    again = pickle.loads(pickle.dumps(solver))
    np.testing.assert_allclose(again.decode(y), solver.decode(y))


# --- bad input


@pytest.mark.parametrize("name", ON_ARRAYS)
class TestBadInput:
    def test_shape_mismatch(self, name):
        A, y, *_ = sparse_problem()
        with pytest.raises(ValueError, match=r"y has shape \(119,\), expected \(120,\)"):
            solvers.get(name).fit(A, y[:-1])

    def test_nan_in_y(self, name):
        A, y, *_ = sparse_problem()
        y[3] = np.nan
        with pytest.raises(ValueError, match="y contains NaN"):
            solvers.get(name).fit(A, y)

    @pytest.mark.parametrize("kind", [np.asarray, sp.csc_array])
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_nan_in_A_even_where_y_is_zero(self, name, kind, bad):
        A, y, *_ = sparse_problem()
        A[7, 5] = bad
        y[7] = 0
        with pytest.raises(ValueError, match="A contains NaN"):
            solvers.get(name).fit(kind(A), y)

    @pytest.mark.parametrize("kind", [np.asarray, sp.csc_array, aslinearoperator])
    def test_all_zero_A(self, name, kind):
        A, y, *_ = sparse_problem()
        with pytest.raises(ValueError, match="A is zero everywhere"):
            solvers.get(name).fit(kind(np.zeros_like(A)), y)

    @pytest.mark.parametrize("noise", [-0.1, np.nan, np.inf])
    def test_negative_noise(self, name, noise):
        A, y, *_ = sparse_problem()
        with pytest.raises(ValueError, match="noise_std="):
            solvers.get(name).fit(A, y, noise_std=noise)

    def test_x0_of_the_wrong_size(self, name):
        A, y, *_ = sparse_problem()
        with pytest.raises(ValueError, match=r"x0 has shape"):
            solvers.get(name).fit(A, y, x0=np.zeros(3))

    def test_decode_of_the_wrong_size(self, name):
        A, y, _, noise = sparse_problem()
        solver = solvers.get(name).fit(A, y, noise_std=noise)
        with pytest.raises(ValueError, match="fitted on 120 measurements"):
            solver.decode(np.zeros((2, 7)))

    def test_decode_of_no_rows(self, name):
        A, y, _, noise = sparse_problem()
        solver = solvers.get(name).fit(A, y, noise_std=noise)
        assert solver.decode(np.zeros((0, 120))).shape == (0, 400)


def test_operators_that_give_nan_or_complex_numbers_are_refused():
    A, y, *_ = sparse_problem()
    broken = LinearOperator(A.shape, matvec=lambda x: A @ x * np.nan, rmatvec=lambda y: A.T @ y / 0)
    with np.errstate(all="ignore"), pytest.raises(OverflowError, match="not finite"):
        solvers.get("working_set", alpha=0.1).fit(broken, y)
    with pytest.raises(ValueError, match="must be real"):
        solvers.get("working_set").fit(aslinearoperator(A * 1j), y)


@pytest.mark.parametrize(
    ("old", "names"),
    {
        "solvers.denoisers": ["Sparse", "LowRank", "get"],
        "solvers.fista": ["FISTA"],
        "solvers.ista": ["ISTA"],
        "solvers.lasso": ["LassoSolver", "alpha_from_noise", "certify", "debiased", "objective"],
        "solvers.operators": ["Operator", "as_operator"],
        "solvers.priors": ["Scores", "Groups", "Previous"],
        "solvers.sklearn_lasso": ["SklearnLasso", "CelerLasso", "SkglmLasso"],
        "solvers.sqrt_lasso": ["SqrtLasso", "sqrt_lasso_gap"],
        "solvers.working_set": ["WorkingSet"],
    }.items(),
)
def test_old_import_paths_keep_working(old, names):
    module = importlib.import_module(old)
    assert all(hasattr(module, name) for name in names)
