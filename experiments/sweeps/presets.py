"""Ready-made sweeps with a question, on synthetic means, recordings or training tasks.

Names, axes and defaults are here; what each concludes in words is in ``conclusions.py``. The
paper's own analyses are in :mod:`experiments.reproduce`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.sweeps.axes import Value
from experiments.sweeps.cells import MeanCell

Axes = Mapping[str, Sequence[Value]]

#: What is worth running on one estimate; debiased decoders are for training.
ONE_SHOT = ("linear", "median", "ridge", "omp", "iht", "lasso", "amp", "auto")
TRAINING = ("linear", "lasso", "amp", "amp:low_rank")


@dataclass(frozen=True)
class Preset:
    """A sweep with a question."""

    question: str  # what it answers
    axes: Axes  # for synthetic means
    #: For a recording and for a task.
    recording_axes: Axes
    task_axes: Axes
    #: Fixed parameters for synthetic means; recordings take the pipeline's from it.
    mean: MeanCell = field(default_factory=MeanCell)
    encoders: tuple[str, ...] = ("count_sketch",)
    #: Decoders of one estimate, and of training.
    decoders: tuple[str, ...] = ("linear",)
    task_decoders: tuple[str, ...] = ("linear",)
    #: Repetitions.
    seeds: int = 5
    task_seeds: int = 3

    def axes_for(self, kind: str) -> Axes:
        """Return the axes for a kind of cell."""
        found = {"recording": self.recording_axes, "task": self.task_axes}
        return found.get(kind, self.axes)

    def recording_values(self) -> dict[str, Any]:
        """Return the round's parameters, for a recording: clients, clip and bits are its own."""
        names = ("encoder", "mechanism", "compression", "n_rows", "delta")
        noise = "epsilon" if self.mean.spec.epsilon is not None else "noise_multiplier"
        return {name: getattr(self.mean.spec, name) for name in (*names, noise)}


PRESETS: dict[str, Preset] = {
    "sparsity": Preset(
        "Up to how many nonzeros do sparse decoders pay?",
        axes={"sparsity": (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)},
        recording_axes={"compression": (2, 5, 10, 20, 50)},
        task_axes={"compression": (2, 5, 10, 20, 50)},
        mean=MeanCell(dim=5000, clients=500, compression=5, noise_multiplier=1.0),
        encoders=("count_sketch", "gaussian"),
        decoders=ONE_SHOT,
        task_decoders=TRAINING,
    ),
    "phase": Preset(
        "Which sparse means are recovered from so few coordinates?",
        axes={
            "density": (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65),
            "compression": (10, 5, 3.33, 2.5, 2, 1.67, 1.43, 1.25),
        },
        recording_axes={},
        task_axes={},
        # no noise, and bits enough that rounding is none either: recovery is the decoder's doing
        mean=MeanCell(dim=1000, clients=2, spread=0.0, noise_multiplier=0.0, n_bits=40),
        encoders=("gaussian",),
        decoders=("lasso", "amp"),
    ),
    "training": Preset(
        "Which decoder trains best, at which compression and noise?",
        axes={"compression": (2, 10, 50), "noise_multiplier": (0.3, 1, 3)},
        recording_axes={"compression": (2, 10, 50), "noise_multiplier": (0.3, 1, 3)},
        task_axes={"compression": (10, 50, 100, 200), "noise_multiplier": (0.3, 1, 3)},
        mean=MeanCell(mean="low_rank", dim=5000, clients=100),
        decoders=("linear", "ridge", "lasso", "amp", "amp:low_rank"),
        task_decoders=TRAINING,
    ),
}


def get_preset(name: str) -> Preset:
    """Return a preset by its name."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(
            f"no preset {name!r}; {hint}there are {', '.join(PRESETS)}. The paper's own analyses "
            "are sparse-secagg reproduce NAME; 'reproduce list' names them."
        )
    return PRESETS[name]
