"""The main job on embedded data: heavy hitters from sketches a tenth of the size.

Every source file of Python's standard library is a client that sends a sketch of which
identifiers it uses; from the mean of the sketches alone the server estimates the mean vector.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments.datasets import ClientSets, python_identifiers
from sparse_secagg import CountSketchEncoder, HadamardEncoder
from sparse_secagg.encoders import LinearEncoder

COMPRESSION = 10
N_HITTERS = 100


@dataclass(frozen=True)
class EncoderResult:
    """How well the linear unsketch of one encoder finds the heavy hitters."""

    encoder: str
    n_components: int
    milliseconds_per_client: float
    relative_error: float
    predicted_error: float
    recall: float


@dataclass(frozen=True)
class DemoResult:
    """What the demo found, as a table, JSON and a picture."""

    n_clients: int
    n_words: int
    encoders: list[EncoderResult]
    picture: str

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings."""
        return asdict(self)

    def show(self, console: Console) -> None:
        """Print the table."""
        table = Table(
            title=f"{self.n_clients} files, {self.n_words:,} identifiers, "
            f"sketches {COMPRESSION} times shorter, linear unsketch"
        )
        for k, column in enumerate(
            [
                "encoder",
                "sketch length",
                "ms a client",
                "‖μ̂−μ‖²/‖μ‖²",
                "in theory",
                f"top-{N_HITTERS} found",
            ]
        ):
            table.add_column(column, justify="left" if k == 0 else "right")
        for row in self.encoders:
            table.add_row(
                row.encoder,
                f"{row.n_components:,}",
                f"{row.milliseconds_per_client:.2f}",
                f"{row.relative_error:.2f}",
                f"{row.predicted_error:.2f}",
                f"{row.recall:.0%}",
            )
        console.print(table)
        console.print(f"picture: {self.picture}")


def run_demo(output: Path, *, seed: int, console: Console) -> DemoResult:
    """Sketch, average and unsketch the identifiers of the standard library."""
    output.mkdir(parents=True, exist_ok=True)
    encoders = {
        "count sketch": CountSketchEncoder(compression=COMPRESSION, random_state=seed),
        "Hadamard": HadamardEncoder(compression=COMPRESSION, random_state=seed),
    }
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        step = progress.add_task("reading the standard library")
        data = python_identifiers()
        truth = np.asarray(data.presence.mean(axis=0)).ravel()
        results, estimates = [], {}
        for name, encoder in encoders.items():
            progress.update(step, description=f"sketching with {name}")
            estimates[name], result = _estimate(name, encoder, data, truth)
            results.append(result)
        progress.update(step, description="drawing")
        picture = output / "heavy_hitters.png"
        _draw(picture, data, truth, estimates)
    n, d = data.presence.shape
    found = DemoResult(n, d, results, str(picture))
    (output / "demo.json").write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    return found


def _estimate(
    name: str, encoder: LinearEncoder, data: ClientSets, truth: NDArray[np.floating]
) -> tuple[NDArray[np.floating], EncoderResult]:
    encoder.fit(data.presence)
    encoder.transform(data.presence[:1])  # kernels compile here, outside the clock
    start = time.perf_counter()
    sketch = encoder.transform(data.presence).mean(axis=0)
    elapsed = time.perf_counter() - start
    estimate = encoder.inverse_transform(sketch)
    n = data.presence.shape[0]
    heavy, found = (set(np.argsort(-x)[:N_HITTERS]) for x in (truth, estimate))
    return estimate, EncoderResult(
        encoder=name,
        n_components=encoder.n_components_,
        milliseconds_per_client=1e3 * elapsed / n,
        relative_error=float(np.sum((estimate - truth) ** 2) / np.sum(truth**2)),
        predicted_error=encoder.unsketch_error(),
        recall=len(heavy & found) / N_HITTERS,
    )


def _draw(
    path: Path,
    data: ClientSets,
    truth: NDArray[np.floating],
    estimates: dict[str, NDArray[np.floating]],
) -> None:
    from matplotlib.figure import Figure

    top = np.argsort(-truth)[:40]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.arange(len(top)), truth[top], color="0.85", label="truth")
    for marker, colour, (name, estimate) in zip("o^s", ("#0072B2", "#D55E00"), estimates.items()):
        axes.plot(estimate[top], marker, color=colour, markersize=5, label=name)
    axes.set_xticks(np.arange(len(top)), [data.vocabulary[j] for j in top], rotation=60, ha="right")
    axes.set_ylabel("mean over clients")
    axes.set_title(
        f"The 40 most used identifiers, estimated from sketches {COMPRESSION} times shorter"
    )
    axes.legend()
    axes.margins(x=0.01)
    figure.savefig(path, dpi=130)
