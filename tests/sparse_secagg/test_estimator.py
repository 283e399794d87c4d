"""SparseSecAgg: one private round, free decoding, honest attributes."""

import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import solvers
from sparse_secagg import (
    CentralGaussian,
    CountSketchEncoder,
    DiscreteGaussian,
    GaussianEncoder,
    IdealSecAgg,
    MaskedSecAgg,
    PrivacyWarning,
    SparseSecAgg,
)
from sparse_secagg.accounting import Ledger
from sparse_secagg.clipping import AdaptiveClip
from sparse_secagg.feedback import ThresholdFeedback
from sparse_secagg.mechanisms import SimulationRandomness
from sparse_secagg.secagg import BelowThresholdError

N, D = 60, 400


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    X = np.zeros((N, D))
    X[:, :6] = 0.35
    return X + 0.01 * rng.standard_normal((N, D))


def simulate(**parameters):
    """A reproducible estimator, its warning silenced."""
    parameters = {
        "encoder": "count_sketch",
        "n_bits": 20,
        "decoder": "linear",
        "random_state": 0,
        "diagnostics": True,
        **parameters,
    }
    return SparseSecAgg(simulation_seed=parameters.pop("simulation_seed", 1), **parameters)


def fit(estimator, X, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return estimator.fit(X, **parameters)


@parametrize_with_checks(
    [SparseSecAgg(decoder="linear", n_bits=24, delta=1e-3)],
    expected_failed_checks=lambda _: {},
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class TestFit:
    def test_attributes_tell_what_the_round_cost(self, X):
        fitted = SparseSecAgg(epsilon=2.0, n_bits=20, decoder="linear").fit(X)
        assert 0.98 * 2.0 <= fitted.epsilon_ <= 2.0
        assert fitted.mean_.shape == (D,)
        assert fitted.sketch_.shape == (fitted.operator_.shape[0],)
        assert fitted.n_survivors_ == N
        assert not fitted.not_private_
        assert fitted.bits_per_parameter_ == fitted.bits_per_client_ / D
        ledger = Ledger(delta=1e-5)
        ledger.spend(fitted.rdp_)
        assert ledger.epsilon_server == pytest.approx(fitted.epsilon_)
        assert "DP" in str(fitted.result_)
        assert fitted.plan_.n_components == len(fitted.sketch_)

    def test_every_fit_is_a_new_round(self, X):
        estimator = SparseSecAgg(n_bits=20, decoder="linear")
        first = estimator.fit(X).sketch_.copy()
        seed = estimator.seed_
        assert not np.array_equal(first, estimator.fit(X).sketch_)
        assert seed != estimator.seed_

    def test_simulations_repeat_and_say_that_they_are_not_private(self, X):
        with pytest.warns(PrivacyWarning, match="simulation_seed=1"):
            first = simulate().fit(X)
        assert first.not_private_
        np.testing.assert_array_equal(first.mean_, fit(simulate(), X).mean_)
        assert not np.array_equal(first.mean_, fit(simulate(simulation_seed=2), X).mean_)

    def test_central_simulations_repeat_too(self, X):
        first, second = (
            fit(simulate(mechanism="central", encoder="identity"), X).mean_ for _ in range(2)
        )
        np.testing.assert_array_equal(first, second)

    def test_public_seed_does_not_fix_the_noise(self, X):
        first, second = (
            SparseSecAgg(random_state=0, n_bits=20, decoder="linear").fit(X) for _ in range(2)
        )
        assert first.seed_ == second.seed_
        assert not np.array_equal(first.sketch_, second.sketch_)

    def test_noise_std_is_that_of_the_sketch(self, X):
        errors = []
        for seed in range(30):
            fitted = fit(simulate(simulation_seed=seed), X)
            truth = fitted.operator_ @ X.mean(axis=0)
            errors.append((fitted.sketch_ - truth) / fitted.noise_std_)
        errors = np.concatenate(errors)
        chi = stats.chi2(len(errors))
        assert chi.ppf(5e-7) < errors @ errors < chi.isf(5e-7) * 1.02

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_dense_sparse_mapped_and_blocked_inputs_agree(self, X, dtype, tmp_path, monkeypatch):
        X = np.where(np.abs(X) > 0.1, X, 0).astype(dtype)
        expected = fit(simulate(), X).sketch_
        np.save(tmp_path / "X.npy", X)
        forms = [sp.csr_array(X), np.load(tmp_path / "X.npy", mmap_mode="r"), np.asfortranarray(X)]
        for form in forms:
            np.testing.assert_array_equal(fit(simulate(), form).sketch_, expected)
        monkeypatch.setattr("sparse_secagg.round.cohort._BLOCK_BYTES", 8 * D * 7)
        np.testing.assert_array_equal(fit(simulate(), X).sketch_, expected)

    def test_anything_with_rows_reads_as_data(self, X):
        class Rows:
            shape = X.shape

            def __getitem__(self, rows):
                return X[rows]

        np.testing.assert_array_equal(fit(simulate(), Rows()).sketch_, fit(simulate(), X).sketch_)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_bad_client_counts_as_zero_and_is_counted(self, X, bad):
        broken, zeroed = X.copy(), X.copy()
        broken[3, 5] = bad
        zeroed[3] = 0
        fitted = fit(simulate(), broken)
        np.testing.assert_array_equal(fitted.sketch_, fit(simulate(), zeroed).sketch_)
        assert fitted.diagnostics_.n_nonfinite == 1
        sparse = fit(simulate(), sp.csr_array(broken))
        np.testing.assert_array_equal(fitted.sketch_, sparse.sketch_)

    def test_vectors_are_clipped_whole(self, X):
        fitted = fit(simulate(clip_norm=0.1, noise_multiplier=0.0, encoder="identity"), 1e6 * X)
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        np.testing.assert_allclose(fitted.mean_, (0.1 * X / norms).mean(axis=0), atol=1e-4)
        assert fitted.diagnostics_.n_clipped == N

    def test_no_noise_is_not_private(self, X):
        fitted = SparseSecAgg(noise_multiplier=0.0, n_bits=24, decoder="linear").fit(X)
        assert fitted.epsilon_ == math.inf
        assert fitted.not_private_
        assert "NOT PRIVATE" in str(fitted.result_)

    def test_replace_one_needs_twice_the_noise(self, X):
        zero_out, replace = (
            fit(simulate(adjacency=adjacency), X).noise_std_
            for adjacency in ("zero_out", "replace_one")
        )
        assert replace == pytest.approx(2 * zero_out, rel=0.02)

    def test_diagnostics_decompose_the_error(self, X):
        fitted = fit(simulate(epsilon=8.0), X)
        report = fitted.diagnostics_
        mean = X.mean(axis=0)
        assert report.squared_norm == pytest.approx(mean @ mean)
        assert report.decoding_error == pytest.approx(np.sum((fitted.mean_ - mean) ** 2))
        assert report.clipping_error == report.n_clipped == report.n_wrapped == 0
        S = fitted.operator_
        assert report.compression_error == pytest.approx(np.sum((S.T @ (S @ mean) - mean) ** 2))
        expected = len(fitted.sketch_) * fitted.noise_std_**2
        assert 0.3 * expected < report.privatisation_error < 3 * expected

    def test_diagnostics_are_made_when_asked_for(self, X):
        estimator = fit(simulate(), X)
        assert estimator.diagnostics_.squared_norm > 0
        fit(estimator.set_params(diagnostics=False), X)
        with pytest.raises(AttributeError, match="diagnostics=True"):
            _ = estimator.diagnostics_
        with pytest.raises(AttributeError, match="has no attribute 'means_'.$"):
            _ = estimator.means_

    def test_diagnostics_of_weighted_and_layered_rows(self, X):
        layers = {"head": slice(0, 3), "tail": slice(3, D)}
        weights = np.linspace(0.5, 1, N)
        fitted = fit(
            simulate(layers=layers, encoder="identity", clip_norm=0.5), X, sample_weight=weights
        )
        mean = np.average(X, axis=0, weights=weights)
        assert fitted.diagnostics_.squared_norm == pytest.approx(mean @ mean)
        clipped = weights[:, None] * X
        for features in layers.values():
            share = math.sqrt((features.stop - features.start) / D)
            norms = np.linalg.norm(clipped[:, features], axis=1, keepdims=True)
            clipped[:, features] *= np.minimum(1, 0.5 * share / norms)
        clipped = clipped.sum(axis=0) / weights.sum()
        assert fitted.diagnostics_.clipping_error == pytest.approx(np.sum((clipped - mean) ** 2))

    def test_wraps_are_counted(self, X):
        mechanism = DiscreteGaussian(
            noise_multiplier=0.5, n_bits=8, wrap_deviations=0.5, alignment=0.01
        )
        fitted = fit(simulate(mechanism=mechanism, encoder="identity"), np.ones((N, D)))
        assert fitted.diagnostics_.n_wrapped > 0


class TestPresets:
    """The schemes of the paper, each one line."""

    @pytest.mark.parametrize(
        "parameters",
        [
            {"decoder": "linear"},
            {"encoder": "gaussian", "decoder": "working_set", "sketch_clip": "spectral"},
            {"encoder": "gaussian", "decoder": "working_set"},
            {"encoder": "identity", "decoder": "linear"},
            {"encoder": "identity", "mechanism": "central", "decoder": "linear"},
            {"decoder": "median"},
            {"mechanism": "skellam", "rotation": "hadamard", "decoder": "fista"},
        ],
        ids=str,
    )
    def test_heavy_coordinates_are_found(self, X, parameters):
        fitted = fit(simulate(compression=4, epsilon=8.0, **parameters), X)
        assert fitted.epsilon_ <= 8.0
        top = set(np.argsort(-fitted.mean_)[:6])
        assert len(top & set(range(6))) >= 4

    def test_instances_are_accepted_and_nested_parameters_reach_them(self, X):
        estimator = simulate(
            encoder=CountSketchEncoder(n_components=90, n_rows=6),
            mechanism=DiscreteGaussian(epsilon=3.0, n_bits=18),
            secagg=IdealSecAgg(),
            decoder=solvers.get("fista"),
        )
        estimator.set_params(decoder__tol=1e-3, encoder__n_rows=3, mechanism__epsilon=4.0)
        fitted = fit(estimator, X)
        assert fitted.config_.encoder["n_rows"] == 3
        assert 3.9 <= fitted.epsilon_ <= 4.0

    @pytest.mark.parametrize("container", [np.asarray, sp.csr_array, sp.csc_matrix, np.zeros_like])
    def test_auto_chooses_by_the_kind_of_container_alone(self, X, container):
        data = container(X)
        name = "count_sketch" if sp.issparse(data) else "hadamard"
        chosen = fit(simulate(encoder="auto"), data)
        assert chosen.config_.encoder["name"] == name
        np.testing.assert_array_equal(chosen.sketch_, fit(simulate(encoder=name), data).sketch_)
        layers = {"head": slice(0, 100), "tail": slice(100, D)}
        layered = fit(simulate(encoder="auto", layers=layers), data)
        assert layered.config_.encoder["encoder"]["name"] == name

    def test_auto_plans_its_compression(self, X):
        fitted = fit(simulate(encoder="auto", compression=None), X)
        named = fit(simulate(encoder="hadamard", compression=None), X)
        assert fitted.config_.encoder == named.config_.encoder

    def test_layers_share_the_clip(self, X):
        layers = {"head": slice(0, 100), "tail": slice(100, D)}
        fitted = fit(simulate(layers=layers, noise_multiplier=0.0, n_bits=24), 100 * X)
        assert fitted.config_.encoder["name"] == "blocks"
        assert fitted.diagnostics_.n_clipped == N


class TestDecode:
    def test_any_solver_decodes_the_same_sketch_for_free(self, X):
        fitted = fit(simulate(epsilon=8.0), X)
        mean, sketch = fitted.mean_.copy(), fitted.sketch_.copy()
        lasso = fitted.decode("working_set")
        np.testing.assert_allclose(lasso, fitted.decode(solvers.get("fista", tol=1e-10)), atol=1e-3)
        np.testing.assert_array_equal(fitted.decode(), mean)
        np.testing.assert_array_equal(fitted.mean_, mean)
        np.testing.assert_array_equal(fitted.sketch_, sketch)

    def test_score_is_relative_to_the_plain_mean(self, X):
        fitted = fit(simulate(), X)
        mean = X.mean(axis=0)
        expected = 1 - np.sum((fitted.mean_ - mean) ** 2) / np.sum(mean**2)
        assert fitted.score(X) == pytest.approx(expected)

    def test_an_unknown_decoder_costs_no_privacy(self, X):
        estimator = SparseSecAgg(decoder="workingset", n_bits=20)
        with pytest.raises(ValueError, match="working_set"):
            estimator.fit(X)
        assert not hasattr(estimator, "sketch_")


class TestDropouts:
    @pytest.mark.parametrize("secagg", [IdealSecAgg(), MaskedSecAgg(threshold=40, masks="seeded")])
    def test_epsilon_grows_with_dropouts_and_the_mean_is_the_survivors(self, X, secagg):
        spent = []
        for dropped in (0, 5, 15):
            gone = list(range(dropped))
            fitted = fit(
                simulate(secagg=secagg, encoder="identity", epsilon=30.0, n_bits=30, clip_norm=3.0),
                X + np.arange(N)[:, None] * 1e-3,
                dropouts=gone,
            )
            spent.append(fitted.epsilon_)
            assert fitted.n_survivors_ == N - dropped
            truth = (X + np.arange(N)[:, None] * 1e-3)[dropped:].mean(axis=0)
            assert np.abs(fitted.mean_ - truth).max() < 6 * fitted.noise_std_
        assert spent == sorted(spent)
        assert len(set(spent)) == 3

    def test_noise_is_sized_for_the_threshold(self, X):
        secagg = MaskedSecAgg(threshold=40, masks="seeded")
        at_threshold = fit(simulate(secagg=secagg), X, dropouts=list(range(20)))
        assert at_threshold.n_survivors_ == 40
        assert 0.98 <= at_threshold.epsilon_ <= 1.0

    def test_below_the_threshold_there_is_no_result(self, X):
        for secagg in (IdealSecAgg(threshold=50), MaskedSecAgg(threshold=50, masks="seeded")):
            estimator = simulate(secagg=secagg)
            with pytest.raises(BelowThresholdError):
                fit(estimator, X, dropouts=list(range(11)))
            assert not hasattr(estimator, "mean_")

    def test_masked_and_ideal_sums_are_the_same(self, X):
        masked = fit(simulate(secagg=MaskedSecAgg(threshold=N, masks="seeded")), X)
        ideal = fit(simulate(), X)
        np.testing.assert_array_equal(masked.sketch_, ideal.sketch_)

    def test_an_interrupt_leaves_no_trace(self, X, monkeypatch):
        estimator = simulate()
        fit(estimator, X)
        before = dict(vars(estimator))

        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("sparse_secagg.round.cohort.modular_sum", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(estimator, X + 1)
        for name in ("sketch_", "mean_", "config_", "result_", "rdp_", "diagnostics_"):
            assert vars(estimator)[name] is before[name]


class TestWeights:
    def test_weighted_mean(self, X):
        weights = np.arange(1.0, N + 1)
        fitted = fit(
            simulate(encoder="identity", noise_multiplier=0.0, n_bits=26, clip_norm=10.0),
            X,
            sample_weight=weights,
        )
        np.testing.assert_allclose(fitted.mean_, np.average(X, axis=0, weights=weights), atol=1e-4)
        sparse = fit(
            simulate(encoder="identity", noise_multiplier=0.0, n_bits=26, clip_norm=10.0),
            sp.csr_array(X),
            sample_weight=weights,
        )
        np.testing.assert_allclose(sparse.mean_, fitted.mean_, atol=1e-4)

    @pytest.mark.parametrize("weights", [np.ones(3), -np.ones(N), np.full(N, np.nan), np.zeros(N)])
    def test_bad_weights_are_refused(self, X, weights):
        with pytest.raises(ValueError, match="weight"):
            fit(simulate(), X, sample_weight=weights)


class TestTuning:
    def test_grid_search_works_and_warns_of_what_it_spends(self, X):
        grid = {"decoder": ["linear", "ridge"], "compression": [4, 8], "n_bits": [18, 20]}
        with pytest.warns(PrivacyWarning, match="every fit spends epsilon"):
            search = GridSearchCV(SparseSecAgg(epsilon=8.0), grid, cv=2).fit(X)
        assert search.best_params_["decoder"] in ("linear", "ridge")

    def test_clone_and_pickle_keep_no_data_and_no_secrets(self, X):
        fitted = SparseSecAgg(n_bits=20, decoder="linear").fit(X)
        assert not [name for name in vars(clone(fitted)) if name.endswith("_")]
        copy = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copy.mean_, fitted.mean_)
        assert not hasattr(copy, "diagnostics_")
        for value in vars(copy).values():
            assert not isinstance(value, np.ndarray) or value.shape != X.shape
        assert "urandom" not in repr(fitted)

    def test_html_representation(self, X):
        assert "SparseSecAgg" in SparseSecAgg()._repr_html_()


class TestAdaptiveClip:
    @pytest.mark.parametrize("norms", [[], [[0.5, 2.0]], 1.0])
    def test_norms_are_one_per_client(self, norms):
        with pytest.raises(ValueError, match="norms has shape"):
            AdaptiveClip(1.0).update(norms)

    def test_a_client_that_is_zeroed_out_says_nothing(self, monkeypatch):
        """Otherwise zeroing one out could move the sum of ±½ by 1, twice what is charged."""
        seen = []
        encode = DiscreteGaussian.encode
        monkeypatch.setattr(
            DiscreteGaussian,
            "encode",
            lambda self, y, rng: (seen.append(np.array(y)), encode(self, y, rng))[1],
        )
        AdaptiveClip(1.0).update([0.0, 0.5, 2.0])
        np.testing.assert_array_equal(seen[0].ravel(), [0.0, 0.5, -0.5])

    def test_replacing_a_client_costs_more_than_zeroing_it_out(self):
        zeroed, replaced = (
            AdaptiveClip(1.0).update(np.ones(50), adjacency=adjacency).rdp_
            for adjacency in ("zero_out", "replace_one")
        )
        assert (replaced > 3.9 * zeroed).all()  # twice the sensitivity, less what rounding adds

    @pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
    def test_reaches_the_quantile_of_log_normal_norms(self, quantile):
        rng = np.random.default_rng(0)
        clip = AdaptiveClip(initial=0.1, quantile=quantile)
        shares = []
        for step in range(150):
            norms = rng.lognormal(1.0, 0.5, 200)
            clip.update(norms, SimulationRandomness(step))
            if step >= 100:
                shares.append(stats.lognorm(0.5, scale=math.e).cdf(clip.clip_norm_))
        assert abs(np.mean(shares) - quantile) <= 0.1 * quantile

    def test_its_cost_is_charged(self, X):
        fixed = fit(simulate(clip_norm=1.0), X)
        adaptive = fit(simulate(clip_norm=AdaptiveClip(1.0, noise_multiplier=5.0)), X)
        assert adaptive.epsilon_ > fixed.epsilon_
        ledger = Ledger(delta=1e-5)
        ledger.spend(fixed.rdp_)
        ledger.spend(adaptive.clip_.rdp_)
        assert adaptive.epsilon_ == pytest.approx(ledger.epsilon_server)

    def test_follows_the_norms_from_fit_to_fit(self, X):
        estimator = simulate(clip_norm=AdaptiveClip(0.1))
        clips = [fit(estimator, 10 * X).config_.clip_norm for _ in range(4)]
        assert clips == sorted(clips)
        assert len(set(clips)) == 4
        assert clips[0] == 0.1

    @pytest.mark.parametrize(
        "parameters",
        [{"initial": 0}, {"quantile": 1.5}, {"learning_rate": -1}, {"noise_multiplier": "none"}],
    )
    def test_bad_parameters(self, parameters):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            AdaptiveClip(**parameters).update([1.0])
        with pytest.raises(ValueError, match=next(iter(parameters))):
            _ = AdaptiveClip(**parameters).current


class TestFeedback:
    def test_what_is_dropped_comes_back(self, X):
        estimator = simulate(feedback=ThresholdFeedback(0.9))
        plain = fit(simulate(), X).sketch_
        first = fit(estimator, X).sketch_
        assert np.mean(first == 0) == pytest.approx(0.9, abs=0.02)
        np.testing.assert_allclose(first + estimator.feedback_.error_, plain)
        second = fit(estimator, X).sketch_
        np.testing.assert_allclose(first + second + estimator.feedback_.error_, 2 * plain)

    def test_needs_the_same_sketch_every_round(self, X):
        with pytest.raises(ValueError, match="random_state=None"):
            fit(simulate(feedback=ThresholdFeedback(), random_state=None), X)


class TestRefusals:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"encoder": "count_sketc"}, "did you mean 'count_sketch'"),
            ({"encoder": "blocks"}, "layers="),
            ({"mechanism": "gauss"}, "'gauss'"),
            ({"secagg": "none"}, "secagg='none'"),
            ({"epsilon": -1.0}, "epsilon=-1"),
            ({"delta": 2.0}, "delta=2"),
            ({"clip_norm": math.nan}, "clip_norm=nan"),
            ({"n_bits": 2}, "n_bits=2.*smallest"),
            ({"compression": 0.1}, "compression=0.1"),
            ({"sketch_clip": "none"}, "sketch_clip='none'"),
            ({"adjacency": "swap"}, "adjacency='swap'"),
            ({"random_state": -3}, "random_state=-3"),
            ({"simulation_seed": -3}, "seed=-3"),
        ],
    )
    def test_bad_parameters_cost_nothing(self, X, parameters, message):
        estimator = SparseSecAgg(**{"decoder": "linear", "n_bits": 20, **parameters})
        with pytest.raises(ValueError, match=message):
            fit(estimator, X)
        assert not hasattr(estimator, "sketch_")


def test_gaussian_and_central_are_importable_instances(X):
    fitted = fit(
        simulate(encoder=GaussianEncoder(compression=4), mechanism=CentralGaussian(epsilon=4.0)), X
    )
    assert fitted.epsilon_ <= 4.0
