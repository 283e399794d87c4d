"""What people run: datasets, training, recordings, sweeps, comparisons, plots, the CLI."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparse_secagg

if TYPE_CHECKING:
    from experiments.recordings.recording import Recording as Recording
    from experiments.sweeps.cells import HittersCell as HittersCell
    from experiments.sweeps.cells import MeanCell as MeanCell
    from experiments.sweeps.cells import RecordingCell as RecordingCell
    from experiments.sweeps.cells import TaskCell as TaskCell
    from experiments.sweeps.engine import run_sweep as run_sweep
    from experiments.sweeps.grid import Grid as Grid
    from experiments.sweeps.store import Store as Store
    from experiments.training.callbacks import Callback as Callback
    from experiments.training.callbacks import EarlyStop as EarlyStop
    from experiments.training.config import TrainingConfig as TrainingConfig
    from experiments.training.loop import run_training as run_training

# another sparse_secagg has no guard of its own to ask, so its place is compared here
if Path(sparse_secagg.__file__ or "").resolve().parents[1] != Path(__file__).resolve().parents[1]:
    raise ImportError(
        f"{Path(sparse_secagg.__file__ or '').parent} is in the way: not the sparse_secagg that "
        "was installed with experiments. Rename that folder, or start Python from another one."
    )

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

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
