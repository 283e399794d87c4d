"""Folders of the user's that take over our names are named, with the remedy."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(folder, statement):
    script = folder / "script.py"
    script.write_text(f"import sys; sys.path.append({str(ROOT)!r})\n{statement}\n")
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=folder, check=False
    )


@pytest.mark.parametrize("name", ["solvers", "experiments"])
def test_a_package_beside_the_script_is_named(name, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    done = run(tmp_path, "import sparse_secagg")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    for part in (str(tmp_path / name), repr(name), "Rename that folder"):
        assert part in last


def test_a_module_beside_the_script_is_named(tmp_path):
    (tmp_path / "solvers.py").write_text("")
    done = run(tmp_path, "import sparse_secagg")
    assert f"ImportError: {tmp_path / 'solvers.py'} is in the way" in done.stderr


def test_what_was_imported_before_counts_too(tmp_path):
    (tmp_path / "solvers").mkdir()
    (tmp_path / "solvers" / "__init__.py").write_text("")
    done = run(tmp_path, "import solvers, sparse_secagg")
    assert "ImportError" in done.stderr
    assert str(tmp_path / "solvers") in done.stderr


def test_another_sparse_secagg_is_named_by_experiments(tmp_path):
    (tmp_path / "sparse_secagg").mkdir()
    (tmp_path / "sparse_secagg" / "__init__.py").write_text("")
    done = run(tmp_path, "import experiments")
    assert "ImportError" in done.stderr
    assert f"{tmp_path / 'sparse_secagg'} is in the way" in done.stderr


def test_folders_without_a_package_are_in_nobodys_way(tmp_path):
    for name in ("solvers", "experiments"):
        (tmp_path / name).mkdir()
    done = run(tmp_path, "import sparse_secagg, experiments, solvers; print(solvers.names()[0])")
    assert done.returncode == 0, done.stderr
