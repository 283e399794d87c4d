"""One private round finds the common items, and tells next to nothing of who holds a rare one."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.datasets import ClientSets, HashedItems, PublicList
from experiments.recordings.recording import Recording
from experiments.report import training_report
from experiments.training import tasks
from experiments.training.heavy_hitters import hits, one_round, reported
from experiments.training.loop import TrainingConfig, load_data, run_training
from tests.statistics import FALSE_ALARM

COMMON = {f"common{k}" for k in range(6)}
RARE = [f"rare{k:05d}" for k in range(20_000)]


@pytest.fixture(scope="module")
def sets():
    """600 clients: everybody holds six common items and some of twenty thousand rare ones."""
    rng = np.random.default_rng(0)
    everything = tuple(sorted({*COMMON, *RARE}))
    return ClientSets.from_sets(
        {
            f"c{i:03d}": COMMON | {RARE[k] for k in rng.integers(0, 20_000, 6)} | {f"own{i}"}
            for i in range(600)
        },
        public_list=PublicList("the fixture", lambda: everything),
    )


def config(**options):
    return TrainingConfig(task="heavy-hitters", **options)


def test_common_items_come_first(sets, tmp_path):
    result = one_round(config(epsilon=4.0), sets, record=tmp_path / "rec")
    assert set(result.top[:6]) == COMMON
    assert set(result.evaluation.top[:6]) == COMMON
    assert result.evaluation.relative_error < 0.2
    assert 3.9 < result.epsilon <= 4.0
    assert result.accuracy == [result.evaluation.recall]
    recording = Recording.open(tmp_path / "rec")
    np.testing.assert_allclose(recording[0], sets.on(result.domain).toarray(), rtol=1e-6)


def test_sparse_decoders_are_told_the_noise_and_not_debiased(sets):
    lasso = config(decoder="lasso", epsilon=4.0)
    assert lasso.debias is False
    result = one_round(lasso, sets)
    assert np.count_nonzero(result.weights) < 50
    assert result.evaluation.relative_error < 0.3


def test_what_the_public_list_leaves_out_is_dropped_and_counted(sets):
    result = one_round(config(epsilon=4.0), sets)
    assert result.n_parameters == 20_006
    held = sum(len(row) for row in np.split(sets.presence.indices, sets.presence.indptr[1:-1]))
    assert result.evaluation.outside == pytest.approx(600 / held)  # one of its own each


def test_hash_cells_are_named_by_a_list_that_comes_later(sets):
    bare = replace(sets, public_list=None)
    result = one_round(config(epsilon=4.0, domain=2**15), bare)
    assert result.n_parameters == 2**15
    assert all(name.startswith("cell ") for name in result.top)
    assert result.columns[:6] != ()
    assert set(result.columns[:6]) == set(HashedItems(2**15).columns(COMMON))
    assert set(result.named(sorted(COMMON)).top[:6]) == COMMON
    assert set(result.named(sorted(COMMON)).evaluation.top[:6]) == COMMON
    by_data = one_round(config(epsilon=4.0, domain=2**15), sets)  # its public list names them
    assert all(any(name in top for top in by_data.top[:6]) for name in COMMON)


# -- privacy ------------------------------------------------------------------------------------


def single_holders(n_items, seed=0):
    """Return clients with ten items each that nobody else holds; these items, and as many that
    nobody holds. All of them are on the public list.
    """
    rng = np.random.default_rng(seed)
    names = [f"name{k:06d}" for k in rng.permutation(2 * n_items)]
    held, free = names[:n_items], names[n_items:]
    everything = tuple(sorted({*COMMON, *names}))
    data = ClientSets.from_sets(
        {f"c{i}": COMMON | set(held[10 * i : 10 * i + 10]) for i in range(n_items // 10)},
        public_list=PublicList("the fixture", lambda: everything),
    )
    return data, held, free


def releases(domain, n_items, runs):
    """Return how often items of one holder, and items of nobody, were released in so many runs."""
    data, held, free = single_holders(n_items)
    counts = np.zeros(2, dtype=int)
    for seed in range(runs):
        result = one_round(config(domain=domain, seed=seed), data)
        assert result.epsilon <= 1
        released = set(result.columns)
        for k, names in enumerate((held, free)):
            counts[k] += sum(column in released for column in result.domain.columns(names))
    return counts


def is_private(counts, trials, epsilon=1.0, delta=1e-5):
    """Whether p₁ ≤ e^ε·p₀ + δ may hold: Clopper–Pearson, wrong once in a million."""
    held, free = counts
    least = stats.beta.ppf(FALSE_ALARM / 2, held, trials - held + 1) if held else 0.0
    most = stats.beta.isf(FALSE_ALARM / 2, free + 1, trials - free)
    return least <= math.exp(epsilon) * most + delta


@pytest.mark.parametrize(
    ("domain", "n_items", "runs"),
    [
        (None, 2_000, 4),
        (2**13, 2_000, 4),
        pytest.param(None, 10_000, 20, marks=pytest.mark.slow),
        pytest.param(2**17, 10_000, 20, marks=pytest.mark.slow),
    ],
)
def test_an_item_of_one_holder_is_released_hardly_more_often_than_an_item_of_nobody(
    domain, n_items, runs
):
    counts = releases(domain, n_items, runs)
    assert counts.min() > 30  # or nothing would be tested
    assert is_private(counts, n_items * runs)


@pytest.mark.parametrize(
    ("n_items", "runs"), [(2_000, 4), pytest.param(10_000, 20, marks=pytest.mark.slow)]
)
def test_without_a_domain_items_of_one_holder_are_released_and_that_is_called_not_private(
    n_items, runs
):
    """Negative control: columns that exist because somebody holds the item."""
    assert not is_private(releases("observed", n_items, runs), n_items * runs)
    data, _, _ = single_holders(200)
    result = one_round(config(domain="observed", private_noise=True), data)
    assert result.not_private
    (reason,) = training_report.not_private_because(result)
    assert "the 206 items that occur" in reason
    for public in (None, 2**12):
        result = one_round(config(domain=public, private_noise=True), data)
        assert not result.not_private
        assert training_report.not_private_because(result) == []


def test_the_columns_do_not_depend_on_what_clients_hold(sets):
    fewer = ClientSets.from_sets({"a": {"common0"}, "b": set()}, public_list=sets.public_list)
    for domain in (None, 2**12):
        one, other = (one_round(config(domain=domain), data) for data in (sets, fewer))
        assert one.domain == other.domain
        assert one.n_parameters == other.n_parameters


# -- what is printed ----------------------------------------------------------------------------


def shown(result, width=200):
    console = Console(record=True, width=width, file=io.StringIO())
    training_report.show(result, console)
    return console.export_text()


def test_what_is_released_and_what_was_measured_are_kept_apart(sets):
    result = one_round(config(epsilon=4.0), sets)
    released, measured = shown(result).split(training_report.EVALUATION)
    assert "ε = 4" in released
    assert "20,006 items of the fixture" in released
    for word in ("error", "precision", "recall"):
        assert word not in released
        assert word in measured
    assert "Not private: the noise came from the seed" in measured
    document = training_report.as_document(result)
    evaluation = document.pop("evaluation")
    assert evaluation["not_private"] is True
    assert evaluation["recall"] == result.evaluation.recall
    text = json.dumps(document)
    for word in ("accuracy", "recall", "precision", "error", "outside"):
        assert word not in text
    progress = training_report.progress_text(result.history[0], result.config)
    assert "%" not in progress


@pytest.mark.parametrize("name", ["[/]", "[bold]", "[red]x[/red]", ":bug:", "\x1b[2J", "a\\"])
def test_items_are_printed_sign_by_sign(name):
    holders = {f"c{i}": {name} for i in range(300)}
    data = ClientSets.from_sets(
        holders, public_list=PublicList("[i]strange[/i] names", lambda: (name, "other"))
    )
    result = one_round(config(compression=1.0, epsilon=8.0), data)
    assert result.top[0] == name
    text = shown(result)
    assert "[i]strange[/i] names" in text
    visible = name.replace("\x1b", "\\x1b")
    assert text.count(visible) == 2  # released, and truly most common
    assert "\x1b" not in text


def test_the_command_takes_a_domain_and_candidates(tmp_path, sets):
    client = np.repeat([f"c{k}" for k in range(200)], 2)
    items = np.array(["apple", "pear"] * 200)
    np.savez(tmp_path / "items.npz", client=client, item=items)
    (tmp_path / "list.txt").write_text("apple\nbanana\n")

    fixed = ["train", "--task", "heavy-hitters", "--json", "--output", str(tmp_path / "out")]
    fixed += ["--data", str(tmp_path / "items.npz")]

    def run(*options):
        done = CliRunner().invoke(
            app,
            [*fixed, *options],
        )
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    listed = run("--domain", str(tmp_path / "list.txt"), "--compression", "1")
    assert listed["top"][0] == "apple"
    assert listed["domain"] == {"description": "2 items of list.txt", "size": 2, "public": True}
    assert listed["evaluation"]["outside"] == 0.5
    hashed = run("--domain", "2**12")
    assert set(hashed["top"][:2]) == {f"cell {k}" for k in HashedItems(2**12).columns(items[:2])}
    named = run("--domain", "4096", "--candidates", str(tmp_path / "list.txt"))
    assert "apple" in named["top"][:2]
    assert run("--compression", "100")["domain"]["size"] == 2**17
    observed = run("--domain", "observed", "--compression", "1", "--private-noise")
    assert observed["not_private"] is True
    assert "items that occur" in observed["not_private_because"][0]


def test_domains_are_checked_before_any_work():
    with pytest.raises(ValueError, match="is no file"):
        TrainingConfig(task="heavy-hitters", domain="nowhere.txt")
    with pytest.raises(ValueError, match="counts no items"):
        TrainingConfig(task="digits", domain=2**17)


# -- parts --------------------------------------------------------------------------------------


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
    assert hits(np.array([0]), np.zeros(3)) == (0.0, 0.0)


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
    assert "and" in found.public_list.read()


def test_examples_in_place_of_items_are_refused(tmp_path):
    path = tmp_path / "images.npz"
    np.savez(path, x=np.zeros((4, 3)), y=np.arange(4), client=np.array(list("aabb")))
    with pytest.raises(ValueError, match="heavy-hitters takes"):
        tasks.get("heavy-hitters").load(path)


def test_private_rounds_over_the_same_clients_add_up(tmp_path, sets, monkeypatch):
    """Each is a release of the same people's items: the folder's ledger remembers them all."""
    monkeypatch.setattr("experiments.training.loop.load_data", lambda task, data: sets)
    config = TrainingConfig(task="heavy-hitters", epsilon=1.0, domain="1024", private_noise=True)
    first = run_training(config, output=tmp_path)
    second = run_training(config, output=tmp_path)
    assert first.epsilon == pytest.approx(1.0, abs=1e-3)
    assert second.epsilon > 1.3
    simulated = TrainingConfig(task="heavy-hitters", epsilon=1.0, domain="1024")
    assert run_training(simulated, output=tmp_path).epsilon == pytest.approx(1.0, abs=1e-3)


def test_scores_by_item_help_the_round_and_the_sweep(sets, tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text(
        "".join(f"{name},{10 * (name in COMMON)}\n" for name in sets.public_list.read())
    )
    plain, told = (
        one_round(config(epsilon=0.2, decoder=decoder), sets).evaluation.relative_error
        for decoder in ("amp", f"amp:scores={path}")
    )
    assert told < 0.7 * plain
    get = tasks.get
    task = replace(get("heavy-hitters"), load=lambda data: sets)
    monkeypatch.setattr(tasks, "get", lambda name: task if name == "heavy-hitters" else get(name))
    load_data.cache_clear()
    words = (
        f"sweep --axis compression=10 --task heavy-hitters --prior scores:{path} --epsilon 0.2 "
        f"--decoder linear,amp --seeds 1 --backend sequential --json --output {tmp_path / 'out'}"
    )
    run = CliRunner().invoke(app, words.split())
    load_data.cache_clear()
    assert run.exit_code == 0, run.output
    (made,) = json.loads(run.stdout)["sweeps"]
    assert [row["decoder"] for row in made["results"]] == ["linear", f"amp:scores={path}"]
    assert {row["status"] for row in made["results"]} == {"done"}
