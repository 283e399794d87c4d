"""The main job on embedded data, in under a minute.

1. Federated training on handwritten digits through the private pipeline, against plain averaging.
2. One recorded round of it, decoded by every solver.
3. Private heavy hitters: which identifiers do the files of Python's standard library use? One
   client a file, sketches ten times shorter than the vocabulary, (1, 1e-5)-DP.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

import solvers
from experiments import tasks
from experiments.datasets import ClientSets, python_identifiers
from experiments.federated import TrainingConfig, training_rounds
from experiments.metrics import cosine, relative_error, top_recall
from experiments.plots import PALETTE, new_figure
from experiments.recording import Recording
from sparse_secagg import PrivacyWarning, SparseSecAgg

COMPRESSION = 10
N_BITS = 18
ROUNDS = 30
N_HITTERS = 100
#: Solvers for a vocabulary of 10⁵ words, where those that need dense columns would take minutes.
HITTER_DECODERS = ("linear", "median", "ridge", "working_set", "amp", "auto")


_compiled: set[str] = set()


@dataclass(frozen=True)
class DecoderResult:
    """How well one decoder recovered a mean."""

    decoder: str
    relative_error: float
    cosine: float
    seconds: float
    recall: float | None = None


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found.

    Attributes
    ----------
    accuracy : dict of str to list of float
        Test accuracy after every round, with and without privacy.
    training_epsilon : float
        ε of one round of the private training.
    bits_per_parameter : float
        Payload of one message of the training, divided by the number of parameters.
    recorded : list of DecoderResult
        Every decoder on the recorded round.
    hitters : list of DecoderResult
        Decoders on the identifiers; "central, uncompressed" trusts the server.
    n_clients, n_words : int
        Size of the identifiers' data.
    files : list of str
        What was written.
    """

    accuracy: dict[str, list[float]]
    training_epsilon: float
    bits_per_parameter: float
    recorded: list[DecoderResult]
    hitters: list[DecoderResult]
    n_clients: int
    n_words: int
    files: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        return asdict(self)

    def show(self, console: Console) -> None:
        """Print the tables."""
        final = {name: curve[-1] for name, curve in self.accuracy.items()}
        console.print(
            f"\n[bold]Digits[/bold]: test accuracy after {ROUNDS} rounds "
            f"{final['plain']:.1%} without noise or compression, {final['private']:.1%} "
            f"private, with {self.bits_per_parameter:.2f} bits a parameter "
            f"(ε = {self.training_epsilon:.1f} a round)."
        )
        console.print(_table("One recorded round of it, decoded by every solver", self.recorded))
        console.print(
            _table(
                f"Heavy hitters: {self.n_clients:,} files, {self.n_words:,} identifiers, "
                f"sketches {COMPRESSION} times shorter, (1, 1e-5)-DP",
                self.hitters,
            )
        )
        for path in self.files:
            console.print(f"written: {path}")


def run_demo(output: Path, *, seed: int, console: Console) -> DemoResult:
    """Train, decode a recorded round, find heavy hitters; write tables and a picture."""
    output.mkdir(parents=True, exist_ok=True)
    text = TextColumn("{task.description:<44}")
    columns = (text, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with warnings.catch_warnings(), Progress(*columns, console=console) as progress:
        # simulated noise makes the demo repeatable; solvers that stop early show it in their error
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        bar = progress.add_task("", total=2 * ROUNDS + len(solvers.names()) + 8)

        def step(description: str) -> None:
            progress.update(bar, description=description, advance=1)

        curves, updates, first = _train(seed, step)
        recording = _record(output / f"recording-{seed}", updates, first, seed)
        recorded = _decode_recorded(updates, first, step)
        step("reading the standard library")
        data = python_identifiers()
        hitters, estimates = _find_hitters(data, seed, step)
        step("drawing")
        picture = output / "demo.png"
        bits = first.bits_per_parameter_
        _draw(picture, curves, recorded, hitters, data, estimates, bits)
        progress.update(bar, description="done", completed=2 * ROUNDS + len(solvers.names()) + 8)
    result = DemoResult(
        accuracy=curves,
        training_epsilon=float(first.epsilon_),
        bits_per_parameter=bits,
        recorded=recorded,
        hitters=hitters,
        n_clients=data.presence.shape[0],
        n_words=data.presence.shape[1],
        files=[str(output / name) for name in ("demo.png", "demo.json", recording.path.name)],
    )
    (output / "demo.json").write_text(json.dumps(result.as_dict(), indent=2) + "\n")
    return result


def _train(
    seed: int, step: Callable[[str], None]
) -> tuple[dict[str, list[float]], NDArray[np.float32], SparseSecAgg]:
    """Return the accuracies, and the updates and the aggregate of the first private round."""
    task = tasks.get("digits")
    data, model = task.load(None), task.model()
    plain = TrainingConfig(task="digits", rounds=ROUNDS, n_bits=N_BITS, seed=seed).resolved()
    private = replace(plain, compression=COMPRESSION, noise_multiplier=0.5)
    curves: dict[str, list[float]] = {"plain": [], "private": []}
    for name, config in (("plain", plain), ("private", private)):
        for current in training_rounds(config, model, data):
            accuracy = current.record.accuracy
            step(f"training on digits, {name}: {accuracy:.1%}")
            curves[name].append(accuracy)
            if current.record.number == 1:
                updates, first = current.updates.copy(), current.aggregator.last_
    return curves, updates, first


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


def _find_hitters(
    data: ClientSets, seed: int, step: Callable[[str], None]
) -> tuple[list[DecoderResult], dict[str, NDArray[np.floating]]]:
    truth = np.asarray(data.presence.mean(axis=0)).ravel()
    common: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "n_bits": N_BITS,
        "decoder": "linear",
        "random_state": seed,
        "simulation_seed": seed,
    }
    step("heavy hitters: the private round")
    sketched = SparseSecAgg(compression=COMPRESSION, **common).fit(data.presence)
    results, estimates = [], {"truth": truth}
    for name in HITTER_DECODERS:
        if name in solvers.names():
            result, estimates[name] = _measure(name, sketched, truth, step, hitters=N_HITTERS)
            results.append(result)
    step("heavy hitters: uncompressed central privacy")
    central = SparseSecAgg("identity", mechanism="central", **common)
    central.fit(data.presence)
    results.append(_measure("linear", central, truth, step, "central, uncompressed", N_HITTERS)[0])
    return results, estimates


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


def _draw(
    path: Path,
    curves: dict[str, list[float]],
    recorded: list[DecoderResult],
    hitters: list[DecoderResult],
    data: ClientSets,
    estimates: dict[str, NDArray[np.floating]],
    bits: float,
) -> None:
    blue, orange, green = PALETTE[:3]
    figure = new_figure(13, 9)
    grid = figure.add_gridspec(2, 2)

    training = figure.add_subplot(grid[0, 0])
    for (name, curve), colour in zip(curves.items(), (blue, orange)):
        label = f"{name}, {bits:.1f} bits a parameter" if name == "private" else name
        training.plot(range(1, len(curve) + 1), curve, color=colour, label=label)
    training.set(xlabel="round", ylabel="test accuracy", title="Federated training on digits")
    training.legend()

    decoders = figure.add_subplot(grid[0, 1])
    for k, (rows, colour, label) in enumerate(
        [(recorded, blue, "a round of training"), (hitters, orange, "heavy hitters")]
    ):
        names = [row.decoder for row in rows]
        errors = [max(row.relative_error, 1e-3) for row in rows]
        decoders.barh(
            [f"{name} " if k else name for name in names], errors, color=colour, label=label
        )
    decoders.axvline(1, color="0.4", linestyle="--", linewidth=1)
    decoders.set(xscale="log", xlabel="‖μ̂−μ‖²/‖μ‖² (1: no better than zero)", title="Decoders")
    decoders.invert_yaxis()
    decoders.legend()

    words = figure.add_subplot(grid[1, :])
    truth = estimates["truth"]
    top = np.argsort(-truth)[:40]
    best = min((row for row in hitters if row.decoder in estimates), key=lambda r: r.relative_error)
    words.bar(np.arange(len(top)), truth[top], color="0.85", label="truth")
    for name, marker, colour in (("linear", "x", orange), (best.decoder, "o", green)):
        words.plot(estimates[name][top], marker, color=colour, markersize=5, label=name)
    words.set_xticks(
        np.arange(len(top)), [data.vocabulary[j] for j in top], rotation=60, ha="right"
    )
    words.set(
        ylabel="mean over files",
        title=f"The 40 most used identifiers, from private sketches {COMPRESSION} times shorter",
    )
    words.margins(x=0.01)
    words.legend()
    figure.savefig(path, dpi=110)
