"""The main job on embedded data, in under a minute.

1. Federated training on handwritten digits through the private pipeline, against plain averaging:
   300 clients, 30 rounds, ε = 4 against the server for all rounds together.
2. One recorded round of it, decoded by every solver.
3. Private heavy hitters: which of the names that NumPy's and scikit-learn's code uses, a public
   list, do the files of Python's standard library use? One client a file, sketches ten times
   shorter than the list, ε = 1.

What the private rounds release and what is measured on the exact data are shown apart.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

import solvers
from experiments.datasets import Domain, choose_domain, digits, python_identifiers
from experiments.private_files import make_folder, write_text
from experiments.recordings.recording import Recording
from experiments.report.style import PALETTE, new_figure, save_picture
from experiments.report.terminal import literal
from experiments.report.training_report import ACCURACY_ON, EVALUATION
from experiments.results.metrics import cosine, relative_error, top_recall
from experiments.training import tasks
from experiments.training.config import TrainingConfig
from experiments.training.heavy_hitters import reported
from experiments.training.loop import training_rounds
from sparse_secagg import PrivacyWarning, SparseSecAgg

COMPRESSION = 10
N_BITS = 18
DELTA = 1e-5
#: Clients that share the digits, about five images each; all of them take part in every round.
CLIENTS = 300
ROUNDS = 30
#: ε against the server: of all rounds of the training together, and of the heavy hitters' round.
TRAINING_EPSILON = 4.0
HITTERS_EPSILON = 1.0
N_HITTERS = 100
#: Decodes the heavy hitters that are released; chosen beforehand, not by looking at the truth.
RELEASED_BY = "amp"
#: Solvers for a vocabulary of 10⁵ words, where those that need dense columns would take minutes.
HITTER_DECODERS = ("linear", "median", "ridge", "working_set", "amp", "auto")
CENTRAL = "central, uncompressed"
SIMULATED = (
    "the noise came from the seed, so that the demo can be repeated; ε is what the same rounds "
    "cost with private noise"
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_compiled: set[str] = set()


@dataclass(frozen=True)
class DecoderResult:
    """How well one decoder recovered a mean: measured on the exact data, not private."""

    decoder: str
    relative_error: float
    cosine: float
    seconds: float
    recall: float | None = None


@dataclass(frozen=True)
class DemoTraining:
    """The private training.

    Attributes
    ----------
    rounds, clients : int
        Rounds, and clients in each of them.
    noise_multiplier : float
        z of a round.
    epsilon, delta : float
        Of all rounds together, against the server.
    epsilon_per_round : float
        Of one of them.
    bits_per_parameter : float
        Payload of one message, divided by the number of parameters.
    accuracy : dict of str to list of float
        Test accuracy after every round, with and without privacy.
    accuracy_on : str
        What the test data is.
    """

    rounds: int
    clients: int
    noise_multiplier: float
    epsilon: float
    delta: float
    epsilon_per_round: float
    bits_per_parameter: float
    accuracy: dict[str, list[float]]
    accuracy_on: str = ACCURACY_ON


@dataclass(frozen=True)
class DemoHitters:
    """The private round of heavy hitters.

    Attributes
    ----------
    n_clients, n_items : int
        Files, and items of the domain.
    domain : str
        What the domain is.
    epsilon, delta : float
        Of the round, against the server.
    released : list of str
        The items that are released, the most common first.
    """

    n_clients: int
    n_items: int
    domain: str
    epsilon: float
    delta: float
    released: list[str]


@dataclass(frozen=True)
class DemoEvaluation:
    """What was measured on the exact data: **not private**.

    Attributes
    ----------
    recorded : list of DecoderResult
        Every decoder on the recorded round.
    hitters : list of DecoderResult
        Decoders on the identifiers; "central, uncompressed" is another round, whose server is
        trusted with the exact sum.
    """

    recorded: list[DecoderResult]
    hitters: list[DecoderResult]
    not_private: bool = True


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found.

    Attributes
    ----------
    training : DemoTraining
        Part one.
    heavy_hitters : DemoHitters
        Part three.
    evaluation : DemoEvaluation
        Errors of all decoders; not private.
    files : list of str
        What was written.
    not_private_because : str
        Why nothing here is private as it ran.
    """

    training: DemoTraining
    heavy_hitters: DemoHitters
    evaluation: DemoEvaluation
    files: list[str]
    not_private: bool = True
    not_private_because: str = SIMULATED

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        return asdict(self)

    def show(self, console: Console) -> None:
        """Print what it cost, what was released, and apart from it what was measured."""
        training, hitters = self.training, self.heavy_hitters
        final = {name: curve[-1] for name, curve in training.accuracy.items()}
        console.print(_privacy_table(training, hitters))
        console.print("[yellow]Not private as it ran[/yellow]:", literal(f"{SIMULATED}."))
        console.print(
            f"\n[bold]Digits[/bold]: test accuracy {final['plain']:.1%} without noise or "
            f"compression, {final['private']:.1%} with ε = {training.epsilon:.3g} in total and "
            f"{training.bits_per_parameter:.2f} bits per parameter, after {training.rounds} "
            f"rounds of {training.clients} clients (on {ACCURACY_ON})."
        )
        console.print("\n[bold]Heavy hitters[/bold]:", literal(f"released from {hitters.domain}"))
        show_released(hitters.released, console)
        console.print(literal(f"\n{EVALUATION}: errors against the exact data", "bold"))
        console.print(
            _table("The first round of the training, decoded by every solver", self.recorded)
        )
        console.print(
            "A single round is mostly noise: above 1 an estimate is worse than answering zero. "
            "The training learns all the same, since errors of mean zero average out."
        )
        title = f"Heavy hitters: {hitters.n_clients:,} files, {hitters.n_items:,} names"
        console.print(_table(f"{title}, ε = {hitters.epsilon:g}", self.hitters))
        for path in self.files:
            console.print(literal(f"written: {path}"))

    @property
    def recorded(self) -> list[DecoderResult]:
        """Every decoder on the recorded round; not private."""
        return self.evaluation.recorded

    @property
    def hitters(self) -> list[DecoderResult]:
        """Decoders on the identifiers; not private."""
        return self.evaluation.hitters


def show_released(names: Sequence[str], console: Console, most: int = 20) -> None:
    """Print the items that are released, the most common first."""
    rest = f", and {len(names) - most} more" if len(names) > most else ""
    console.print(literal(", ".join(names[:most]) + rest))


def run_demo(output: Path, *, seed: int, console: Console) -> DemoResult:
    """Train, decode a recorded round, find heavy hitters; write tables and a picture."""
    make_folder(output)
    text = TextColumn("{task.description:<44}")
    columns = (text, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with warnings.catch_warnings(), Progress(*columns, console=console) as progress:
        # simulated noise makes the demo repeatable; solvers that stop early show it in their error
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        total = 2 * ROUNDS + len(solvers.names()) + 8
        bar = progress.add_task("", total=total)

        def step(description: str) -> None:
            progress.update(bar, description=description, advance=1)

        training, updates, first = _train(seed, step)
        recording = _record(output / f"recording-{seed}", updates, first, seed)
        recorded = _decode_recorded(updates, first, step)
        step("reading the standard library")
        data = python_identifiers()
        domain = choose_domain(None, data)
        found = _find_hitters(data.on(domain), seed, step)
        step("drawing")
        result = DemoResult(
            training=training,
            heavy_hitters=found.released(domain),
            evaluation=DemoEvaluation(recorded, found.results),
            files=[str(output / name) for name in ("demo.png", "demo.json", recording.path.name)],
        )
        save_picture(_draw(result, found, domain), output / "demo.png", dpi=110)
        progress.update(bar, description="done", completed=total)
    write_text(output / "demo.json", json.dumps(result.as_dict(), indent=2) + "\n")
    return result


def _train(
    seed: int, step: Callable[[str], None]
) -> tuple[DemoTraining, NDArray[np.float32], SparseSecAgg]:
    """Return the training, and the updates and the aggregate of its first private round."""
    data, model = digits(n_clients=CLIENTS), tasks.get("digits").model()
    plain = TrainingConfig(
        task="digits",
        rounds=ROUNDS,
        clients=CLIENTS,
        client_rate=0.3,
        batch_size=4,
        server_rate=1.0,
        clip_norm=0.3,
        delta=DELTA,
        n_bits=N_BITS,
        seed=seed,
    ).resolved()
    private = replace(
        plain, compression=COMPRESSION, epsilon=TRAINING_EPSILON, noise_multiplier=None
    )
    curves: dict[str, list[float]] = {"plain": [], "private": []}
    for name, config in (("plain", plain), ("private", private)):
        for current in training_rounds(config, model, data):
            accuracy = current.record.accuracy
            step(f"training on digits, {name}: {accuracy:.1%}")
            curves[name].append(accuracy)
            if current.record.number == 1:
                updates, first = current.updates.copy(), current.aggregator.last_
    training = DemoTraining(
        rounds=ROUNDS,
        clients=current.aggregator.n_clients,
        noise_multiplier=float(current.aggregator.noise_multiplier),
        epsilon=float(current.record.privacy.server),
        delta=DELTA,
        epsilon_per_round=float(first.epsilon_),
        bits_per_parameter=float(first.bits_per_parameter_),
        accuracy=curves,
    )
    return training, updates, first


def _record(
    folder: Path, updates: NDArray[np.float32], fitted: SparseSecAgg, seed: int
) -> Recording:
    """Record the round for ``sparse-secagg compare``; a demo of the same seed has the same one."""
    recording = Recording.create(
        folder,
        task="digits",
        shapes=tasks.get("digits").model().shapes,
        clip_norm=fitted.config_.clip_norm,
        seeds={"seed": seed},
        exist_ok=True,
    )
    if not len(recording):
        recording.append(0, updates)
    return recording


def _decode_recorded(
    updates: NDArray[np.float32], fitted: SparseSecAgg, step: Callable[[str], None]
) -> list[DecoderResult]:
    """Decode one round's aggregate, which costs no privacy, with every solver."""
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    clipped = updates * np.minimum(1, fitted.config_.clip_norm / norms)
    return [_measure(name, fitted, clipped.mean(axis=0), step)[0] for name in solvers.names()]


@dataclass(frozen=True)
class _Hitters:
    """Estimates of how common each item is, what they are worth, and what they cost."""

    estimates: dict[str, NDArray[np.floating]]
    results: list[DecoderResult]
    n_clients: int
    epsilon: float

    def released(self, domain: Domain) -> DemoHitters:
        columns = reported(self.estimates[RELEASED_BY], N_HITTERS)
        return DemoHitters(
            n_clients=self.n_clients,
            n_items=domain.size,
            domain=domain.description,
            epsilon=self.epsilon,
            delta=DELTA,
            released=list(domain.names(columns.tolist())),
        )


def _find_hitters(presence: sp.csr_array, seed: int, step: Callable[[str], None]) -> _Hitters:
    truth = np.asarray(presence.mean(axis=0)).ravel()
    common: dict[str, Any] = {
        "epsilon": HITTERS_EPSILON,
        "delta": DELTA,
        "n_bits": N_BITS,
        "decoder": "linear",
        "random_state": seed,
        "simulation_seed": seed,
    }
    step("heavy hitters: the private round")
    sketched = SparseSecAgg(compression=COMPRESSION, **common).fit(presence)
    results, estimates = [], {"truth": truth}
    for name in HITTER_DECODERS:
        if name in solvers.names():
            result, estimates[name] = _measure(name, sketched, truth, step, hitters=N_HITTERS)
            results.append(result)
    step("heavy hitters: uncompressed central privacy")
    central = SparseSecAgg("identity", mechanism="central", **common)
    central.fit(presence)
    results.append(_measure("linear", central, truth, step, CENTRAL, N_HITTERS)[0])
    return _Hitters(estimates, results, presence.shape[0], float(sketched.epsilon_))


def _measure(
    name: str,
    fitted: SparseSecAgg,
    truth: NDArray[np.floating],
    step: Callable[[str], None],
    label: str | None = None,
    hitters: int | None = None,
) -> tuple[DecoderResult, NDArray[np.floating]]:
    step(f"decoding with {label or name}")
    if name not in _compiled:
        _compiled.add(name)
        fitted.decode(name)  # kernels compile here, outside the clock
    start = time.perf_counter()
    estimate = fitted.decode(name)
    seconds = time.perf_counter() - start
    result = DecoderResult(
        decoder=label or name,
        relative_error=relative_error(estimate, truth),
        cosine=cosine(estimate, truth),
        seconds=seconds,
        recall=None if hitters is None else top_recall(estimate, truth, hitters),
    )
    return result, estimate


def _privacy_table(training: DemoTraining, hitters: DemoHitters) -> Table:
    """Return what each part costs against the server, in total."""
    table = Table(title=f"Privacy against the server, δ = {DELTA:g}: one client of each part")
    for k, heading in enumerate(("part", "clients", "rounds", "ε of a round", "ε in total")):
        table.add_column(heading, justify="left" if k == 0 else "right")
    table.add_row(
        "training on digits",
        f"{training.clients:,}",
        f"{training.rounds}",
        f"{training.epsilon_per_round:.2f}",
        f"[bold]{training.epsilon:.2f}[/bold]",
    )
    table.add_row("its first round, decoded again", "", "", "", "nothing more")
    table.add_row(
        "heavy hitters",
        f"{hitters.n_clients:,}",
        "1",
        f"{hitters.epsilon:.2f}",
        f"[bold]{hitters.epsilon:.2f}[/bold]",
    )
    return table


def _table(title: str, rows: list[DecoderResult]) -> Table:
    table = Table(title=title)
    headings = ["decoder", "‖μ̂−μ‖²/‖μ‖²", "cosine", "seconds"]
    with_recall = any(row.recall is not None for row in rows)
    if with_recall:
        headings.append(f"top-{N_HITTERS} found")
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="left" if k == 0 else "right")
    for row in rows:
        cells = [
            row.decoder,
            f"{row.relative_error:.3f}",
            f"{row.cosine:.3f}",
            f"{row.seconds:.3f}",
        ]
        if with_recall:
            cells.append(f"{row.recall:.0%}")
        table.add_row(*cells)
    return table


def _draw(result: DemoResult, found: _Hitters, domain: Domain) -> Figure:
    training, hitters, estimates = result.training, result.hitters, found.estimates
    blue, orange, green = PALETTE[:3]
    figure = new_figure(13, 9)
    grid = figure.add_gridspec(2, 2)

    curves = figure.add_subplot(grid[0, 0])
    labels = {
        "plain": "no noise, no compression",
        "private": f"private: ε = {training.epsilon:.3g} in total, "
        f"{training.bits_per_parameter:.1f} bits per parameter",
    }
    for (name, curve), colour in zip(training.accuracy.items(), (blue, orange)):
        curves.plot(range(1, len(curve) + 1), curve, color=colour, label=labels[name])
    curves.set(
        xlabel="round",
        ylabel="test accuracy",
        title=f"Federated training on digits: {training.clients} clients, δ = {DELTA:g}",
    )
    curves.legend(loc="lower right")

    decoders = figure.add_subplot(grid[0, 1])
    parts = [
        (result.recorded, blue, f"a round of training, ε = {training.epsilon_per_round:.2g}"),
        (hitters, orange, f"heavy hitters, ε = {found.epsilon:.2g}"),
    ]
    ticks: dict[int, str] = {}
    place = 0
    for rows, colour, label in parts:
        errors = [max(row.relative_error, 1e-3) for row in rows]
        places = range(place, place + len(rows))
        decoders.barh(places, errors, color=colour, label=label)
        ticks |= dict(zip(places, (row.decoder for row in rows)))
        place += len(rows) + 1
    decoders.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    decoders.axvline(1, color="0.4", linestyle="--", linewidth=1)
    decoders.set(
        xscale="log",
        xlabel="‖μ̂−μ‖²/‖μ‖² (1: no better than answering zero)",
        title="Decoders, against the exact mean (not private)",
    )
    decoders.invert_yaxis()
    decoders.legend(loc="lower right")

    words = figure.add_subplot(grid[1, :])
    truth = estimates["truth"]
    top = np.argsort(-truth)[:40]
    words.bar(np.arange(len(top)), truth[top], color="0.85", label="exact (not private)")
    for name, marker, colour in (("linear", "x", orange), (RELEASED_BY, "o", green)):
        words.plot(estimates[name][top], marker, color=colour, markersize=5, label=name)
    names = [literal(name).plain.replace("$", r"\$") for name in domain.names(top.tolist())]
    words.set_xticks(np.arange(len(top)), names, rotation=60, ha="right")
    words.set(
        ylabel="mean over files",
        title=f"The 40 most used names: {found.n_clients:,} files, {domain.size:,} public names, "
        f"sketches {COMPRESSION} times shorter, ε = {found.epsilon:.2g}",
    )
    words.margins(x=0.01)
    words.legend()
    return figure
