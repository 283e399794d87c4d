"""The paper's analyses as ready-made sweeps, on synthetic means, recordings or training tasks.

Names, axes and defaults are here; what each concludes in words is in ``conclusions.py``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.sweeps.axes import Value
from experiments.sweeps.cell import Cell
from experiments.sweeps.cells import MeanCell, TaskCell

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
    #: Fixed parameters for tasks, where they differ from the task's own.
    task: Mapping[str, Any] = field(default_factory=dict)
    encoders: tuple[str, ...] = ("count_sketch",)
    #: Decoders of one estimate, and of training.
    decoders: tuple[str, ...] = ("linear",)
    task_decoders: tuple[str, ...] = ("linear",)
    #: Repetitions.
    seeds: int = 5
    task_seeds: int = 3
    #: Further parameters that vary.
    variants: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: Sets parameters of a cell that follow from others.
    adjust: Callable[[Cell], Cell] | None = None

    def axes_for(self, kind: str) -> Axes:
        """Return the axes for a kind of cell."""
        found = {"recording": self.recording_axes, "task": self.task_axes}
        return found.get(kind, self.axes)

    def recording_values(self) -> dict[str, Any]:
        """Return the round's parameters, for a recording: clients, clip and bits are its own."""
        names = ("encoder", "mechanism", "compression", "n_rows", "delta")
        noise = "epsilon" if self.mean.spec.epsilon is not None else "noise_multiplier"
        return {name: getattr(self.mean.spec, name) for name in (*names, noise)}


#: A cohort so small, or noise so strong, that compression can be free: m is about n²/z².
_NOISY = MeanCell(mean="dense", dim=5000, clients=50, noise_multiplier=1.0, n_bits=18)
_RATES = (1, 2, 5, 10, 20, 50, 100)
#: The cohort whose total message the others keep, and its compression.
_COHORT, _COHORT_COMPRESSION = 50, 2.0
#: Tasks with a smaller model of the same data, and how many times smaller it is, about.
SMALL_MODELS = {"mnist": ("mnist-small", 10.0), "emnist-cnn": ("emnist-dense", 5.0)}
#: Length of the sketch in "model-size".
_EQUAL_LENGTH = 500


def _fixed_total_message(cell: Cell) -> Cell:
    """Raise r with n as the paper does: by n₂/n₁·(log n₂/log n₁)."""
    n = getattr(cell, "clients", None) or _COHORT
    factor = n / _COHORT * math.log(n) / math.log(_COHORT)
    return cell.with_values(compression=max(1.0, round(_COHORT_COMPRESSION * factor, 3)))


def _equal_message(cell: Cell) -> Cell:
    """Keep the length of the sketch: r follows d, or the size of the task's model."""
    if isinstance(cell, MeanCell):
        return cell.with_values(compression=cell.dim / _EQUAL_LENGTH)
    if isinstance(cell, TaskCell):
        smaller = dict(SMALL_MODELS.values()).get(cell.config.task, 1.0)
        return cell.with_values(compression=max(1.0, (cell.spec.compression or 1.0) / smaller))
    return cell


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
    "privacy-utility-communication": Preset(
        "How much compression does each noise level allow within a slack?",
        axes={"noise_multiplier": (0.3, 0.5, 1, 2, 4), "compression": _RATES},
        recording_axes={"noise_multiplier": (0.1, 0.3, 0.5, 1, 2), "compression": _RATES},
        task_axes={"noise_multiplier": (0, 0.1, 0.3, 0.5, 1), "compression": (1, 5, 10, 50, 100)},
        mean=_NOISY,
    ),
    "quantise-or-reduce": Preset(
        "Is a message shortened better by fewer bits or by fewer coordinates?",
        axes={"n_bits": (8, 10, 12, 14, 16, 18), "compression": _RATES},
        recording_axes={"n_bits": (10, 12, 14, 16, 18), "compression": _RATES},
        task_axes={"n_bits": (10, 12, 14, 16, 18), "compression": (1, 5, 10, 50)},
        mean=_NOISY,
    ),
    "cohort": Preset(
        "Do larger cohorts help when the total message stays the same?",
        axes={"clients": (25, 50, 100, 200, 400)},
        recording_axes={"clients": (25, 50, 100)},
        task_axes={"clients": (25, 50, 100)},
        mean=_NOISY,
        decoders=("linear", "ridge"),
        adjust=_fixed_total_message,
    ),
    "sketch-length": Preset(
        "How many rows should a count sketch have?",
        axes={"n_rows": (10, 15, 20, 25)},
        recording_axes={"n_rows": (10, 15, 20, 25)},
        task_axes={"n_rows": (10, 15, 20, 25)},
        mean=MeanCell(dim=5000, clients=500, compression=5),
        decoders=("linear", "median", "ridge", "lasso", "amp"),
    ),
    "thresholding": Preset(
        "Does it help to set the small entries of the sketch to zero?",
        axes={"threshold": (0.0, 0.25, 0.5, 0.75, 0.9)},
        recording_axes={"threshold": (0.0, 0.25, 0.5, 0.75, 0.9)},
        task_axes={"threshold": (0.0, 0.25, 0.5, 0.75, 0.9)},
        mean=MeanCell(mean="power_law", dim=5000, clients=500, compression=5),
        decoders=("linear", "ridge", "lasso", "amp"),
    ),
    "per-layer": Preset(
        "Does it help to sketch each layer by itself?",
        axes={"compression": (2, 5, 10, 20, 50)},
        recording_axes={"compression": (2, 5, 10, 20, 50)},
        task_axes={"compression": (2, 5, 10, 20, 50)},
        mean=MeanCell(mean="layered", dim=5000, clients=500),
        decoders=("linear", "ridge"),
        variants={"per_layer": (False, True)},
    ),
    "model-size": Preset(
        "Is a large model, compressed, better than a small one with messages as long?",
        axes={"dim": (500, 1000, 2500, 5000, 10_000)},
        recording_axes={"compression": _RATES},
        task_axes={"compression": (10, 50, 100)},
        mean=MeanCell(mean="power_law", clients=500),
        decoders=("linear", "lasso", "amp"),
        adjust=_equal_message,
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
        raise ValueError(f"no preset {name!r}; {hint}There are: {', '.join(PRESETS)}, claims.")
    return PRESETS[name]
