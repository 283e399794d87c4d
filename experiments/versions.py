"""What made a result: packages and the revision of the code."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

import sparse_secagg

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "joblib")


@cache
def git_revision() -> str:
    """Return the revision of the checkout, with "+" where it was changed; "" outside of one."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode().strip()


@cache
def _packages() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found["sparse-secagg"] = sparse_secagg.__version__
    return found | {name: metadata.version(name) for name in PACKAGES}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages behind a result, and the revision."""
    return {**_packages(), "revision": git_revision()}
