"""The direction of dependency: solvers <- sparse_secagg <- experiments."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "solvers": {"sparse_secagg", "experiments", "benchmarks", "tests"},
    "sparse_secagg": {"experiments", "benchmarks", "tests"},
    "experiments": {"benchmarks", "tests"},
}


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_follow_the_direction_of_dependency(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = FORBIDDEN[package] & set(imported_packages(path))
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_numba_lives_in_kernel_modules_only():
    for package in FORBIDDEN:
        for path in (ROOT / package).rglob("*.py"):
            if "numba" in set(imported_packages(path)):
                assert path.stem.endswith("_kernels"), path.relative_to(ROOT)


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, sparse_secagg; "
        "print([m for m in ('numba', 'sklearn', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
