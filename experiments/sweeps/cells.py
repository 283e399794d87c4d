"""A cell of a sweep: parameters and a seed, from which its result follows and nothing else.

Three kinds: the mean of synthetic clients, a recorded round, a training run. Cells that differ by
their decoder only share a *draw*: the same clients, sketch and noise, decoded several times. That
is what makes comparisons between decoders paired.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from experiments.sweeps.means import MEANS

__all__ = ["Cell", "MeanCell", "RecordingCell", "TaskCell"]

ENCODERS = ("count_sketch", "gaussian", "hadamard", "identity")
MECHANISMS = ("ddg", "skellam", "central")
LAYERS = ("whole", "separate")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What all kinds share: the pipeline.

    Attributes
    ----------
    version : int
        Changes when the same parameters come to mean another computation; older results then no
        longer count as done.
    seed : int
        Of the clients, the sketch and the (simulated) noise.
    decoder : str
        As in :func:`experiments.decoders.parse_decoder`.
    encoder, mechanism : str
        Their names.
    compression : float
        r = d/m. 1 sends the vector itself, unsketched.
    rows : int or None
        Rows of a count sketch; None for other encoders.
    bits : int
        Bits b of a coordinate.
    clients : int
        Cohort n.
    epsilon, noise_multiplier : float or None
        Privacy of a round: one of the two.
    delta : float
        δ of ε.
    """

    kind: ClassVar[str] = ""
    version: ClassVar[int] = 2
    metric: ClassVar[str] = ""
    lower_is_better: ClassVar[bool] = True
    axes: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    decoder: str = "linear"
    encoder: str = "count_sketch"
    mechanism: str = "ddg"
    compression: float | None = 10.0
    rows: int | None = 15
    bits: int | None = 18
    clients: int | None = 500
    epsilon: float | None = None
    noise_multiplier: float | None = 1.0
    delta: float | None = 1e-5

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # one canonical form, so that 10 and 10.0 are the same cell
            if str(field.type).startswith("float") and isinstance(value, int):
                object.__setattr__(self, field.name, float(value))
        if self.encoder != "count_sketch":
            object.__setattr__(self, "rows", None)

    def check(self) -> None:
        """Raise ValueError for parameters that no run could use."""
        _choice("encoder", self.encoder, ENCODERS)
        _choice("mechanism", self.mechanism, MECHANISMS)
        _whole("seed", self.seed, 0)
        _whole("bits", self.bits, 2, 62)
        _whole("clients", self.clients, 2)
        if self.encoder == "count_sketch":
            _whole("rows", self.rows, 1)
        _number("compression", self.compression, 1)
        _number("epsilon", self.epsilon, 0, open_below=True)
        _number("noise_multiplier", self.noise_multiplier, 0)
        if self.epsilon is not None and self.noise_multiplier is not None:
            raise ValueError(
                f"epsilon={self.epsilon} and noise_multiplier={self.noise_multiplier} both set "
                "the noise; give one of them."
            )
        name = self.decoder.partition(":")[0]
        if name == "median" and self.encoder != "count_sketch":
            raise ValueError(
                f"decoder 'median' needs encoder 'count_sketch', not {self.encoder!r}; leave one "
                "of them out."
            )

    def parameters(self) -> dict[str, Any]:
        """Return everything that the result depends on, the seed among it, as JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    def key(self) -> str:
        """Return a name of the cell: a hash of its canonical JSON."""
        document = json.dumps(
            {"version": self.version, **self.parameters()}, sort_keys=True, separators=(",", ":")
        )
        return hashlib.sha256(document.encode()).hexdigest()[:32]

    def draw_key(self) -> str:
        """Return the name of the draw: equal for cells that differ by their decoder only."""
        return dataclasses.replace(self, decoder="").key()

    def setting(self) -> dict[str, Any]:
        """Return the parameters without the seed: what repetitions share."""
        return {name: value for name, value in self.parameters().items() if name != "seed"}

    def with_values(self, **values: Any) -> Self:
        """Return a copy with other values; setting ε frees z and the other way round."""
        if values.get("epsilon") is not None:
            values.setdefault("noise_multiplier", None)
        if values.get("noise_multiplier") is not None:
            values.setdefault("epsilon", None)
        return dataclasses.replace(self, **values)


_ROUND_AXES = (
    "compression",
    "bits",
    "clients",
    "epsilon",
    "noise_multiplier",
    "rows",
    "threshold",
)


@dataclass(frozen=True, kw_only=True)
class _RoundCell(Cell):
    """One private round: what means and recordings share.

    Attributes
    ----------
    clip_norm : float
        ℓ₂ clip of a client's vector.
    threshold : float
        Share of the sketch's entries, the smallest, that is set to zero before decoding.
    layers : {"whole", "separate"}
        Sketch the whole vector, or each layer by itself.
    """

    metric: ClassVar[str] = "relative_error"

    clip_norm: float = 1.0
    threshold: float = 0.0
    layers: str = "whole"

    def check(self) -> None:
        super().check()
        _number("clip_norm", self.clip_norm, 0, open_below=True)
        _choice("layers", self.layers, LAYERS)
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold={self.threshold} must be a share in [0, 1).")
        for name in ("compression", "bits", "delta"):
            if getattr(self, name) is None:
                raise ValueError(f"{name}=None must be a number.")
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError("epsilon and noise_multiplier are both None; give one of them.")


@dataclass(frozen=True, kw_only=True)
class MeanCell(_RoundCell):
    """The mean of synthetic clients.

    Attributes
    ----------
    mean : str
        One of :data:`experiments.sweeps.means.MEANS`.
    dim : int
        Length d of a vector.
    sparsity : int or None
        Nonzero entries s, for the kinds of means that have such a number.
    norm : float
        ‖μ‖.
    spread : float
        Root mean square distance of the clients from it.
    """

    kind: ClassVar[str] = "mean"
    axes: ClassVar[tuple[str, ...]] = ("sparsity", "dim", *_ROUND_AXES)

    mean: str = "sparse"
    dim: int = 5000
    sparsity: int | None = 50
    norm: float = 0.3
    spread: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean in MEANS and not MEANS[self.mean].uses_sparsity:
            object.__setattr__(self, "sparsity", None)

    def check(self) -> None:
        super().check()
        _choice("mean", self.mean, tuple(MEANS))
        _whole("dim", self.dim, 2)
        if self.clients is None:
            raise ValueError("clients=None must be an integer of at least 2.")
        if MEANS[self.mean].uses_sparsity:
            _whole("sparsity", self.sparsity, 1, self.dim)
        _number("norm", self.norm, 0, open_below=True)
        _number("spread", self.spread, 0)
        if self.compression is not None and self.dim / self.compression < 1:
            raise ValueError(
                f"compression={self.compression:g} of dim={self.dim} leaves no coordinate."
            )


@dataclass(frozen=True, kw_only=True)
class RecordingCell(_RoundCell):
    """A recorded round of training.

    Attributes
    ----------
    recording : str
        Hash of the round's updates, so that the cell depends on what is recorded, not on where.
    round : int
        Number of the round.
    clients : int or None
        Only the first so many clients; None for all.
    """

    kind: ClassVar[str] = "recording"
    version: ClassVar[int] = 3
    axes: ClassVar[tuple[str, ...]] = _ROUND_AXES

    recording: str = ""
    round: int = 0
    clients: int | None = None

    def check(self) -> None:
        super().check()
        if not self.recording:
            raise ValueError("recording='' must be the hash of a round's updates.")


@dataclass(frozen=True, kw_only=True)
class TaskCell(Cell):
    """A training run; what is None is left to the task's own default.

    Attributes
    ----------
    task : str
        Name of the task.
    rounds : int or None
        Rounds of training.
    threshold, layers : float, str or None
        As for one round, where the training offers them.
    options : tuple of (name, value)
        Further fields of :class:`experiments.training.loop.TrainingConfig`.
    """

    kind: ClassVar[str] = "task"
    metric: ClassVar[str] = "accuracy"
    lower_is_better: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = (
        "compression",
        "bits",
        "clients",
        "epsilon",
        "noise_multiplier",
        "rows",
        "threshold",
        "rounds",
    )

    compression: float | None = None
    rows: int | None = None
    bits: int | None = None
    clients: int | None = None
    noise_multiplier: float | None = None
    delta: float | None = None
    task: str = "digits"
    rounds: int | None = None
    threshold: float | None = None
    layers: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = tuple(sorted((str(name), value) for name, value in self.options))
        object.__setattr__(self, "options", pairs)

    def check(self) -> None:
        if self.encoder == "count_sketch" and self.rows is None:
            dataclasses.replace(self, rows=15).check()  # the task's default; any will do
            return
        super().check()
        _whole("rounds", self.rounds, 1)
        self.training_config()

    def training_config(self, **more: Any) -> Any:
        """Return the :class:`~experiments.training.loop.TrainingConfig` of the cell."""
        from experiments.training.config import TrainingConfig

        names = {"bits": "n_bits", "rows": "n_rows"}
        own = dataclasses.asdict(self)
        options = dict(own.pop("options"))
        values = {names.get(name, name): value for name, value in own.items() if value is not None}
        values |= options | more
        known = {field.name for field in dataclasses.fields(TrainingConfig)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"{unknown[0]}={values[unknown[0]]!r} is no option of training; there are: "
                f"{', '.join(sorted(known))}."
            )
        return TrainingConfig(**values)


def cell_from_parameters(parameters: dict[str, Any]) -> Cell:
    """Return the cell that :meth:`Cell.parameters` described."""
    kinds: dict[str, type[Cell]] = {kind.kind: kind for kind in (MeanCell, RecordingCell, TaskCell)}
    values = dict(parameters)
    kind = kinds[values.pop("kind")]
    if "options" in values:
        values["options"] = tuple((name, value) for name, value in values["options"])
    return kind(**values)


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known; choose one of {', '.join(choices)}.")


def _whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    if value is None:
        return
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not good or (most is not None and value > most):
        upper = "" if most is None else f" and at most {most}"
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}{upper}.")


def _number(name: str, value: Any, least: float, *, open_below: bool = False) -> None:
    if value is None:
        return
    good = isinstance(value, float) and math.isfinite(value)
    if not good or value < least or (open_below and value == least):
        more = "more than" if open_below else "at least"
        raise ValueError(f"{name}={value!r} must be a finite number of {more} {least}.")
