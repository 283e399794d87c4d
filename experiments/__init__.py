"""What people run: datasets, training, recordings, sweeps, comparisons, plots, the CLI."""

from __future__ import annotations

import importlib
from typing import Any

#: Public names and where they are; imported when asked for, since each needs little of the rest.
_HOME = {
    "Callback": "training.callbacks",
    "EarlyStop": "training.callbacks",
    "Grid": "sweeps.grid",
    "HittersCell": "sweeps.cells",
    "MeanCell": "sweeps.cells",
    "Recording": "recordings.recording",
    "RecordingCell": "sweeps.cells",
    "Store": "sweeps.store",
    "TaskCell": "sweeps.cells",
    "TrainingConfig": "training.config",
    "run_sweep": "sweeps.engine",
    "run_training": "training.loop",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
