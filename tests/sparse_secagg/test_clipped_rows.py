"""Clipping by factors, and sketches of clipped rows, against slow and obvious NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparse_secagg import (
    BlockEncoder,
    CountSketchEncoder,
    DiscreteGaussian,
    GaussianEncoder,
    HadamardEncoder,
    IdentityEncoder,
    RoundConfig,
)
from sparse_secagg.clipped_rows import as_rows, clip_factors
from sparse_secagg.mechanisms import SimulationRandomness
from sparse_secagg.mechanisms.rotation import Rotation
from sparse_secagg.rounds import Round

N, D = 21, 2500
LAYERS = {"a": slice(0, 700), "b": slice(700, D)}


def clip_slowly(x, clip_norm):
    """The clipped vector in double precision; zero for one that is not finite."""
    x = np.asarray(x, dtype=np.float64)
    if not np.isfinite(x).all():
        return np.zeros(len(x))
    norm = np.linalg.norm(x)
    return x * (clip_norm / norm) if norm > clip_norm else x


def make_rows(dtype, density=0.05):
    """Rows around a clip of 1, some of them zero, not finite or far too long."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < density) * rng.lognormal(-2, 1, (N, 1))
    X[2] = 0
    X[3, 5], X[4, 6], X[5, 7] = np.nan, np.inf, -np.inf
    X[6] *= 1e30
    return X.astype(dtype)


FORMS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "sparse": sp.csr_array,
    "columns": sp.csc_array,
    "integers of 64 bits": lambda X: sp.csr_array(
        (sp.csr_array(X).data, *(a.astype(np.int64) for a in _places(X))), shape=X.shape
    ),
}


def _places(X):
    X = sp.csr_array(X)
    return X.indices, X.indptr


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [*FORMS.values(), read_only], ids=[*FORMS, "read only"])
@pytest.mark.parametrize("weighted", [False, True])
def test_factors_clip_as_plain_numpy_does(dtype, form, weighted):
    X = make_rows(dtype)
    weights = np.linspace(0, 1, N) if weighted else None
    clipped = clip_factors(as_rows(form(X)), 0.5, weights)
    rows = clipped.rows.toarray() if sp.issparse(clipped.rows) else clipped.rows
    weighted_rows = X.astype(np.float64) * (1 if weights is None else weights[:, None])
    expected = np.array([clip_slowly(row, 0.5) for row in weighted_rows])
    np.testing.assert_allclose(clipped.factors[:, None] * rows, expected, rtol=1e-13)
    finite = np.isfinite(X).all(axis=1)
    np.testing.assert_array_equal(clipped.nonfinite, ~finite)
    norms = np.linalg.norm(np.where(finite[:, None], weighted_rows, 0), axis=1)
    np.testing.assert_allclose(clipped.norms, norms, rtol=1e-13)
    np.testing.assert_array_equal(clipped.clipped, norms > 0.5)
    assert clipped.clipped.sum() not in (0, N)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_clipping_survives_the_ends_of_the_float_range(form):
    X = np.array([[3.0, 4.0], [1e200, 1e200], [1.7e308, -1.7e308], [5e-324, 0.0], [0.0, 0.0]])
    original = X.copy()
    clipped = clip_factors(as_rows(form(X)), 1.0)
    rows = clipped.rows.toarray() if sp.issparse(clipped.rows) else clipped.rows
    Y = clipped.factors[:, None] * rows
    assert clipped.clipped.tolist() == [True, True, True, False, False]
    np.testing.assert_allclose(np.linalg.norm(Y[:3], axis=1), 1.0)
    np.testing.assert_allclose(Y[0], [0.6, 0.8])
    np.testing.assert_array_equal(Y[3:], X[3:])
    np.testing.assert_array_equal(X, original)


def test_rows_that_need_no_care_are_not_copied():
    X = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    assert clip_factors(as_rows(X), 1.0).rows is X
    S = sp.csr_array(X.astype(np.float64))
    assert np.shares_memory(clip_factors(as_rows(S), 1.0).rows.data, S.data)


def test_entries_that_come_twice_are_added_before_a_sparse_row_is_measured():
    X = sp.csr_array((np.array([3.0, 1.0, 1.0]), np.array([4, 4, 2]), np.array([0, 3])), (1, 9))
    clipped = clip_factors(as_rows(X), 1.0)
    assert clipped.norms[0] == pytest.approx(np.sqrt(17))
    assert X.nnz == 3  # the caller's matrix stays as it is


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [*FORMS.values(), read_only], ids=[*FORMS, "read only"])
@pytest.mark.parametrize(
    "encoder",
    [
        CountSketchEncoder(compression=5),
        HadamardEncoder(compression=5),
        GaussianEncoder(compression=50),
        IdentityEncoder(),
        BlockEncoder(LAYERS, encoder=HadamardEncoder(), clip_shares={"a": 0.6, "b": 0.8}),
        BlockEncoder(LAYERS),
    ],
    ids=lambda encoder: type(encoder).__name__,
)
def test_sketches_are_those_of_the_clipped_rows(dtype, form, encoder):
    round_ = Round(
        RoundConfig.create(
            dim=D,
            n_clients=N,
            encoder=encoder,
            mechanism=DiscreteGaussian(n_bits=24),
            clip_norm=0.5,
            random_state=0,
        )
    )
    X, weights = make_rows(dtype), np.linspace(0.1, 1, N)
    sketches, counts = round_.sketch(form(X), weights)
    layers = [(slice(0, D), 1.0)]
    if isinstance(encoder, BlockEncoder):
        layers = [(block.features, block.clip_share) for block in round_.encoder.blocks_]
    expected, n_clipped = np.zeros((N, D)), 0
    for i in np.flatnonzero(np.isfinite(X).all(axis=1)):
        x = weights[i] * X[i].astype(np.float64)
        for features, share in layers:
            expected[i, features] = clip_slowly(x[features], 0.5 * share)
        n_clipped += not np.array_equal(expected[i], x)
    S = round_.encoder.operator_.toarray()
    np.testing.assert_allclose(sketches, expected @ S.T, atol=1e-14)
    assert counts.n_clipped == n_clipped > 0
    assert counts.n_nonfinite == 3
    finite = np.where(np.isfinite(X).all(axis=1)[:, None], X, 0).astype(np.float64)
    norms = weights * np.linalg.norm(finite, axis=1)
    np.testing.assert_allclose(counts.norms, norms, rtol=1e-13)
    total, clipped_total = np.zeros(D), np.zeros(D)
    counts.add_to(total, clipped_total)
    np.testing.assert_allclose(total, weights @ finite, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(clipped_total, expected.sum(axis=0), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("encoder", [CountSketchEncoder(), HadamardEncoder()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [700, 2**15 + 3])
def test_a_sketch_is_the_same_bit_for_bit_alone_and_in_company(encoder, dtype, d):
    S = encoder.set_params(random_state=0).fit_dimension(d).operator_
    X = np.random.default_rng(0).standard_normal((19, d)).astype(dtype)
    together = S.matmat(X.T).T
    for i, x in enumerate(X):
        np.testing.assert_array_equal(S.matmat(x[:, None])[:, 0], together[i])
        np.testing.assert_array_equal(S.matmat(sp.csr_array(x[None, :]).T)[:, 0], together[i])
    np.testing.assert_array_equal(S.matmat(np.ascontiguousarray(X.T)).T, together)


@pytest.mark.parametrize("rotation", ["dft", "hadamard"])
def test_messages_are_the_rounded_rotation_of_the_clipped_sketch(rotation):
    """Without noise, a message is within one grid unit of a slow twin, and within the bound."""
    mechanism = DiscreteGaussian(
        noise_multiplier=0.0, n_bits=30, rotation=rotation, clip_norm=0.7, random_state=0
    )
    p = mechanism.calibrate(11, 333)
    Y = np.random.default_rng(0).standard_normal((11, 333)) * np.geomspace(1e-3, 1, 11)[:, None]
    Y[4, 3], Y[5] = np.nan, 1e200
    original = Y.copy()
    messages = mechanism.encode(Y, SimulationRandomness(0))
    np.testing.assert_array_equal(Y, original)
    rotate = Rotation(rotation, 333, p.seed).forward
    for y, message in zip(Y, messages):
        expected = rotate(clip_slowly(y / max(1, np.abs(y).max()), 0.7)[None])[0] / p.gamma
        got = (message.astype(np.int64) + p.modulus // 2) % p.modulus - p.modulus // 2
        assert np.abs(got - expected).max() < 1 + 1e-6
    assert mechanism.report_.n_nonfinite == 1
    assert mechanism.report_.n_rejected == 0
