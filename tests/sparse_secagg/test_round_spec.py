"""A round in one record: validation, what follows from it, and what comes out."""

import inspect
import json
import math
import pickle
import stat
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import solvers
from sparse_secagg import (
    AdaptiveClip,
    Aggregate,
    AggregateFileError,
    CountSketchEncoder,
    DiscreteGaussian,
    MaskedSecAgg,
    PrivacyWarning,
    RoundConfig,
    RoundSpec,
    SparseSecAgg,
    ThresholdFeedback,
    plan,
)
from sparse_secagg.parameters import default, round_parameters
from sparse_secagg.privacy import Ledger
from sparse_secagg.round.aggregate import privacy_of_round
from sparse_secagg.round.parts import parts_of

N, D, S = 200, 1000, 10
X = np.zeros((N, D))
X[:, :S] = 0.3
SEEDS = {"random_state": 3, "simulation_seed": 4}


def run(spec=None, data=X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return (RoundSpec(epsilon=4.0) if spec is None else spec).run(data, **{**SEEDS, **options})


class TestRecord:
    @pytest.mark.parametrize(
        ("name", "bad", "remedy"),
        [
            ("epsilon", 0.0, "finite positive"),
            ("epsilon", math.nan, "finite positive"),
            ("delta", 1.0, "strictly between 0 and 1"),
            ("noise_multiplier", -1.0, "at least 0"),
            ("clip_norm", "large", "AdaptiveClip"),
            ("n_bits", 64, "from 1 to 63"),
            ("n_bits", 16.5, "from 1 to 63"),
            ("rotation", "haar", "'dft' or 'hadamard'"),
            ("adjacency", "add_remove", "'zero_out' or 'replace_one'"),
            ("compression", 0.5, "at least 1"),
            ("n_rows", 0, "≥ 1"),
            ("colluders", -1, "≥ 0"),
            ("min_survivors", 0, "≥ 1"),
            ("encoder", CountSketchEncoder, "an encoder"),
            ("mechanism", "", "a mechanism"),
            ("observer", "everybody", "'server' or 'release'"),
            ("sparsity", 0, "≥ 1"),
            ("rounds", 1.5, "≥ 1"),
            ("layers", ["first"], "slices"),
            ("decoder", 3, "a solver"),
        ],
    )
    def test_one_table_refuses_everywhere(self, name, bad, remedy):
        with pytest.raises(ValueError, match=rf"{name}=.*{remedy}") as direct:
            RoundSpec(**{name: bad})
        with pytest.raises(ValueError, match=rf"{name}=") as fitted:
            SparseSecAgg(**{name: bad}).fit(X)
        assert str(fitted.value) == str(direct.value)
        if name != "clip_norm":
            with pytest.raises(ValueError, match=rf"{name}=") as planned:
                plan(D, N, **{name: bad})
            assert str(planned.value) == str(direct.value)

    def test_it_does_not_change(self):
        spec = RoundSpec()
        for change in (lambda: setattr(spec, "epsilon", 9.0), lambda: delattr(spec, "epsilon")):
            with pytest.raises(AttributeError, match="does not change"):
                change()
        assert spec.replace(epsilon=9.0).epsilon == 9.0
        assert spec.epsilon == default("epsilon")

    def test_equal_specs_are_equal_and_hash_alike(self):
        spec = RoundSpec(encoder=CountSketchEncoder(n_components=50), layers={"a": slice(0, D)})
        same = RoundSpec(encoder=CountSketchEncoder(n_components=50), layers={"a": slice(0, D)})
        assert spec == same
        assert hash(spec) == hash(same)
        assert spec != spec.replace(encoder=CountSketchEncoder(n_components=51))
        assert {spec: 1}[same] == 1

    def test_it_is_shown_by_what_differs_from_the_defaults(self):
        assert repr(RoundSpec()) == "RoundSpec()"
        assert repr(RoundSpec(epsilon=2.0, n_bits=18)) == "RoundSpec(epsilon=2.0, n_bits=18)"

    @pytest.mark.parametrize(
        "spec",
        [
            RoundSpec(),
            RoundSpec(n_bits=None, encoder=None, compression=None, decoder=None, sparsity=7),
            RoundSpec(
                encoder=CountSketchEncoder(n_components=60, n_rows=5),
                decoder=solvers.get("fista", tol=1e-5),
                secagg=MaskedSecAgg(threshold=0.5),
                clip_norm=AdaptiveClip(0.2),
                feedback=ThresholdFeedback(0.3),
                layers={"first": slice(0, 400), "rest": slice(400, D)},
                mechanism=DiscreteGaussian(epsilon=2.0),
            ),
        ],
    )
    def test_json_and_pickle_bring_it_back(self, spec):
        assert RoundSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
        assert pickle.loads(pickle.dumps(spec)) == spec

    def test_a_description_from_elsewhere_imports_nothing(self):
        document = RoundSpec().to_dict() | {"decoder": {"class": "os:system"}}
        with pytest.raises(ValueError, match="os:system"):
            RoundSpec.from_dict(document)
        with pytest.raises(ValueError, match="no parameters epsilonn"):
            RoundSpec.from_dict({"epsilonn": 1.0})

    def test_every_parameter_is_described(self):
        for cls in (RoundSpec, SparseSecAgg):
            for name, item in round_parameters().items():
                assert f"    {name} : " in cls.__doc__
                assert item.metadata["text"] in cls.__doc__


class TestDoors:
    def test_the_estimator_is_a_spec_that_fits(self):
        shared = {"epsilon": 4.0, "compression": 5, "decoder": "working_set"}
        with pytest.warns(PrivacyWarning):
            fitted = SparseSecAgg(**shared, **SEEDS).fit(X)
        aggregate = run(RoundSpec(**shared))
        np.testing.assert_array_equal(fitted.sketch_, aggregate.sketch)
        np.testing.assert_array_equal(fitted.mean_, aggregate.decode())
        assert fitted.spec == RoundSpec(**shared)
        assert fitted.epsilon_ == aggregate.epsilon

    def test_the_configuration_is_that_of_the_round(self):
        spec = RoundSpec(epsilon=2.0, encoder="count_sketch")
        config = spec.config(D, N, random_state=3, round_id="r")
        ran = run(spec).config
        assert config.mechanism == ran.mechanism
        assert config.encoder == ran.encoder
        assert RoundConfig.from_json(config.to_json()) == config

    def test_nothing_open_is_described_and_the_open_is_chosen(self):
        spec = RoundSpec(epsilon=2.0, encoder="hadamard", compression=4, decoder="linear")
        described = spec.plan(D, N)
        assert (described.n_components, described.n_bits) == (D // 4, default("n_bits"))
        assert described.epsilon_server == pytest.approx(2.0, rel=1e-3)
        again = SparseSecAgg.from_plan(described, random_state=0).fit(X)
        assert again.epsilon_ == pytest.approx(described.epsilon_server)
        chosen = spec.replace(encoder=None, compression=None, n_bits=None, decoder=None)
        p = chosen.plan(D, N)
        assert p.to_json() == _reseeded(plan(D, N, epsilon=2.0), p)
        assert chosen.config(D, N).mechanism.n_bits == p.n_bits
        assert run(chosen).decoder == p.decoder

    def test_auto_is_decided_by_the_container(self):
        assert run().config.encoder["name"] == "hadamard"
        assert run(data=sp.csr_array(X)).config.encoder["name"] == "count_sketch"

    def test_rounds_and_population_reach_the_noise(self):
        once = RoundSpec(epsilon=2.0).config(D, N).mechanism
        often = RoundSpec(epsilon=2.0, rounds=10).config(D, N).mechanism
        assert often.noise_multiplier > 2.5 * once.noise_multiplier
        released = RoundSpec(epsilon=2.0, rounds=10, population=50 * N, observer="release")
        aggregate = run(released)
        assert aggregate.config.mechanism.noise_multiplier < often.noise_multiplier
        assert aggregate.privacy.epsilon("release", rounds=10) == pytest.approx(2.0, rel=1e-3)
        assert aggregate.privacy.epsilon("server", rounds=10) > 2.0
        with pytest.raises(ValueError, match="needs population"):
            RoundSpec(observer="release")

    def test_a_prior_goes_to_decoders_that_take_one(self):
        scores = np.zeros(D)
        scores[:S] = 1.0
        prior = solvers.priors.Scores(scores)
        low = RoundSpec(epsilon=0.3, decoder="amp")
        truth = X.mean(axis=0)
        plain, told = (run(spec).decode() for spec in (low, low.replace(prior=prior)))
        assert np.sum((told - truth) ** 2) < np.sum((plain - truth) ** 2)
        np.testing.assert_array_equal(run(low).decode("amp", prior=prior), told)
        with pytest.raises(ValueError, match=r"prior=Scores.*decoder='linear'.*decoder='amp'"):
            run(low.replace(prior=prior, decoder="linear"))

    def test_a_bad_decoder_costs_nothing(self, tmp_path):
        ledger = Ledger(default("delta"), path=tmp_path / "ledger.sqlite")
        with pytest.raises(ValueError, match="nonsense"):
            run(RoundSpec(decoder="nonsense"), ledger=ledger)
        assert ledger.rounds == 0

    def test_a_round_carries_on_from_the_last(self):
        spec = RoundSpec(clip_norm=AdaptiveClip(0.1), feedback=ThresholdFeedback(0.5))
        first = run(spec)
        second = run(spec, previous=first)
        assert second.config.clip_norm == first.clip.current != 0.1
        fresh = run(spec.replace(clip_norm=AdaptiveClip(first.clip.current)))
        assert (second.sketch != fresh.sketch).any()

    def test_signatures_name_the_parameters(self):
        for door in (RoundSpec, SparseSecAgg, plan):
            named = inspect.signature(door).parameters
            assert set(round_parameters()) <= set(named)


class TestAggregate:
    def test_it_decodes_as_often_as_asked(self):
        aggregate = run()
        first = aggregate.decode()
        first[:] = 0.0  # the caller's own
        assert np.abs(aggregate.decode()).sum() > 1
        estimate, std_err = aggregate.decode("linear", return_std=True)
        assert estimate.shape == std_err.shape == (D,)
        low, high = aggregate.confidence_interval(0.999, simultaneous=True).T
        assert (low <= high).all()
        assert set(aggregate.discoveries(family_wise=1e-3)) == set(range(S))
        with pytest.raises(ValueError, match="no standard error"):
            aggregate.decode("working_set", return_std=True)

    @pytest.mark.parametrize(
        ("spec", "options"),
        [
            (RoundSpec(epsilon=4.0), {}),
            (RoundSpec(epsilon=4.0, mechanism="central", decoder="fista"), {}),
            (RoundSpec(secagg=MaskedSecAgg(masks="seeded"), colluders=5), {"dropouts": [3, 4]}),
            (
                RoundSpec(
                    clip_norm=AdaptiveClip(0.3, quantile=0.4),
                    feedback=ThresholdFeedback(0.1),
                    layers={"a": slice(0, 300), "b": slice(300, D)},
                ),
                {"sample_weight": np.linspace(0.1, 1, N)},
            ),
            (RoundSpec(population=10 * N, observer="release"), {}),
        ],
        ids=["plain", "central", "masked", "everything", "sampled"],
    )
    def test_files_bring_it_back(self, spec, options, tmp_path):
        saved = run(spec, **options)
        saved.save(tmp_path / "round.npz")
        assert stat.S_IMODE((tmp_path / "round.npz").stat().st_mode) == 0o600
        loaded = Aggregate.load(tmp_path / "round.npz")
        np.testing.assert_array_equal(loaded.sketch, saved.sketch)
        np.testing.assert_array_equal(loaded.survivors, saved.survivors)
        np.testing.assert_array_equal(loaded.decode(), saved.decode())
        assert loaded.config == saved.config
        assert str(loaded.result).split("seconds")[0] == str(saved.result).split("seconds")[0]
        for observer in ("server", "colluders", "release"):
            assert loaded.privacy.epsilon(observer) == saved.privacy.epsilon(observer)
        if saved.clip is not None:
            assert loaded.clip.current == saved.clip.current
            np.testing.assert_array_equal(loaded.feedback.error_, saved.feedback.error_)
        assert loaded.not_private

    def test_files_that_are_something_else_are_refused(self, tmp_path):
        path = tmp_path / "round.npz"
        run().save(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(AggregateFileError, match="not a saved aggregate"):
            Aggregate.load(path)
        with open(path, "wb") as file:
            np.savez(file, document=np.array([{}], dtype=object))
        with pytest.raises(AggregateFileError, match="not a saved aggregate"):
            Aggregate.load(path)
        document = {"format": "sparse_secagg aggregate", "version": 99}
        with open(path, "wb") as file:
            np.savez(file, document=np.frombuffer(json.dumps(document).encode(), dtype=np.uint8))
        with pytest.raises(AggregateFileError, match="version 99.*update"):
            Aggregate.load(path)

    def test_neither_files_nor_pickles_hold_what_depends_on_the_data(self, tmp_path):
        aggregate = run(diagnostics=True)
        assert aggregate.diagnose().squared_norm > 0
        assert pickle.loads(pickle.dumps(aggregate)).diagnose() is None
        aggregate.save(tmp_path / "round.npz")
        assert Aggregate.load(tmp_path / "round.npz").diagnose() is None
        assert "Witness" not in repr(aggregate)

    def test_the_count_of_an_adaptive_clip_trusts_no_more_clients_than_the_sketch(self):
        noise = DiscreteGaussian(epsilon=1.0, delta=1e-5, clip_norm=1.0, n_bits=16, colluders=3)
        noise.calibrate(4, 16)
        cost = privacy_of_round(noise.privacy(4), AdaptiveClip(1.0))
        assert [part.guaranteed_shares for part in cost.sums] == [1, 1]

    def test_time_is_counted_from_the_beginning_of_a_stage(self):
        start = time.perf_counter()
        aggregate = RoundSpec(compression=4, noise_multiplier=1.0).run(np.eye(20, 64))
        aggregate.decode()
        elapsed = time.perf_counter() - start
        assert 0 < sum(aggregate.seconds.values()) <= elapsed

    def test_masked_bytes_count_the_protocol(self):
        ideal, masked = run(), run(RoundSpec(secagg=MaskedSecAgg(masks="seeded")))
        assert ideal.bytes_per_client == math.ceil(ideal.bits_per_client / 8)
        assert masked.bytes_per_client > ideal.bytes_per_client + 1000


class TestConfiguration:
    def test_it_is_frozen_hashable_and_its_own_key(self):
        config = RoundSpec(encoder="count_sketch").config(D, N, random_state=1, round_id="a")
        same = RoundConfig.from_json(config.to_json())
        assert config == same
        assert hash(config) == hash(same)
        assert parts_of(config) is parts_of(same)
        for change in (
            lambda: config.encoder.update(n_rows=3),
            lambda: config.encoder.__setitem__("n_rows", 3),
            lambda: config.encoder.pop("n_rows"),
        ):
            with pytest.raises(TypeError, match="frozen"):
                change()
        assert pickle.loads(pickle.dumps(config)) == config

    def test_it_is_serialised_once_and_its_parts_are_built_once(self, monkeypatch):
        texts, built, calibrated = [], [], []
        import sparse_secagg.round.config as config_module

        dumps = config_module.json.dumps
        monkeypatch.setattr(
            config_module.json, "dumps", lambda *a, **k: (texts.append(1), dumps(*a, **k))[1]
        )
        fit = CountSketchEncoder.fit_dimension
        monkeypatch.setattr(
            CountSketchEncoder, "fit_dimension", lambda s, d: (built.append(1), fit(s, d))[1]
        )
        calibrate = DiscreteGaussian.calibrate
        monkeypatch.setattr(
            DiscreteGaussian,
            "calibrate",
            lambda s, n, d: (calibrated.append(1), calibrate(s, n, d))[1],
        )
        aggregate = run(RoundSpec(encoder="count_sketch", secagg=MaskedSecAgg(masks="seeded")))
        assert (len(built), len(calibrated)) == (1, 1)
        for _ in range(3):
            aggregate.config.to_json(), aggregate.config.digest, hash(aggregate.config)
        assert len(texts) == 1


def _reseeded(p, like):
    """The JSON of a plan with the rotation's seed of another, which is drawn anew each time."""
    document = json.loads(p.to_json())
    document["parameters"]["seed"] = json.loads(like.to_json())["parameters"]["seed"]
    return json.dumps(document)
