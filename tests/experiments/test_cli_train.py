import json

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.training import tasks

SHORT = ["train", "--task", "digits", "--rounds", "3", "--clients", "10"]


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_json_and_files_say_the_same(tmp_path):
    private = ["--noise-multiplier", "0.5", "--compression", "10", "--n-bits", "16", "--json"]
    done = run(*SHORT, *private, "--output", str(tmp_path), "--jobs", "2")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "training.json").read_text())
    assert len(result["accuracy"]) == 3
    assert result["epsilon"] == result["epsilon_server"][-1] > 0
    assert result["config"]["compression"] == 10
    assert result["not_private"] is True
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "training.svg").exists()


def test_a_budget_for_all_rounds_is_kept_and_drawn(tmp_path):
    done = run(*SHORT, "--epsilon", "20", "--compression", "10", "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "training.json").read_text())["epsilon"] <= 20
    assert (tmp_path / "training.svg").exists()


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ([], ("no noise", "--epsilon", "--noise-multiplier", "--private-noise")),
        (["--epsilon", "20"], ("the noise comes from the seed", "--private-noise")),
        (["--noise-multiplier", "1"], ("the noise comes from the seed", "--private-noise")),
    ],
)
def test_the_first_and_the_last_line_say_that_nothing_is_private(tmp_path, noise, words):
    done = run(*SHORT, *noise, "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    first, *_, last = done.stdout.splitlines()
    assert first == last
    assert first.startswith("Not private: ")
    assert all(word in first for word in words)
    assert "accuracy" in done.stdout


def test_who_asks_for_no_noise_is_told_once(tmp_path):
    done = run(*SHORT, "--noise-multiplier", "0", "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    first, *_, last = done.stdout.splitlines()
    assert "private" not in first
    assert last == "Not private: no noise is added, as --noise-multiplier 0 asks."


def test_a_private_run_is_not_called_anything_else(tmp_path):
    options = ["--epsilon", "20", "--private-noise", "--output", str(tmp_path)]
    done = run(*SHORT, *options)
    assert done.exit_code == 0, done.output
    assert "Not private" not in done.stdout


def test_beside_json_it_is_said_on_standard_error(tmp_path):
    done = run(*SHORT, "--json", "--output", str(tmp_path))
    assert json.loads(done.stdout)["not_private_because"]
    assert done.stderr.startswith("Not private: no noise")


def test_resume_goes_on_and_other_options_are_refused(tmp_path):
    assert run(*SHORT, "--output", str(tmp_path)).exit_code == 0
    before = np.load(tmp_path / "checkpoint.npz")["weights"]
    assert run(*SHORT, "--output", str(tmp_path), "--resume").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "checkpoint.npz")["weights"], before)
    refused = run(*SHORT, "--output", str(tmp_path), "--resume", "--seed", "1")
    assert refused.exit_code == 2
    assert "seed was 0 and is now 1" in " ".join(refused.output.replace("│", "").split())


def test_layers_threshold_and_batches_reach_the_run(tmp_path):
    options = {
        "layer_compression": "dense1=10,rest=2",
        "clip_shares": "dense1=0.6,rest=0.8",
        "threshold": 0.5,
        "batch_size": 4,
        "n_rows": 4,
    }
    words = [w for name, v in options.items() for w in (f"--{name.replace('_', '-')}", str(v))]
    short = ["train", "--rounds", "1", "--clients", "4", "--json", "--output"]
    done = run(*short, str(tmp_path), *words, "--fresh-sketch")
    assert done.exit_code == 0, done.output
    config = json.loads(done.stdout)["config"]
    assert {name: config[name] for name in options} == options
    assert config["fixed_sketch"] is False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "chess"], "next-word-paper"),
        (["--clip-norm", "often"], "adaptive"),
        (["--epsilon", "1", "--noise-multiplier", "1"], "both set the noise"),
        (["--decoder", "nonsense"], "nonsense"),
        (["--encoder", "nonsense"], "nonsense"),
    ],
)
def test_mistakes_are_explained(tmp_path, options, words):
    done = run("train", "--rounds", "1", *options, "--output", str(tmp_path))
    assert done.exit_code == 2
    assert words in " ".join(done.output.replace("│", "").split())


def test_help_names_every_task():
    done = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"})
    text = " ".join(done.stdout.replace("│", "").split())
    for name in tasks.names():
        assert name in text


def test_the_epsilon_that_is_shown_is_never_too_small(tmp_path):
    """Each of three rounds on its own line of the table, which files hold as well."""
    done = run(*SHORT, "--noise-multiplier", "0.6", "--json", "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    spent = json.loads(done.stdout)["epsilon_server"]
    head, *rows = (tmp_path / "training.csv").read_text().splitlines()
    column = next(k for k, name in enumerate(head.split(",")) if "server" in name)
    shown = [float(row.split(",")[column]) for row in rows]
    assert all(true <= text <= 1.01 * true for true, text in zip(spent, shown))
