"""How sure the numbers of a private round are: intervals and discoveries, free of charge."""

import pickle
import warnings

import numpy as np
import pytest

from sparse_secagg import (
    BlockEncoder,
    CountSketchEncoder,
    HadamardEncoder,
    IdentityEncoder,
    SparseSecAgg,
)

N, D, S = 400, 2000, 20
X = np.zeros((N, D))
X[:, :S] = 0.2
TRUTH = X.mean(axis=0)
MIXED = np.zeros((N, D))  # what half of the clients hold, and the others
MIXED[: N // 2, ::50] = 0.1
MIXED[N // 2 :, 25::100] = 0.15


def fitted(decoder="amp", seed=0, X=X, at_fit=None, **options):
    options = {"compression": 5, "epsilon": 2.0, "n_bits": 18, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SparseSecAgg(
            decoder=decoder, random_state=seed, simulation_seed=seed, **options
        ).fit(X, **(at_fit or {}))


@pytest.mark.parametrize("decoder", ["amp", "working_set"])
@pytest.mark.parametrize("encoder", ["count_sketch", "hadamard"])
def test_intervals_cover_through_the_whole_pipeline(decoder, encoder):
    """Twelve draws of 2000 entries; errors of one draw are nearly independent, so 95 ± 1 %."""
    inside = []
    for seed in range(12):
        low, high = fitted(decoder, seed, encoder=encoder).confidence_interval(0.95).T
        inside.append(np.mean((low <= TRUTH) & (high >= TRUTH)))
    assert 0.94 <= np.mean(inside) <= 0.96


def weighted(seed):
    weights = np.linspace(0.2, 1.0, N)
    return {}, {"sample_weight": weights}, weights @ MIXED / weights.sum()


def dropouts(seed):
    gone = np.random.default_rng([3, seed]).choice(N // 2, 80, replace=False)
    return {}, {"dropouts": gone.tolist()}, np.delete(MIXED, gone, axis=0).mean(axis=0)


def layers(seed):
    parts = {"a": slice(0, 1200), "b": slice(1200, 1900), "c": slice(1900, D)}
    encoders = {"a": CountSketchEncoder(compression=5, n_rows=8)}
    encoders |= {"b": HadamardEncoder(compression=4), "c": IdentityEncoder()}
    encoder = BlockEncoder(parts, encoder=encoders)
    # layers are clipped one by one: none of them is cut
    return {"encoder": encoder, "clip_norm": 2.0}, {}, MIXED.mean(axis=0)


def single_precision(seed):
    return {"X": MIXED.astype(np.float32)}, {}, MIXED.mean(axis=0)


@pytest.mark.parametrize("kind", [weighted, dropouts, layers, single_precision])
def test_intervals_cover_in_every_kind_of_round(kind):
    """Twelve draws, of clients whose halves hold different entries."""
    inside, every = [], {"encoder": CountSketchEncoder(compression=5, n_rows=8)}
    for seed in range(12):
        options, at_fit, truth = kind(seed)
        estimator = fitted("amp", seed, at_fit=at_fit, **{**every, "X": MIXED, **options})
        low, high = estimator.confidence_interval(0.95).T
        inside.append((low <= truth) & (high >= truth))
    assert 0.94 <= np.mean(inside) <= 0.96
    for part in (slice(0, 1200), slice(1200, 1900), slice(1900, D)):
        shares = np.mean(np.array(inside)[:, part], axis=1)
        assert abs(np.mean(shares) - 0.95) <= 5 * np.sqrt(
            0.95 * 0.05 / np.size(inside[0][part]) / 12
        )


def test_simultaneous_intervals_cover_everything_and_dropouts_widen_them():
    estimator = fitted()
    low, high = estimator.confidence_interval(0.95, simultaneous=True).T
    assert ((low <= TRUTH) & (high >= TRUTH)).all()
    plain = estimator.confidence_interval(0.95)
    assert (high - low > 1.5 * (plain[:, 1] - plain[:, 0])).all()
    with pytest.warns(match="clients survived"):
        fewer = SparseSecAgg(compression=5, epsilon=2.0, n_bits=18).fit(X, dropouts=range(300))
    width = np.diff(fewer.confidence_interval(0.95), axis=1).mean()
    assert width > 1.5 * np.diff(plain, axis=1).mean()


def test_discoveries_are_the_entries_that_are_not_zero():
    estimator = fitted()
    assert set(estimator.discoveries(family_wise=0.01).tolist()) == set(range(S))
    found = estimator.discoveries(fdr=0.05)
    assert set(range(S)) <= set(found.tolist())
    assert len(found) <= S + 6
    with pytest.raises(ValueError, match="exclude each other"):
        estimator.discoveries(fdr=0.05, family_wise=0.01)


def test_biased_decoders_answer_by_their_unbiased_form_or_the_linear_one():
    linear = fitted("linear")
    omp = fitted("omp")
    np.testing.assert_allclose(omp.confidence_interval(0.9), linear.confidence_interval(0.9))
    amp = fitted("amp")
    narrow, wide = (np.diff(e.confidence_interval(0.9), axis=1).mean() for e in (amp, linear))
    assert narrow < 0.6 * wide


def test_decoding_tells_standard_errors_where_there_are_any():
    estimator = fitted()
    mean, std = estimator.decode("linear", return_std=True)
    assert mean.shape == std.shape == (D,)
    assert np.std(mean - TRUTH) == pytest.approx(std.mean(), rel=0.1)
    np.testing.assert_array_equal(mean, estimator.decode("linear"))
    with pytest.raises(ValueError, match="unbiased"):
        estimator.decode("amp", return_std=True)


def test_the_fitted_solver_stays_reachable_and_survives_pickling():
    estimator = fitted()
    np.testing.assert_array_equal(estimator.solver_.coef_, estimator.mean_)
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.confidence_interval(), estimator.confidence_interval())
