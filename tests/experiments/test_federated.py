"""Training learns, is repeatable whatever the jobs, goes on exactly, and its ledger adds up."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from experiments.datasets import ClientTexts, MissingDataError, word_numbers
from experiments.models import MLP, WordClassifier, multilayer_perceptron
from experiments.recordings.recording import Recording
from experiments.report import training_report
from experiments.training import tasks
from experiments.training.aggregation import Aggregator, training_decoder
from experiments.training.callbacks import Callback, EarlyStop
from experiments.training.checkpoints import LEDGER_NAME, CheckpointError
from experiments.training.loop import TrainingConfig, load_data, run_training, training_rounds
from experiments.training.records import TrainingState
from experiments.training.seeds import ClientRandomness
from sparse_secagg import SparseSecAgg
from sparse_secagg.accounting import DEFAULT_ORDERS, gaussian_rdp, rdp_to_dp
from sparse_secagg.privacy import Ledger
from sparse_secagg.privacy.conversion import stated

SMALL = TrainingConfig(
    task="digits", rounds=3, clients=10, compression=10, noise_multiplier=0.5, seed=3
)
ARCH = multilayer_perceptron(64, 64, 10)


def test_training_learns_and_privacy_costs_little():
    plain = run_training(TrainingConfig(task="digits", rounds=45))
    private = run_training(
        TrainingConfig(task="digits", rounds=45, noise_multiplier=0.5, compression=10)
    )
    assert plain.accuracy[-1] >= 0.9
    assert private.accuracy[-1] >= plain.accuracy[-1] - 0.05
    assert plain.epsilon == np.inf
    assert private.bits_per_parameter == pytest.approx(1.6, rel=0.01)


def test_a_round_is_the_mean_of_clipped_updates_and_momentum():
    """Without sketch and noise, against the plain formula; 24 bits leave rounding of 1e-5."""
    config = TrainingConfig(task="digits", rounds=3, clients=8, n_bits=24, clip_norm=0.2)
    config = config
    task = tasks.get("digits")
    data, model = task.load(None), task.model()
    weights, velocity = None, 0.0
    for current in training_rounds(config, model, data):
        updates = current.updates.astype(float)
        norms = np.linalg.norm(updates, axis=1, keepdims=True)
        assert (norms > 0.2).any()  # the clip matters
        mean = (updates * np.minimum(1, 0.2 / norms)).mean(axis=0)
        velocity = 0.9 * velocity + mean
        if weights is None:
            weights = current.state.weights - 0.3 * velocity  # the first step checks itself
        weights = weights + 0.3 * velocity
        np.testing.assert_allclose(current.state.weights, weights, atol=1e-5)


def test_cohorts_are_of_the_size_asked_and_differ_between_rounds():
    task = tasks.get("digits")
    data, model = task.load(None), task.model()
    seen = [c.updates.copy() for c in training_rounds(SMALL, model, data)]
    assert {u.shape for u in seen} == {(10, model.n_parameters)}
    assert not np.allclose(seen[0], seen[1])


@pytest.fixture
def sites(monkeypatch):
    """A small task of the kind of "site", whose updates are sparse."""
    words = {"tea": "leaf pot cup", "coffee": "bean roast cup", "beer": "hop malt glass"}
    texts = {f"{s}/{k}": [own, own.split()[k % 3]] for s, own in words.items() for k in range(8)}
    data, get = word_numbers(ClientTexts(texts), vocabulary_size=20, max_words=5), tasks.get
    task = replace(get("site"), load=lambda _: data, model=lambda: WordClassifier(20, 3))
    monkeypatch.setattr(tasks, "get", lambda name: task if name == "site" else get(name))
    load_data.cache_clear()
    yield TrainingConfig(task="site", rounds=4, clients=12)
    load_data.cache_clear()


def test_sparse_updates_train_the_same_whatever_the_jobs_and_are_recorded(sites, tmp_path):
    one = run_training(sites, record=tmp_path)
    np.testing.assert_array_equal(run_training(sites, jobs=2).weights, one.weights)
    assert one.accuracy[-1] > 0.6  # a third by chance
    assert Recording.open(tmp_path)[3].shape == (12, 60)
    private = run_training(replace(sites, noise_multiplier=1.0, compression=2))
    assert np.isfinite(private.weights).all()


def test_the_result_does_not_depend_on_the_jobs():
    one = run_training(SMALL, jobs=1)
    for jobs in (2, 3):
        np.testing.assert_array_equal(run_training(SMALL, jobs=jobs).weights, one.weights)
    assert not np.array_equal(run_training(replace(SMALL, seed=4)).weights, one.weights)


def test_noise_from_the_operating_system_differs_from_run_to_run():
    config = replace(SMALL, rounds=1, private_noise=True)
    first, second = run_training(config), run_training(config)
    assert not np.array_equal(first.weights, second.weights)
    assert not first.not_private
    assert run_training(SMALL).not_private
    assert run_training(replace(config, noise_multiplier=0.0)).not_private


# -- resuming -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"clip_norm": 0.3},
        {"clip_norm": "adaptive"},
        {"threshold": 0.5},
        {"threshold": 0.5, "fixed_sketch": False},
    ],
)
def test_resuming_ends_at_the_same_weights(tmp_path, options):
    config = replace(SMALL, rounds=5, **options)
    whole = run_training(config)

    class Stop(Exception):
        pass

    def stop_after_two(record, _):
        if record.number == 2:
            raise Stop

    with pytest.raises(Stop):
        run_training(config, output=tmp_path, progress=stop_after_two)
    with pytest.raises(CheckpointError, match="after 2 of 5 rounds"):
        run_training(config, output=tmp_path)  # would overwrite it
    numbers = []
    resumed = run_training(
        config, output=tmp_path, resume=True, progress=lambda r, _: numbers.append(r.number)
    )
    assert numbers == [3, 4, 5]
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    assert resumed.accuracy == whole.accuracy
    assert resumed.epsilon == whole.epsilon
    again = run_training(config, output=tmp_path, resume=True)  # nothing left to do
    np.testing.assert_array_equal(again.weights, whole.weights)
    assert again.bits_per_parameter == whole.bits_per_parameter


_KILLED = """
import json, sys
from experiments.training.loop import TrainingConfig, run_training
config = TrainingConfig(**json.loads(sys.argv[1]))
run_training(config, output=sys.argv[2], record=sys.argv[3], resume=True,
             progress=lambda record, _: print(record.number, flush=True))
"""


def test_a_run_killed_at_any_moment_goes_on_to_the_same_weights(tmp_path):
    options = {"task": "digits", "rounds": 15, "clients": 20, "compression": 10.0, "seed": 5}
    options["noise_multiplier"] = 0.5
    output, record = tmp_path / "out", tmp_path / "rec"
    command = [sys.executable, "-c", _KILLED, json.dumps(options), str(output), str(record)]
    rng = np.random.default_rng(0)
    for round_ in (3, 9):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if int(line) >= round_:
                    break
            time.sleep(rng.uniform(0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
    resumed = run_training(TrainingConfig(**options), output=output, record=record, resume=True)
    whole = run_training(TrainingConfig(**options), record=tmp_path / "whole")
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    mended, fresh = Recording.open(record), Recording.open(tmp_path / "whole")
    assert mended.rounds == fresh.rounds == list(range(15))
    for a, b in zip(mended, fresh):
        np.testing.assert_array_equal(a, b)


def test_a_round_that_could_not_be_recorded_is_in_no_checkpoint(tmp_path, monkeypatch):
    config, append = replace(SMALL, rounds=4), Recording.append

    def failing(self, number, updates, **options):
        if number == 2:
            raise OSError("no space left")
        append(self, number, updates, **options)

    folders = {"output": tmp_path / "out", "record": tmp_path / "rec"}
    with monkeypatch.context() as patch:
        patch.setattr(Recording, "append", failing)
        with pytest.raises(OSError, match="no space"):
            run_training(config, **folders)
    run_training(config, **folders, resume=True)
    assert Recording.open(tmp_path / "rec").rounds == [0, 1, 2, 3]


def test_a_run_without_a_checkpoint_yet_keeps_its_charges(tmp_path):
    """Killed in its first round: starting anew would forget what was spent; resuming does not."""
    config = replace(SMALL, rounds=2, private_noise=True)
    ledger = Ledger(config.spec.delta, path=tmp_path / LEDGER_NAME)
    ledger.charge(Aggregator(config, ARCH, 50).round_privacy())
    with pytest.raises(CheckpointError, match="before its first checkpoint"):
        run_training(config, output=tmp_path)
    result = run_training(config, output=tmp_path, resume=True)
    assert ledger.rounds == 3
    alone = run_training(config)
    assert result.epsilon > alone.epsilon
    # nor does a new run erase the account of a finished private one
    with pytest.raises(CheckpointError, match="finished private run"):
        run_training(config, output=tmp_path)
    assert ledger.rounds == 3


def test_a_run_that_never_began_leaves_nothing_to_go_on_with(tmp_path):
    """Without its data, say, a run charges nothing; the folder is free for the next attempt."""
    wrong = replace(SMALL, task="mnist", data=str(tmp_path / "nothing-here"))
    with pytest.raises(MissingDataError):
        run_training(wrong, output=tmp_path)
    with pytest.raises(ValueError, match="nosuch"):
        run_training(replace(SMALL, layer_compression="nosuch=10"), output=tmp_path)
    assert len(run_training(replace(SMALL, rounds=1), output=tmp_path).accuracy) == 1


def test_resuming_without_the_ledger_is_refused(tmp_path):
    """Two rounds are done; an empty ledger would report what the others cost only."""
    config = replace(SMALL, rounds=2, private_noise=True)
    run_training(config, output=tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    with pytest.raises(ValueError, match="done 2 rounds, but the ledger holds 0"):
        run_training(config, output=tmp_path, resume=True)


def test_a_finished_simulation_may_be_replaced(tmp_path):
    config = replace(SMALL, rounds=2)
    first = run_training(config, output=tmp_path)
    again = run_training(replace(config, seed=4), output=tmp_path)
    assert again.epsilon == pytest.approx(first.epsilon)


def test_the_table_shows_what_colluders_make_of_it():
    result = run_training(replace(SMALL, noise_multiplier=2.0, colluders=6))
    console = Console(record=True, width=120, file=io.StringIO())
    training_report.show(result, console)
    text = console.export_text()
    assert "ε (server + 6)" in text
    assert stated(result.epsilon, 3) in text


def test_simulated_rounds_that_are_repeated_are_charged_once(tmp_path):
    config = replace(SMALL, rounds=2)
    whole = run_training(config, output=tmp_path)
    (tmp_path / "checkpoint.npz").unlink()
    again = run_training(config, output=tmp_path, resume=True)
    assert again.epsilon == whole.epsilon
    np.testing.assert_array_equal(again.weights, whole.weights)


def test_resuming_with_other_options_is_refused_and_the_difference_named(tmp_path):
    run_training(SMALL, output=tmp_path)
    with pytest.raises(CheckpointError, match=r"compression was 10.0 and is now 20.0"):
        run_training(replace(SMALL, compression=20), output=tmp_path, resume=True)
    run_training(SMALL, output=tmp_path)  # it was finished, so a new run may take its place
    with pytest.raises(ValueError, match="needs output"):
        run_training(SMALL, resume=True)


@pytest.mark.parametrize("damage", ["truncate", "text", "pickle"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    run_training(SMALL, output=tmp_path)
    path = tmp_path / "checkpoint.npz"
    if damage == "truncate":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "text":
        path.write_text("hello")
    else:
        np.savez(path, document=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError, match="remove it"):
        run_training(SMALL, output=tmp_path, resume=True)


# -- privacy ------------------------------------------------------------------------------------


def test_the_ledger_is_that_of_the_rounds_composed():
    result = run_training(SMALL)
    data = np.ones((10, 4810)) / 4810
    curve = SparseSecAgg(noise_multiplier=0.5, n_bits=16).fit(data).rdp_
    expected = rdp_to_dp(DEFAULT_ORDERS, 3 * curve, 1e-5)
    assert result.epsilon == pytest.approx(expected, rel=0.01)
    growing = [record.privacy.server for record in result.history]
    assert growing == sorted(growing)


@pytest.mark.parametrize("clip_norm", [0.5, "adaptive"])
def test_epsilon_is_kept_over_all_rounds_and_used_up(clip_norm):
    config = replace(SMALL, noise_multiplier=None, epsilon=8.0, clip_norm=clip_norm, clients=50)
    result = run_training(config)
    assert 0.999 * 8 <= result.epsilon <= 8
    assert result.epsilon_release <= result.epsilon


def test_a_budget_that_adaptive_clipping_alone_exceeds_is_refused():
    config = replace(SMALL, noise_multiplier=None, epsilon=2.0, clip_norm="adaptive")
    with pytest.raises(ValueError, match="adaptive clipping alone"):
        run_training(config)


def test_secret_sampling_amplifies_the_release_only():
    config = replace(SMALL, noise_multiplier=10.0, private_noise=True)
    spent = []
    for population in (10, 1000):
        aggregator = Aggregator(config, ARCH, population)
        aggregator.mean(np.zeros((10, 4810)), 0)
        spent.append(aggregator.spent)
    assert spent[0].server == spent[1].server
    assert spent[0].release == spent[0].server  # everybody takes part: nothing to amplify
    assert spent[1].release < 0.25 * spent[1].server


def test_cohorts_that_follow_from_a_seed_amplify_nothing():
    aggregator = Aggregator(replace(SMALL, noise_multiplier=10.0), ARCH, 1000)
    aggregator.mean(np.zeros((10, 4810)), 0)
    assert aggregator.spent.release == aggregator.spent.server


def test_secret_cohorts_cannot_be_drawn_again():
    randomness = ClientRandomness(0)
    drawn = [randomness.cohort(0, 10_000, 50, secret=True).tolist() for _ in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    assert all(len(set(cohort)) == 50 for cohort in drawn)
    again = [randomness.cohort(0, 10_000, 50).tolist() for _ in range(2)]
    assert again[0] == again[1]


def test_a_trusted_server_is_not_private_against_itself():
    result = run_training(replace(SMALL, mechanism="central", noise_multiplier=2.0))
    assert result.observer == "release"
    assert result.history[-1].privacy.server == np.inf
    expected = rdp_to_dp(DEFAULT_ORDERS, 3 * gaussian_rdp(DEFAULT_ORDERS, 2.0), 1e-5)
    assert result.epsilon == pytest.approx(expected, rel=1e-6)


def test_colluders_are_paid_for_with_noise():
    plain = run_training(replace(SMALL, rounds=1, noise_multiplier=2.0))
    wary = run_training(replace(SMALL, rounds=1, noise_multiplier=2.0, colluders=6))
    assert wary.observer == "colluders"
    assert wary.epsilon == pytest.approx(plain.epsilon, rel=1e-3)  # z counts honest shares
    assert wary.history[-1].privacy.server < 0.7 * wary.epsilon


def test_adaptive_clipping_moves_the_clip_and_costs_a_little():
    fixed = run_training(replace(SMALL, clip_norm=0.1))
    adaptive = run_training(replace(SMALL, clip_norm="adaptive"))
    clips = [record.clip_norm for record in adaptive.history]
    assert clips[0] == pytest.approx(0.1)
    assert clips[0] < clips[1] < clips[2]  # updates are longer than 0.1
    assert fixed.epsilon < adaptive.epsilon


def test_a_client_with_nan_counts_as_zero():
    aggregator = Aggregator(
        replace(SMALL, n_bits=24, noise_multiplier=0.0, compression=1), ARCH, 50
    )
    updates = np.full((10, 4810), 1e-3, dtype=np.float32)
    good = aggregator.mean(updates, 0)
    updates[3, 7] = np.nan
    updates[4, 9] = np.inf
    np.testing.assert_allclose(aggregator.mean(updates, 0), 0.8 * good, atol=1e-6)
    updates[5] = 1e30  # squares overflow
    np.testing.assert_allclose(
        np.linalg.norm(aggregator.mean(updates, 0)), 0.07 * np.sqrt(4810) * 0.01 + 0.05, rtol=0.01
    )


# -- decoders -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decoder", ["linear", "median", "lasso", "amp", "amp:debias=False", "amp:low_rank"]
)
def test_every_decoder_runs(decoder):
    result = run_training(replace(SMALL, rounds=2, decoder=decoder, compression=20))
    assert np.isfinite(result.weights).all()


def test_without_a_sketch_all_decoders_are_the_same_baseline():
    first, *others = (
        run_training(replace(SMALL, rounds=2, compression=1, decoder=decoder)).weights
        for decoder in ("linear", "median", "amp:debias=False")
    )
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("encoder", ["gaussian", "hadamard", "identity"])
def test_every_encoder_runs(encoder):
    result = run_training(replace(SMALL, rounds=1, encoder=encoder))
    assert np.isfinite(result.weights).all()


@pytest.mark.parametrize("mechanism", ["skellam", "central"])
def test_every_mechanism_runs(mechanism):
    result = run_training(replace(SMALL, rounds=1, mechanism=mechanism))
    assert 0 < result.epsilon < np.inf


def test_layers_can_be_sketched_one_by_one():
    aggregator = Aggregator(replace(SMALL, per_layer=True, noise_multiplier=0.0), ARCH, 10)
    updates = np.zeros((10, 4810), dtype=np.float32)
    updates[:, ARCH.slices["dense2.bias"]] = 0.05
    mean = aggregator.mean(updates, 0)
    outside = np.delete(mean, np.arange(4810)[ARCH.slices["dense2.bias"]])
    assert np.abs(outside).max() < 1e-4  # rounding only: one layer does not touch another
    whole = Aggregator(replace(SMALL, noise_multiplier=0.0), ARCH, 10).mean(updates, 0)
    assert np.abs(np.delete(whole, np.arange(4810)[ARCH.slices["dense2.bias"]])).max() > 1e-3


def test_groups_of_layers_have_a_rate_and_a_share_of_the_clip_each():
    options = {"layer_compression": "dense1=10,rest=2", "clip_shares": "dense1=0.6,rest=0.8"}
    aggregator = Aggregator(
        replace(SMALL, noise_multiplier=0.0, compression=1, **options), ARCH, 10
    )
    blocks = {block.name: block for block in aggregator.encoder.blocks_}
    dense2 = slice(64 * 64 + 64, 4810)
    assert {name: block.features for name, block in blocks.items()} == {
        "dense1": slice(0, dense2.start),
        "rest": dense2,
    }
    rows = [block.encoder.n_components_ for block in blocks.values()]
    assert rows == [pytest.approx(4160 / 10, abs=8), pytest.approx(650 / 2, abs=8)]
    assert aggregator.encoder.clip_norms(0.5) == pytest.approx({"dense1": 0.3, "rest": 0.4})
    assert aggregator.bits_per_parameter == pytest.approx(16 * sum(rows) / 4810, rel=0.01)
    updates = np.zeros((10, 4810), dtype=np.float32)
    updates[:, dense2] = 1.0
    mean = aggregator.mean(updates, 0)
    assert np.abs(mean[: dense2.start]).max() < 1e-4  # one group does not touch the other
    assert mean[dense2].sum() == pytest.approx(0.4 * 650**0.5, rel=0.3)


def test_layers_that_no_group_names_have_the_usual_rate():
    both = replace(SMALL, layer_compression="dense1=5,rest=10")
    one = replace(SMALL, layer_compression="dense1=5")  # compression=10
    assert Aggregator(both, ARCH, 10).encoder.n_components_ == (
        Aggregator(one, ARCH, 10).encoder.n_components_
    )
    split = Aggregator(replace(SMALL, layer_compression="dense1.bias=1"), ARCH, 10).encoder
    assert [block.name for block in split.blocks_] == ["rest 1", "dense1.bias", "rest 2"]
    assert split.blocks_[1].encoder.n_components_ == 64  # a rate of 1 sends the layer itself


def test_a_fresh_sketch_carries_over_parameters_and_loses_nothing():
    """Sent so far and carried over are together what would have been sent without a threshold."""
    config = replace(SMALL, threshold=0.75, fixed_sketch=False)
    cut, whole = Aggregator(config, ARCH, 10), Aggregator(replace(config, threshold=0.0), ARCH, 10)
    rng = np.random.default_rng(0)
    sent, total = 0.0, 0.0
    seeds = set()
    for number in range(3):
        updates = rng.standard_normal((10, 4810)).astype(np.float32)
        mean = cut.mean(updates, number)
        sent, total = sent + mean, total + whole.mean(updates, number)
        seeds.add(cut.last_.random_state)
        assert np.mean(mean == 0) == pytest.approx(0.75, abs=0.01)
        np.testing.assert_allclose(sent + cut.dropped, total, atol=1e-9)
    assert len(seeds) == 3


def test_a_sketch_can_be_fixed_without_a_threshold():
    fixed = Aggregator(replace(SMALL, fixed_sketch=True), ARCH, 10)
    fresh = Aggregator(SMALL, ARCH, 10)
    updates = np.random.default_rng(0).standard_normal((10, 4810)).astype(np.float32)
    for aggregator, sketches in ((fixed, 1), (fresh, 2)):
        seeds = set()
        for number in range(2):
            aggregator.mean(updates, number)
            seeds.add(aggregator.last_.random_state)
        assert len(seeds) == sketches


def test_later_options_leave_old_names_of_configurations_alone():
    assert not {"layer_compression", "clip_shares", "fixed_sketch"} & SMALL.parameters().keys()
    assert replace(SMALL, fixed_sketch=True).digest != SMALL.digest


def test_a_checkpoint_with_later_options_is_not_gone_on_from_without_them(tmp_path):
    run_training(replace(SMALL, rounds=1, fixed_sketch=True), output=tmp_path)
    with pytest.raises(CheckpointError, match="fixed_sketch was True and is now None"):
        run_training(replace(SMALL, rounds=1), output=tmp_path, resume=True)


def test_decoders_are_debiased_unless_told_otherwise():
    def debias(spec, default=True):
        return training_decoder(spec, debias=default, shapes=None).get_params().get("debias")

    assert debias("amp") is True
    assert debias("lasso") is True
    assert debias("amp:debias=False") is False
    assert debias("amp", default=False) is False
    assert debias("linear") is None


# -- recording ----------------------------------------------------------------------------------


def test_recorded_updates_are_those_before_clipping(tmp_path):
    config = replace(SMALL, clip_norm=0.01)
    run_training(config, record=tmp_path / "rec")
    recording = Recording.open(tmp_path / "rec")
    assert recording.rounds == [0, 1, 2]
    assert recording.shapes == tasks.get("digits").model().shapes
    assert recording.metadata.task == "digits"
    assert np.linalg.norm(recording[0], axis=1).min() > 0.01
    task = tasks.get("digits")
    first = next(training_rounds(config, task.model(), task.load(None)))
    np.testing.assert_array_equal(recording[0], first.updates)


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "both set the noise"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"compression": 0.5}, "compression"),
        ({"rounds": 0}, "rounds"),
        ({"clients": -1}, "clients"),
        ({"momentum": 1.0}, "momentum"),
        ({"clip_norm": "sometimes"}, "adaptive"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"delta": 0.0}, "delta"),
        ({"seed": -1}, "seed"),
        ({"task": "chess"}, "digits"),
        ({"layer_compression": "dense1:10"}, "NAME=NUMBER"),
        ({"layer_compression": "dense1=0.5"}, "dense1=0.5 must be a number of at least 1"),
        ({"layer_compression": "dense1=2,dense1=3"}, "each name once"),
        ({"layer_compression": "dense1=2", "per_layer": True}, "give one of them"),
        ({"clip_shares": "a=0.5"}, "a share for each group"),
        ({"clip_shares": "a=0.9,rest=0.9", "layer_compression": "a=2"}, "they sum to 1.62"),
    ],
)
def test_impossible_options_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        TrainingConfig(**{"task": "digits", **options})


def test_groups_of_layers_that_the_model_does_not_have_are_refused():
    with pytest.raises(ValueError, match="names 'embedding', but the layers of MLP.* are dense1"):
        run_training(replace(SMALL, layer_compression="embedding=10,rest=50"))


def test_a_state_starts_at_zero_rounds():
    assert TrainingState.start(4).rounds == 0


def test_a_cluster_trains_to_the_same_weights():
    distributed = pytest.importorskip("distributed")
    recorded = []

    class Keep(Callback):
        def after_round(self, current):
            recorded.append(np.array(current.updates))

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        for options in ({}, {"clip_norm": "adaptive"}):
            config = replace(SMALL, rounds=2, **options)
            found = run_training(config, scheduler=cluster.scheduler_address, callbacks=[Keep()])
            expected = run_training(config, callbacks=[Keep()])
            np.testing.assert_array_equal(found.weights, expected.weights)
            np.testing.assert_array_equal(recorded[-3], recorded[-1])


@pytest.mark.parametrize(("patience", "rounds"), [(1, 3), (2, 4), (4, 6)])
def test_a_training_stops_when_nothing_was_better_for_so_long(patience, rounds, monkeypatch):
    values = [0.1, 0.5, 0.4, 0.5, 0.3, 0.9]  # a tie is not better
    monkeypatch.setattr(MLP, "accuracy", lambda *_: values.pop(0))
    result = run_training(replace(SMALL, rounds=6), callbacks=[EarlyStop(patience)])
    assert len(result.history) == rounds


def test_a_callback_of_ones_own_sees_the_run_every_round_and_the_result(tmp_path):
    class Mine(Callback):
        def before_training(self, run):
            self.dim, self.norms = run.model.n_parameters, []

        def after_round(self, current):
            self.norms.append(current.updates.shape)
            return len(self.norms) == 2

        def after_training(self, result):
            self.result = result

    mine = Mine()
    result = run_training(SMALL, output=tmp_path, callbacks=[mine])
    assert mine.result is result
    assert mine.norms == [(10, mine.dim)] * 2
    # the rounds that were run are kept, and the others can follow
    assert len(run_training(SMALL, output=tmp_path, resume=True).history) == 3


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("distributed.Client", refuse)
    with pytest.raises(ValueError, match="scheduler='tcp://nowhere:1' does not answer"):
        run_training(SMALL, scheduler="tcp://nowhere:1")


def refuse(*args, **kwargs):
    raise OSError("nobody is there")
