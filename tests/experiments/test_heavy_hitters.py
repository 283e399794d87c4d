"""Heavy hitters are rounds that a sweep compares decoders on: which items many clients hold."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.datasets import ClientSets, PublicList
from experiments.sweeps import cells
from experiments.sweeps.cell import NO_INPUTS
from experiments.sweeps.cells import HittersCell

COMMON = {f"common{k}" for k in range(6)}
RARE = [f"rare{k:05d}" for k in range(20_000)]


@pytest.fixture(autouse=True)
def sets(monkeypatch):
    """600 clients: everybody holds six common items and some of twenty thousand rare ones."""
    rng = np.random.default_rng(0)
    everything = tuple(sorted({*COMMON, *RARE}))
    found = ClientSets.from_sets(
        {
            f"c{i:03d}": COMMON | {RARE[k] for k in rng.integers(0, 20_000, 6)} | {f"own{i}"}
            for i in range(600)
        },
        public_list=PublicList("the fixture", lambda: everything),
    )
    monkeypatch.setattr(cells, "_items", lambda data: found)
    return found


def measured(**values):
    cell = HittersCell(**{"epsilon": 4.0, "top": 6, **values})
    cell.check()
    return cell.measure(cell.draw(NO_INPUTS), NO_INPUTS).metrics


def test_common_items_are_found_on_the_public_list_and_in_cells():
    for domain, size in ((None, 20_006), (2**15, 2**15)):
        found = measured(domain=domain)
        assert found["dim"] == size
        assert found["relative_error"] < 0.2
        assert found["precision"] == found["recall"] == 1.0
        assert 3.9 < found["epsilon"] <= 4.0


def test_the_truth_is_the_mean_of_the_clipped_clients(sets):
    cell = HittersCell(clip_norm=0.5)
    people = cell.people(NO_INPUTS)
    rows = sets.on(people.domain).toarray()
    np.testing.assert_allclose(people.mean, 0.5 * rows.mean(axis=0))  # every row has norm one
    assert people.sparsity == np.count_nonzero(rows.sum(axis=0))


def test_the_columns_do_not_depend_on_what_clients_hold(sets, monkeypatch):
    fewer = ClientSets.from_sets({"a": {"common0"}, "b": set()}, public_list=sets.public_list)
    for domain in (None, 2**12):
        cell = HittersCell(domain=domain)
        one = cell.people(NO_INPUTS)
        with monkeypatch.context() as patch:
            patch.setattr(cells, "_items", lambda data: fewer)
            other = cell.people(NO_INPUTS)
        assert one.domain == other.domain
        assert one.rows.shape[1] == other.rows.shape[1]


def test_scores_by_item_help(sets, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(
        "".join(f"{name},{10 * (name in COMMON)}\n" for name in sets.public_list.read())
    )
    plain, told = (
        measured(epsilon=0.2, decoder=decoder)["relative_error"]
        for decoder in ("amp", f"amp:scores={path}")
    )
    assert told < 0.7 * plain
    words = (
        f"sweep --axis compression=10 --task heavy-hitters --prior scores:{path} --epsilon 0.2 "
        f"--decoder linear,amp --seeds 1 --backend sequential --json --output {tmp_path / 'out'}"
    )
    run = CliRunner().invoke(app, words.split())
    assert run.exit_code == 0, run.output
    (made,) = json.loads(run.stdout)["sweeps"]
    assert [row["decoder"] for row in made["results"]] == ["linear", f"amp:scores={path}"]
    assert {row["status"] for row in made["results"]} == {"done"}


def test_nothing_is_trained():
    run = CliRunner().invoke(app, ["train", "--task", "heavy-hitters"])
    assert run.exit_code == 2
    for word in ("train", "nothing", "sparse-secagg", "count", "sweep"):
        assert word in run.output
    with pytest.raises(ValueError, match="trains a model"):
        HittersCell(task="digits").check()
