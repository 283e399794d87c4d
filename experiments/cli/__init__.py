"""The command line: ``sparse-secagg COMMAND``."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

__all__ = ["app"]

#: What the command line needs beside the library: the extra ``cli``.
_NEEDED = ("typer", "rich", "matplotlib", "jinja2")


def _explain() -> None:
    """Say how to get the command line, where only the library is installed."""
    sys.exit(
        f"sparse-secagg: the command line needs {', '.join(_missing)}; install it with\n"
        "    pip install 'sparse-secagg[cli]'"
    )


_missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
app: Any
if _missing:
    app = _explain
else:
    from experiments.cli.app import app
