"""The planner: what it chooses, predicts, explains and refuses, and estimators made from plans."""

import itertools
import json
import math
import warnings

import numpy as np
import pytest
from scipy import stats

import solvers
from sparse_secagg import (
    CountSketchEncoder,
    DiscreteGaussian,
    GaussianEncoder,
    IdealSecAgg,
    InfeasibleError,
    MaskedSecAgg,
    PrivacyWarning,
    SparseSecAgg,
    plan,
)
from sparse_secagg.clipping import AdaptiveClip
from sparse_secagg.planner import JL_CLIP, trade_offs
from sparse_secagg.planning import predictions
from sparse_secagg.planning.clips import clipping_error, length_spread, tight_factor
from sparse_secagg.planning.predictions import PREDICTIONS, Situation


class TestChoice:
    def test_short_vectors_of_many_clients_are_sent_as_they_are(self):
        p = plan(d=1000, n_clients=1000, epsilon=1.0)
        assert (p.encoder, p.decoder, p.n_components, p.n_bits) == ("identity", "linear", 1000, 13)
        assert p.relative_error < 0.03
        assert p.compression_mse == 0

    def test_long_vectors_of_few_clients_are_sketched_to_about_n2_epsilon2(self):
        for n, z in [(1000, 4.0), (1000, 1.0), (300, 1.0)]:
            p = plan(d=10**7, n_clients=n, noise_multiplier=z)
            assert p.encoder == "hadamard"
            assert 0.5 < p.n_components / (n / z) ** 2 < 1.5

    def test_sparse_means_need_about_s_log_d_coordinates(self):
        lengths = {
            (d, s): plan(d, 1000, sparsity=s).n_components
            for d, s in itertools.product([10**4, 10**6], [100, 200])
        }
        for d in (10**4, 10**6):
            assert 1.4 < lengths[d, 200] / lengths[d, 100] < 2.2
        for s in (100, 200):
            assert 1.2 < lengths[10**6, s] / lengths[10**4, s] < 3
        p = plan(10**6, 1000, sparsity=100)
        assert p.decoder == "amp"
        assert p.bits_per_client < plan(10**6, 1000).bits_per_client
        assert "100 nonzero" in p.explain()

    def test_compression_of_one_is_no_sketch(self):
        p = plan(d=3000, n_clients=50, compression=1)
        assert (p.encoder, p.n_components, p.sketch_clip) == ("identity", 3000, 1.0)
        assert plan(3000, 50, compression=1, encoder="count_sketch").encoder == "count_sketch"

    def test_the_documented_request(self):
        p = plan(1_000_000, 1000, epsilon=1.0, delta=1e-6, n_bits=16, compression=10)
        assert (p.encoder, p.n_components, p.n_rows) == ("hadamard", 100_000, None)
        assert (p.n_bits, p.modulus) == (16, 2**16)
        D = 2**20
        compression = (p.d - 1) / p.n_components * (D - p.n_components) / (D - 1)
        assert p.predicted_mse == pytest.approx(compression + p.d * p.noise_std**2)
        assert p.bits_per_parameter == p.bits_per_client / p.d
        assert p.epsilon_server <= 1.0
        assert p.epsilon_release == p.epsilon_server
        assert p.sigma == pytest.approx(p.gamma * math.sqrt(p.parameters.variance))
        assert p.lower_bound_bits.general == 1.0
        n2e2 = (p.n_clients * p.zcdp_epsilon) ** 2
        assert p.lower_bound_bits.unbiased_order == pytest.approx(n2e2)
        document = json.loads(p.to_json())
        assert (document["n_components"], document["encoder"]) == (100_000, "hadamard")
        assert document["relative_error"] == p.relative_error

    @pytest.mark.parametrize(
        ("encoder", "compression"),
        [
            ("count_sketch", lambda d, m: (d - 1) / m),
            ("gaussian", lambda d, m: (d + 1) / m),
            ("hadamard", lambda d, m: (d - 1) / m * (4096 - m) / 4095),
            ("identity", lambda d, m: 0.0),
        ],
    )
    def test_the_linear_decoders_error_is_compression_and_noise(self, encoder, compression):
        p = plan(3000, 50, encoder=encoder, clip_norm=3.0)
        expected = 9 * compression(3000, p.n_components) + 3000 * p.noise_std**2
        assert p.encoder == encoder
        assert p.predicted_mse == pytest.approx(expected)
        assert p.relative_error == pytest.approx(expected / 9)
        assert p.compression_mse + p.noise_mse == pytest.approx(expected)

    def test_more_bits_than_chosen_do_not_help_and_fewer_hurt(self):
        p = plan(100_000, 200, compression=10)
        more, fewer = (plan(100_000, 200, compression=10, n_bits=p.n_bits + k) for k in (4, -1))
        assert more.predicted_mse > 0.95 * p.predicted_mse
        assert fewer.predicted_mse > 1.05 * more.predicted_mse

    @pytest.mark.parametrize("n", [100, 150])
    def test_a_sketch_fills_its_message(self, n):
        """Coordinates that padding would waste are used."""
        p = plan(100_000, n, noise_multiplier=2.0, rotation="hadamard")
        assert p.encoder == "hadamard"
        assert p.n_components == p.parameters.padded_dim == 2 ** round(math.log2(p.n_components))
        dft = plan(100_000, n, noise_multiplier=2.0)
        assert dft.n_components == dft.parameters.padded_dim

    def test_an_asked_error_is_met_with_the_fewest_bits(self):
        loose, strict = (plan(10_000, 1000, target_error=e) for e in (2.0, 0.5))
        assert loose.relative_error <= 2.0
        assert strict.relative_error <= 0.5
        assert loose.bits_per_client < strict.bits_per_client
        scaled = plan(10_000, 1000, target_error=0.5, clip_norm=20.0)
        assert scaled.bits_per_client == strict.bits_per_client
        assert scaled.predicted_mse == pytest.approx(400 * strict.predicted_mse)

    def test_an_error_out_of_reach_names_the_least_one(self):
        with pytest.raises(InfeasibleError, match="target_error=0.001") as caught:
            plan(10_000, 1000, target_error=0.001, clip_norm=3.0)
        assert caught.value.argument == "target_error"
        least = caught.value.smallest
        assert plan(10_000, 1000, target_error=1.001 * least).relative_error <= 1.001 * least

    def test_plans_scale_with_the_clip(self):
        one, other = (plan(5000, 300, clip_norm=c, min_survivors=200) for c in (1.0, 0.03))
        assert (one.n_components, one.n_bits) == (other.n_components, other.n_bits)
        assert other.relative_error == pytest.approx(one.relative_error)
        for name in ("predicted_mse", "noise_mse", "central_mse", "noise_mse_limit"):
            assert getattr(other, name) == pytest.approx(9e-4 * getattr(one, name)), name
        assert other.noise_std == pytest.approx(0.03 * one.noise_std)
        assert other.lower_bound_bits == pytest.approx(one.lower_bound_bits)

    def test_central_error_is_that_of_the_gaussian_mechanism(self):
        p = plan(5000, 300, noise_multiplier=2.0, clip_norm=3.0, min_survivors=200)
        assert p.central_mse == pytest.approx(5000 * (2.0 * 3.0 / 300) ** 2)

    def test_the_limit_of_the_noise_is_that_of_many_bits(self):
        few = plan(5000, 300, clip_norm=3.0, compression=7, sketch_clip="jl", n_bits=13)
        many = plan(5000, 300, clip_norm=3.0, compression=7, sketch_clip="jl", n_bits=40)
        assert few.noise_mse_limit == pytest.approx(many.noise_mse, rel=1e-4)
        gain = 100 * (1 - many.noise_mse / few.noise_mse)
        assert f"lower the noise part by {gain:.2g} %" in few.explain()

    def test_without_noise_there_is_a_plan_and_no_privacy(self):
        p = plan(1000, 10, noise_multiplier=0.0, compression=4)
        assert p.epsilon_server == math.inf
        assert p.noise_mse < 0.06 * p.compression_mse
        with pytest.raises(ValueError, match="target_error or compression"):
            plan(1000, 10, noise_multiplier=0.0)
        assert plan(1000, 10, noise_multiplier=0.0, target_error=0.01).relative_error <= 0.01

    def test_a_large_plan_takes_no_time(self):
        import time

        start = time.perf_counter()
        plan(10**7, 1000)
        plan(10**7, 1000, sparsity=1000)
        assert time.perf_counter() - start < 10  # 0.2 s on a quiet machine


class TestSketchClip:
    def test_a_tight_clip_is_one_for_long_sketches_and_at_most_the_papers(self):
        assert [tight_factor(length_spread(m)) for m in (800, 1000, 10**6)] == [1.0] * 3
        factors = [tight_factor(length_spread(m)) for m in (5, 50, 100, 200, 400, 700)]
        assert factors == sorted(factors, reverse=True)
        assert factors[0] == JL_CLIP
        assert 1.0 < factors[-1] < 1.01

    @pytest.mark.parametrize("m", [60, 200, 700, 5000])
    @pytest.mark.parametrize("noise", [1e-4, 1e-3, 0.01, 0.1])
    def test_a_tight_clip_is_the_factor_of_least_error(self, m, noise):
        spread = length_spread(m)
        factors = np.linspace(1.0, JL_CLIP, 2001)
        errors = [clipping_error(f, spread) + noise * f**2 for f in factors]
        expected = factors[int(np.argmin(errors))]
        assert tight_factor(spread, noise) == pytest.approx(expected, abs=1e-4)

    def test_clipping_error_is_the_mean_over_normal_lengths(self):
        spread = length_spread(500)
        lengths = 1 + spread * stats.norm.ppf((np.arange(10**6) + 0.5) / 10**6)
        for factor in (0.95, 1.0, 1.03):
            lost = np.maximum(lengths - factor, 0)
            assert clipping_error(factor, spread) == pytest.approx(np.mean(lost**2), rel=1e-3)
        assert clipping_error(1.0, 0.0) == 0
        assert clipping_error(0.9, 0.0) == pytest.approx(0.01)

    def test_orthogonal_rows_keep_lengths_better(self):
        assert length_spread(1024, 1024) == 0
        assert length_spread(512, 1024) == pytest.approx(length_spread(512) * 2**-0.5, rel=1e-2)

    def test_noise_follows_the_factor(self):
        tight, jl, half = (
            plan(20_000, 50, compression=10, n_bits=30, sketch_clip=clip)
            for clip in ("tight", "jl", 0.5)
        )
        assert tight.sketch_clip == 1.0
        assert jl.noise_mse / tight.noise_mse == pytest.approx(1.21, rel=1e-3)
        assert half.noise_mse / tight.noise_mse == pytest.approx(0.25, rel=1e-3)

    def test_with_little_noise_sparse_decoders_clip_less(self):
        noisy, quiet = (
            plan(10_000, n, sparsity=100, compression=10, encoder="hadamard")
            for n in (300, 100_000)
        )
        assert noisy.sketch_clip == 1.0
        assert 1.05 < quiet.sketch_clip <= JL_CLIP

    def test_the_spectral_clip_is_that_of_the_gaussian_ensemble(self):
        p = plan(1000, 50, encoder="gaussian", sketch_clip="spectral", compression=5, n_bits=20)
        S = GaussianEncoder(n_components=200, random_state=0).fit_dimension(1000)
        assert p.parameters.clip_norm == pytest.approx(S.sigma_max(), rel=0.03)
        with pytest.raises(ValueError, match="give encoder='gaussian'"):
            plan(1000, 50, sketch_clip="spectral")


class TestPredictions:
    """State evolution against decoders run on Gaussian noise; the full pipeline is elsewhere."""

    @pytest.mark.parametrize("decoder", ["working_set", "amp"])
    @pytest.mark.parametrize("encoder", ["count_sketch", "hadamard"])
    def test_sparse_errors_are_those_of_the_solvers(self, decoder, encoder):
        d, m, s, noise, norm = 8000, 1950, 150, 0.01, 2.0
        errors = []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            x = np.zeros(d)
            x[rng.choice(d, s, replace=False)] = rng.standard_normal(s)
            x *= norm / np.linalg.norm(x)
            S = make_encoder(encoder, m, seed).fit_dimension(d).operator_
            y = S @ x + noise * rng.standard_normal(m)
            estimate = solvers.get(decoder).fit(S, y, noise_std=noise).coef_
            errors.append(np.sum((estimate - x) ** 2))
        row_dim = 8192 if encoder == "hadamard" else math.inf
        predicted = PREDICTIONS[decoder](Situation(d, m, row_dim, 0.0, noise, norm, s))
        assert np.mean(errors) == pytest.approx(predicted, rel=0.12)

    def test_the_bayes_risk_is_that_of_the_posterior_mean(self):
        """Monte Carlo over a Bernoulli–Gaussian vector."""
        d, s, tau = 10**6, 50_000, 0.3
        at = Situation(d, d, d, 0.0, tau, math.sqrt(s), s)
        rng = np.random.default_rng(0)
        x = np.zeros(d)
        x[:s] = rng.standard_normal(s)
        p = x + tau * rng.standard_normal(d)
        likelihood = stats.norm.pdf(p, scale=math.sqrt(1 + tau**2)), stats.norm.pdf(p, scale=tau)
        present = s * likelihood[0] / (s * likelihood[0] + (d - s) * likelihood[1])
        estimate = present * p / (1 + tau**2)
        assert predictions._bayes_risk(at, tau**2) == pytest.approx(
            np.sum((estimate - x) ** 2), rel=0.02
        )

    def test_the_risk_of_soft_thresholding(self):
        d, s, tau, t = 10**6, 50_000, 0.3, 1.7
        at = Situation(d, d, d, 0.0, tau, math.sqrt(s), s)
        rng = np.random.default_rng(0)
        x = np.zeros(d)
        x[:s] = rng.standard_normal(s)
        p = x + tau * rng.standard_normal(d)
        estimate = np.sign(p) * np.maximum(np.abs(p) - t * tau, 0)
        error, kept = predictions._soft_risk(at, tau**2, t)
        assert error == pytest.approx(np.sum((estimate - x) ** 2), rel=0.02)
        assert kept == pytest.approx(np.count_nonzero(estimate), rel=0.02)

    @pytest.mark.parametrize("decoder", ["working_set", "amp"])
    def test_too_short_a_sketch_is_as_good_as_zero(self, decoder):
        def error(m):
            return PREDICTIONS[decoder](Situation(10_000, m, math.inf, 0.0, 1e-4, 3.0, 100))

        assert error(250) > 4.5  # no recovery
        assert error(450) == pytest.approx(9.0)  # recovery by luck
        assert error(2000) < 0.01

    @pytest.mark.parametrize("decoder", ["working_set", "amp"])
    def test_all_rows_of_an_orthogonal_matrix_are_as_good_as_the_identity(self, decoder):
        """Then τ is the noise itself; independent rows let the decoder's own error come back."""

        def error(m, row_dim):
            return PREDICTIONS[decoder](Situation(4096, m, row_dim, 0.0, 0.03, 1.0, 100))

        tau2, s = 0.03**2, 100
        at = Situation(4096, 4096, 4096.0, 0.0, 0.03, 1.0, s)
        denoising = predictions._bayes_risk(at, tau2)
        if decoder == "working_set":
            denoising = predictions._soft_risk(at, tau2, math.sqrt(2 * math.log(4096)))[0]
        assert error(4096, 4096.0) == pytest.approx(denoising, rel=1e-6)
        assert error(2048, 4096.0) < error(2048, math.inf)

    def test_predictions_are_replaced_in_one_place(self, monkeypatch):
        monkeypatch.setitem(predictions.PREDICTIONS, "amp", lambda at: 42.0 + at.noise_std)
        p = plan(1000, 50, sparsity=10, decoder="amp", encoder="identity", n_bits=20)
        assert p.predicted_mse == pytest.approx(42.0 + p.noise_std)


def make_encoder(name, m, seed):
    from sparse_secagg.encoders import registry

    return registry.get(name, n_components=m, random_state=seed)


class TestExplanation:
    def test_a_plan_says_what_it_does_and_why(self):
        text = plan(1_000_000, 1000, delta=1e-6, n_bits=16, compression=10).explain()
        for word in ("More bits", "Twice the sketch", "Lower bounds", "100,000", "Hadamard"):
            assert word in text

    def test_a_plan_worse_than_zero_says_so_first(self):
        bad = plan(10**7, 1000)
        assert bad.relative_error > 1
        assert "answering zero" in bad.explain().splitlines()[0]
        assert "no use" in bad.explain().splitlines()[0]
        # relative to the clip: a small clip makes no plan better
        assert "no use" in plan(10**7, 1000, clip_norm=1e-3).explain().splitlines()[0]
        good = plan(1000, 1000, clip_norm=100.0)
        assert good.predicted_mse > 1 > good.relative_error
        assert "no use" not in good.explain()

    def test_lower_bounds_for_small_errors(self):
        p = plan(100, 10_000, epsilon=20.0, clip_norm=5.0)
        expected = 50 * math.log2(1 / p.relative_error)
        assert expected > 1
        assert p.lower_bound_bits.general == pytest.approx(expected)
        assert p.lower_bound_bits.unbiased_order == 100
        assert p.bits_per_client >= p.lower_bound_bits.general

    def test_lower_bounds_of_sparse_means_take_the_support_for_known(self):
        p = plan(100_000, 1000, epsilon=4.0, sparsity=60)
        assert p.decoder == "amp"
        assert p.lower_bound_bits.general == pytest.approx(30 * math.log2(1 / p.relative_error))
        assert p.lower_bound_bits.unbiased_order == 60


class TestPrivacy:
    def test_sampling_helps_the_release_only(self):
        common = {"rounds": 100, "population": 10_000, "compression": 10, "epsilon": 5.0}
        server = plan(10_000, 100, **common)
        release = plan(10_000, 100, observer="release", **common)
        assert server.epsilon_server <= 5.0
        assert server.epsilon_release < server.epsilon_server
        assert release.epsilon_release <= 5.0 < release.epsilon_server
        assert release.predicted_mse < server.predicted_mse

    def test_colluders_add_no_noise(self):
        p = plan(1000, 100, colluders=30)
        assert p.parameters.noise_shares == 70
        honest = plan(1000, 100, min_survivors=70)
        assert p.noise_std == honest.noise_std
        assert p.noise_std > plan(1000, 100).noise_std
        assert "30 colluding" in p.explain()
        assert plan(1000, 100, colluders=30, min_survivors=80).parameters.noise_shares == 50

    def test_masked_aggregation_guarantees_its_threshold_and_sends_its_bytes(self):
        p = plan(1000, 30, secagg="masked")
        assert p.parameters.min_survivors == 20
        result = MaskedSecAgg(modulus=p.modulus).aggregate(
            np.zeros((30, p.parameters.padded_dim), np.uint64)
        )
        assert p.protocol_bytes == result.protocol_up[0]
        assert p.bytes_per_client == result.protocol_up[0] + result.payload_up[0]
        assert f"any {p.graph.share_threshold} of {p.graph.n_members} shares" in p.explain()
        assert f"{p.protocol_bytes:,} bytes" in p.explain()

    def test_fewer_neighbours_send_fewer_bytes(self):
        secagg = MaskedSecAgg(neighbors=6, threshold=0.5)
        p = plan(1000, 30, secagg=secagg)
        assert p.parameters.min_survivors == 15
        sent = MaskedSecAgg(neighbors=6, modulus=16).aggregate(np.zeros((30, 2), np.uint64))
        assert (
            p.protocol_bytes == sent.protocol_up[0] < plan(1000, 30, secagg="masked").protocol_bytes
        )
        assert plan(1000, 30).protocol_bytes == 0


class TestEstimators:
    def fit(self, estimator, X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            return estimator.fit(X)

    @pytest.mark.parametrize(
        "request_",
        [
            {},
            {"encoder": "count_sketch", "n_rows": 8, "clip_norm": 3.0},
            {"encoder": "gaussian", "sketch_clip": "jl", "epsilon": 3.0},
            {"compression": 1, "noise_multiplier": 0.7, "beta": 0.0},
            {"sparsity": 5, "mechanism": "skellam", "rotation": "hadamard"},
            {"colluders": 7, "adjacency": "replace_one"},
            {"secagg": "masked", "delta": 1e-4},
            {"secagg": IdealSecAgg(threshold=0.8), "encoder": "hadamard"},
            {"secagg": MaskedSecAgg(threshold=20, neighbors=10)},
            {"rounds": 5, "epsilon": 4.0, "population": 1000, "observer": "release"},
        ],
        ids=str,
    )
    def test_an_estimator_runs_its_plan(self, request_):
        n, d = 40, 300
        p = plan(d, n, **request_)
        estimator = SparseSecAgg.from_plan(p, random_state=0, simulation_seed=0)
        fitted = self.fit(estimator, np.full((n, d), 0.01))
        assert fitted.operator_.shape == (p.n_components, d)
        assert fitted.noise_std_ == pytest.approx(p.noise_std, rel=1e-9)
        for name in ("gamma", "variance", "n_bits", "min_survivors", "rotation", "adjacency"):
            made, planned = (getattr(q, name) for q in (fitted.config_.mechanism, p.parameters))
            assert made == planned, name
        assert fitted.config_.delta == p.delta
        assert type(solvers.get(p.decoder)) is type(solvers.get(fitted.decoder))
        described = fitted.plan_
        assert (described.encoder, described.decoder) == (p.encoder, p.decoder)
        assert described.noise_std == fitted.noise_std_
        assert described.predicted_mse == pytest.approx(p.predicted_mse, rel=1e-6)
        assert described.protocol_bytes == p.protocol_bytes

    def test_spectral_plans_run_with_the_true_singular_value(self):
        p = plan(400, 30, encoder="gaussian", sketch_clip="spectral", compression=4)
        fitted = self.fit(SparseSecAgg.from_plan(p, simulation_seed=0), np.full((30, 400), 0.01))
        S = GaussianEncoder(n_components=100, random_state=fitted.seed_).fit_dimension(400)
        assert fitted.config_.mechanism.clip_norm == pytest.approx(S.sigma_max())

    @pytest.mark.parametrize(
        "parameters",
        [
            {"encoder": "gaussian", "sketch_clip": "spectral"},
            {"encoder": "gaussian", "sketch_clip": "tight", "clip_norm": 4.0},
            {"encoder": "count_sketch", "sketch_clip": "jl"},
            {"encoder": CountSketchEncoder(n_components=60, n_rows=4)},
            {"encoder": "hadamard", "mechanism": "skellam"},
            {"encoder": "identity", "mechanism": "central", "clip_norm": 0.5},
            {"encoder": "hadamard", "layers": {"a": slice(0, 100), "b": slice(100, 300)}},
            {"clip_norm": AdaptiveClip(0.3)},
            {"secagg": IdealSecAgg(threshold=0.5), "decoder": solvers.get("working_set")},
        ],
        ids=str,
    )
    def test_the_plan_of_a_round_describes_that_round(self, parameters):
        X = np.full((40, 300), 0.01)
        estimator = SparseSecAgg(n_bits=22, simulation_seed=0, **parameters)
        fitted = self.fit(estimator, X)
        p = fitted.plan_
        assert p.encoder == fitted.config_.encoder["name"]
        assert (p.encoder == "blocks") == ("layers" in parameters)
        assert p.noise_std == fitted.noise_std_
        assert p.parameters == fitted.config_.mechanism
        assert p.n_components == len(fitted.sketch_)
        assert p.clip_norm == fitted.config_.clip_norm
        assert p.sketch_clip == pytest.approx(p.parameters.clip_norm / p.clip_norm)
        assert p.bits_per_client == fitted.bits_per_client_
        assert p.epsilon_release == fitted.epsilon_
        assert p.noise_mse == 300 * fitted.noise_std_**2
        assert p.predicted_mse == p.compression_mse + p.noise_mse
        assert 0.9 * p.noise_mse < p.noise_mse_limit <= p.noise_mse
        assert p.explain()
        with pytest.raises(ValueError, match="plan\\(\\.\\.\\.\\)"):
            SparseSecAgg.from_plan(p)

    def test_with_a_sparsity_the_plan_of_a_round_is_about_its_decoder(self):
        X = np.full((40, 300), 0.01)
        for decoder in ("amp", solvers.get("amp")):
            estimator = SparseSecAgg(n_bits=22, simulation_seed=0, decoder=decoder, sparsity=9)
            assert self.fit(estimator, X).plan_.decoder == "amp"
        debiased = solvers.get("amp", debias=True)
        estimator = SparseSecAgg(n_bits=22, simulation_seed=0, decoder=debiased, sparsity=9)
        assert self.fit(estimator, X).plan_.decoder == "linear"

    def test_compression_none_leaves_the_length_to_the_planner(self):
        X = np.full((200, 2000), 0.01)
        common = {"epsilon": 4.0, "n_bits": 16, "encoder": "hadamard"}
        for sparsity, decoder in [(40, "amp"), (None, "linear")]:
            estimator = SparseSecAgg(
                compression=None, sparsity=sparsity, decoder="amp", simulation_seed=0, **common
            )
            expected = plan(2000, 200, sparsity=sparsity, decoder=decoder, **common)
            assert len(self.fit(estimator, X).sketch_) == pytest.approx(
                expected.n_components, abs=1
            )
        with pytest.raises(ValueError, match="mechanism given by its name"):
            SparseSecAgg(compression=None, mechanism=DiscreteGaussian()).fit(X)


class TestTradeOffs:
    def test_curves_fall_and_meet_the_plan(self):
        request = {"clip_norm": 3.0, "secagg": "masked"}
        curves = trade_offs(2000, 100, target_error=0.5, **request)
        assert {(c.encoder, c.decoder) for c in curves} == {
            (e, "linear") for e in ("identity", "hadamard", "count_sketch", "gaussian")
        }
        p = plan(2000, 100, **request)
        for curve in curves:
            assert sorted(curve.bytes_per_client) == curve.bytes_per_client
            assert sorted(curve.relative_error, reverse=True) == curve.relative_error
            # what is within the plan's error costs no less than the plan
            for size, error in zip(curve.bytes_per_client, curve.relative_error):
                assert error > p.relative_error or size >= 0.999 * p.bytes_per_client
        point = curves[1]
        k = len(point.n_bits) // 2
        again = plan(
            2000, 100, encoder="hadamard", n_bits=point.n_bits[k],
            compression=2000 / point.n_components[k], **request,
        )  # fmt: skip
        assert again.relative_error == pytest.approx(point.relative_error[k], rel=0.02)
        assert again.bytes_per_client == pytest.approx(point.bytes_per_client[k], rel=0.02)


@pytest.mark.parametrize(
    "request_",
    [
        {"d": 10_000, "n_clients": 1000, "epsilon": 0.1, "n_bits": 8, "compression": 10},
        {"d": 10_000, "n_clients": 1000, "epsilon": 0.1, "n_bits": 6},
        {"d": 1_000_000, "n_clients": 10_000, "epsilon": 0.01, "n_bits": 10, "compression": 2},
        {"d": 50, "n_clients": 5, "epsilon": 5.0, "n_bits": 1, "compression": 1},
        {"d": 5000, "n_clients": 50, "noise_multiplier": 0.01, "n_bits": 5, "compression": 3},
        {"d": 5000, "n_clients": 50, "epsilon": 1.0, "n_bits": 7},
        {"d": 5000, "n_clients": 50, "epsilon": 1.0, "n_bits": 4, "sparsity": 10},
        {"d": 5000, "n_clients": 50, "n_bits": 4, "compression": 5, "mechanism": "skellam"},
        {"d": 1000, "n_clients": 1000, "epsilon": 1.0, "n_bits": 9, "clip_norm": 0.01},
    ],
    ids=str,
)
def test_infeasible_requests_name_the_smallest_value_which_works(request_):
    with pytest.raises(InfeasibleError, match=r"smallest .*that can") as caught:
        plan(**request_)
    assert caught.value.argument == "n_bits"
    smallest = caught.value.smallest
    assert str(smallest) in str(caught.value)
    assert plan(**{**request_, "n_bits": smallest}).n_bits == smallest
    with pytest.raises(InfeasibleError):
        plan(**{**request_, "n_bits": smallest - 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "d=0"),
        ({"d": 10.5}, "d=10.5"),
        ({"n_clients": 0}, "n_clients=0"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"clip_norm": -1.0}, "clip_norm=-1"),
        ({"sparsity": 2000}, "sparsity=2000"),
        ({"population": 5}, "population=5"),
        ({"observer": "nobody"}, "observer='nobody'"),
        ({"observer": "release"}, "needs population"),
        ({"mechanism": "central"}, "mechanism='central'"),
        ({"error_slack": 0.0}, "error_slack=0"),
        ({"target_error": math.nan}, "target_error=nan"),
        ({"compression": 0.5}, "compression=0.5"),
        ({"compression": 2.0, "encoder": "identity"}, "contradict"),
        ({"encoder": "blocks"}, "encoder='blocks'"),
        ({"decoder": "omp"}, "decoder='omp'"),
        ({"decoder": "amp"}, "needs sparsity"),
        ({"sketch_clip": "loose"}, "sketch_clip='loose'"),
        ({"sketch_clip": -1.0}, "sketch_clip=-1"),
        ({"sketch_clip": math.nan}, "sketch_clip=nan"),
        ({"colluders": 10}, "colluders=10"),
        ({"colluders": -1}, "colluders=-1"),
        ({"secagg": "none"}, "secagg='none'"),
    ],
)
def test_bad_requests_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"d": 1000, "n_clients": 10, **change})


def test_a_sketch_has_no_more_rows_than_the_vector_has_entries():
    scheme = plan(d=8, n_clients=1000, epsilon=1.0, delta=1e-5, encoder="count_sketch", n_rows=15)
    assert scheme.n_components == 8


@pytest.mark.parametrize(("d", "n", "compression"), [(10_000, 500, 2), (20_000, 1000, 4)])
def test_bits_at_a_given_length_cost_a_twentieth_of_the_error_at_most(d, n, compression):
    request_ = {"d": d, "n_clients": n, "epsilon": 1.0, "compression": compression}
    chosen = plan(**request_)
    plenty = plan(**request_, n_bits=28).predicted_mse
    fewer = plan(**request_, n_bits=chosen.n_bits - 1).predicted_mse
    assert chosen.predicted_mse <= 1.05 * plenty < fewer


def test_errors_of_sparse_means_follow_their_formulas():
    p = plan(
        d=10_000, n_clients=1000, epsilon=1.0, sparsity=50, compression=10, encoder="count_sketch"
    )
    noise = p.noise_std**2
    lasso = 50 * noise * (2 * math.log(10_000) + 1)
    assert p.sparse_mse.lasso == pytest.approx(lasso, rel=1e-12)
    support = 50 * noise / (1 - 50 / p.n_components)
    assert p.sparse_mse.least_squares == pytest.approx(support, rel=1e-12)
