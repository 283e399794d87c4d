"""The main job on embedded data, in under a minute: four small sweeps and a picture.

1. Federated training on handwritten digits through the private pipeline, against plain averaging:
   300 clients, 30 rounds, ε = 4 against the server for all rounds together.
2. One recorded round of it, decoded by every solver.
3. Private heavy hitters: which of the names that NumPy's and scikit-learn's code uses, a public
   list, do the files of Python's standard library use, and how many files use each? One client a
   file, ε = 1; beside it every decoder on sketches ten times shorter than the list.

What the private rounds release and what is measured on the exact data are shown apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import solvers
from experiments.datasets import Domain, choose_domain
from experiments.private_files import make_folder, write_text
from experiments.report.console import bar
from experiments.report.html import Picture, Section, version_tables, write_report
from experiments.report.style import PALETTE, decoder_style, finish, new_figure, save
from experiments.report.tables import TextTable, print_table, sweep_tables
from experiments.report.terminal import literal
from experiments.report.training_report import ACCURACY_ON, EVALUATION
from experiments.results.table import SweepTable
from experiments.sweeps.cell import Inputs
from experiments.sweeps.cells import HittersCell, RecordingCell, TaskCell
from experiments.sweeps.engine import describe_failures, quiet, run_sweep
from experiments.sweeps.grid import Grid
from experiments.sweeps.store import Result, Store
from experiments.training import tasks
from experiments.training.aggregation import Aggregator
from experiments.training.config import TrainingConfig
from experiments.training.heavy_hitters import N_TOP
from experiments.training.loop import load_data, run_training
from sparse_secagg import PrivateCounts
from sparse_secagg.counting.results import Count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK, COMPRESSION, TRAINING_EPSILON = "digits-300", 10.0, 4.0
#: Solvers for a vocabulary of 10⁵ words, where those that need dense columns would take minutes.
HITTER_DECODERS = ("linear", "median", "ridge", "lasso", "amp", "auto")
SIMULATED = (
    "the noise came from the seed, so that the demo can be repeated; ε is what the same rounds "
    "cost with private noise"
)


@dataclass(frozen=True)
class Demo:
    """Everything the demo found."""

    #: The two training runs.
    plain: Result
    private: Result
    #: ε and z of one round of the private one.
    epsilon_per_round: float
    noise_multiplier: float
    #: Every decoder on a recorded round and on the heavy hitters, and the latter uncompressed with
    #: a trusted server: measured on the exact data, **not private**.
    recorded: SweepTable
    hitters: SweepTable
    central: SweepTable
    domain: Domain  # of the heavy hitters
    counts: PrivateCounts  # what is released of the heavy hitters
    truth: NDArray[np.float64]  # number of files that use each item, exactly

    @property
    def released(self) -> list[str]:
        """The items that are released, the most common first."""
        return [record.item for record in self._records()]

    def _records(self) -> list[Count]:
        return [record for record in self.counts.top(N_TOP) if record.significant]

    @property
    def failures(self) -> list[str]:
        """Cells that failed, and why."""
        tables = (self.recorded, self.hitters, self.central)
        results = [self.plain, self.private, *(r for table in tables for r in table.results)]
        return describe_failures(results)

    def document(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        config = self.private.cell.config  # type: ignore[attr-defined]
        return {
            "training": {
                "rounds": config.spec.rounds,
                "clients": config.clients,
                "noise_multiplier": self.noise_multiplier,
                "epsilon": self.private.metrics["epsilon"],
                "delta": config.spec.delta,
                "epsilon_per_round": self.epsilon_per_round,
                "bits_per_parameter": self.private.metrics["bits_per_parameter"],
                "accuracy": {"plain": self.plain.curve, "private": self.private.curve},
                "accuracy_on": ACCURACY_ON,
            },
            "heavy_hitters": {
                "n_clients": self.counts.n_users_,
                "n_items": self.domain.size,
                "domain": self.domain.description,
                "epsilon": self.counts.epsilon_,
                "delta": self.counts.delta,
                "released": self.released,
                "counts": [asdict(record) for record in self._records()],
            },
            "evaluation": {
                "recorded": self.recorded.to_records(),
                "hitters": [*self.hitters.to_records(), *self.central.to_records()],
                "not_private": True,
            },
            "failures": self.failures,
            "not_private": True,
            "not_private_because": SIMULATED,
        }

    def lines(self) -> list[str]:
        """Return what was released and what it cost, in words."""
        bits, spent = (self.private.metrics[n] for n in ("bits_per_parameter", "epsilon"))
        config = self.private.cell.config  # type: ignore[attr-defined]
        return [
            f"Digits: test accuracy {self.plain.curve[-1]:.1%} without noise or compression, "
            f"{self.private.curve[-1]:.1%} with ε = {spent:.3g} in total and {bits:.2f} bits per "
            f"parameter, after {config.spec.rounds} rounds of {config.clients} clients (on "
            f"{ACCURACY_ON}).",
            f"Heavy hitters: released from {self.domain.description}, with the number of files and "
            f"its 95 % interval: {_few(self._with_counts())}.",
        ]

    def _with_counts(self) -> list[str]:
        return [f"{r.item} {r.count:.0f} ({r.low:.0f} – {r.high:.0f})" for r in self._records()]

    def privacy_table(self) -> TextTable:
        """Return what each part costs against the server, in total."""
        training = self.private.cell.config  # type: ignore[attr-defined]
        spent, counts = self.private.metrics["epsilon"], self.counts
        rounds = [aggregate.epsilon for aggregate in counts.aggregates_.values()]
        rows = (
            (
                "training on digits",
                f"{training.clients:,}",
                f"{training.spec.rounds}",
                f"{self.epsilon_per_round:.2f}",
                f"{spent:.2f}",
            ),
            ("its first round, decoded again", "", "", "", "nothing more"),
            (
                "heavy hitters",
                f"{counts.n_users_:,}",
                f"{len(rounds)}",
                ", ".join(f"{each:.2f}" for each in rounds),
                f"{counts.epsilon_:.2f}",
            ),
        )
        delta = training.spec.delta
        return TextTable(
            f"Privacy against the server, δ = {delta:g}: one client of each part",
            ("part", "clients", "rounds", "ε of a round", "ε in total"),
            rows,
        )

    def tables(self) -> list[TextTable]:
        """Return the errors of all decoders: not private."""
        titles = ("The first round of the training", "Heavy hitters", "The same, trusted server")
        tables = (self.recorded, self.hitters, self.central)
        return [t for title, table in zip(titles, tables) for t in sweep_tables(table, title)]


def _few(names: Sequence[str], most: int = 20) -> str:
    rest = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def run_demo(output: Path, *, seed: int, console: Console) -> tuple[Demo, list[Path]]:
    """Train, decode a recorded round, find heavy hitters; write results, tables and a picture."""
    make_folder(output)
    plain = TrainingConfig(task=TASK, seed=seed)
    private = plain.with_values(compression=COMPRESSION, epsilon=TRAINING_EPSILON)
    z, epsilon_per_round = _noise_of(private)
    folder = output / f"recording-{seed}"
    with bar(console) as bars, Store(output / "results.sqlite") as store:
        line = bars.add_task("training on digits", total=6)

        def step(table: SweepTable, description: str) -> SweepTable:
            bars.update(line, description=description, advance=1)
            return table

        def run(axis: str, value: float, base: Any, **more: Any) -> SweepTable:
            return run_sweep(Grid({axis: (value,)}, base, seeds=(seed,), **more), store=store)

        first = step(run("compression", 1.0, TaskCell(plain)), "training, private")
        second = step(run("compression", COMPRESSION, TaskCell(private)), "decoding a round")
        if not folder.exists():
            with quiet():
                run_training(private.with_values(rounds=1), record=folder)
        bases = RecordingCell.of(
            folder, n_bits=plain.spec.n_bits, noise_multiplier=z, n_rows=plain.spec.n_rows
        )
        recorded = step(
            run(
                "compression",
                COMPRESSION,
                bases,
                decoders=solvers.names(),
                inputs=Inputs(recording=str(folder)),
            ),
            "heavy hitters",
        )
        base = HittersCell(seed=seed, top=N_TOP)
        hitters = step(
            run("compression", COMPRESSION, base, decoders=HITTER_DECODERS), "a trusted server"
        )
        trusted = base.with_values(mechanism="central", decoder="linear")
        central = step(run("compression", 1.0, trusted), "drawing")
        demo = Demo(
            first.results[0],
            second.results[0],
            epsilon_per_round,
            z,
            recorded,
            hitters,
            central,
            choose_domain(None, load_data(base.task, None)),
            *_counted(base),
        )
        figure = draw(demo)
        files = [output / "results.sqlite", folder, *save(figure, output / "demo")]
        write_text(output / "demo.json", json.dumps(demo.document(), indent=2) + "\n")
        bars.update(line, description="done", advance=1)
    report = write_report(
        output / "report.html",
        "demo",
        [
            Section("Released", "", demo.lines(), [], [demo.privacy_table()], demo.failures),
            Section(EVALUATION, "", [], [Picture(figure, "the demo")], demo.tables()),
        ],
        notes=[f"Not private as it ran: {SIMULATED}."],
        command=f"sparse-secagg demo --seed {seed}",
        versions=version_tables(r.versions for r in recorded.results),
    )
    return demo, [*files, output / "demo.json", report]


def show(demo: Demo, files: Sequence[Path], console: Console) -> None:
    """Print what it cost, what was released, and apart from it what was measured."""
    print_table(demo.privacy_table(), console)
    console.print("[yellow]Not private as it ran[/yellow]:", literal(f"{SIMULATED}."))
    for text in demo.lines():
        console.print(literal(f"\n{text}"))
    console.print(literal(f"\n{EVALUATION}: errors against the exact data", "bold"))
    for table in demo.tables():
        print_table(table, console)
    console.print(
        "A single round is mostly noise: above 1 an estimate is worse than answering zero. "
        "The training learns all the same, since errors of mean zero average out."
    )
    for path in files:
        console.print(literal(f"written: {path}"))


def _noise_of(config: TrainingConfig) -> tuple[float, float]:
    """Return z and ε of one round of a training."""
    model, data = tasks.get(config.task).model(), load_data(config.task, config.data)
    aggregator = Aggregator(config, model.architecture, len(data.clients))
    return aggregator.noise_multiplier, aggregator.round_privacy().epsilon(delta=config.spec.delta)


def _counted(cell: HittersCell) -> tuple[PrivateCounts, NDArray[np.float64]]:
    """Return the private counts of the heavy hitters' items, and the exact ones."""
    data = load_data(cell.task, None)
    domain = choose_domain(cell.domain, data)
    users = np.repeat(np.arange(len(data.clients)), np.diff(data.presence.indptr))
    items = [data.vocabulary[k] for k in data.presence.indices]
    counts = PrivateCounts(
        domain=list(domain.names(range(domain.size))),
        epsilon=cell.spec.epsilon,
        delta=cell.spec.delta,
        n_users=len(data.clients),
        simulation_seed=cell.seed,
        random_state=cell.seed,
    )
    with quiet():
        counts.fit(users, items)
    return counts, np.diff(data.on(domain).tocsc().indptr).astype(float)


def draw(demo: Demo, *, width: float = 13.0) -> Figure:
    """Return the picture: training, errors of all decoders, and the most used names."""
    figure = new_figure(width, 9)
    grid = figure.add_gridspec(2, 2)
    bits, spent = (demo.private.metrics[n] for n in ("bits_per_parameter", "epsilon"))
    curves = figure.add_subplot(grid[0, 0])
    for result, colour, line, label in (
        (demo.plain, PALETTE[6], "--", "no noise, no compression"),
        (demo.private, PALETTE[0], "-", f"ε = {spent:.3g} in total, {bits:.1f} bits per parameter"),
    ):
        rounds = range(1, len(result.curve) + 1)
        curves.plot(rounds, result.curve, line, color=colour, label=f"training: {label}")
    curves.set(xlabel="round", ylabel="test accuracy", title="Federated training on digits")

    errors = figure.add_subplot(grid[0, 1])
    place, ticks = 0, {}
    for table in (demo.recorded, demo.hitters, demo.central):
        for result in table.results:
            name, error = result.cell.spec.decoder, result.metrics.get("relative_error")
            trusted = result.cell.spec.mechanism == "central"
            look = decoder_style(name)
            errors.barh(place, max(error or math.nan, 1e-3), color=look["color"])
            ticks[place] = "trusted server" if trusted else name
            place += 1
        place += 1
    errors.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    errors.axvline(1, color="0.4", linestyle="--", linewidth=1)
    errors.set(
        xscale="log",
        xlabel="‖μ̂−μ‖²/‖μ‖² (1: no better than answering zero)",
        title="Decoders: a recorded round (top), heavy hitters (below); not private",
    )
    errors.invert_yaxis()

    words = figure.add_subplot(grid[1, :])
    top = np.argsort(-demo.truth)[:40]
    words.bar(
        np.arange(len(top)), demo.truth[top], color="0.85", label="names: exact (not private)"
    )
    estimate, half = demo.counts.counts_[top], 1.96 * demo.counts.std_err_[top]
    look = decoder_style("amp")
    words.errorbar(
        np.arange(len(top)),
        estimate,
        half,
        fmt=look["marker"],
        color=look["color"],
        markersize=5,
        linewidth=1,
        label=f"names: private counts of at most {demo.counts.max_items_} names per file",
    )
    names = [literal(name).plain.replace("$", r"\$") for name in demo.domain.names(top.tolist())]
    words.set_xticks(np.arange(len(top)), names, rotation=60, ha="right")
    words.set(ylabel="files", title="The 40 most used names")
    words.margins(x=0.01)
    first, cell = demo.hitters.results[0], demo.private.cell
    caption = (
        f"training: {cell.spec.rounds} rounds, z = {demo.noise_multiplier:.3g}; heavy hitters: "
        f"n = {first.metrics['n_clients']:,}, d = {first.metrics['dim']:,}, "
        f"ε = {first.metrics['epsilon']:.2g}; r = {COMPRESSION:g}, δ = {cell.spec.delta:g}, "
        f"seed {cell.seed}"
    )
    finish(figure, [curves, errors, words], caption)
    return figure
