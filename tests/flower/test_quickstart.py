"""Flower's quickstart app, and what the guide's diff makes of it."""

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from sparse_secagg.accounting import Ledger
from tests.flower.conftest import LoopbackGrid, make_nodes

HERE = Path(__file__).resolve().parent
GUIDE = HERE.parents[1] / "docs" / "flower.md"
CONFIG = {
    "num-server-rounds": 3,
    "fraction-evaluate": 1.0,
    "learning-rate": 0.1,
    "local-epochs": 10,
}


def diffs():
    """Return the lines of the guide's diffs, by the file that each names first."""
    blocks = re.findall(r"```diff\n # (\S+)\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    return {name: block.splitlines() for name, block in blocks}


def patched(text, lines):
    """Return a text with the hunks of a diff applied; an empty line ends a hunk."""
    for hunk in "\n".join(lines).split("\n\n"):
        old, new = (
            "".join(line[1:] + "\n" for line in hunk.splitlines() if line[0] != left_out)
            for left_out in "+-"
        )
        assert text.count(old) == 1, f"the app has not exactly one place for:\n{hunk}"
        text = text.replace(old, new)
    return text


@pytest.fixture
def app(tmp_path, monkeypatch):
    shutil.copytree(HERE / "quickstart", tmp_path / "quickstart")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "quickstart"
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        del sys.modules[name]


def run(folder):
    """Run the app with four nodes; return the model's loss and what the nodes answered."""
    client_app = importlib.import_module("quickstart.client_app")
    server_app = importlib.import_module("quickstart.server_app")
    grid = LoopbackGrid(client_app.app, folder)
    for context in grid.contexts.values():
        context.node_config["num-partitions"] = len(grid.contexts)
        context.run_config.update(CONFIG)
    context = Context(1, 0, {}, RecordDict(), CONFIG)
    server_app.app(grid, context)
    return server_app.global_evaluate(3, context.state["model"])["loss"], grid


def test_the_quickstart_is_an_app_of_flower(app, tmp_path):
    loss, grid = run(tmp_path)
    assert loss < 0.01
    assert any("arrays" in reply.content for _, _, reply in grid.sent)


@pytest.mark.parametrize("epsilon", ["4.0", "3000.0"])
def test_the_guides_diff_makes_it_private(app, tmp_path, epsilon):
    changed = [line for lines in diffs().values() for line in lines if line[:1] in ("+", "-")]
    assert len(changed) <= 12
    for name, lines in diffs().items():
        text = patched((app / name).read_text(), lines)
        spec = f"epsilon={epsilon}, clip_norm=1.0, compression=1"  # there are only four entries
        (app / name).write_text(text.replace("epsilon=4.0, clip_norm=1.0, compression=10", spec))
    make_nodes(tmp_path).save(tmp_path / "roster.json")
    loss, grid = run(tmp_path)
    assert all(set(reply.content) == {"sparse_secagg"} for _, _, reply in grid.sent)
    assert [stage for stage, *_ in grid.sent].count("mask") == 3 * 4
    assert 0 < Ledger(1e-5, path=tmp_path / "ledger.sqlite").epsilon("server") <= float(epsilon)
    if float(epsilon) > 1000:  # with four nodes, noise for less hides such a model
        assert loss < 0.02
