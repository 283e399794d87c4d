"""Products with stored matrices: every order, precision and number of threads."""

import numpy as np
import pytest

from solvers import products as by_blocks
from solvers.operators import as_operator
from solvers.products import products, products_and_squares, products_with


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 4100), (301, 999), (1030, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_are_those_of_numpy_in_float64(shape, dtype, order, monkeypatch):
    monkeypatch.setattr(by_blocks, "_THREADED_FROM", 0)
    rng = np.random.default_rng(0)
    A = np.asarray(rng.standard_normal(shape), dtype=dtype, order=order)
    A.setflags(write=False)  # as a memory map is
    y = rng.standard_normal(shape[0])
    wide = A.astype(np.float64)
    np.testing.assert_allclose(products(A, y), wide.T @ y, atol=1e-12)
    found, squares = products_and_squares(A, y)
    np.testing.assert_allclose(found, wide.T @ y, atol=1e-12)
    np.testing.assert_allclose(squares, (wide**2).sum(axis=0), rtol=1e-12)
    J = rng.integers(0, shape[1], 5)
    np.testing.assert_allclose(products_with(np.asfortranarray(A), J, y), wide.T[J] @ y, atol=1e-12)
    operator = as_operator(A)
    monkeypatch.setattr("solvers.operators._SMALL", 0)
    np.testing.assert_allclose(operator.column_norms(), np.linalg.norm(wide, axis=0), rtol=1e-12)
    np.testing.assert_allclose(operator.rmatvec_with(J, y), wide.T[J] @ y, atol=1e-12)
    np.testing.assert_allclose(operator.matvec(wide[0]), wide @ wide[0], atol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_result_does_not_depend_on_the_number_of_threads(order, monkeypatch):
    monkeypatch.setattr(by_blocks, "_THREADED_FROM", 0)
    rng = np.random.default_rng(0)
    A = np.asarray(rng.standard_normal((50, 5003)), order=order)
    y = rng.standard_normal(50)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        results.append(np.concatenate([products(A, y), *products_and_squares(A, y)]))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("order", ["C", "F"])
def test_nan_and_infinity_survive(order):
    A = np.asarray(np.ones((9, 40)), order=order)
    A[2, 7], A[3, 11] = np.nan, np.inf
    out, squares = products_and_squares(A, np.ones(9))
    for result in (out, squares, products(A, np.ones(9))):
        assert np.isnan(result[7])
        assert result[11] == np.inf
        assert np.isfinite(np.delete(result, [7, 11])).all()
