"""The import guard: ``solvers`` and ``experiments`` must be the ones that were installed with this.

Both are top-level names, which a folder beside a user's script can take over. What would follow are
errors far from their cause, so the cause is named here.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__all__ = ["check_siblings"]


def check_siblings(package_file: str, *names: str) -> None:
    """Raise ImportError if a top-level package is not the one beside this one.

    Parameters
    ----------
    package_file : str
        ``__file__`` of the package that needs them.
    *names : str
        The packages it needs.
    """
    home = Path(package_file).resolve().parent.parent
    for name in names:
        found = _folder_of(name)
        if found is not None and found.resolve() != home / name:
            raise ImportError(
                f"{found} is in the way: Python finds it under the name {name!r}, which belongs to "
                f"the package installed in {home / name}. Rename that folder or file, or start "
                "Python from another folder (or with -P, which leaves the script's folder out)."
            )


def _folder_of(name: str) -> Path | None:
    """Return where an import of ``name`` leads: a folder, or the file of a single module."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None
