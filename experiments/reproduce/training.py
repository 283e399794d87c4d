"""The paper's experiments as sweeps over training runs, or over synthetic means.

The paper's z, r, b, n and t are scaled to the task: z so that noise costs about what it cost there,
r to the length of the model. All but the first entry train with noise, without which there is
nothing to trade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.report.figures import draw_paper, draw_sweep
from experiments.report.paper_figures import draw_layer_rates
from experiments.reproduce.entry import Asked, Draw, Setting
from experiments.results.conclusions import SLACK, samples_by
from experiments.results.table import SweepTable
from experiments.results.verdicts import (
    Judge,
    Pair,
    allowed_rises,
    coordinates_beat_bits,
    never_behind,
)
from experiments.sweeps.cell import Cell, Inputs
from experiments.sweeps.cells import MeanCell, TaskCell
from experiments.sweeps.grid import Grid
from experiments.training import tasks
from experiments.training.layers import layer_groups

MEANS = "means"


@dataclass(frozen=True)
class Scaled:
    """The paper's values for a task."""

    noise: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0)  # z
    z: float = 1.0  # the one noise of entries with a single one
    rates: tuple[float, ...] = (1, 5, 10, 20, 50, 100)
    rate: float = 20.0  # the one compression of entries with a single one
    bits: tuple[int, ...] = (10, 12, 14, 16, 18)
    cohorts: tuple[int, ...] = ()  # n, the smallest of which sends its updates whole
    layer: str = "dense1"  # has a rate of its own in "per-layer", the rest another
    smaller: tuple[str, float] | None = None  # a task whose model is so many times smaller
    #: Further values of all runs, and of the quick ones.
    values: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)


_ROWS = {"n_rows": 15, "n_bits": 18}
_MNIST = Scaled(
    rates=(1, 10, 50, 200, 500, 1000),
    rate=200.0,
    cohorts=(25, 100, 250),
    smaller=("mnist-small", 9.84),
    values=_ROWS,
)
SCALED: dict[str, Scaled] = {
    "digits": Scaled(
        noise=(0.0, 1.0, 4.0),
        z=1.0,
        rates=(1, 5, 20, 50),
        rate=20.0,
        cohorts=(10, 25, 50),
        smaller=("digits-small", 4.88),
        values=_ROWS,
        quick={"rounds": 20},
    ),
    "mnist": _MNIST,
    "fashion-mnist": Scaled(**{**vars(_MNIST), "smaller": None}),
    # so few clients that noise costs a fifth of the accuracy
    "site": Scaled(
        noise=(0.0, 0.5),
        rates=(1, 50, 200, 1000),
        rate=200.0,
        cohorts=(100, 300, 1000),
        values={"clients": 100, "rounds": 50},
    ),
    "emnist-cnn": Scaled(
        noise=(0.0, 0.1, 0.3, 0.5),
        z=0.5,
        rate=50.0,
        cohorts=(100, 300, 1000),
        layer="dense1",
        smaller=("emnist-dense", 4.86),
    ),
    "mnist-cnn": Scaled(
        noise=(0.0, 0.5), z=0.5, rates=(1, 10, 50), rate=50.0, cohorts=(10, 50, 100), values=_ROWS
    ),
    "next-word": Scaled(
        noise=(0.0, 0.1, 0.3, 0.5), z=0.3, rates=(1, 5, 10, 20, 50), layer="embedding"
    ),
    MEANS: Scaled(
        noise=(0.3, 0.5, 1.0, 2.0, 4.0),
        rates=(1, 2, 5, 10, 20, 50, 100),
        rate=5.0,
        bits=(8, 9, 10, 12, 14, 16, 18),
        cohorts=(25, 50, 100, 200),
    ),
}
#: A cohort so small, or noise so strong, that compression can be free: m is about n²/z².
_MEAN = MeanCell(mean="dense", dim=5000, clients=50, noise_multiplier=1.0, n_bits=18)
#: Accuracy that compression may cost in a quick run: the paper's of Stack Overflow. In a full one
#: it is that of F-EMNIST, a point.
_QUICK_SLACK = 0.04
ROWS = (10, 15, 20, 25)
THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 0.9)


def slack_of(setting: Setting, metric: str) -> float:
    """Return the slack Δ where none is given: wider for few seeds and short runs."""
    return _QUICK_SLACK if setting.quick and metric == "accuracy" else SLACK[metric]


def _ends(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the first, a middle and the last of the values."""
    return tuple(dict.fromkeys((values[0], values[len(values) // 2], values[-1])))


def _grid(
    setting: Setting,
    axes: Mapping[str, Sequence[Any]],
    variants: Mapping[str, Sequence[Any]] | None = None,
    adjust: Callable[[Cell], Cell] | None = None,
    **values: Any,
) -> Grid:
    """Return a grid on the task, or on synthetic means, with noise unless said otherwise."""
    scaled = SCALED[setting.task]
    fixed = {"noise_multiplier": scaled.z, **scaled.values, **values}
    fixed |= {**(scaled.quick if setting.quick else {}), **setting.fixed}
    given = {n: v for n, v in fixed.items() if n not in {**axes, **(variants or {})}}
    base: Cell = _MEAN.with_values(**given)
    if setting.task != MEANS:
        base = TaskCell.of(setting.task, **given)
    return Grid(
        axes,
        base,
        encoders=("count_sketch",),
        decoders=("linear",),
        seeds=setting.seed_list(3 if setting.quick else 5),
        variants=variants or {},
        inputs=Inputs(data=setting.data),
        adjust=adjust,
    )


def _lines(table: SweepTable, slack: float) -> dict[str, Any]:
    """Draw one line per rate with the band of the slack, and the numbers."""
    return {"": draw_paper(table, slack), "-numbers": draw_sweep(table)}


def _curve(table: SweepTable, slack: float) -> dict[str, Any]:
    return {"": draw_sweep(table)}


def _asked(name: str, setting: Setting, grid: Grid, draw: Draw, *judges: Judge) -> list[Asked]:
    return [Asked(f"{name}, {setting.task}", grid, judges, draw)]


# --- the entries


def compression_vs_noise(setting: Setting) -> list[Asked]:
    """Sweep z and r."""
    scaled = SCALED[setting.task]
    noise, rates = scaled.noise, scaled.rates
    if setting.quick:
        noise, rates = _ends(noise), _ends(rates)
    grid = _grid(setting, {"noise_multiplier": noise, "compression": rates})
    judge = allowed_rises("Higher noise allows higher compression.", "noise_multiplier")
    return _asked("compression-vs-noise", setting, grid, _lines, judge)


def bits_vs_compression(setting: Setting) -> list[Asked]:
    """Sweep b and r."""
    scaled = SCALED[setting.task]
    bits, rates = scaled.bits, scaled.rates
    if setting.quick:
        bits, rates = _ends(bits), _ends(rates)
    grid = _grid(setting, {"n_bits": bits, "compression": rates})
    judge = coordinates_beat_bits("Fewer coordinates make a cheaper message than fewer bits.")
    return _asked("bits-vs-compression", setting, grid, _lines, judge)


def cohort(setting: Setting) -> list[Asked]:
    """Sweep n and r at several z; some r keeps the whole message of the smallest cohort."""
    scaled = SCALED[setting.task]
    noise = scaled.noise[-2:]
    few, many = scaled.cohorts[0], scaled.cohorts[-1]
    equal = round(many * math.log(many) / (few * math.log(few)), 2)
    clients = (few, many) if setting.quick else scaled.cohorts
    rates = (1.0, equal) if setting.quick else tuple(sorted({*scaled.rates, equal}))
    axes = {"clients": clients, "compression": rates}
    grid = _grid(setting, axes, {"noise_multiplier": noise})

    def pairs(table: SweepTable) -> list[Pair]:
        z = noise[-1]
        large = samples_by(table, "clients", noise_multiplier=z, compression=equal)[many]
        small = samples_by(table, "clients", noise_multiplier=z, compression=1.0)[few]
        return [
            (f"z = {z:g}: n = {many} at r = {equal:g} against n = {few} at r = 1", large, small)
        ]

    return _asked(
        "cohort",
        setting,
        grid,
        _lines,
        allowed_rises(
            "Larger cohorts need more communication.",
            "clients",
            rises=False,
            noise_multiplier=noise[-1],
        ),
        never_behind(
            "With enough noise, more clients do better with the same total.", pairs, slack=0
        ),
    )


def model_size(setting: Setting) -> list[Asked]:
    """Train a large model compressed and a small one, with messages of the same length."""
    small, ratio = SCALED[setting.task].smaller or ("", 1.0)
    noise = SCALED[setting.task].noise
    noise = _ends(noise)[:2] if setting.quick else noise
    rates = (ratio, 10 * ratio)

    def equal_message(cell: Cell) -> Cell:
        shrunk = {"compression": (cell.spec.compression or 1.0) / ratio}
        return cell.with_values(**shrunk) if getattr(cell, "task", "") == small else cell

    def pairs(table: SweepTable) -> list[Pair]:
        found = []
        for z in noise:
            large = samples_by(table, "compression", noise_multiplier=z, task=setting.task)
            little = samples_by(table, "compression", noise_multiplier=z, task=small)
            for r in rates:
                name = f"z = {z:g}, {setting.task} at r = {r:g} against {small} at {r / ratio:g}"
                found.append((name, large.get(r, {}), little.get(r / ratio, {})))
        return found

    axes = {"noise_multiplier": noise, "compression": rates}
    grid = _grid(setting, axes, {"task": (setting.task, small)}, equal_message)
    judge = never_behind("Large models, compressed, do better than small ones.", pairs, slack=0)
    return _asked("model-size", setting, grid, _lines, judge)


def sketch_length(setting: Setting) -> list[Asked]:
    """Sweep the rows of the sketch."""

    def pairs(table: SweepTable) -> list[Pair]:
        by_rows = samples_by(table, "n_rows")
        return [(f"15 rows against {t}", by_rows[15], by_rows[t]) for t in ROWS if t != 15]

    grid = _grid(setting, {"n_rows": ROWS}, compression=SCALED[setting.task].rate)
    judge = never_behind("Fifteen rows are as good as any number of rows.", pairs)
    return _asked("sketch-length", setting, grid, _curve, judge)


def thresholding(setting: Setting) -> list[Asked]:
    """Sweep the threshold, with one S for all rounds and with a fresh one for each."""
    values = _ends(THRESHOLDS) if setting.quick else THRESHOLDS
    policies = {True: "S fixed", False: "S fresh"}

    def curves(table: SweepTable) -> dict[bool, Any]:
        if setting.task == MEANS:
            return {True: samples_by(table, "threshold")}
        return {p: samples_by(table, "threshold", fixed_sketch=p) for p in policies}

    def gains(table: SweepTable) -> list[Pair]:
        return [
            (f"{policies[p]}: none against a share of {share:g}", found[0.0], found[share])
            for p, found in curves(table).items()
            for share in values[1:]
        ]

    def fixed(table: SweepTable) -> list[Pair]:
        found = curves(table)
        return [("no threshold, S fixed against S fresh", found[True][0.0], found[False][0.0])]

    variants = {} if setting.task == MEANS else {"fixed_sketch": tuple(policies)}
    grid = _grid(setting, {"threshold": values}, variants, compression=SCALED[setting.task].rate)
    judges = [never_behind("Thresholding, with its error term, gains nothing.", gains)]
    if variants:
        judges.append(never_behind("One S for all rounds, which it needs, costs nothing.", fixed))
    return _asked("thresholding", setting, grid, _curve, *judges)


def per_layer(setting: Setting) -> list[Asked]:
    """Sweep the rates of one layer and of the rest, and of the whole vector."""
    scaled = SCALED[setting.task]
    some = _ends(scaled.rates[1:]) if setting.quick else scaled.rates[1:]
    groups = {f"{scaled.layer}={a:g},rest={b:g}": (a, b) for a in some for b in (some[:2] or some)}
    architecture = tasks.get(setting.task).model().architecture
    named = layer_groups(architecture, [scaled.layer])[scaled.layer]
    first, d = sum(s.stop - s.start for s in named), architecture.n_parameters
    rates = {text: round(d / (first / a + (d - first) / b), 3) for text, (a, b) in groups.items()}

    def whole_rate(cell: Cell) -> Cell:
        text = getattr(cell, "layer_compression", "")
        return cell.with_values(compression=rates[text]) if text else cell

    def pairs(table: SweepTable) -> list[Pair]:
        whole = samples_by(table, "compression", layer_compression="")
        found = []
        for text, rate in rates.items():
            same = max(r for r in whole if r <= rate)  # no shorter a message
            apart = samples_by(table, "compression", layer_compression=text)[rate]
            found.append(
                (f"whole at r = {same:g} against {text} (r = {rate:g})", whole[same], apart)
            )
        return found

    axes = {"compression": (1.0, *some)}
    grid = _grid(setting, axes, {"layer_compression": ("", *groups)}, whole_rate)
    judge = never_behind("Sketching a layer by itself gains nothing.", pairs)
    return _asked("per-layer", setting, grid, _layers, judge)


def _layers(table: SweepTable, slack: float) -> dict[str, Any]:
    return {"": draw_layer_rates(table)}
