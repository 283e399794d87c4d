"""Operators: products, columns and precision."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

from solvers.operators import Operator, RowSubset, as_operator
from sparse_secagg import HadamardEncoder

RNG = np.random.default_rng(0)
A = RNG.standard_normal((30, 70)) * (RNG.random((30, 70)) < 0.5)
KINDS = {
    "dense": A,
    "fortran": np.asfortranarray(A),
    "strided": np.repeat(A, 2, axis=1)[:, ::2],
    "csr": sp.csr_array(A),
    "products": aslinearoperator(A),
    "rows": RowSubset(as_operator(np.vstack([A, A])), np.arange(30)),
    "sparse rows": RowSubset(as_operator(sp.csc_array(np.vstack([A, A]))), np.arange(30)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_a_matrix_agrees(kind):
    op = as_operator(KINDS[kind])
    x, y = RNG.standard_normal(70), RNG.standard_normal(30)
    X, Y = RNG.standard_normal((70, 3)), RNG.standard_normal((30, 3))
    J = [5, 2, 69]
    np.testing.assert_allclose(op.matvec(x), A @ x)
    np.testing.assert_allclose(op.rmatvec(y), A.T @ y)
    np.testing.assert_allclose(op.matmat(X), A @ X)
    np.testing.assert_allclose(op.rmatmat(Y), A.T @ Y)
    np.testing.assert_allclose(op.columns(J), A[:, J])
    assert op.columns(J).flags.f_contiguous
    np.testing.assert_allclose(op.sparse_columns(J).toarray(), A[:, J])
    np.testing.assert_allclose(op.submatrix(J).matvec([1, 2, 3]), A[:, J] @ [1, 2, 3])
    np.testing.assert_allclose(op.gram(J, [1, 2]), A[:, J].T @ A[:, [1, 2]])
    np.testing.assert_allclose(op.column_norms(), np.linalg.norm(A, axis=0))
    np.testing.assert_allclose(op.toarray(), A)


def test_float32_storage_gives_float64_products_of_float64_vectors(monkeypatch):
    monkeypatch.setattr("solvers.operators._CONVERTED", 100)  # many blocks
    stored = A.astype(np.float32)
    op = as_operator(stored)
    y = RNG.standard_normal(30)
    exact = stored.astype(np.float64).T @ y
    np.testing.assert_allclose(op.rmatvec(y), exact, rtol=0, atol=1e-13)
    np.testing.assert_allclose(op.rmatmat(np.stack([y, y], 1))[:, 1], exact, rtol=0, atol=1e-13)
    strided = as_operator(np.repeat(stored, 2, axis=1)[:, ::2])
    np.testing.assert_allclose(strided.rmatvec(y), exact, rtol=0, atol=1e-13)
    np.testing.assert_allclose(op.rmatvec(1j * y), 1j * exact, rtol=0, atol=1e-13)
    fast = op.rmatvec(y.astype(np.float32))
    assert fast.dtype == np.float32
    assert np.abs(fast - exact).max() > 1e-9


def test_a_sparse_entry_given_in_parts_counts_once():
    parts = sp.csc_array(([1.0, 2.0, 5.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    op = as_operator(parts)
    np.testing.assert_allclose(op.column_norms(), [3, 5])
    np.testing.assert_allclose(op.rmatvec([1.0, 1.0]), [3, 5])
    assert parts.nnz == 3  # the caller's matrix is as it was


def test_norms_of_float32_columns_are_float64():
    rows = RowSubset(as_operator(sp.csc_array(A.astype(np.float32))), np.arange(20))
    exact = np.linalg.norm(A[:20].astype(np.float32).astype(np.float64), axis=0)
    np.testing.assert_allclose(rows.column_norms(), exact, rtol=1e-14)


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_with_bad_sizes_are_refused(order, monkeypatch):
    monkeypatch.setattr("solvers.operators._SMALL", 0)
    op = as_operator(np.asarray(A, order=order))
    with pytest.raises(ValueError, match=r"shape|size|mismatch"):
        op.rmatvec_and_norms(np.zeros(29))
    with pytest.raises(ValueError, match=r"shape|size|mismatch"):
        op.rmatvec_with(np.array([1]), np.zeros(29))
    with pytest.raises(IndexError):
        op.rmatvec_with(np.array([70]), np.zeros(30))


@pytest.mark.parametrize(
    ("method", "capability"),
    [
        ("sparse_columns", "has_sparse_columns"),
        ("gram", "has_gram_formula"),
        ("column_norms", "has_column_norms"),
    ],
)
def test_an_operator_declares_what_it_overrides(method, capability):
    with pytest.raises(TypeError, match=f"{method} but does not declare {capability}"):
        type("Undeclared", (Operator,), {method: lambda self, *J: None})
    declared = type("Declared", (Operator,), {method: lambda self, *J: None, capability: True})
    type("Child", (declared,), {method: lambda self, *J: None})  # its parent has said it


def test_solvers_go_by_what_is_declared():
    from solvers.lasso.pools import ColumnPool, GramPool, SparsePool, new_pool

    A = RNG.standard_normal((4, 6))
    pools = [
        new_pool(operator, np.arange(2))
        for operator in (
            as_operator(A),
            as_operator(sp.csc_array(A)),
            RowSubset(as_operator(sp.csc_array(A)), np.arange(3)),
            RowSubset(as_operator(A), np.arange(3)),
            HadamardEncoder(n_components=4, random_state=0).fit_dimension(6).operator_,
        )
    ]
    assert [type(pool) for pool in pools] == [
        ColumnPool,
        SparsePool,
        SparsePool,
        ColumnPool,
        GramPool,
    ]
