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
from experiments.training.callbacks import Callback, Round, Run
from experiments.training.records import PrivacySpent, RoundRecord, TrainingState
from sparse_secagg.privacy import Ledger
from sparse_secagg.private_files import make_folder, replacing

NAME = "checkpoint.npz"
LEDGER_NAME = "ledger.sqlite"
_FORMAT = 3
_ARRAYS = ("weights", "velocity", "dropped")


class CheckpointError(ValueError):
    """A checkpoint cannot be gone on from; the message says why and what to do."""


class Checkpoints(Callback):
    """Writes a checkpoint after every so many rounds, and goes on from one; keeps the ledger too.

    With ``resume`` the run starts where the checkpoint is, instead of anew. The last round always
    has one.
    """

    def __init__(self, folder: Path, *, resume: bool = False, every: int = 1) -> None:
        self.path, self.ledger_path = folder / NAME, folder / LEDGER_NAME
        self.resume, self.every = resume, every

    def before_training(self, run: Run) -> None:
        self.config, dim = run.config, run.model.n_parameters
        make_folder(self.path.parent)
        run.state = self.read(dim) if self.resume else self._fresh(dim)
        run.ledger = Ledger(run.config.spec.delta, path=self.ledger_path)

    def after_round(self, current: Round) -> bool | None:
        number = current.record.number
        if number % self.every == 0 or number == self.config.spec.rounds:
            self.write(current.state)
        return None

    def _fresh(self, dim: int) -> TrainingState:
        """Return the start; refuse to overwrite the checkpoint of a run that is not finished."""
        if self.path.exists():
            document = self._load()[0]
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
        elif self.ledger_path.exists() and self._spent():
            raise CheckpointError(
                f"{self.ledger_path} holds what a run spent that stopped before its first "
                "checkpoint; go on with it by resume (--resume), or choose another output folder."
            )
        for name in (LEDGER_NAME, f"{LEDGER_NAME}-journal", NAME):  # a new run, a new account
            self.path.with_name(name).unlink(missing_ok=True)
        return TrainingState.start(dim)

    def _spent(self) -> bool:
        """Return whether the ledger has charges, or is another run's and may have some."""
        try:
            return Ledger(self.config.spec.delta, path=self.ledger_path).rounds > 0
        except ValueError:
            return True

    def read(self, dim: int) -> TrainingState:
        """Return the state in the checkpoint, or the start where there is none."""
        if not self.path.exists():
            return TrainingState.start(dim)
        document, arrays = self._load()
        self._compare(document["config"])
        for name in ("weights", "velocity"):
            array = arrays[name]
            if array.shape != (dim,) or array.dtype != np.float32:
                raise CheckpointError(
                    f"{self.path}: {name} is {array.dtype} of shape {array.shape}, but the model "
                    f"has {dim:,} parameters; remove it to start anew."
                )
        return TrainingState(
            **arrays,
            history=tuple(_record(entry) for entry in document["history"]),
            clip_norm=float(document["clip_norm"]),
            unconverged=int(document["unconverged"]),
        )

    def write(self, state: TrainingState) -> None:
        """Replace the checkpoint; a crash leaves the old one or the new one."""
        document = {
            "format": _FORMAT,
            "config": self.config.parameters(),
            "history": [asdict(record) for record in state.history],
            "clip_norm": state.clip_norm,
            "unconverged": state.unconverged,
        }
        text = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
        with replacing(self.path) as file:
            np.savez(file, document=text, **{name: getattr(state, name) for name in _ARRAYS})

    def _load(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        try:
            # no memory is given to what a header declares before the file is seen to hold it
            text, *found = read_npz(self.path, ["document", *_ARRAYS])
            document = json.loads(text.tobytes())
            arrays = {name: array.copy() for name, array in zip(_ARRAYS, found)}
        except (ValueError, OSError, RecursionError) as error:
            raise CheckpointError(
                f"{self.path} is not a checkpoint of this software ({error}); remove it to start "
                "anew."
            ) from None
        version = document.get("format") if isinstance(document, dict) else None
        if version != _FORMAT:
            raise CheckpointError(
                f"{self.path} has format {version}, this software reads {_FORMAT}; finish the run "
                "with the version that began it, or start anew in another folder."
            )
        return document, arrays

    def _compare(self, found: dict[str, Any]) -> None:
        mine = self.config.parameters()
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


def _record(entry: dict[str, Any]) -> RoundRecord:
    return RoundRecord(**{**entry, "privacy": PrivacySpent(**entry["privacy"])})
