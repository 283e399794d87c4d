"""Comparisons on recordings: rounds prepared once, a sweep over them, and the command."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import solvers
from experiments.cli.app import app
from experiments.cli.options import spread, words
from experiments.cli.sweeping import default_decoders, recommendations
from experiments.recordings.recording import Recording
from experiments.results.compressibility import compressibility
from experiments.sweeps.cell import Inputs
from experiments.sweeps.cells import RecordingCell
from experiments.sweeps.draws import enough_bits
from experiments.sweeps.engine import run_sweep
from experiments.sweeps.grid import Grid
from experiments.sweeps.recorded import RecordedRound
from experiments.sweeps.store import Store, StoreError
from sparse_secagg import DiscreteGaussian, PrivacyWarning, RoundSpec, SparseSecAgg, plan
from sparse_secagg.decoder_texts import parse_decoder

RNG = np.random.default_rng(0)


class TestRounds:
    X = RNG.standard_normal((30, 40)).astype(np.float32) * RNG.uniform(0, 1, (30, 1))

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_truth_is_the_mean_that_the_pipeline_estimates(self, form, monkeypatch):
        X = self.X.copy()
        X[3, 5], X[4, 0] = np.nan, -np.inf
        monkeypatch.setattr("experiments.sweeps.recorded._BLOCK_BYTES", 2000)
        monkeypatch.setattr(
            "experiments.sweeps.recorded._SPARSE_UP_TO", 0.0 if form is np.asarray else 1.0
        )
        data = RecordedRound(7, X, {}, None).prepared(2.0)
        assert sp.issparse(data.rows) == (form is sp.csr_array)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            fitted = SparseSecAgg(
                "identity",
                noise_multiplier=0,
                clip_norm=2.0,
                n_bits=40,
                decoder="linear",
                diagnostics=True,
            ).fit(data.rows)
        np.testing.assert_allclose(data.mean, fitted.mean_, atol=1e-7)
        assert data.n_nonfinite == 2 == fitted.diagnostics_.n_nonfinite
        assert data.n_clipped == fitted.diagnostics_.n_clipped > 0

    def test_the_clip_is_the_given_one_then_the_recorded_one_then_the_median(self):
        assert RecordedRound(0, self.X, {}, 1.5).clip(2.0) == 2.0
        assert RecordedRound(0, self.X, {}, 1.5).clip(None) == 1.5
        norms = np.linalg.norm(self.X.astype(float), axis=1)
        assert RecordedRound(0, self.X, {}, None).clip(None) == pytest.approx(np.median(norms))

    def test_rounds_that_say_nothing_are_refused(self):
        zero = np.zeros((4, 3), dtype=np.float32)
        with pytest.raises(
            ValueError, match="round 2: no update is a finite vector other than zero"
        ):
            RecordedRound(2, zero, {}, None).clip(None)
        with pytest.raises(ValueError, match="round 2: the mean of the updates is zero"):
            RecordedRound(2, zero, {}, None).prepared(1.0)

    def test_mostly_zero_rounds_become_sparse(self):
        X = sp.random_array((50, 100), density=0.02, rng=0, dtype=np.float32)
        data = RecordedRound(0, X.toarray(), {}, None).prepared(1e9)
        assert sp.issparse(data.rows)
        np.testing.assert_array_equal(data.rows.toarray(), X.toarray())
        np.testing.assert_allclose(data.mean, X.toarray().astype(float).mean(axis=0), atol=1e-12)

    def test_energy_by_hand(self):
        found = compressibility(np.array([0.0, 3.0, 0.0, -4.0]), {"a": (2, 2)})
        assert found.coordinates == {0.5: 1, 0.9: 2, 0.99: 2}
        (layer,) = found.layers  # [[0, 3], [0, -4]] has rank one and norm five
        assert layer.ranks == {0.5: 1, 0.9: 1, 0.99: 1}
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


DECODERS = ("linear", "lasso", "amp:auto")


@pytest.fixture(scope="module")
def compared(recording):
    base = RecordingCell.of(recording.path, epsilon=50.0, top=8)
    inputs = Inputs(recording=str(recording.path))
    return run_sweep(
        Grid({"compression": (2.0, 5.0)}, base, decoders=DECODERS, seeds=2, inputs=inputs)
    )


class TestComparing:
    def test_outcomes_are_those_of_the_estimator(self, recording, compared):
        assert len(compared.results) == 2 * 2 * 2 * 3
        (outcome,) = [
            each
            for each in compared.results
            if (each.cell.round, each.cell.seed, each.cell.spec.decoder) == (5, 1, "amp:auto")
            and each.cell.spec.compression == 5
        ]
        X = np.asarray(recording[1], dtype=np.float64)
        truth = np.mean(X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None], axis=0)
        seed = int(np.random.SeedSequence([1, 5]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            fitted = SparseSecAgg(
                "count_sketch",
                compression=5.0,
                epsilon=50.0,
                n_bits=int(outcome.metrics["message_bits"]),
                decoder="linear",
                random_state=seed,
                simulation_seed=seed,
            ).fit(X)
        estimate = fitted.decode(solvers.get("amp", denoiser="auto", shapes=[(600,), (40, 20)]))
        error = np.sum((estimate - truth) ** 2) / np.sum(truth**2)
        assert outcome.metrics["relative_error"] == pytest.approx(error, rel=1e-6)
        layer = np.sum((estimate[600:] - truth[600:]) ** 2) / np.sum(truth[600:] ** 2)
        assert outcome.metrics["error of weight"] == pytest.approx(layer, rel=1e-6)

    def test_structure_wins_where_there_is_structure(self, compared):
        one_shot, training = recommendations(compared)
        assert "For one estimate use amp:auto" in one_shot
        assert "For training (unbiased) only linear was tried" in training
        assert {row.winner.best for row in compared.winners()} == {"amp:auto"}

    def test_rounds_and_seeds_are_repetitions_of_a_setting(self, compared):
        assert compared.draws == 4
        assert compared.varying == ["compression", "decoder"]
        assert [row.interval.n for row in compared.summary()] == [4] * 6

    def test_chosen_bits_leave_the_noise_as_it_is(self):
        """The calibrated noise is that of many bits, where the planner's slack lets it grow.

        Sizes of real heavy hitters: a tenth of 50,000 words, 4,192 clients, ε = 1.
        """
        spec = RoundSpec(encoder="count_sketch", compression=10.0, epsilon=1.0, n_bits=None)
        chosen = enough_bits(spec, 50_000, 4192)

        def noise(n_bits):
            mechanism = DiscreteGaussian(epsilon=1.0, delta=1e-5, n_bits=n_bits)
            mechanism.calibrate(4192, 5000)
            return mechanism.noise_std(4192) ** 2

        planned = plan(50_000, 4192, epsilon=1.0, delta=1e-5, compression=10.0, error_slack=0.02)
        assert noise(chosen) <= 1.03 * noise(30)
        assert noise(planned.n_bits) > 1.1 * noise(30)  # or there was nothing to choose

    def test_unbiased_decoders_are_known_as_such(self, recording):
        names = default_decoders("count_sketch", recording.shapes)
        fair = {name for name in names if not parse_decoder(name, recording.shapes).biased}
        assert fair == {"linear", "median"} | {name for name in names if "debias" in name}

    def test_a_decoder_that_needs_layers_has_them_by_default_only_where_they_are(self):
        assert "amp:low_rank" in default_decoders("count_sketch", {"w": (3, 4)})
        assert "amp:low_rank" not in default_decoders("count_sketch", {"w": (12,)})
        assert "median" not in default_decoders("hadamard", {})

    def test_compression_one_sends_the_update_itself(self, recording, tmp_path):
        run = CliRunner().invoke(
            app,
            f"compare {recording.path} --compression 1 --noise-multiplier 0 --round 0 --draws 1 "
            f"--output {tmp_path} --json".split(),
        )
        rows = json.loads(run.stdout)["sweeps"][0]["results"]
        assert "median" not in {row["decoder"] for row in rows}
        (linear,) = [row for row in rows if row["decoder"] == "linear"]
        assert linear["relative_error"] < 1e-6  # rounding to 24 bits

    def test_an_empty_recording_is_refused(self, tmp_path):
        Recording.create(tmp_path / "none")
        with pytest.raises(ValueError, match="holds no rounds"):
            RecordingCell.of(tmp_path / "none")


TIMES = ("seconds", "draw_seconds", "finished")


def numbers_of(path):
    """Whole rows of a file of results, timings aside."""
    with Store(path, read_only=True) as store:
        rows = [result.record() for result in store.results()]
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


class TestCommand:
    def test_tables_pictures_and_the_recommendation(self, recording, tmp_path):
        run = CliRunner().invoke(
            app,
            f"compare {recording.path} --compression 2 5 --epsilon 50 --decoder linear,ridge "
            f"--decoder amp:auto --draws 2 --output {tmp_path}".split(),
        )
        assert run.exit_code == 0, run.output
        text = " ".join(run.output.split())
        assert "For one estimate use amp:auto" in text
        assert "How compressible the mean update is" in text
        assert "geometric mean" in text
        assert "How low a rank holds its layers" in text
        assert "Relative error by layer" in text
        assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "compare.svg").exists()
        assert (tmp_path / "compare.pdf").read_bytes().startswith(b"%PDF")
        assert "For one estimate use amp:auto" in (tmp_path / "report.html").read_text()

    def test_arrays_are_compared_too(self, recording, tmp_path):
        np.save(tmp_path / "plain.npy", recording[0])
        run = CliRunner().invoke(
            app,
            f"compare {tmp_path / 'plain.npy'} --decoder linear,ridge --epsilon 50 --clip-norm 1 "
            f"--draws 1 --output {tmp_path / 'plain'}".split(),
        )
        assert run.exit_code == 0, run.output
        assert "For one estimate" in run.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["missing"], "is not there"),
            (["REC", "--epsilon", "1", "--noise-multiplier", "1"], "not both"),
            (["REC", "--decoder", "nothing"], "no solver 'nothing'"),
            (["REC", "--compression", "0.5"], "--compression 0.5"),
            (["REC", "--epsilon", "0"], "--epsilon 0.0"),
            (["REC", "--epsilon", "nan"], "--epsilon nan"),
            (["REC", "--epsilon", "one"], "--epsilon one must be a number"),
            (["REC", "--draws", "0"], "'--draws': 0 must be"),
            (["REC", "--top", "0"], "'--top': 0 must be"),
            (["REC", "--round", "3"], "round 3 is not in"),
            (["REC", "--encoder", "nothing"], "nothing"),
            (["REC", "--encoder", "hadamard", "--decoder", "median"], "needs encoder"),
            (["REC", "--compression", "1", "--decoder", "median"], "needs encoder"),
            (["REC", "--clip-norm", "-1"], "--clip-norm -1.0 must be a finite positive number."),
        ],
    )
    def test_errors_are_explained_before_any_work(self, recording, tmp_path, arguments, message):
        arguments = [str(recording.path) if a == "REC" else a for a in arguments]
        out = ["--output", str(tmp_path / "out")]
        run = CliRunner().invoke(app, ["compare", *arguments, *out])
        assert run.exit_code == 2
        text = " ".join(run.output.replace("│", " ").split())
        assert message in text
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("x --epsilon 1 10 --seed 3", "x --epsilon 1 --epsilon 10 --seed 3"),
            ("--epsilon 1 10 x", "--epsilon 1 --epsilon 10 x"),
            ("--seed 3 x --epsilon 1 10", "--seed 3 x --epsilon 1 --epsilon 10"),
            ("--epsilon 1 --epsilon 10 x", "--epsilon 1 --epsilon 10 x"),
            ("--json x --decoder a,b", "--json x --decoder a,b"),
            ("--decoder a HERE", "--decoder a HERE"),
            ("--seed 3 4", "--seed 3 4"),
        ],
    )
    def test_several_numbers_after_one_option(self, tmp_path, given, expected, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "10").mkdir()  # what is in the current folder does not matter
        given, expected = (
            text.replace("HERE", str(tmp_path)).split() for text in (given, expected)
        )
        assert spread(given, {"--epsilon", "--decoder"}) == expected

    def test_words_are_parted_by_commas_unless_they_are_options_of_a_decoder(self):
        assert words(["a,b", "amp:low_rank,debias"]) == ("a", "b", "amp:low_rank,debias")
        assert words(["linear, ridge,amp:auto,debias"]) == ("linear", "ridge", "amp:auto,debias")
        assert words(None) == ()

    def test_dask_gives_the_same_numbers(self, recording, tmp_path):
        distributed = pytest.importorskip("distributed")
        line = f"compare {recording.path} --decoder linear,lasso --epsilon 50 --draws 2"
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster:
            there = f"--backend dask --scheduler {cluster.scheduler_address}"
            for name, how in (("here", "--jobs 1"), ("there", there)):
                arguments = f"{line} {how} --output {tmp_path / name}".split()
                run = CliRunner().invoke(app, arguments)
                assert run.exit_code == 0, run.output
        here, there = (numbers_of(tmp_path / name / "results.sqlite") for name in ("here", "there"))
        assert here == there
        assert len(here) == 8

    def test_killed_and_resumed_it_ends_at_the_same_file(self, recording, tmp_path):
        line = f"compare {recording.path} --decoder linear,amp,omp --epsilon 50 --draws 6"
        command = [
            sys.executable,
            "-m",
            "experiments.cli",
            *line.split(),
            "--backend",
            "sequential",
        ]
        killed = subprocess.Popen(
            [*command, "--output", str(tmp_path / "killed")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "80"},
        )
        path = tmp_path / "killed" / "results.sqlite"
        deadline = time.monotonic() + 120
        while _count(path) < 3 and killed.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with Store(path) as store:  # repairs what was being written
            assert 0 < len(store) <= 36
        for name in ("killed", "whole"):
            run = CliRunner().invoke(app, [*line.split(), "--output", str(tmp_path / name)])
            assert run.exit_code == 0, run.output
        assert numbers_of(path) == numbers_of(tmp_path / "whole" / "results.sqlite")
        killed_table, whole_table = (
            (tmp_path / name / "compare.csv").read_bytes() for name in ("killed", "whole")
        )
        assert killed_table == whole_table


def _count(path):
    try:
        with Store(path, read_only=True) as store:
            return len(store)
    except StoreError:
        return 0
