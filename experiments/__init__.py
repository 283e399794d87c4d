"""What people run: datasets, training, recordings, sweeps, comparisons, plots, the CLI."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.sweep import Grid, run_sweep

_HOME = {"Grid": "sweep", "run_sweep": "sweep"}

__all__ = ["Grid", "run_sweep"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
