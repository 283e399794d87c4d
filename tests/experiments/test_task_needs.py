"""What a task needs is said before it is started: the files by name, and the extras of pip."""

import json
import re
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from experiments.cli.app import app
from experiments.datasets import MissingDataError
from experiments.datasets.images import DEBIAN_FASHION_MNIST
from experiments.reproduce.entries import ENTRIES
from experiments.reproduce.training import SCALED
from experiments.training import tasks

DOCS = Path(__file__).resolve().parents[2] / "docs"
TASKS = [tasks.get(name) for name in tasks.names()]
#: Names of files, without the braces of a shell.
FILE = re.compile(r"[\w-]+\.(?:npz|h5|json\.gz)|qmnist")


def run(*arguments, width=80):
    done = CliRunner(env={"COLUMNS": str(width)}).invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_names_the_files_that_its_loader_asks_for(task, tmp_path):
    if task.name == "fashion-mnist" and DEBIAN_FASHION_MNIST.exists():
        pytest.skip("Debian's package brings the files")
    if not task.files:
        assert len(task.load(tmp_path).clients) > 10
        return
    with pytest.raises(MissingDataError) as found:
        task.load(tmp_path)
    guide = (DOCS / "datasets.md").read_text()
    for name in FILE.findall(task.files):
        assert name in guide.lower()
        asked = name in str(found.value)
        # the file of a task that would do with another one as well
        assert asked or (task.name, name) == ("next-word-paper", "se_all.json.gz")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_names_the_extras_that_it_imports(task, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "experiments.models.torch_models", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "h5py", None)
    needed = set()
    try:
        task.model()
    except ImportError as error:
        needed |= set(re.findall(r"\[(\w+)\]", str(error)))
    for name in FILE.findall(task.files.partition(";")[0]):
        (tmp_path / name).touch()
    try:
        task.load(tmp_path)
    except ValueError as error:
        needed |= set(re.findall(r"sparse-secagg\[(\w+)\]", str(error)))
    assert needed == set(task.extras)


@pytest.mark.parametrize("name", [n for n, scaled in SCALED.items() if scaled.smaller])
def test_a_smaller_model_needs_no_more(name):
    smaller = tasks.get(SCALED[name].smaller[0])
    assert smaller.files == tasks.get(name).files
    assert set(smaller.extras) <= set(tasks.get(name).extras)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_list_says_what_each_task_needs(width):
    text = run("reproduce", "list", width=width)
    notes = ("Minutes", "Files are looked for")  # sentences, which are not broken in a pipe
    lines = [line for line in text.splitlines() if not line.startswith(notes)]
    assert all(cell_len(line) <= width for line in lines)
    words = " ".join(text.split())
    for entry in ENTRIES.values():
        assert entry.name in words
        assert " ".join(entry.claim.split()) in words
    table = text.partition("what a task needs")[2]
    named = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    for name in {task for entry in ENTRIES.values() for task in entry.tasks} - {"means"}:
        task = tasks.get(name)
        assert all(extra in named[name] for extra in task.extras)
        assert width < 80 or task.files in named[name]


def test_needs_are_in_the_json():
    listed = {row["name"]: row["needs"] for row in json.loads(run("reproduce", "list", "--json"))}
    assert listed["lemmas"] == {}
    assert listed["cohort"]["digits"] == {"files": "", "extras": []}
    assert listed["cohort"]["means"] == {"files": "", "extras": []}
    assert listed["cohort"]["mnist-cnn"]["extras"] == ["torch"]
    assert listed["model-size"]["emnist-cnn"] == {
        "files": "fed_emnist_train.h5, fed_emnist_test.h5",
        "extras": ["hdf5", "torch"],
    }


def test_training_lists_its_tasks():
    text = run("train", "--task", "list")
    for task in TASKS:
        assert task.name in text
    assert "se_all.json.gz" in text
