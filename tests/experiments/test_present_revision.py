"""What the revision before the engine made: the same numbers, and its files read or refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments.holding import ROUND_NAMES
from experiments.recording import Recording, RecordingError
from experiments.sweeps.cell import Inputs
from experiments.sweeps.cells import KINDS, RecordingCell, cell_from_parameters
from experiments.sweeps.engine import evaluate
from experiments.sweeps.store import Store, StoreError
from experiments.training.checkpoints import CheckpointError
from experiments.training.config import TrainingConfig
from experiments.training.loop import run_training

DATA = Path(__file__).parent / "data"
OLD = DATA / "present_revision"
PINNED = json.loads((DATA / "pinned.json").read_text())
#: Sums are in another order on another machine.
RELATIVE = 1e-9


def cell_of(parameters):
    """Return the cell of parameters in the vocabulary of that revision."""
    names = {"bits": "n_bits", "rows": "n_rows"}
    values = {names.get(name, name): value for name, value in parameters.items()}
    values |= dict(values.pop("options", ()))
    if "layers" in values:
        values["per_layer"] = values.pop("layers") == "separate"
    if values["kind"] != "task":
        fields = {field.name for field in dataclasses.fields(KINDS[values["kind"]])} | ROUND_NAMES
        values = {n: v for n, v in values.items() if n in fields | {"kind"}}
    return cell_from_parameters(values)


def same(found, expected):
    assert found.keys() >= expected.keys()
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            assert found[name] == pytest.approx(value, rel=RELATIVE, abs=1e-12), name


@pytest.mark.parametrize("case", PINNED["sweep"], ids=lambda case: str(case["parameters"]["kind"]))
def test_a_cell_of_a_sweep_gives_the_numbers_that_it_gave(case):
    (result,) = evaluate([cell_of(case["parameters"])])
    assert (result.status, result.message) == (case["status"], case["message"])
    same(result.metrics, case["metrics"])


@pytest.mark.parametrize("case", PINNED["recorded_sweep"])
def test_a_recorded_round_gives_the_numbers_that_it_gave(case):
    cell = cell_of(case["parameters"])
    (result,) = evaluate([cell], Inputs(recording=str(OLD / "recording")))
    same(result.metrics, case["metrics"])


@pytest.mark.parametrize("case", PINNED["compare"])
def test_a_comparison_gives_the_numbers_that_it_gave(case):
    options = dict(case["options"])
    rounds = tuple(options.pop("rounds", ()))
    rates, decoders = options.pop("compressions"), options.pop("decoders")
    first, draws = options.pop("seed", 0), options.pop("draws")
    for name in ("epsilon", "noise_multiplier"):
        if f"{name}s" in options:
            (options[name],) = options.pop(f"{name}s")
    bases = RecordingCell.of(OLD / "recording", rounds, **options)
    inputs = Inputs(recording=str(OLD / "recording"))
    found = {}
    for base in bases:
        for rate in rates:
            for draw in range(draws):
                cells = [
                    base.with_values(compression=rate, decoder=name, seed=first + draw)
                    for name in decoders
                ]
                for result in evaluate(cells, inputs):
                    key = base.round, draw, rate, result.cell.spec.decoder
                    found[key] = result.metrics
    bits = dict(case["n_bits"])
    for expected in case["outcomes"]:
        metrics = found[tuple(expected[n] for n in ("round", "draw", "compression", "decoder"))]
        layers = {f"error of {n}": v for n, v in expected["layer_errors"].items()}
        measures = ("relative_error", "cosine", "precision", "recall")
        same(metrics, {name: expected[name] for name in measures} | layers)
        assert metrics["message_bits"] == bits[expected["compression"]]


@pytest.mark.parametrize("case", PINNED["training"], ids=lambda case: str(case["options"]))
def test_a_training_run_gives_the_numbers_that_it_gave(case):
    options = dict(case["options"])
    options["per_layer"] = options.pop("layers", "whole") == "separate"
    result = run_training(TrainingConfig(task="digits", rounds=2, **options))
    assert result.accuracy == pytest.approx(case["accuracy"], rel=RELATIVE)
    assert result.bits_per_parameter == case["bits_per_parameter"]
    assert [r.clip_norm for r in result.history] == pytest.approx(case["clip_norm"], rel=RELATIVE)
    assert float(np.linalg.norm(result.weights)) == pytest.approx(case["norm"], rel=1e-6)
    for record, (server, release) in zip(result.history, case["epsilon"]):
        for found, expected in ((record.privacy.server, server), (record.privacy.release, release)):
            assert found == (np.inf if expected is None else pytest.approx(expected, rel=RELATIVE))


def test_a_checkpoint_of_format_2_is_refused_with_its_version(tmp_path):
    shutil.copytree(OLD / "training", tmp_path / "run")
    config = TrainingConfig(**json.loads((OLD / "finished.json").read_text())["options"])
    with pytest.raises(CheckpointError, match="has format 2, this software reads 3; finish"):
        run_training(config, output=tmp_path / "run", resume=True)


def test_results_of_format_1_are_refused_and_left_alone(tmp_path):
    shutil.copy(OLD / "results.sqlite", tmp_path / "results.sqlite")
    before = (tmp_path / "results.sqlite").read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"format 1, .*format 2.*Choose another file"):
            Store(tmp_path / "results.sqlite", read_only=read_only)
    assert (tmp_path / "results.sqlite").read_bytes() == before


def test_a_recording_is_read():
    recording = Recording.open(OLD / "recording")
    assert list(recording.rounds) == [2, 7]
    assert recording.clip_norm(0) == 0.4
    assert np.isnan(recording[0]).sum() == 1


def test_a_packed_recording_in_half_precision_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(RecordingError, match="opened once it is unzipped"):
        Recording.open(OLD / "packed.zip")
    shutil.unpack_archive(OLD / "packed.zip", tmp_path / "unpacked")
    with pytest.raises(RecordingError, match="half precision.*version 0.1.*unpacked by that"):
        Recording.open(tmp_path / "unpacked")
