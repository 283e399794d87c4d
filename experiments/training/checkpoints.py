"""Checkpoints of training: one ``.npz`` without pickle, replaced atomically.

A checkpoint belongs to one configuration. Going on with another would end at weights that neither
describes, so it is refused and the difference named.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.arrays import read_npz
from experiments.private_files import make_folder, replacing
from experiments.training.config import TrainingConfig
from experiments.training.records import PrivacySpent, RoundRecord, TrainingState
from sparse_secagg.privacy import Ledger

NAME = "checkpoint.npz"
LEDGER_NAME = "ledger.sqlite"
#: 3: the names of a round's parameters. 2: the ledger is a file beside the checkpoint, no longer
#: inside; such checkpoints are read.
_FORMAT, _READABLE = 3, (2, 3)
_ARRAYS = ("weights", "velocity", "dropped")


class CheckpointError(ValueError):
    """A checkpoint cannot be gone on from; the message says why and what to do."""


class CheckpointFile:
    """The checkpoint of a run in its output folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, config: TrainingConfig) -> None:
        self.folder, self.config = folder, config
        if folder is not None:
            make_folder(folder)

    @property
    def path(self) -> Path | None:
        """Where the checkpoint is."""
        return None if self.folder is None else self.folder / NAME

    def ledger(self) -> Ledger:
        """Return the run's ledger: the file beside the checkpoint, or one in memory."""
        path = None if self.folder is None else self.folder / LEDGER_NAME
        return Ledger(self.config.spec.delta, path=path)

    def none(self, dim: int) -> TrainingState:
        """Return the start; refuse to overwrite the checkpoint of a run that is not finished."""
        if self.path is not None and self.path.exists():
            document = self._load(self.path)[0]
            done, rounds = len(document["history"]), document["config"]["rounds"]
            if done < rounds:
                raise CheckpointError(
                    f"{self.path} holds a run that stopped after {done} of {rounds} rounds; go on "
                    "with it by resume (--resume), or choose another output folder."
                )
            if document["config"].get("private_noise"):
                raise CheckpointError(
                    f"{self.path.parent} holds a finished private run, whose account must not be "
                    "lost; choose another output folder."
                )
            for name in (LEDGER_NAME, f"{LEDGER_NAME}-journal"):  # a new run, a new account
                self.path.with_name(name).unlink(missing_ok=True)
            self.path.unlink()
        elif self.path is not None and self.path.with_name(LEDGER_NAME).exists():
            raise CheckpointError(
                f"{self.path.with_name(LEDGER_NAME)} holds what a run spent that stopped before "
                "its first checkpoint; go on with it by resume (--resume), or choose another "
                "output folder."
            )
        return TrainingState.start(dim)

    def read(self, dim: int) -> TrainingState:
        """Return the state in the checkpoint, or the start where there is none."""
        if self.path is None:
            raise CheckpointError("resume needs output, the folder of the run to go on with.")
        if not self.path.exists():
            return TrainingState.start(dim)
        document, arrays = self._load(self.path)
        self._compare(document["config"])
        for name in ("weights", "velocity"):
            array = arrays[name]
            if array.shape != (dim,) or array.dtype != np.float32:
                raise CheckpointError(
                    f"{self.path}: {name} is {array.dtype} of shape {array.shape}, but the model "
                    f"has {dim:,} parameters; remove it to start anew."
                )
        return TrainingState(
            weights=arrays["weights"],
            velocity=arrays["velocity"],
            history=tuple(_record(entry) for entry in document["history"]),
            clip_norm=float(document["clip_norm"]),
            unconverged=int(document["unconverged"]),
            dropped=arrays["dropped"],
        )

    def write(self, state: TrainingState) -> None:
        """Replace the checkpoint; a crash leaves the old one or the new one."""
        if self.path is None:
            return
        document = {
            "format": _FORMAT,
            "config": self.config.parameters(),
            "history": [_entry(record) for record in state.history],
            "clip_norm": state.clip_norm,
            "unconverged": state.unconverged,
        }
        text = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
        with replacing(self.path) as file:
            np.savez(file, document=text, **{name: getattr(state, name) for name in _ARRAYS})

    def _load(self, path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        try:
            # no memory is given to what a header declares before the file is seen to hold it
            text, *found = read_npz(path, ["document", *_ARRAYS])
            document = json.loads(text.tobytes())
            arrays = {name: array.copy() for name, array in zip(_ARRAYS, found)}
        except (ValueError, OSError, RecursionError) as error:
            raise CheckpointError(
                f"{path} is not a checkpoint of this software ({error}); remove it to start anew."
            ) from None
        version = document.get("format") if isinstance(document, dict) else None
        if version not in _READABLE:
            raise CheckpointError(
                f"{path} has format {version}, this software reads 2 and {_FORMAT}; finish the run "
                "with the version that began it, or start anew in another folder."
            )
        return document, arrays

    def _compare(self, found: dict[str, Any]) -> None:
        mine, found = self.config.parameters(), _modern(found)
        different = [name for name in {**mine, **found} if found.get(name) != mine.get(name)]
        if different:
            what = ", ".join(
                f"{name} was {found.get(name)!r} and is now {mine.get(name)!r}"
                for name in different
            )
            raise CheckpointError(
                f"{self.path} belongs to a run with other options: {what}. Resume with its "
                "options, or choose another output folder."
            )


def _modern(found: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a checkpoint of any format by the names that it has now."""
    if "layers" not in found:
        return found
    values = {**found, "per_layer": found["layers"] == "separate"}
    known = {name: value for name, value in values.items() if name not in ("layers", "data")}
    return TrainingConfig(**known).parameters()


def _entry(record: RoundRecord) -> dict[str, Any]:
    return asdict(record)


def _record(entry: dict[str, Any]) -> RoundRecord:
    return RoundRecord(**{**entry, "privacy": PrivacySpent(**entry["privacy"])})
