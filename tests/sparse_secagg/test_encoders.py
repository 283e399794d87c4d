"""Every encoder: contract, agreement of all its forms, clear refusals."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparse_secagg import (
    BlockEncoder,
    CountSketchEncoder,
    GaussianEncoder,
    HadamardEncoder,
    IdentityEncoder,
)

D = 1000


def encoders():
    layers = {"hidden": slice(0, 700), "output": slice(700, D)}
    return {
        "count_sketch": CountSketchEncoder(n_components=96, n_rows=7, random_state=3),
        "count_sketch_one_row": CountSketchEncoder(n_components=40, n_rows=1, random_state=3),
        "gaussian": GaussianEncoder(n_components=61, random_state=3),
        "gaussian_streamed": GaussianEncoder(n_components=61, memory_budget=0, random_state=3),
        "hadamard": HadamardEncoder(n_components=64, random_state=3),
        "identity": IdentityEncoder(),
        "blocks": BlockEncoder(layers, random_state=3),
        "blocks_mixed": BlockEncoder(
            layers,
            encoder={"hidden": HadamardEncoder(), "output": GaussianEncoder(compression=3)},
            random_state=3,
        ),
    }


@pytest.fixture(params=encoders())
def encoder(request):
    return encoders()[request.param].fit_dimension(D)


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((37, D))


# transform accepts one vector as well as many; scikit-learn expects a refusal of the former
EXPECTED_FAILURES = {"check_fit2d_predict1d": "one vector (d,) is welcome in transform"}


@parametrize_with_checks(
    [
        CountSketchEncoder(random_state=0),
        GaussianEncoder(random_state=0),
        HadamardEncoder(random_state=0),
        IdentityEncoder(),
        BlockEncoder(random_state=0),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class TestAgreement:
    def test_adjoint_passes_the_dot_test(self, encoder):
        S, rng = encoder.operator_, np.random.default_rng(1)
        for _ in range(5):
            x, y = rng.standard_normal(S.shape[1]), rng.standard_normal(S.shape[0])
            error = abs((S @ x) @ y - x @ (S.T @ y))
            assert error <= 1e-10 * np.linalg.norm(S @ x) * np.linalg.norm(y)

    def test_products_equal_the_dense_matrix(self, encoder, X):
        S = encoder.operator_.toarray()
        assert S.shape == encoder.operator_.shape == (encoder.n_components_, D)
        np.testing.assert_allclose(encoder.transform(X), X @ S.T, atol=1e-12)
        Y = X[:, : encoder.n_components_]
        np.testing.assert_allclose(encoder.inverse_transform(Y), Y @ S, atol=1e-11)
        np.testing.assert_allclose(encoder.operator_ @ X.T, S @ X.T, atol=1e-12)
        np.testing.assert_allclose(encoder.operator_.T @ Y.T, S.T @ Y.T, atol=1e-11)

    def test_columns_and_norms_equal_the_images_of_unit_vectors(self, encoder):
        S = encoder.transform(np.eye(D)).T
        J = np.array([5, 0, 999, 5, 700, 699])
        np.testing.assert_allclose(encoder.operator_.columns(J), S[:, J], atol=1e-14)
        np.testing.assert_allclose(
            encoder.operator_.sparse_columns(J).toarray(), S[:, J], atol=1e-14
        )
        np.testing.assert_allclose(encoder.operator_.column_norms(), np.linalg.norm(S, axis=0))
        assert encoder.operator_.columns([]).shape == (len(S), 0)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_any_layout_of_the_data_gives_the_same_sketch(self, encoder, X, dtype, order, tmp_path):
        X = X.astype(dtype)
        expected = encoder.transform(X.astype(np.float64))
        np.save(tmp_path / "X.npy", np.asarray(X, order=order))
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        for form in (np.asarray(X, order=order), mapped, X[:, ::-1][:, ::-1]):
            Y = encoder.transform(form)
            assert Y.dtype == dtype
            np.testing.assert_allclose(Y, expected, rtol=1e-5 if dtype == np.float32 else 1e-12)

    @pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix, sp.coo_array])
    def test_sparse_data_gives_the_same_sketch(self, encoder, form):
        X = sp.random_array((6, D), density=0.02, rng=np.random.default_rng(2)).toarray()
        X[3] = 0
        np.testing.assert_allclose(encoder.transform(form(X)), encoder.transform(X), atol=1e-13)

    def test_one_vector_or_many(self, encoder, X):
        Y = encoder.transform(X)
        for i in (0, 20, 36):
            np.testing.assert_allclose(encoder.transform(X[i]), Y[i], atol=1e-12)
            np.testing.assert_allclose(
                encoder.inverse_transform(Y[i]), encoder.inverse_transform(Y)[i], atol=1e-11
            )

    def test_same_seed_gives_the_same_map_after_clone_and_pickle(self, encoder, X):
        expected = encoder.transform(X)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).transform(X), expected)
        again = clone(encoder).set_params(
            **({"random_state": encoder.seed_} if hasattr(encoder, "random_state") else {})
        )
        np.testing.assert_array_equal(again.fit(X).transform(X), expected)

    def test_linear(self, encoder, X):
        left = encoder.transform(2 * X[0] - 3 * X[1])
        right = 2 * encoder.transform(X[0]) - 3 * encoder.transform(X[1])
        np.testing.assert_allclose(left, right, atol=1e-12)


@pytest.mark.parametrize("make", [CountSketchEncoder, HadamardEncoder])
def test_a_vector_has_the_same_sketch_bit_for_bit_in_any_company(make, X, monkeypatch):
    encoder = make(compression=7, random_state=1).fit(X)
    expected = np.array([encoder.transform(x) for x in X])
    np.testing.assert_array_equal(encoder.transform(X), expected)
    np.testing.assert_array_equal(encoder.transform(X[:3]), expected[:3])
    np.testing.assert_array_equal(encoder.transform(sp.csr_array(X)), expected)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    np.testing.assert_array_equal(encoder.transform(X), expected)


def test_fresh_seed_is_kept_and_reproduces():
    first, second = (HadamardEncoder().fit_dimension(64) for _ in range(2))
    assert first.seed_ != second.seed_
    again = HadamardEncoder(random_state=first.seed_).fit_dimension(64)
    np.testing.assert_array_equal(first.operator_.toarray(), again.operator_.toarray())


def test_hadamard_gram_is_a_look_up(X):
    S = HadamardEncoder(n_components=90, random_state=0).fit(X).operator_
    J, K = np.array([3, 999, 0, 17]), np.array([17, 512, 3])
    np.testing.assert_allclose(S.gram(J, K), S.columns(J).T @ S.columns(K), atol=1e-13)


def test_row_estimates_average_to_the_unsketch_and_respect_the_range(X):
    S = CountSketchEncoder(n_components=105, n_rows=7, random_state=0).fit(X).operator_
    y = S @ X[0]
    np.testing.assert_allclose(S.row_estimates(y).mean(axis=0), S.T @ y, atol=1e-12)
    np.testing.assert_array_equal(S.row_estimates(y, 10, 20), S.row_estimates(y)[:, 10:20])


class TestSigmaMax:
    @pytest.mark.parametrize("shape", [(1, 5), (40, 40), (60, 700), (300, 1000)])
    def test_certificate_is_a_tight_upper_bound(self, shape):
        encoder = GaussianEncoder(n_components=shape[0], random_state=0).fit_dimension(shape[1])
        truth = np.linalg.norm(encoder.operator_.toarray(), 2)
        assert truth <= encoder.sigma_max() <= truth * (1 + 1e-6)

    @pytest.mark.parametrize("memory_budget", [0, 2**30])
    def test_iterative_bound_is_an_upper_bound_within_its_slack(self, memory_budget):
        encoder = GaussianEncoder(
            n_components=400, random_state=1, memory_budget=memory_budget
        ).fit_dimension(900)
        truth = np.linalg.norm(encoder.operator_.toarray(), 2)
        assert truth <= encoder.operator_._lanczos_sigma_max() <= 1.03 * truth


class TestBlocks:
    layers = {"a": slice(0, 600), "b": slice(600, D)}  # noqa: RUF012

    def test_layers_are_encoded_apart_with_independent_seeds(self, X):
        encoder = BlockEncoder(self.layers, encoder=HadamardEncoder(n_components=50)).fit(X)
        a, b = encoder.blocks_
        assert a.encoder.seed_ != b.encoder.seed_
        np.testing.assert_allclose(
            encoder.transform(X)[:, b.components], b.encoder.transform(X[:, 600:])
        )

    @pytest.mark.parametrize("shares", ["size", "equal", {"a": 0.6, "b": 0.8}])
    def test_clip_shares_stay_within_the_clip(self, shares):
        encoder = BlockEncoder(self.layers, clip_shares=shares).fit_dimension(D)
        norms = encoder.clip_norms(2.5)
        assert list(norms) == ["a", "b"]
        assert np.hypot(*norms.values()) == pytest.approx(2.5)

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"layers": {"a": slice(0, 600)}}, r"cover 600 of 1000.*slice\(600, 1000\)"),
            ({"layers": {"a": slice(0, 600), "b": slice(500, D)}}, "'b'.*continue at entry 600"),
            ({"layers": {"a": slice(0, 2000)}}, "'a'.*length 1000"),
            ({"layers": layers, "encoder": {"a": IdentityEncoder()}}, "no entry for layer 'b'"),
            ({"layers": layers, "clip_shares": "sze"}, "'sze' is unknown"),
            ({"layers": layers, "clip_shares": {"a": 0.9, "b": 0.9}}, "1.62, above 1"),
            ({"layers": layers, "clip_shares": {"a": 0.9}}, r"clip_shares\['b'\]=None"),
            ({"layers": layers, "clip_shares": {"a": 0.9, "b": np.nan}}, "'b'.*nan"),
        ],
    )
    def test_bad_layers_are_refused_with_a_remedy(self, params, message):
        with pytest.raises(ValueError, match=message):
            BlockEncoder(**params).fit_dimension(D)


class TestRefusals:
    @pytest.mark.parametrize("make", [CountSketchEncoder, GaussianEncoder, HadamardEncoder])
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"n_components": 1001}, "n_components=1001.*d=1000.*IdentityEncoder"),
            ({"n_components": 0}, "n_components=0"),
            ({"n_components": 2.5}, "n_components=2.5.*integer"),
            ({"n_components": 10, "compression": 10}, "give one of them"),
            ({"compression": 0.5}, "compression=0.5.*at least 1"),
            ({"compression": np.nan}, "compression=nan"),
            ({"compression": np.inf}, "compression=inf"),
            ({"random_state": -1}, r"random_state=-1.*0 to 2\*\*64 - 1"),
            ({"random_state": 2**64}, "random_state=18446744073709551616"),
            ({"random_state": "abc"}, "random_state='abc'"),
        ],
    )
    def test_bad_parameters(self, make, params, message):
        with pytest.raises(ValueError, match=message):
            make(**params).fit_dimension(D)

    def test_bad_special_parameters(self):
        with pytest.raises(ValueError, match="n_rows=0.*positive"):
            CountSketchEncoder(n_rows=0).fit_dimension(D)
        with pytest.raises(ValueError, match="memory_budget=nan"):
            GaussianEncoder(memory_budget=np.nan).fit_dimension(D)
        with pytest.raises(ValueError, match="d=0"):
            CountSketchEncoder().fit_dimension(0)

    def test_bad_data(self, encoder, X):
        with pytest.raises(ValueError, match="999 features.*1000"):
            encoder.transform(X[:, 1:])
        with pytest.raises(ValueError, match="0 sample"):
            encoder.transform(X[:0])
        for bad in (np.nan, np.inf):
            broken = X.copy()
            broken[3, 4] = bad
            with pytest.raises(ValueError, match="X contains"):
                encoder.transform(broken)
            with pytest.raises(ValueError, match="Y contains"):
                encoder.inverse_transform(broken[:, : encoder.n_components_])
        with pytest.raises(ValueError, match="sketches of length 3"):
            encoder.inverse_transform(X[:, :3])

    def test_bad_columns(self, encoder):
        with pytest.raises(IndexError, match="column 1000"):
            encoder.operator_.columns([0, D])
        with pytest.raises(IndexError, match="column -1"):
            encoder.operator_.columns([-1])
        with pytest.raises(ValueError, match="flatnonzero"):
            encoder.operator_.columns(np.ones(D, dtype=bool))


def test_sizes_are_as_documented():
    assert CountSketchEncoder().fit_dimension(5).n_components_ == 1
    assert HadamardEncoder().fit_dimension(1000).n_components_ == 100
    encoder = CountSketchEncoder(n_components=2000, n_rows=15).fit_dimension(10_000)
    assert (encoder.n_components_, encoder.n_rows_, encoder.width_) == (1995, 15, 133)
    assert CountSketchEncoder(n_components=4).fit_dimension(10).n_rows_ == 4


class TestLongVectors:
    """Vectors that are transformed part by part, with the length at which that begins lowered."""

    @pytest.mark.parametrize("d", [1000, 1024, 700, 513])
    def test_parts_give_the_same_sketch(self, d, monkeypatch):
        x = np.random.default_rng(d).standard_normal((3, d)).astype(np.float32)
        encoder = HadamardEncoder(n_components=64, random_state=3).fit_dimension(d)
        whole = encoder.operator_.matmat(x.T).T
        monkeypatch.setattr("sparse_secagg.sketches.hadamard._LONG", 512)
        parts = encoder.operator_.matmat(x.T).T
        assert not np.array_equal(parts, whole)  # sums in another order: it is the other way
        np.testing.assert_allclose(parts, whole, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(encoder.operator_.matmat(x[1:2].T)[:, 0], parts[1])
        np.testing.assert_allclose(encoder.operator_.matmat(sp.csc_array(x.T)).T, parts)
