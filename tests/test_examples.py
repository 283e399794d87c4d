"""Examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import experiments
import solvers
import sparse_secagg

MODULES = [
    module.name
    for package in (solvers, sparse_secagg, experiments)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith(("_kernels", "__main__"))
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    for part, extra in {"torch": "torch", ".flower": "flwr"}.items():
        if part in name:
            pytest.importorskip(extra)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
