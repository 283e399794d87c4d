"""What the documentation shows, runs."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import solvers
from solvers import auto, base, registry
from solvers.amp import evolution, message_passing
from solvers.lasso import working_set

PAGE = Path(__file__).resolve().parents[2] / "docs" / "solvers.md"


@pytest.fixture
def namespace(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    namespace = {}
    for block in blocks:
        exec(block, namespace)
    return namespace


def test_the_page_runs_and_its_ten_line_solver_keeps_the_contract(namespace):
    assert "hard_threshold" in solvers.names()
    A, x = namespace["A"], namespace["x"]
    solver = solvers.get("hard_threshold").fit(A, 100 * A @ x, noise_std=1e-3)
    assert solver.n_iter_ == 1
    assert solver.decode(np.zeros((3, 200))).shape == (3, 1000)
    with pytest.raises(ValueError, match="NaN"):
        solver.fit(A, np.full(200, np.nan))


@pytest.mark.parametrize("page", ["amp"])
def test_pages_run(page):
    text = (PAGE.parent / f"{page}.md").read_text()
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, namespace)


def test_every_name_is_documented():
    text = PAGE.read_text()
    assert all(f"`{name}`" in text for name in solvers.names())


@pytest.mark.parametrize("module", [auto, base, registry, working_set, evolution, message_passing])
def test_docstring_examples(module):
    assert doctest.testmod(module).failed == 0
