"""A cell of a sweep: parameters and a seed, from which its result follows and nothing else.

A cell evaluates itself, in two steps. ``draw`` does what cells that differ by their decoder only
share: clients, sketch and noise. ``measure`` does the rest. So decoders are compared on the same
draws, which makes comparisons between them paired.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from experiments.sweeps.parts import NO_PARTS, Parts
from sparse_secagg import RoundSpec


@dataclass(frozen=True)
class Inputs:
    """What cells need beside their parameters; no result depends on the places."""

    recording: str | None = None  # folder of a recording, memory-mapped by every worker
    data: str | None = None  # folder of the training data
    #: Encoders, mechanisms and decoders of one's own, for workers that do not know them.
    parts: Parts = NO_PARTS


NO_INPUTS = Inputs()


@dataclass(frozen=True)
class Measured:
    """What a cell came to."""

    metrics: dict[str, float | None]
    seconds: float  # of decoding, or of training
    curve: tuple[float, ...] = ()  # the metric after every round, of a training run


class Cell(ABC):
    """What all kinds of cells offer; see :mod:`experiments.sweeps.cells` for them."""

    kind: ClassVar[str] = ""
    #: Changes when the same parameters come to mean another computation; older results then no
    #: longer count as done.
    version: ClassVar[int] = 4
    metric: ClassVar[str] = "relative_error"  # what the sweep is about
    lower_is_better: ClassVar[bool] = True
    axes: ClassVar[tuple[str, ...]] = ()  # parameters that can vary along an axis
    repeats: ClassVar[tuple[str, ...]] = ("seed",)  # in which repetitions of one setting differ

    spec: RoundSpec  # the private round
    seed: int  # of the clients, the sketch and the (simulated) noise

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return everything that the result depends on, the seed among it, as JSON values."""

    @abstractmethod
    def with_values(self, **values: Any) -> Self:
        """Return a copy with other values."""

    def computation(self, inputs: Inputs, varying: str) -> dict[str, Any]:
        """Return the parameters without those that change nothing, where ``varying`` varies."""
        found = self.parameters()
        if found.get("compression") == 1 and not found.get("layer_compression"):
            found |= {"encoder": "identity", "n_rows": None, "per_layer": False}
        if found.get("encoder") == "identity":
            found["compression"] = 1.0
        if found.get("encoder") != "count_sketch":
            found["n_rows"] = None
        if found.get("mechanism") == "central":
            found["n_bits"] = None
        return found

    def check(self, inputs: Inputs = NO_INPUTS) -> None:
        """Raise ValueError for parameters that no run could use."""
        return None

    def draw(self, inputs: Inputs) -> Any:
        """Return what cells of one draw share; nothing by default."""
        return None

    @abstractmethod
    def measure(self, draw: Any, inputs: Inputs) -> Measured:
        """Return the result."""

    @property
    def block(self) -> int:
        """What repetitions with different seeds have in common: 0, or the recorded round."""
        return 0

    def small(self) -> Cell | None:
        """Return a quick cell that compiles the same kernels; None where there are none."""
        return None

    def key(self) -> str:
        """Return a name of the cell: a hash of its canonical JSON."""
        return _hash({"version": self.version, **self.parameters()})

    def draw_key(self) -> str:
        """Return the name of the draw: equal for cells that differ by their decoder only."""
        return _hash({"version": self.version, **self.parameters(), "decoder": ""})

    def setting(self) -> dict[str, Any]:
        """Return the parameters that repetitions share."""
        return {n: value for n, value in self.parameters().items() if n not in self.repeats}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.parameters() == other.parameters()

    def __hash__(self) -> int:
        return hash(self.key())


def _hash(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
