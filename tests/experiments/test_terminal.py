"""Words from data and from the command line are shown sign by sign, whatever signs they hold."""

import io

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.recordings.recording import Recording
from experiments.report.console import show_verdicts
from experiments.report.layout import print_table
from experiments.report.tables import sweep_tables
from experiments.report.terminal import literal
from experiments.results.table import SweepTable
from experiments.results.verdicts import Verdict
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.store import Result

WORDS = ["[/]", "[bold]", "[red]x[/red]", ":bug:", "\x1b[2J", "\x07", "a\\", "\u202e"]


def printed(show, width=300):
    console = Console(record=True, width=width, file=io.StringIO())
    show(console)
    return console.export_text()


@pytest.mark.parametrize("word", WORDS)
def test_a_literal_is_what_it_says(word):
    text = printed(lambda console: console.print(literal(word)))
    if word.isprintable():
        assert text == f"{word}\n"
    else:
        assert text.rstrip("\n").isprintable()
        assert ascii(word)[1:-1] in text


@pytest.mark.parametrize("word", WORDS[:5])
def test_tables_of_sweeps(word):
    shown = word.replace("\x1b", "\\x1b")
    results = [
        Result(MeanCell(seed=seed, decoder=decoder, n_bits=bits), status, metrics, message)
        for seed in range(2)
        for decoder in (word, "linear")
        for bits in (16, 18)
        for status, metrics, message in [
            ("done", {"relative_error": 1.0 + seed, "bits_per_parameter": 1.0}, "")
            if bits == 16
            else ("failed", {}, f"why {word}")
        ]
    ]
    table = SweepTable(results, ("n_bits",))
    (made,) = sweep_tables(table, f"title {word}")
    for width in (300, 60):  # the full table and the narrow one
        text = printed(lambda console: print_table(made, console), width)
        assert f"title {shown}" in text
        assert text.count(shown) >= 2  # the column of the decoder as well
    claim = Verdict(f"claim {word}", "holds", (f"evidence {word}",))
    text = printed(lambda console: show_verdicts([claim], console))
    assert f"HOLDS  claim {shown}" in text
    assert f"evidence {shown}" in text


@pytest.mark.parametrize("word", ["[/]", "[bold]", ":bug:"])
def test_comparisons_and_sweeps_of_a_recording_with_strange_names(tmp_path, word):
    path = tmp_path / f"recording {word.replace('/', '')}"
    made = Recording.create(path, task=word, shapes={f"layer {word}": (4, 5)}, clip_norm=1.0)
    made.append(0, np.random.default_rng(0).normal(size=(10, 20)))
    common = ["--decoder", "linear", "--noise-multiplier", "0.1", "--output", str(path / "out")]
    options = {"env": {"COLUMNS": "300"}}
    arguments = ["compare", str(path), *common, "--compression", "2", "--draws", "1"]
    done = CliRunner().invoke(app, arguments, **options)
    assert done.exit_code == 0, done.output
    assert f"compression, {path.name}" in done.output
    sweep = ["sweep", "--recording", str(path), "--axis", "compression=2", "--seeds", "1"]
    done = CliRunner().invoke(app, [*sweep, *common, "--jobs", "1"], **options)
    assert done.exit_code == 0, done.output
    assert f"compression, {path.name}" in done.output
    assert f"written: {path}" in done.output
