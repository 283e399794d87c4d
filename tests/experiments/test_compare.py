"""Decoders compared on recordings: truths, intervals, verdicts and the command."""

import json
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.cli.options import spread
from experiments.recordings.prepared import prepare_round
from experiments.recordings.recording import Recording
from experiments.results.comparison import Setting
from experiments.results.comparison_statistics import interval, judge, ratio_interval
from experiments.results.compressibility import compressibility
from experiments.sweeps.compare import CompareConfig, default_decoders, run_compare
from experiments.sweeps.compare_checks import choose_bits
from sparse_secagg import DiscreteGaussian, PrivacyWarning, SparseSecAgg, plan

RNG = np.random.default_rng(0)


class TestRounds:
    X = RNG.standard_normal((30, 40)).astype(np.float32) * RNG.uniform(0, 1, (30, 1))

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_truth_is_the_mean_that_the_pipeline_estimates(self, form, monkeypatch):
        X = self.X.copy()
        X[3, 5], X[4, 0] = np.nan, -np.inf
        monkeypatch.setattr("experiments.recordings.prepared._BLOCK_BYTES", 2000)
        monkeypatch.setattr(
            "experiments.recordings.prepared._SPARSE_UP_TO", 0.0 if form is np.asarray else 1.0
        )
        data = prepare_round(7, X, recorded=None, given=2.0)
        assert sp.issparse(data.X) == (form is sp.csr_array)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            fitted = SparseSecAgg(
                "identity",
                noise_multiplier=0,
                clip_norm=2.0,
                n_bits=40,
                decoder="linear",
                diagnostics=True,
            ).fit(data.X)
        np.testing.assert_allclose(data.truth, fitted.mean_, atol=1e-7)
        assert data.n_nonfinite == 2 == fitted.diagnostics_.n_nonfinite
        assert data.n_clipped == fitted.diagnostics_.n_clipped > 0

    def test_the_clip_is_the_given_one_then_the_recorded_one_then_the_median(self):
        def clip(**sources):
            data = prepare_round(0, self.X, **{"recorded": None, "given": None, **sources})
            return data.clip_norm, data.clip_source

        assert clip(recorded=1.5, given=2.0) == (2.0, "given")
        assert clip(recorded=1.5) == (1.5, "recorded")
        norms = np.linalg.norm(self.X.astype(float), axis=1)
        assert clip() == (pytest.approx(np.median(norms)), "the median norm")

    def test_rounds_that_say_nothing_are_refused(self):
        zero = np.zeros((4, 3), dtype=np.float32)
        with pytest.raises(
            ValueError, match="round 2: no update is a finite vector other than zero"
        ):
            prepare_round(2, zero, None, None)
        with pytest.raises(ValueError, match="round 2: the mean of the updates is zero"):
            prepare_round(2, zero, 1.0, None)

    def test_mostly_zero_rounds_become_sparse(self):
        X = sp.random_array((50, 100), density=0.02, rng=0, dtype=np.float32)
        data = prepare_round(0, X.toarray(), 1e9, None)
        assert sp.issparse(data.X)
        np.testing.assert_array_equal(data.X.toarray(), X.toarray())
        np.testing.assert_allclose(data.truth, X.toarray().astype(float).mean(axis=0), atol=1e-12)

    def test_energy_by_hand(self):
        found = compressibility(np.array([0.0, 3.0, 0.0, -4.0]), {"a": (2, 2)})
        assert found.coordinates == {0.5: 1, 0.9: 2, 0.99: 2}
        assert dict(found.curve)[1] == pytest.approx(16 / 25)
        (layer,) = found.layers  # [[0, 3], [0, -4]] has rank one and norm five
        assert layer.ranks == {0.5: 1, 0.9: 1, 0.99: 1}
        assert layer.singular_values[0] == pytest.approx(5)
        assert layer.share == pytest.approx(1)

    def test_ranks_equal_those_of_a_singular_value_decomposition(self):
        matrix = RNG.standard_normal((12, 5, 4)) * np.geomspace(1, 1e-2, 4)
        truth = np.concatenate([matrix.ravel(), RNG.standard_normal(7)])
        matrix_layer, vector = compressibility(truth, {"w": (12, 5, 4), "b": (7,)}).layers
        s = np.linalg.svd(matrix.reshape(-1, 4), compute_uv=False)
        shares = np.cumsum(s**2) / np.sum(s**2)
        expected = {q: int(np.argmax(shares >= q)) + 1 for q in (0.5, 0.9, 0.99)}
        assert matrix_layer.ranks == expected
        assert vector.ranks is None
        assert matrix_layer.share + vector.share == pytest.approx(1)


class TestStatistics:
    def test_one_group_has_students_interval(self):
        values = RNG.standard_normal(8)
        low, high = stats.t.interval(0.95, 7, values.mean(), stats.sem(values))
        found = interval([values])
        assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))

    def test_differences_between_groups_do_not_widen_it(self):
        values = RNG.standard_normal((3, 6))
        shifted = values + np.array([[0], [100], [-50]])
        one, other = interval(values), interval(shifted)
        assert other.high - other.low == pytest.approx(one.high - one.low)
        # analysis of variance: the residual of a fit of the group means
        residual = values - values.mean(axis=1, keepdims=True)
        half = stats.t.isf(0.025, 15) * np.sqrt(np.sum(residual**2) / 15 / 18)
        assert one.high - one.mean == pytest.approx(half)

    def test_one_draw_has_no_interval(self):
        found = interval([[1.0], [2.0]])
        assert found.mean == 1.5
        assert math.isnan(found.low)

    def test_ratios_cancel_the_luck_of_the_draw(self):
        luck = RNG.lognormal(sigma=2, size=(1, 10))
        found = ratio_interval(1.5 * luck, luck)
        assert (found.mean, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))

    def test_a_clear_winner_is_named_with_its_margin(self):
        luck = RNG.lognormal(sigma=1, size=(2, 5))
        noise = RNG.lognormal(sigma=0.01, size=(2, 5))
        verdict = judge("one estimate", {"a": 2 * luck, "b": luck, "c": 1.5 * luck * noise})
        assert verdict.best == "b"
        assert verdict.is_clear
        assert verdict.rivals[0].decoder == "c"
        assert "use b" in verdict.sentence
        assert "the error of c is 1.5" in verdict.sentence
        assert "10 draws" in verdict.sentence

    def test_equals_are_no_clear_winner(self):
        luck = 0.1 * RNG.lognormal(sigma=0.1, size=(1, 20))
        errors = {"a": luck, "b": luck * RNG.lognormal(sigma=0.2, size=(1, 20)), "c": 9 * luck}
        verdict = judge("one estimate", errors)
        assert not verdict.is_clear
        assert {verdict.best, *verdict.equals} == {"a", "b"}
        assert "no clear winner" in verdict.sentence
        assert "zero" not in verdict.sentence

    def test_identical_decoders_are_equals_however_many_draws(self):
        errors = RNG.random((3, 50))
        assert judge("x", {"a": errors, "b": errors}).equals == ["b"]

    def test_one_draw_makes_no_claim(self):
        verdict = judge("one estimate", {"a": [[0.1]], "b": [[0.5]]})
        assert not verdict.is_clear
        assert "raise the number of draws" in verdict.sentence

    def test_an_error_of_one_is_called_what_it_is(self):
        errors = {"a": [[1.2, 1.3]], "b": [[5.0, 6.0]]}
        assert "answering zero would do as well" in judge("x", errors).sentence
        assert "zero" not in judge("x", errors, shrinks=False).sentence
        assert "only a was tried" in judge("x", {"a": [[0.5]]}).sentence

    def test_limits_are_students_at_a_level_shared_by_all_pairs(self):
        """Nine rivals: each interval leaves out 5 %/9, by the formula."""
        errors = {k: RNG.lognormal(mean=k, size=(1, 6)) for k in range(10)}
        verdict = judge("x", {str(k): e for k, e in errors.items()})
        assert verdict.best == "0"
        for rival in verdict.rivals:
            logs = np.log(errors[int(rival.decoder)] / errors[0]).ravel()
            half = stats.t.isf(0.05 / 9 / 2, 5) * stats.sem(logs)
            assert rival.ratio.low == pytest.approx(np.exp(logs.mean() - half))
            assert rival.ratio.high == pytest.approx(np.exp(logs.mean() + half))

    @staticmethod
    def alarms(level):
        """Ten decoders, nine of them a hundred times worse: how often an interval misses that."""
        rng, n, wrong = np.random.default_rng(1), 600, 0
        for _ in range(n):
            best = rng.lognormal(sigma=0.1, size=(2, 4))
            others = 100 * rng.lognormal(sigma=0.5, size=(9, 2, 4))
            if level == "judged":
                found = judge("x", {"best": best, **dict(zip("abcdefghi", others))})
                intervals = [rival.ratio for rival in found.rivals]
            else:
                intervals = [ratio_interval(other, best) for other in others]
            wrong += any(not each.low <= 100 <= each.high for each in intervals)
        return wrong, n

    def test_false_alarms_are_as_rare_as_claimed(self):
        """All intervals of a comparison hold together in 95 %; one by one they would not."""
        wrong, n = self.alarms("judged")
        assert stats.binom.sf(wrong - 1, n, 0.05) > 1e-6
        assert wrong > 0  # the intervals are not merely wide
        wrong, n = self.alarms("each by itself")
        assert stats.binom.sf(wrong - 1, n, 0.05) < 1e-6  # negative control

    def test_one_clear_winner_among_equals_is_a_false_alarm(self):
        """Five equal decoders: a clear winner in at most 5 % of comparisons."""
        rng = np.random.default_rng(1)
        n = 400
        clear = sum(
            judge("x", {k: rng.lognormal(sigma=0.5, size=(2, 4)) for k in "abcde"}).is_clear
            for _ in range(n)
        )
        assert stats.binom.sf(clear - 1, n, 0.05) > 1e-6


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Two rounds of a mean with a sparse and a low-rank layer."""
    rng = np.random.default_rng(0)
    rec = Recording.create(
        tmp_path_factory.mktemp("compare") / "recording",
        task="made up",
        shapes={"embedding": (600,), "weight": (40, 20)},
        clip_norm=1.0,
    )
    for k in (0, 5):
        mean = np.zeros(1400)
        mean[rng.choice(600, 8, replace=False)] = 0.2
        mean[600:] = 0.3 * np.outer(*(v / np.linalg.norm(v) for v in _pair(rng))).ravel()
        rec.append(k, mean + 0.01 * rng.standard_normal((60, 1400)))
    return rec


def _pair(rng):
    return rng.standard_normal(40), rng.standard_normal(20)


CONFIG = CompareConfig(
    compressions=(2.0, 5.0),
    epsilons=(50.0,),
    decoders=("linear", "lasso", "amp:auto"),
    draws=2,
    top=8,
)


class TestComparing:
    def test_outcomes_are_those_of_the_estimator(self, recording):
        result = run_compare(recording, CONFIG)
        assert len(result.outcomes) == 2 * 2 * 2 * 3
        outcome = result.outcomes[-1]
        assert (outcome.round, outcome.draw, outcome.decoder) == (5, 1, "amp:auto")
        X = np.asarray(recording[1], dtype=np.float64)
        truth = np.mean(X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None], axis=0)
        seed = int(np.random.SeedSequence([1, 5]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            fitted = SparseSecAgg(
                "count_sketch",
                compression=5.0,
                epsilon=50.0,
                n_bits=result.n_bits[outcome.setting],
                decoder="linear",
                random_state=seed,
                simulation_seed=seed,
            ).fit(X)
        import solvers

        estimate = fitted.decode(solvers.get("amp", denoiser="auto", shapes=[(600,), (40, 20)]))
        error = np.sum((estimate - truth) ** 2) / np.sum(truth**2)
        assert outcome.relative_error == pytest.approx(error, rel=1e-6)
        layer = np.sum((estimate[600:] - truth[600:]) ** 2) / np.sum(truth[600:] ** 2)
        assert outcome.layer_errors["weight"] == pytest.approx(layer, rel=1e-6)

    def test_processes_change_nothing_but_the_time(self, recording):
        config = CompareConfig(epsilons=(50.0,), decoders=("linear", "lasso"), draws=2, rounds=(5,))
        one, two = (run_compare(recording, config, jobs=jobs).outcomes for jobs in (1, 2))
        assert [(o.round, o.draw, o.decoder) for o in one] == [
            (o.round, o.draw, o.decoder) for o in two
        ]
        assert [o.relative_error for o in one] == [o.relative_error for o in two]

    def test_structure_wins_where_there_is_structure(self, recording):
        result = run_compare(recording, CONFIG)
        one_shot, training = result.verdicts()
        assert one_shot.best == "amp:auto"
        assert one_shot.is_clear
        assert training.best == "linear"  # the only unbiased one
        assert "use amp:auto" in result.sentences[0]
        easy = result.settings[0]
        assert result.mean(easy, "amp:auto", "recall").mean > 0.9
        summary = result.rounds[0].compressibility
        assert summary.layers[1].ranks[0.9] == 1

    def test_chosen_bits_leave_the_noise_as_it_is(self):
        """The calibrated noise is that of many bits, where the planner's slack lets it grow.

        Sizes of real heavy hitters: a tenth of 50,000 words, 4,192 clients, ε = 1.
        """
        rounds = SimpleNamespace(entries=[SimpleNamespace(n=4192, d=50_000)])
        setting = Setting(10.0, 1.0, None)
        config = CompareConfig(compressions=(10.0,), epsilons=(1.0,))
        chosen = choose_bits(rounds, [0], [setting], config)[setting]

        def noise(n_bits):
            mechanism = DiscreteGaussian(epsilon=1.0, delta=1e-5, n_bits=n_bits)
            mechanism.calibrate(4192, 5000)
            return mechanism.noise_std(4192) ** 2

        planned = plan(50_000, 4192, epsilon=1.0, delta=1e-5, compression=10.0, error_slack=0.02)
        assert noise(chosen) <= 1.03 * noise(30)
        assert noise(planned.n_bits) > 1.1 * noise(30)  # or there was nothing to choose

    def test_unbiased_decoders_are_known_as_such(self, recording):
        names = default_decoders("count_sketch", recording.shapes)
        config = CompareConfig(epsilons=(50.0,), decoders=names, draws=1, rounds=(0,))
        unbiased = {name for name, fair in run_compare(recording, config).decoders.items() if fair}
        assert unbiased == {"linear", "median"} | {name for name in names if "debias" in name}

    def test_a_decoder_that_needs_layers_has_them_by_default_only_where_they_are(self):
        assert "amp:low_rank" in default_decoders("count_sketch", {"w": (3, 4)})
        assert "amp:low_rank" not in default_decoders("count_sketch", {"w": (12,)})
        assert "median" not in default_decoders("hadamard", {})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"compressions": (0.5,)}, "compression=0.5"),
            ({"epsilons": (0.0,)}, "epsilon=0.0"),
            ({"epsilons": (math.nan,)}, "epsilon=nan"),
            ({"noise_multipliers": (-1.0,)}, "noise_multiplier=-1"),
            ({"draws": 0}, "draws=0"),
            ({"top": 0}, "top=0"),
            ({"rounds": (3,)}, "round 3 is not in"),
            ({"decoders": ("lass",)}, "no solver 'lass'"),
            ({"n_bits": 3}, "n_bits=3"),
            ({"encoder": "nothing"}, "nothing"),
            ({"encoder": "hadamard", "decoders": ("median",)}, "median decoder needs a count"),
            ({"clip_norm": -1.0}, "clip_norm"),
            ({"compressions": (1.0, 5.0), "decoders": ("median",)}, "compression=1 sends none"),
        ],
    )
    def test_what_is_wrong_is_named_before_any_work(self, recording, monkeypatch, change, message):
        monkeypatch.setattr("experiments.sweeps.compare.prepare_round", None)
        with pytest.raises(ValueError, match=message):
            run_compare(recording, CompareConfig(**change))

    def test_compression_one_sends_the_update_itself(self, recording):
        config = CompareConfig(
            compressions=(1.0,), epsilons=(), noise_multipliers=(0.0,), rounds=(0,), draws=1
        )
        result = run_compare(recording, config)
        assert "median" not in result.decoders
        (linear,) = [each for each in result.outcomes if each.decoder == "linear"]
        assert linear.relative_error < 1e-6  # rounding to 24 bits

    def test_an_empty_recording_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="holds no rounds"):
            run_compare(Recording.open(tmp_path / "none"))


class TestCommand:
    def test_tables_pictures_and_the_recommendation(self, recording, tmp_path):
        run = CliRunner().invoke(
            app,
            f"compare {recording.path} --compression 2 5 --epsilon 50 --decoder linear amp:auto "
            f"--draws 2 --output {tmp_path}".split(),
        )
        assert run.exit_code == 0, run.output
        text = " ".join(run.output.split())
        assert "For one estimate use amp:auto" in text
        assert "relative error by layer" in text
        for name in ("errors", "energy", "layers"):
            assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
            assert (tmp_path / f"{name}.svg").exists()

    def test_json_holds_everything(self, recording, tmp_path):
        run = CliRunner().invoke(
            app,
            f"compare {recording.path} --noise-multiplier 0 --decoder linear --round 5 --draws 1 "
            f"--output {tmp_path} --json".split(),
        )
        assert run.exit_code == 0, run.output
        found = json.loads(run.stdout)
        assert found == json.loads((tmp_path / "compare.json").read_text())
        (setting,) = found["settings"]
        assert setting["noise_multiplier"] == 0
        assert setting["decoders"][0]["decoder"] == "linear"
        assert set(setting["decoders"][0]["layers"]) == {"embedding", "weight"}
        assert len(found["outcomes"]) == 1
        assert found["rounds"][0]["number"] == 5
        # without noise the unsketch has the error (d − 1)/m, ten times here
        assert 5 < setting["decoders"][0]["relative_error"]["mean"] < 20

    def test_packed_recordings_and_plain_arrays(self, recording, tmp_path):
        packed = recording.pack(tmp_path / "packed.zip")
        np.save(tmp_path / "plain.npy", recording[0])
        for path in (packed, tmp_path / "plain.npy"):
            run = CliRunner().invoke(
                app,
                f"compare {path} --decoder linear ridge --epsilon 50 --clip-norm 1 --draws 1 "
                f"--output {tmp_path / 'out'}".split(),
                env={"COLUMNS": "300"},  # a long path would wrap
            )
            assert run.exit_code == 0, run.output
            assert path.name in run.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["missing"], "is not there"),
            (["REC", "--epsilon", "1", "--noise-multiplier", "1"], "not both"),
            (["REC", "--decoder", "nothing"], "no solver 'nothing'"),
        ],
    )
    def test_errors_are_explained(self, recording, tmp_path, arguments, message):
        arguments = [str(recording.path) if a == "REC" else a for a in arguments]
        out = ["--output", str(tmp_path / "out")]
        run = CliRunner().invoke(app, ["compare", *arguments, *out])
        assert run.exit_code == 2
        text = " ".join(run.output.replace("│", " ").split())
        assert message in text

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("x --epsilon 1 10 --seed 3", "x --epsilon 1 --epsilon 10 --seed 3"),
            ("--epsilon 1 10 x", "--epsilon 1 --epsilon 10 x"),
            ("--seed 3 x --epsilon 1 10", "--seed 3 x --epsilon 1 --epsilon 10"),
            ("--epsilon 1 --epsilon 10 x", "--epsilon 1 --epsilon 10 x"),
            ("--json x --decoder a b", "--json x --decoder a --decoder b"),
            ("--decoder a b HERE", "--decoder a --decoder b HERE"),
            ("HERE --decoder a HERE b", "HERE --decoder a --decoder HERE --decoder b"),
            ("--seed 3 4", "--seed 3 4"),
        ],
    )
    def test_several_values_after_one_option(self, tmp_path, given, expected):
        here = str(tmp_path)  # a folder that is there
        given, expected = (text.replace("HERE", here).split() for text in (given, expected))
        assert spread(given, {"--epsilon", "--decoder"}, {"--json"}) == expected
