"""Grids of cells: the product of axes, encoders, mechanisms, decoders and seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.sweeps.axes import Value
from experiments.sweeps.cell import NO_INPUTS, Cell, Inputs
from experiments.sweeps.cells import MeanCell
from sparse_secagg.decoder_texts import split_decoder


@dataclass(frozen=True)
class Grid:
    """Cells to run.

    Parameters
    ----------
    axes : mapping of str to sequence of numbers
        One or two parameters that vary; see :data:`experiments.sweeps.axes.AXES`.
    base : Cell or sequence of Cell
        Everything else: a cell of :mod:`experiments.sweeps.cells`, or several that repeat the
        same, as the rounds of a recording.
    encoders, mechanisms, decoders : sequences
        Every combination is run; those of ``base`` by default. Names, import paths or instances.
    seeds : int or sequence of int
        How many repetitions, or which.
    variants : mapping of str to sequence
        Further parameters, as ``{"per_layer": (False, True)}``.
    inputs : Inputs
        Where recordings and data are.
    adjust : callable, optional
        Applied to every cell: sets parameters that follow from others.

    See Also
    --------
    run_sweep : Runs it.
    MeanCell, RecordingCell, HittersCell, TaskCell : What a cell can be.

    Examples
    --------
    >>> from experiments import Grid, MeanCell
    >>> grid = Grid({"sparsity": [5, 20]}, MeanCell(dim=1000), decoders=["linear", "amp"], seeds=3)
    >>> len(grid.cells())
    12
    """

    axes: Mapping[str, Sequence[Value]]
    base: Cell | Sequence[Cell] = field(default_factory=MeanCell)
    encoders: Sequence[Any] = ()
    mechanisms: Sequence[Any] = ()
    decoders: Sequence[Any] = ()
    seeds: int | Sequence[int] = 5
    variants: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    inputs: Inputs = NO_INPUTS
    adjust: Callable[[Cell], Cell] | None = None

    def __post_init__(self) -> None:
        first = self.bases[0]
        if not 1 <= len(self.axes) <= 2:
            raise ValueError(f"axes has {len(self.axes)} entries; a sweep has one or two.")
        for name, values in self.axes.items():
            if name not in first.axes:
                raise ValueError(
                    f"axis {name!r} does not apply to a {first.kind}; "
                    f"there are: {', '.join(first.axes)}."
                )
            if not len(values):
                raise ValueError(f"axis {name!r} has no values.")
        if not self.seed_list:
            raise ValueError(f"seeds={self.seeds!r} must name at least one.")
        cells = self.cells()
        for cell in cells:
            cell.check(self.inputs)
        self._check_distinct([cell for cell in cells if cell.seed == self.seed_list[0]])

    def _check_distinct(self, cells: Sequence[Cell]) -> None:
        """Raise ValueError where two values of a parameter lead to the same computations."""
        for name, values in {**self.axes, **self.variants}.items():
            found: dict[Any, set[str]] = {}
            for cell in cells:
                computed = cell.computation(self.inputs, name)
                found.setdefault(getattr(cell, name), set()).add(repr(sorted(computed.items())))
            idle = [value for value in values if value not in found]
            if idle:
                raise ValueError(
                    f"{name}={idle[0]!r} makes no cell of its own: {name!r} does not apply to what "
                    "is fixed. Change that, or leave it out."
                )
            for (one, same), (other, again) in itertools.combinations(found.items(), 2):
                if same == again:
                    raise ValueError(
                        f"{name}={one!r} and {name}={other!r} are the same computation in every "
                        "cell, so that the sweep would compare it with itself: at compression=1 "
                        "nothing is sketched, and a cohort is at most the population. Change what "
                        f"is fixed, or leave {name!r} out."
                    )

    @property
    def bases(self) -> list[Cell]:
        """The base, or the bases."""
        return [self.base] if isinstance(self.base, Cell) else list(self.base)

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    def _choices(self, name: str) -> Sequence[Any]:
        return getattr(self, f"{name}s") or (getattr(self.bases[0].spec, name),)

    def cells(self) -> list[Cell]:
        """Return every cell once, seeds outermost, so that whole repetitions finish first.

        A median needs a count sketch: it is left out where there is none, unless nothing else is
        asked for.
        """
        names = [*self.axes, *self.variants, "encoder", "mechanism", "decoder"]
        choices = [*self.axes.values(), *self.variants.values()]
        choices += [self._choices(name) for name in ("encoder", "mechanism", "decoder")]
        found: dict[Cell, None] = {}
        for seed, base in itertools.product(self.seed_list, self.bases):
            for values in itertools.product(*choices):
                cell = base.with_values(seed=seed, **dict(zip(names, values)))
                found[cell if self.adjust is None else self.adjust(cell)] = None
        return [cell for cell in found if not _median_without_rows(cell)] or list(found)


def _median_without_rows(cell: Cell) -> bool:
    sketched = getattr(cell, "sketched_by", cell.spec.encoder)
    return split_decoder(cell.spec.decoder)[0] == "median" and sketched != "count_sketch"
