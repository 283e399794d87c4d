"""The kinds of cells: synthetic means, recorded rounds, heavy hitters and training runs."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from experiments.datasets import choose_domain, client_items
from experiments.holding import HoldsSpec, spec_values
from experiments.sweeps.cell import NO_INPUTS, Cell, Inputs, Measured
from experiments.sweeps.draws import Clients, RoundDraw, draw_round, measure_round
from experiments.sweeps.means import MEANS, SPARSE, synthetic_clients
from experiments.sweeps.parts import ANY_ITEMS
from experiments.sweeps.recorded import (
    clipped_mean,
    draw_seed,
    prepared_round,
    recorded_round,
    round_numbers,
)
from experiments.training.config import TrainingConfig
from experiments.training.loop import load_data, run_training
from experiments.training.tasks import HEAVY_HITTERS
from sparse_secagg import RoundSpec, mechanisms
from sparse_secagg.decoder_texts import check_decoder
from sparse_secagg.encoders import registry
from sparse_secagg.validation import check_integer, check_positive

_ROUND_AXES = (
    "compression",
    "n_bits",
    "clients",
    "epsilon",
    "noise_multiplier",
    "n_rows",
    "threshold",
)


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class RoundCell(HoldsSpec, Cell):
    """One private round: what means, recordings and heavy hitters share.

    Parameters of the round can be given by themselves, ``MeanCell(compression=5)``.
    """

    defaults: ClassVar[dict[str, Any]] = {
        "encoder": "count_sketch",
        "decoder": "linear",
        "compression": 10.0,
        "n_bits": 18,
        "epsilon": None,
        "noise_multiplier": 1.0,
    }

    #: Whether the entries of a vector are items, which scores may be of.
    counts_items: ClassVar[bool] = False

    seed: int = 0
    clients: int | None = None  # cohort n; None for all there are
    threshold: float = 0.0  # share of the sketch, the smallest, set to zero before decoding
    per_layer: bool = False  # sketch each layer by itself
    top: int = 100  # K of the largest coordinates, for precision and recall

    def parameters(self) -> dict[str, Any]:
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "spec"}
        for name in ("threshold", "norm", "spread"):
            if name in own:
                own[name] = float(own[name])
        return {"kind": self.kind, **own, **spec_values(self.spec)}

    def check(self, inputs: Inputs = NO_INPUTS) -> None:
        registry.get(self.spec.encoder)
        mechanisms.get(self.spec.mechanism)
        check_decoder(self.spec.decoder, self.sketched_by, ANY_ITEMS if self.counts_items else None)
        check_integer("seed", self.seed, 0)
        check_integer("top", self.top, 1)
        if self.clients is not None:
            check_integer("clients", self.clients, 2)
        if self.spec.compression is None:
            raise ValueError("compression=None must be a number of at least 1.")
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold={self.threshold} must be a share in [0, 1).")

    @property
    def sketched_by(self) -> str:
        """The encoder; at compression 1 nothing is sketched, whatever its name."""
        return "identity" if self.spec.compression == 1 else str(self.spec.encoder)

    def people(self, inputs: Inputs) -> Clients:
        """Return the clients of the round."""
        raise NotImplementedError

    @property
    def noise_seed(self) -> int:
        """Seed of sketch and noise."""
        return self.seed

    def draw(self, inputs: Inputs) -> RoundDraw:
        people, spec = self.people(inputs), self.spec
        return draw_round(
            people, spec, self.noise_seed, threshold=self.threshold, per_layer=self.per_layer
        )

    def measure(self, draw: RoundDraw, inputs: Inputs) -> Measured:
        return measure_round(draw, self.spec.decoder, top=self.top)

    def small(self) -> Cell:
        return MeanCell(
            mean="sparse",  # and large beside the noise, so that the Lasso has something to do
            sparsity=20,
            dim=512,
            clients=20,
            noise_multiplier=0.1,
            compression=1 if self.spec.compression == 1 else 4,
            n_rows=4,
            encoder=self.spec.encoder,
            mechanism=self.spec.mechanism,
            decoder=self.spec.decoder,
        )


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class MeanCell(RoundCell):
    """The mean of synthetic clients.

    Parameters
    ----------
    spec : RoundSpec, optional
        The round; else of its parameters among ``values``.
    **values
        The attributes below, and parameters of the round.

    Attributes
    ----------
    mean : str
        One of :data:`experiments.sweeps.means.MEANS`.
    dim : int
        Length d of a vector.
    norm : float
        ‖μ‖.
    spread : float
        Root mean square distance of the clients from it.
    density : float or None
        s/m: nonzero entries over the length d/r of the sketch, in place of ``sparsity``.

    See Also
    --------
    Grid : Varies a cell.

    Notes
    -----
    The spec's ``sparsity`` is the number of nonzero entries, for the kinds of means that have one.

    Examples
    --------
    >>> from experiments import MeanCell
    >>> MeanCell(dim=500, compression=5).dim
    500
    """

    kind: ClassVar[str] = "mean"
    called: ClassVar[str] = "synthetic means"
    axes: ClassVar[tuple[str, ...]] = ("sparsity", "density", "dim", *_ROUND_AXES)
    defaults: ClassVar[dict[str, Any]] = {**RoundCell.defaults, "sparsity": 50}

    mean: str = "sparse"
    dim: int = 5000
    clients: int | None = 500
    norm: float = 0.3
    spread: float = 0.7
    density: float | None = None

    @property
    def nonzeros(self) -> int | None:
        """Nonzero entries of the mean; None for kinds of means that have no such number."""
        if not self.has_sparsity or self.density is None:
            return self.spec.sparsity if self.has_sparsity else None
        return max(1, round(self.density * self.dim / (self.spec.compression or 1.0)))

    @property
    def has_sparsity(self) -> bool:
        """Whether the number of nonzeros is a parameter of the mean."""
        return self.mean not in MEANS or self.mean in SPARSE

    def parameters(self) -> dict[str, Any]:
        sparsity = self.spec.sparsity if self.has_sparsity and self.density is None else None
        return {**super().parameters(), "sparsity": sparsity}

    def check(self, inputs: Inputs = NO_INPUTS) -> None:
        if self.mean not in MEANS:
            raise ValueError(f"mean={self.mean!r} is not known; choose one of {', '.join(MEANS)}.")
        check_integer("dim", self.dim, 2)
        super().check(inputs)
        check_integer("clients", self.clients or 0, 2)
        if self.has_sparsity:
            check_integer("sparsity", self.nonzeros or 0, 1, self.dim)
        check_positive("norm", self.norm)
        check_positive("spread", self.spread, or_zero=True)
        if self.dim < (self.spec.compression or 1.0):
            raise ValueError(
                f"compression={self.spec.compression:g} of dim={self.dim} leaves no coordinate."
            )

    def people(self, inputs: Inputs) -> Clients:
        made = synthetic_clients(
            self.mean,
            dim=self.dim,
            n_clients=self.clients or 0,
            sparsity=self.nonzeros or 0,
            norm=self.norm,
            spread=self.spread,
            seed=self.seed,
        )
        shapes = {f"layer {k}": shape for k, shape in enumerate(made.shapes)}
        nonzeros = int(np.count_nonzero(made.mean)) if self.has_sparsity else None
        return Clients(made, made.mean, shapes, nonzeros)


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class RecordingCell(RoundCell):
    """A recorded round of training.

    Parameters
    ----------
    spec : RoundSpec, optional
        The round; else of its parameters among ``values``.
    **values
        The attributes below, and parameters of the round.

    Attributes
    ----------
    recording : str
        Hash of the round's updates, so that the cell depends on what is recorded, not on where.
    round : int
        Number of the round.
    clients : int or None
        Only the first so many clients; None for all.

    See Also
    --------
    Recording : Where the round is from.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from experiments import Recording, RecordingCell
    >>> folder = tempfile.mkdtemp() + "/updates"
    >>> Recording.create(folder, shapes={"w": (4,)}).append(0, np.ones((3, 4)))
    >>> [cell.round for cell in RecordingCell.of(folder, noise_multiplier=0.5)]
    [0]
    """

    kind: ClassVar[str] = "recording"
    called: ClassVar[str] = "recorded rounds"
    axes: ClassVar[tuple[str, ...]] = _ROUND_AXES
    repeats: ClassVar[tuple[str, ...]] = ("seed", "round", "recording", "clip_norm")
    defaults: ClassVar[dict[str, Any]] = {
        **RoundCell.defaults,
        "n_bits": None,
        "epsilon": 1.0,
        "noise_multiplier": None,
    }

    recording: str = ""
    round: int = 0

    @classmethod
    def of(
        cls, path: str | os.PathLike[str], rounds: tuple[int, ...] = (), **values: Any
    ) -> list[RecordingCell]:
        """Return the cells of recorded rounds, to sweep around.

        Parameters
        ----------
        path : path
            The recording.
        rounds : tuple of int
            Numbers of the rounds; all by default.
        **values
            Fields. ``clip_norm`` is by default the one recorded with each round, else the median
            norm of its clients.
        """
        given = values.pop("clip_norm", None)
        cells = []
        for number in round_numbers(str(path), rounds):
            found = recorded_round(str(path), number)
            clip = found.clip(given)
            cells.append(cls(recording=found.digest, round=number, clip_norm=clip, **values))
        return cells

    def check(self, inputs: Inputs = NO_INPUTS) -> None:
        super().check(inputs)
        if not self.recording:
            raise ValueError("recording='' must be the hash of a round's updates.")
        if inputs.recording is not None and self.clients is not None:
            there = len(recorded_round(inputs.recording, self.round).updates)
            if self.clients > there:
                raise ValueError(
                    f"clients={self.clients}, but recorded round {self.round} has {there}; ask "
                    "for less."
                )

    @property
    def block(self) -> int:
        return self.round

    @property
    def noise_seed(self) -> int:
        return draw_seed(self.seed, self.round)

    def people(self, inputs: Inputs) -> Clients:
        if inputs.recording is None:
            raise ValueError("recording=None: a recorded round needs the folder of its recording.")
        shapes = recorded_round(inputs.recording, self.round).shapes
        data = prepared_round(inputs.recording, self.round, self.clients, self.spec.clip_norm)
        return Clients(data.rows, data.mean, shapes)


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class HittersCell(RoundCell):
    """One private round of heavy hitters: which items of a domain many clients hold.

    Parameters
    ----------
    spec : RoundSpec, optional
        The round; else of its parameters among ``values``.
    **values
        The attributes below, and parameters of the round.

    Attributes
    ----------
    task : str
        "heavy-hitters".
    domain : str, int or None
        As in :func:`experiments.datasets.choose_domain`.

    See Also
    --------
    Grid : Varies a cell.

    Examples
    --------
    >>> from experiments import HittersCell
    >>> HittersCell(compression=10).spec.compression
    10
    """

    kind: ClassVar[str] = "hitters"
    called: ClassVar[str] = "rounds of heavy hitters"
    counts_items: ClassVar[bool] = True
    axes: ClassVar[tuple[str, ...]] = _ROUND_AXES
    defaults: ClassVar[dict[str, Any]] = {
        **RoundCell.defaults,
        "decoder": "amp",
        "epsilon": 1.0,
        "noise_multiplier": None,
    }

    task: str = HEAVY_HITTERS
    domain: str | int | None = None

    def check(self, inputs: Inputs = NO_INPUTS) -> None:
        super().check(inputs)
        if self.task != HEAVY_HITTERS:
            raise ValueError(f"task={self.task!r} trains a model; it has no items to find.")

    def people(self, inputs: Inputs) -> Clients:
        data = _items(inputs.data)
        domain = choose_domain(self.domain, data)
        made = clipped_mean(data.on(domain)[: self.clients], self.spec.clip_norm)
        return Clients(made.rows, made.mean, {}, int(np.count_nonzero(made.mean)), domain)


_items = lru_cache(maxsize=1)(client_items)  # the last are kept: a sweep counts them many times


@dataclass(frozen=True, eq=False)
class TaskCell(Cell):
    """A training run.

    Parameters
    ----------
    config : TrainingConfig
        What to train and how; its parameters, and those of its rounds, can be given by themselves:
        ``TaskCell.of("digits", compression=10)``.

    See Also
    --------
    TrainingConfig : What is trained.

    Examples
    --------
    >>> from experiments import TaskCell, TrainingConfig
    >>> TaskCell(TrainingConfig(task="digits")).config.task
    'digits'
    """

    kind: ClassVar[str] = "task"
    metric: ClassVar[str] = "accuracy"
    lower_is_better: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = (*_ROUND_AXES, "rounds")

    config: TrainingConfig

    @classmethod
    def of(cls, task: str, **values: Any) -> TaskCell:
        """Return the cell of a task, with some values in place of the task's own."""
        return cls(TrainingConfig(task=task, **values))

    @property
    def spec(self) -> RoundSpec:  # type: ignore[override]
        """The rounds."""
        return self.config.spec

    @property
    def seed(self) -> int:  # type: ignore[override]
        """Of everything."""
        return self.config.seed

    def __getattr__(self, name: str) -> Any:
        if name == "config" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.config, name)

    def parameters(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.config.parameters()}

    def with_values(self, **values: Any) -> Self:
        return dataclasses.replace(self, config=self.config.with_values(**values))

    def computation(self, inputs: Inputs, varying: str) -> dict[str, Any]:
        found = super().computation(inputs, varying)
        if found["encoder"] == "identity":
            found["decoder"] = "linear"
        if varying == "clients":
            there = len(load_data(self.config.task, inputs.data).clients)
            found["clients"] = min(self.config.clients, there)
        return found

    def draw_key(self) -> str:
        return self.key()  # training runs share nothing

    def measure(self, draw: Any, inputs: Inputs) -> Measured:
        config = self.config
        if inputs.data is not None:
            config = config.with_values(data=inputs.data)
        run = run_training(config, jobs=1)
        accuracy = [float(value) for value in run.accuracy]
        metrics: dict[str, float | None] = {
            "accuracy": accuracy[-1],
            "best_accuracy": max(accuracy),
            "epsilon": float(run.epsilon),
            "bits_per_parameter": float(run.bits_per_parameter),
        }
        return Measured(metrics, run.seconds, tuple(accuracy))


KINDS: dict[str, type[RoundCell]] = {
    kind.kind: kind for kind in (MeanCell, RecordingCell, HittersCell)
}


def cell_from_parameters(parameters: dict[str, Any]) -> Cell:
    """Return the cell that :meth:`Cell.parameters` described."""
    values = dict(parameters)
    kind = values.pop("kind")
    if kind == TaskCell.kind:
        return TaskCell.of(**values)
    unset = {name for name in ("n_rows", "sparsity") if values.get(name) is None}
    return KINDS[kind](**{name: value for name, value in values.items() if name not in unset})
