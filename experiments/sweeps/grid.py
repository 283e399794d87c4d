"""Sweeps: grids of cells, run in parallel, kept as they finish, resumed where they stopped."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.decoders import parse_decoder
from experiments.results.table import SweepTable
from experiments.sweeps.axes import Value
from experiments.sweeps.cells import Cell, MeanCell, RecordingCell, TaskCell
from experiments.sweeps.evaluation import NO_INPUTS, Inputs, evaluate
from experiments.sweeps.recorded import recorded_round
from experiments.sweeps.store import Result, Store
from experiments.sweeps.workers import check_backend, run_unordered
from experiments.versions import versions

__all__ = ["Grid", "estimate_seconds", "missing_draws", "run_sweep"]


@dataclass(frozen=True)
class Grid:
    """Cells to run: the product of axes, encoders, mechanisms, decoders and seeds.

    Attributes
    ----------
    axes : mapping of str to sequence of numbers
        One or two parameters that vary; see :data:`experiments.sweeps.axes.AXES`.
    base : Cell
        Everything else: a MeanCell for synthetic means, a RecordingCell or a TaskCell of
        :mod:`experiments.sweeps.cells`.
    encoders, mechanisms, decoders : sequences of str
        Every combination is run; those of ``base`` by default.
    seeds : int or sequence of int
        How many repetitions, or which.
    variants : mapping of str to sequence of str
        Parameters that are words, as ``{"layers": ("whole", "separate")}``.
    inputs : Inputs
        Where recordings and data are.
    adjust : callable, optional
        Applied to every cell: sets parameters that follow from others.

    Examples
    --------
    >>> from experiments.sweeps.grid import Grid
    >>> from experiments.sweeps.cells import MeanCell
    >>> grid = Grid({"sparsity": [5, 20]}, MeanCell(dim=1000), decoders=["linear", "amp"], seeds=3)
    >>> len(grid.cells())
    12
    """

    axes: Mapping[str, Sequence[Value]]
    base: Cell = field(default_factory=MeanCell)
    encoders: Sequence[str] = ()
    mechanisms: Sequence[str] = ()
    decoders: Sequence[str] = ()
    seeds: int | Sequence[int] = 5
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inputs: Inputs = NO_INPUTS
    adjust: Callable[[Cell], Cell] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.axes) <= 2:
            raise ValueError(f"axes has {len(self.axes)} entries; a sweep has one or two.")
        for name, values in self.axes.items():
            if name not in self.base.axes:
                raise ValueError(
                    f"axis {name!r} does not apply to a {self.base.kind}; "
                    f"there are: {', '.join(self.base.axes)}."
                )
            if not len(values):
                raise ValueError(f"axis {name!r} has no values.")
        if "sparsity" in self.axes and getattr(self.base, "sparsity", None) is None:
            raise ValueError(
                f"axis 'sparsity' needs a mean with a number of nonzeros, 'sparse' or 'clustered', "
                f"not {getattr(self.base, 'mean', self.base.kind)!r}."
            )
        if "rows" in self.axes and set(self._choices("encoder")) != {"count_sketch"}:
            raise ValueError("axis 'rows' is about encoder 'count_sketch' alone; leave others out.")
        if not self.seed_list:
            raise ValueError(f"seeds={self.seeds!r} must name at least one.")
        for decoder in self._choices("decoder"):
            # shapes are known later; any will do to look at the options
            parse_decoder(decoder, {"": (2, 2)})
        for cell in self.cells():
            cell.check()
        self._check_recording()

    def _check_recording(self) -> None:
        if isinstance(self.base, RecordingCell):
            updates = recorded_round(str(self.inputs.recording), self.base.round).updates
            most = max([0, *self.axes.get("clients", ()), self.base.clients or 0])
            if most > len(updates):
                raise ValueError(
                    f"clients={most}, but the recorded round has {len(updates)}; ask for less."
                )

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    def _choices(self, name: str) -> Sequence[str]:
        return getattr(self, f"{name}s") or (getattr(self.base, name),)

    def cells(self) -> list[Cell]:
        """Return every cell once, seeds outermost, so that whole repetitions finish first.

        A median needs a count sketch: it is left out for other encoders where there are several.
        """
        names = [*self.axes, *self.variants, "encoder", "mechanism", "decoder"]
        choices = [*self.axes.values(), *self.variants.values()]
        choices += [self._choices(name) for name in ("encoder", "mechanism", "decoder")]
        several = len(self._choices("encoder")) > 1
        found: dict[Cell, None] = {}
        for seed in self.seed_list:
            for values in itertools.product(*choices):
                cell = self.base.with_values(seed=seed, **dict(zip(names, values)))
                if self.adjust is not None:
                    cell = self.adjust(cell)
                median = cell.decoder.partition(":")[0] == "median"
                if not (several and median and cell.encoder != "count_sketch"):
                    found[cell] = None
        return list(found)


def run_sweep(
    grid: Grid,
    *,
    store: str | os.PathLike[str] | Store = ":memory:",
    jobs: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
    retry_failed: bool = False,
    progress: Callable[[list[Result]], None] | None = None,
) -> SweepTable:
    """Run the cells of a grid that have no result yet and return all of them.

    Parameters
    ----------
    grid : Grid
        What to run.
    store : path or Store
        One SQLite file that keeps every result as it comes; in memory by default.
    jobs : int
        Draws at a time. Results do not depend on it.
    backend, scheduler : str
        As in :func:`experiments.sweeps.workers.run_unordered`.
    retry_failed : bool
        Run cells again that failed before.
    progress : callable, optional
        Called with the results of each finished draw.

    Examples
    --------
    >>> from experiments import run_sweep
    >>> from experiments.sweeps.grid import Grid
    >>> from experiments.sweeps.cells import MeanCell
    >>> base = MeanCell(dim=200, clients=20, sparsity=5)
    >>> table = run_sweep(Grid({"compression": [2, 4]}, base, decoders=["linear"], seeds=2))
    >>> len(table.to_records())
    4
    """
    check_backend(backend, scheduler)
    if not isinstance(store, Store):
        with Store(store) as opened:
            return run_sweep(
                grid,
                store=opened,
                jobs=jobs,
                backend=backend,
                scheduler=scheduler,
                retry_failed=retry_failed,
                progress=progress,
            )
    if retry_failed:
        store.forget_failures()
    draws = missing_draws(grid, store)
    store.reserve(sum(map(len, draws)))
    made_with = versions()
    if draws:
        warm_kernels(draws)
    calls = [(draw, grid.inputs) for draw in draws]
    for results in run_unordered(evaluate, calls, jobs=jobs, backend=backend, scheduler=scheduler):
        for result in results:
            store.add(dataclasses.replace(result, versions=made_with))
        if progress is not None:
            progress(results)
    order = {cell.key(): k for k, cell in enumerate(grid.cells())}
    found = sorted(store.results(order), key=lambda result: order[result.cell.key()])
    return SweepTable(found, tuple(grid.axes))


def missing_draws(grid: Grid, store: Store) -> list[list[Cell]]:
    """Return the cells without a result, those of one draw together, in the order to run them.

    Seed after seed, and the dearest of a seed first, so that no worker is left with a long draw
    when the others are done.
    """
    have = store.keys()
    draws = group_draws(cell for cell in grid.cells() if cell.key() not in have)
    seeds = {seed: k for k, seed in enumerate(grid.seed_list)}
    return sorted(draws, key=lambda draw: (seeds[draw[0].seed], -_cost(draw[0])))


def _cost(cell: Cell) -> float:
    """Return multiplications of the clients' sketches, roughly; equal for training runs."""
    if not isinstance(cell, MeanCell) or cell.compression is None:
        return 0.0
    entries = cell.dim / cell.compression if cell.encoder == "gaussian" else cell.rows or 1
    return float((cell.clients or 1) * cell.dim * entries)


def group_draws(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return lists of cells that can share clients, sketch and noise; training runs share none."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        key = cell.key() if isinstance(cell, TaskCell) else cell.draw_key()
        groups.setdefault(key, []).append(cell)
    return list(groups.values())


#: Encoders, mechanisms and decoders whose kernels this process has compiled.
_warm: set[tuple[str, str, str]] = set()


def warm_kernels(draws: Sequence[Sequence[Cell]]) -> None:
    """Compile, once and before any worker starts, what the cells will call.

    The kernels' cache is on disk, where workers find it.
    """
    small = {
        (cell.encoder, cell.mechanism, cell.decoder): MeanCell(
            mean="dense",
            dim=256,
            clients=4,
            compression=2,
            rows=4,
            encoder=cell.encoder,
            mechanism=cell.mechanism,
            decoder=cell.decoder,
        )
        for draw in draws
        for cell in draw
        if not isinstance(cell, TaskCell)
    }
    for group in group_draws(cell for choice, cell in small.items() if choice not in _warm):
        evaluate(group)
    _warm.update(small)


def estimate_seconds(draws: Sequence[Sequence[Cell]], inputs: Inputs) -> float:
    """Run a few of the draws, keep nothing, and return the seconds that all would take on one core.

    One draw is timed for every encoder, the middle one of its list; of training, two rounds for
    every encoder and decoder.
    """
    if not draws:
        return 0.0
    warm_kernels(draws)
    groups: dict[tuple[str, str], list[Sequence[Cell]]] = {}
    for draw in draws:
        apart = draw[0].decoder if isinstance(draw[0], TaskCell) else ""
        groups.setdefault((draw[0].encoder, apart), []).append(draw)
    total = 0.0
    for group in groups.values():
        probe, scale = _probe(group[len(group) // 2])
        start = time.perf_counter()
        evaluate(probe, inputs)
        total += (time.perf_counter() - start) * scale * len(group)
    return total


def _probe(draw: Sequence[Cell]) -> tuple[Sequence[Cell], float]:
    """Return what to time for a draw, and how many times longer the draw is."""
    first = draw[0]
    if not isinstance(first, TaskCell):
        return draw, 1.0
    rounds = first.training_config().resolved().rounds
    short = min(2, rounds)
    return [dataclasses.replace(first, rounds=short)], rounds / short
