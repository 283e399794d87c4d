import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from experiments.recordings.recording import Recording
from experiments.sweeps.cell import NO_INPUTS, Inputs
from experiments.sweeps.cells import (
    HittersCell,
    MeanCell,
    RecordingCell,
    TaskCell,
    cell_from_parameters,
)
from experiments.sweeps.engine import evaluate
from experiments.sweeps.grid import Grid
from experiments.sweeps.means import synthetic_clients
from experiments.sweeps.recorded import clipped_mean
from experiments.sweeps.theory import linear_error, predict, rate_distortion
from experiments.training.loop import TrainingConfig, run_training
from sparse_secagg import (
    CountSketchEncoder,
    GaussianEncoder,
    HadamardEncoder,
    PrivacyWarning,
    SparseSecAgg,
    plan,
)
from tests.statistics import assert_mean

SMALL = MeanCell(dim=300, clients=20, sparsity=5, compression=3, n_rows=5)


def metrics(cell, inputs=NO_INPUTS):
    (result,) = evaluate([cell], inputs)
    assert result.status == "done", result.message
    return result.metrics


def test_the_key_depends_on_values_and_not_on_how_they_are_written():
    assert SMALL.key() == dataclasses.replace(SMALL, compression=3.0).key()
    assert SMALL.key() != dataclasses.replace(SMALL, compression=3.5).key()
    keys = {
        dataclasses.replace(SMALL, **change).key()
        for change in [{}, {"seed": 1}, {"decoder": "amp"}, {"n_bits": 20}, {"mean": "dense"}]
    }
    assert len(keys) == 5


def test_the_key_is_the_same_in_another_process():
    code = (
        "from experiments.sweeps.cells import MeanCell;"
        "print(MeanCell(dim=300, clients=20, sparsity=5, compression=3, n_rows=5).key())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == SMALL.key()


@pytest.mark.parametrize(
    "cell",
    [
        SMALL,
        MeanCell(mean="dense", epsilon=1, noise_multiplier=None),
        RecordingCell(recording="ab", round=3, encoder="gaussian"),
        TaskCell.of("digits", compression=10, server_rate=0.3),
        HittersCell(compression=5, decoder="lasso"),
        MeanCell(density=0.2, compression=4),
    ],
)
def test_a_cell_survives_the_way_through_json(cell):
    again = cell_from_parameters(json.loads(json.dumps(cell.parameters())))
    assert again == cell
    assert again.key() == cell.key()


def test_decoders_share_a_draw_and_nothing_else_does():
    assert SMALL.draw_key() == dataclasses.replace(SMALL, decoder="amp").draw_key()
    assert SMALL.draw_key() != dataclasses.replace(SMALL, seed=1).draw_key()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoder": "fourier"}, "fourier"),
        ({"mechanism": "laplace"}, "laplace"),
        ({"compression": 0.5}, "compression=0.5 must be None, or a finite number of at least 1"),
        ({"compression": float("nan")}, "compression=nan"),
        ({"n_bits": 0}, "n_bits=0 must be an integer from 1 to 63"),
        ({"clients": 2.5}, "clients=2.5 must be an integer"),
        ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0"),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "both set the noise"),
        ({"epsilon": None, "noise_multiplier": None}, "epsilon"),
        ({"sparsity": 301}, "sparsity=301 must be an integer from 1 to 300"),
        ({"mean": "cauchy"}, "mean='cauchy' is not known"),
        ({"compression": 400.0}, "leaves no coordinate"),
        ({"threshold": 1.0}, "threshold=1.0 must be a share"),
        ({"colour": "red"}, "synthetic means have no such parameter"),
        ({"decoder": "median", "encoder": "gaussian"}, "'median' needs encoder 'count_sketch'"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words.replace("(", "\\(")):
        dataclasses.replace(SMALL, **change).check()


def test_a_cell_is_what_the_estimator_gives_on_the_same_rows():
    made = synthetic_clients(
        "sparse", dim=300, n_clients=20, sparsity=5, norm=0.3, spread=0.7, seed=9
    )
    with pytest.warns(PrivacyWarning):
        fitted = SparseSecAgg(
            CountSketchEncoder(compression=3, n_rows=5),
            noise_multiplier=1.0,
            n_bits=18,
            decoder="working_set",
            random_state=9,
            simulation_seed=9,
        ).fit(made[0:20])
    found = metrics(dataclasses.replace(SMALL, seed=9, decoder="lasso"))
    error = np.sum((fitted.mean_ - made.mean) ** 2) / np.sum(made.mean**2)
    assert found["relative_error"] == pytest.approx(error, rel=1e-12)
    assert found["n_components"] == fitted.operator_.shape[0]
    assert found["bits_per_parameter"] == fitted.bits_per_parameter_
    assert found["epsilon"] == fitted.epsilon_


def test_a_cell_alone_or_with_others_of_its_draw_gives_the_same_numbers():
    cells = [dataclasses.replace(SMALL, decoder=name) for name in ("linear", "amp", "lasso")]
    together = [result.metrics for result in evaluate(cells)]
    assert together == [metrics(cell) for cell in cells]


def test_compression_one_sends_the_vector_itself():
    found = metrics(dataclasses.replace(SMALL, compression=1.0, noise_multiplier=0.0))
    assert found["n_components"] == 300
    assert found["relative_error"] < 1e-3


def test_thresholds_zero_that_share_of_the_sketch():
    plain = metrics(SMALL)
    cut = metrics(dataclasses.replace(SMALL, threshold=0.5))
    assert cut["relative_error"] != plain["relative_error"]
    assert cut["theory_linear"] is None


@pytest.mark.parametrize("mean", ["layered", "low_rank"])
def test_layers_are_sketched_one_by_one(mean):
    cell = dataclasses.replace(SMALL, mean=mean, per_layer=True, n_rows=2)
    whole = metrics(cell.with_values(per_layer=False))
    assert metrics(cell)["relative_error"] != whole["relative_error"]


@pytest.mark.parametrize("change", [{"threshold": 0.5}, {"per_layer": True}])
def test_no_closed_form_is_claimed_where_something_comes_between(change):
    assert metrics(SMALL)["theory_linear"] > 0
    assert metrics(dataclasses.replace(SMALL, **change))["theory_linear"] is None


def test_too_few_bits_are_a_result_with_a_reason():
    (result,) = evaluate([dataclasses.replace(SMALL, n_bits=3)])
    assert result.status == "infeasible"
    assert "the smallest that can is" in result.message
    assert result.metrics == {}


def test_a_failing_decoder_fails_alone():
    cells = [SMALL, dataclasses.replace(SMALL, decoder="amp:low_rank")]
    fine, failed = evaluate([cells[0], dataclasses.replace(cells[1], decoder="omp:nonsense=1")])
    assert fine.status == "done"
    assert failed.status == "failed"
    assert "nonsense" in failed.message


@pytest.mark.parametrize("encoder", ["count_sketch", "gaussian", "hadamard"])
def test_the_linear_decoder_errs_as_predicted(encoder):
    cell = dataclasses.replace(SMALL, mean="dense", encoder=encoder, dim=128, compression=4)
    found = [metrics(dataclasses.replace(cell, seed=seed)) for seed in range(60)]
    errors = [each["relative_error"] for each in found]
    assert_mean(errors, found[0]["theory_linear"])


def test_a_trusted_server_errs_as_predicted():
    cell = MeanCell(mean="dense", dim=2000, clients=50, mechanism="central", compression=1)
    (result,) = evaluate([cell])
    assert result.metrics["relative_error"] == pytest.approx(
        result.metrics["theory_central"], rel=0.15
    )


@pytest.mark.parametrize("decoder", ["linear", "lasso:debias", "amp:debias"])
def test_intervals_of_unbiased_decoders_cover_as_they_say(decoder):
    cell = MeanCell(dim=1000, clients=50, sparsity=10, compression=4, decoder=decoder)
    (result,) = evaluate([cell])
    assert 0.92 < result.metrics["covered"] < 0.98
    assert result.metrics["interval_width"] > 0


def test_predictions_agree_with_the_encoders_and_the_planner():
    for name, kind in [
        ("count_sketch", CountSketchEncoder),
        ("gaussian", GaussianEncoder),
        ("hadamard", HadamardEncoder),
    ]:
        encoder = kind(n_components=60, random_state=0).fit_dimension(300)
        assert linear_error(name, 300, 60, 0.0, 1.0) == encoder.unsketch_error()
    made = plan(
        1000,
        50,
        noise_multiplier=2.0,
        n_bits=18,
        compression=10,
        sparsity=12,
        n_rows=10,
        encoder="count_sketch",
        decoder="linear",
    )
    theory = predict(
        encoder="count_sketch",
        d=1000,
        m=made.n_components,
        noise_std=made.noise_std,
        central_std=2.0 / 50,
        norm=1.0,
        bits=made.bits_per_client,
        sparsity=12,
    )
    assert theory["theory_linear"] == pytest.approx(made.predicted_mse)
    assert theory["theory_lasso"] == pytest.approx(made.sparse_mse.lasso)
    assert theory["theory_support"] == pytest.approx(made.sparse_mse.least_squares)
    assert theory["theory_central"] == pytest.approx(made.central_mse, rel=1e-3)
    # (d/2)·log₂(1/ξ) bits are needed for ξ, so that many bits reach ξ and no less
    assert rate_distortion(500 * np.log2(1 / 0.3), 1000) == pytest.approx(0.3)


@pytest.fixture
def recording(tmp_path):
    rng = np.random.default_rng(0)
    made = Recording.create(tmp_path / "rec", shapes={"a": (10, 20), "b": (50,)})
    for number in (0, 4):
        made.append(number, 0.1 + 0.01 * rng.standard_normal((12, 250)))
    return tmp_path / "rec"


def recorded_cell(path, number=4, **values):
    (cell,) = RecordingCell.of(path, (number,), **values)
    return cell


def test_a_recorded_round_is_found_by_its_content(recording, tmp_path):
    cell = recorded_cell(recording, compression=2, noise_multiplier=0.1)
    assert cell.round == 4
    assert cell.clip_norm == pytest.approx(0.1 * np.sqrt(250), rel=0.02)
    (tmp_path / "elsewhere").mkdir()
    moved = recording.rename(tmp_path / "elsewhere" / "rec")
    assert recorded_cell(moved, compression=2, noise_multiplier=0.1) == cell
    assert recorded_cell(moved, 0) != recorded_cell(moved, 4)
    found = metrics(cell.with_values(decoder="amp:low_rank"), Inputs(recording=str(moved)))
    assert 0 < found["relative_error"] < 1
    X = np.asarray(Recording.open(moved)[1], dtype=np.float64)
    factors = np.minimum(1, cell.clip_norm / np.linalg.norm(X, axis=1))
    truth = (X * factors[:, None]).mean(axis=0)
    assert found["squared_norm"] == pytest.approx(truth @ truth)


def test_the_first_so_many_clients_of_a_recorded_round_are_taken(recording):
    inputs = Inputs(recording=str(recording))
    cell = recorded_cell(recording, compression=1, noise_multiplier=0.0, clients=5)
    X = np.asarray(Recording.open(recording)[1][:5], dtype=np.float64)
    factors = np.minimum(1, cell.clip_norm / np.linalg.norm(X, axis=1))
    truth = (X * factors[:, None]).mean(axis=0)
    found = metrics(cell, inputs)
    assert found["squared_norm"] == pytest.approx(truth @ truth)
    assert found["relative_error"] < 1e-6


def test_more_clients_than_were_recorded_are_refused_before_any_work(recording, monkeypatch):
    inputs = Inputs(recording=str(recording))
    base = recorded_cell(recording, noise_multiplier=0.1, compression=2)
    monkeypatch.setattr("experiments.sweeps.cells.draw_round", None)
    for axes, clients in (
        ({"clients": (5, 13)}, None),
        ({"n_bits": (16, 18)}, 13),
        ({"clients": (5, 13)}, 5),
    ):
        with pytest.raises(ValueError, match="clients=13, but recorded round 4 has 12; ask for"):
            Grid(axes, dataclasses.replace(base, clients=clients), inputs=inputs)
    Grid({"clients": (5, 12)}, base, inputs=inputs)  # all of them are there
    Grid({"n_bits": (16, 18)}, dataclasses.replace(base, clients=12), inputs=inputs)


def test_errors_about_recordings_name_the_remedy(recording, tmp_path):
    with pytest.raises(ValueError, match="round 1 is not in .*, which holds 2 rounds from 0 to 4"):
        recorded_cell(recording, 1)
    Recording.create(tmp_path / "none")
    with pytest.raises(ValueError, match="holds no rounds"):
        RecordingCell.of(tmp_path / "none")


def test_a_training_run_is_a_cell():
    cell = TaskCell.of(
        "digits",
        rounds=2,
        compression=5,
        noise_multiplier=0.3,
        decoder="lasso",
        seed=3,
        server_rate=0.5,
    )
    cell.check()
    config = TrainingConfig(
        task="digits",
        rounds=2,
        compression=5.0,
        noise_multiplier=0.3,
        decoder="lasso",
        seed=3,
        server_rate=0.5,
    )
    assert cell.config.parameters() == config.parameters()
    found = metrics(cell)
    run = run_training(config)
    assert found["accuracy"] == run.accuracy[-1]
    assert found["best_accuracy"] == max(run.accuracy)
    assert found["epsilon"] == run.epsilon
    assert found["bits_per_parameter"] == run.bits_per_parameter


@pytest.mark.parametrize(
    ("task", "values", "words"),
    [
        ("digit", {}, "task='digit' is not known"),
        ("digits", {"rate": 1}, "rate=1: training runs have no such parameter"),
        ("digits", {"rounds": 0}, "rounds=0"),
        ("digits", {"momentum": 1.0}, "momentum=1.0 must lie in"),
        ("heavy-hitters", {}, "train nothing"),
    ],
)
def test_bad_training_cells_are_refused(task, values, words):
    with pytest.raises(ValueError, match=words):
        TaskCell.of(task, **values).check()


def test_clients_as_long_as_the_clip_are_not_counted_as_clipped():
    assert clipped_mean(np.eye(3, 4), 1.0).n_clipped == 0
    assert clipped_mean(2 * np.eye(3, 4), 1.0).n_clipped == 3
