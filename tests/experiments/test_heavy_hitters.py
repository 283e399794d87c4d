"""One private round finds the common items; precision and recall mean what they say."""

import numpy as np
import pytest

from experiments import tasks
from experiments.datasets import ClientSets
from experiments.federated import TrainingConfig
from experiments.heavy_hitters import hits, one_round, reported
from experiments.recording import Recording


@pytest.fixture(scope="module")
def sets():
    """600 clients: everybody holds six common items and some of twenty thousand rare ones."""
    rng = np.random.default_rng(0)
    common = {f"common{k}" for k in range(6)}
    return ClientSets.from_sets(
        {
            f"c{i:03d}": common | {f"rare{k:05d}" for k in rng.integers(0, 20_000, 6)}
            for i in range(600)
        }
    )


def test_common_items_come_first(sets, tmp_path):
    config = TrainingConfig(task="heavy-hitters", epsilon=4.0).resolved()
    result = one_round(config, sets, record=tmp_path / "rec")
    assert {f"common{k}" for k in range(6)} == set(result.top[:6])
    assert result.relative_error < 0.2
    assert 3.9 < result.epsilon <= 4.0
    assert result.accuracy == [result.recall]
    recording = Recording.open(tmp_path / "rec")
    np.testing.assert_allclose(recording[0], sets.presence.toarray(), rtol=1e-6)


def test_sparse_decoders_are_told_the_noise_and_not_debiased(sets):
    config = TrainingConfig(task="heavy-hitters", decoder="lasso", epsilon=4.0).resolved()
    assert config.debias is False
    result = one_round(config, sets)
    assert np.count_nonzero(result.weights) < 50
    assert result.relative_error < 0.3


def test_more_than_one_round_is_refused():
    with pytest.raises(ValueError, match="one round"):
        TrainingConfig(task="heavy-hitters", rounds=2)


def test_precision_and_recall_by_hand():
    truth = np.array([0.9, 0.8, 0.7, 0.1, 0.0, 0.0])
    assert hits(np.array([0, 1, 5]), truth, 3) == (2 / 3, 2 / 3)
    assert hits(np.array([0]), truth, 3) == (1.0, 1 / 3)
    assert hits(np.array([], dtype=int), truth, 3) == (0.0, 0.0)
    assert hits(np.array([0, 1, 2, 3]), truth, 100) == (1.0, 1.0)  # four items exist
    ties = np.array([0.5, 0.2, 0.2, 0.2])
    assert hits(np.array([0, 3]), ties, 2) == (1.0, 1.0)


def test_only_positive_estimates_are_reported_largest_first():
    np.testing.assert_array_equal(reported(np.array([0.1, -3.0, 0.5, 0.0]), 3), [2, 0])


def test_texts_and_tables_can_be_given(tmp_path):
    folder = tmp_path / "texts"
    for client in ("ann", "bob"):
        (folder / client).mkdir(parents=True)
        (folder / client / "a.txt").write_text(f"hello {client} and everybody")
    found = tasks.get("heavy-hitters").load(folder)
    assert found.clients == ["ann", "bob"]
    assert {"hello", "ann", "everybody"} <= set(found.vocabulary)


def test_examples_in_place_of_items_are_refused(tmp_path):
    path = tmp_path / "images.npz"
    np.savez(path, x=np.zeros((4, 3)), y=np.arange(4), client=np.array(list("aabb")))
    with pytest.raises(ValueError, match="heavy-hitters takes"):
        tasks.get("heavy-hitters").load(path)
