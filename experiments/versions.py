"""What made a result: packages and the revision of the code."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("sparse-secagg", "numpy", "scipy", "scikit-learn", "numba", "joblib")


@cache
def git_revision() -> str:
    """Return the revision of the checkout, with "+" where it was changed; "" outside of one."""
    here = Path(__file__).resolve().parent
    try:
        revision = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return revision[:12] + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()


@cache
def _packages() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    if not found["sparse-secagg"]:
        from sparse_secagg import __version__

        found["sparse-secagg"] = __version__
    return found


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages behind a result, and the revision."""
    return {**_packages(), "revision": git_revision()}
