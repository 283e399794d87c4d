"""What ``--help`` says: whole sentences, defaults that are true, groups, and examples that run."""

import inspect
import re
import shlex

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

import sparse_secagg
from experiments.cli.app import app
from experiments.sweeps.axes import AXES
from experiments.sweeps.cells import MeanCell, RecordingCell
from experiments.sweeps.means import MEANS
from experiments.training import tasks
from experiments.training.config import TrainingConfig

TREE = typer.main.get_command(app)
COMMANDS = {
    **{(name,): command for name, command in TREE.commands.items() if name != "identity"},
    **{("identity", n): c for n, c in TREE.commands["identity"].commands.items()},
}
#: Words of the program, not of its users.
JARGON = r"\bNone\b|(?<!hash )\bcells?\b|AdaptiveClip|instance|γ|planner"


def help_of(name, width=80):
    run = CliRunner(env={"COLUMNS": str(width)}).invoke(app, [*name, "--help"])
    assert run.exit_code == 0
    return run.stdout


def words(text):
    return re.sub(r"[│╭╮╰╯─\s]+", " ", text)


def options(command):
    return [p for p in command.params if p.param_type_name == "option" and p.name != "help"]


def shown_defaults(name):
    """Return what the help says is the default of each option, where it has words for it."""
    found = {
        p.name: re.search(r"\\\[default: (.*)\]\[/dim\]", p.help) for p in options(COMMANDS[name])
    }
    return {name: default[1] for name, default in found.items() if default}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", [(), ("identity",), *COMMANDS], ids=" ".join)
def test_no_line_is_wider_than_the_terminal(name, width):
    text = help_of(name, width).partition("Examples:")[0]
    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_every_word_of_a_help_is_shown_and_none_is_jargon(name):
    text = words(help_of(name, 120))
    assert not re.search(JARGON, text), re.search(JARGON, text)
    for parameter in COMMANDS[name].params:
        meant = re.sub(r"\[/?dim\]", "", parameter.help or "").replace("\\[", "[")
        for word in meant.split():
            assert word in text, (parameter.name, word)
        assert meant[:1].isupper() or not meant[:1].isascii(), parameter.name
        assert re.search(r"[.…:]( \[default: .*\])?$", meant), meant


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_many_options_are_in_groups(name):
    given = options(COMMANDS[name])
    groups = [p.rich_help_panel or "" for p in given]
    for group in groups:
        assert groups.count(group) <= 12, group
    for parameter in given:
        assert not (parameter.required and parameter.rich_help_panel), "what is needed comes first"


@pytest.mark.parametrize("name", [*COMMANDS], ids=" ".join)
def test_examples_fit_the_terminal_and_are_understood(name):
    text = help_of(name).partition("Examples:")[2]
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    lines = text.replace("\\\n", " ").strip().splitlines()
    commands = [shlex.split(line) for line in lines if line.strip()]
    assert commands
    for program, *rest in commands:
        assert program == "sparse-secagg"
        assert tuple(rest[: len(name)]) == name
        COMMANDS[name].make_context(name[-1], rest[len(name) :])


def same(text, value):
    return text == str(value) or float(text) == value


def test_defaults_of_a_plan_are_those_of_the_function():
    declared = inspect.signature(sparse_secagg.plan).parameters
    found = shown_defaults(("plan",))
    assert len(found) > 10
    for name, text in found.items():
        if text == "chosen":
            assert declared[name].default is None
        elif name != "json":
            assert same(text, declared[name].default), name


def test_defaults_of_counts_are_those_of_the_estimator():
    declared = inspect.signature(sparse_secagg.PrivateCounts).parameters
    found = shown_defaults(("count",))
    assert same(found["epsilon"], declared["epsilon"].default)
    assert same(found["delta"], declared["delta"].default)
    assert found["max_items"] == "chosen privately"


def test_defaults_of_training_are_those_of_a_run():
    own = {"the task's", "none", "fresh, with --threshold fixed", "--debias"}
    config = TrainingConfig(task="digits")
    found = shown_defaults(("train",))
    for name, text in found.items():
        if hasattr(config, name) and text not in own and name not in ("task", "data", "output"):
            assert same(text, getattr(config, name)), name
    settings = {name for task in map(tasks.get, tasks.names()) for name in task.settings}
    for name in settings:
        assert found[name] == "the task's", name


def test_defaults_of_sweeps_are_those_of_their_cells():
    text = words(help_of(("sweep",), 120))
    cell = MeanCell()
    for said in (
        f"d = {cell.dim}", f"{cell.clients} clients", f"{cell.spec.sparsity} nonzero entries",
        f"r = {cell.spec.compression:g}", f"{cell.spec.n_bits} bits",
        f"z = {cell.spec.noise_multiplier:g}",
    ):  # fmt: skip
        assert said in text
    for name in (*AXES, *MEANS):
        assert name in text
    cell, found = RecordingCell(recording="r"), shown_defaults(("compare",))
    for name in ("epsilon", "compression", "encoder", "mechanism", "n_rows", "delta"):
        assert same(found[name], getattr(cell.spec, name))


def test_the_version_and_exit_codes_are_said():
    run = CliRunner().invoke(app, ["--version"])
    assert run.stdout.split() == ["sparse-secagg", sparse_secagg.__version__]
    assert CliRunner().invoke(app, ["-h"]).stdout == CliRunner().invoke(app, ["--help"]).stdout
    assert "Exit codes" in help_of(())
