"""What a cell comes to: a pure function of its parameters and seed.

One thread, whatever runs beside it: sums that are split over threads differ in their last bits, and
a result must not depend on the number of jobs.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from experiments.decoders import parse_decoder
from experiments.recordings.prepared import RoundSettings, draw_seed, run_round
from experiments.results.metrics import cosine, relative_error
from experiments.sweeps.cells import Cell, MeanCell, RecordingCell, TaskCell
from experiments.sweeps.means import synthetic_clients
from experiments.sweeps.recorded import prepared_round, recorded_round
from experiments.sweeps.store import Result
from experiments.sweeps.theory import predict
from solvers import parallel
from sparse_secagg import InfeasibleError, PrivacyWarning, SparseSecAgg

__all__ = ["NO_INPUTS", "Inputs", "evaluate", "one_thread"]


@dataclass(frozen=True)
class Inputs:
    """Where cells find what is too large to be sent to a worker; no result depends on the places.

    Attributes
    ----------
    recording : str or None
        Folder of a recording, memory-mapped by every worker.
    data : str or None
        Folder of the training data.
    """

    recording: str | None = None
    data: str | None = None


NO_INPUTS = Inputs()


@dataclass(frozen=True)
class RoundMetrics:
    """What is measured of one decoded round."""

    relative_error: float
    cosine: float
    squared_error: float
    squared_norm: float
    epsilon: float
    noise_std: float
    n_components: int
    bits_per_client: int
    bits_per_parameter: float
    clipped: float


@dataclass(frozen=True)
class TrainingMetrics:
    """What is measured of one training run."""

    accuracy: float
    best_accuracy: float
    epsilon: float
    bits_per_parameter: float


@dataclass(frozen=True)
class _Clients:
    """Rows, the mean to estimate, layers where known, and the mean's nonzeros if known.

    The mean is that of the clipped clients; synthetic ones are shorter than their clip.
    """

    rows: Any
    mean: NDArray[np.float64]
    shapes: Sequence[tuple[int, ...]]
    names: Sequence[str]
    sparsity: int | None


def evaluate(cells: Sequence[Cell], inputs: Inputs = NO_INPUTS) -> list[Result]:
    """Return the results of the cells of one draw. Errors become results, too."""
    with one_thread():
        if isinstance(cells[0], TaskCell):
            return [_train(cell, inputs) for cell in cells if isinstance(cell, TaskCell)]
        start = time.perf_counter()
        try:
            fitted, clients = _draw(cells[0], inputs)
        except Exception as error:
            return [_refused(cell, error) for cell in cells]
        seconds = time.perf_counter() - start
        return [_decode(cell, fitted, clients, seconds) for cell in cells]


def _decode(cell: Cell, fitted: SparseSecAgg, clients: _Clients, draw_seconds: float) -> Result:
    start = time.perf_counter()
    try:
        estimate = fitted.decode(parse_decoder(cell.decoder, clients.shapes))
    except Exception as error:
        return _refused(cell, error)
    seconds = time.perf_counter() - start
    d, truth = len(clients.mean), clients.mean
    squared_norm = float(truth @ truth)
    measured = RoundMetrics(
        relative_error=relative_error(estimate, truth),
        cosine=cosine(estimate, truth),
        squared_error=float(np.sum((estimate - truth) ** 2)),
        squared_norm=squared_norm,
        epsilon=float(fitted.epsilon_),
        noise_std=float(fitted.noise_std_),
        n_components=int(fitted.operator_.shape[0]),
        bits_per_client=int(fitted.bits_per_client_),
        bits_per_parameter=float(fitted.bits_per_parameter_),
        clipped=fitted.diagnostics_.n_clipped / fitted.config_.mechanism.n_clients,
    )
    plain = cell.layers == "whole" and not cell.threshold  # type: ignore[attr-defined]
    theory = predict(
        encoder=_sketched_by(cell) if plain else None,
        d=d,
        m=measured.n_components,
        noise_std=measured.noise_std,
        central_std=fitted.config_.clip_norm
        * fitted.config_.mechanism.noise_multiplier
        / fitted.config_.mechanism.n_clients,
        norm=float(np.sqrt(squared_norm)),
        bits=measured.bits_per_client,
        sparsity=clients.sparsity,
    )
    metrics = _finite({**asdict(measured), **asdict(theory)})
    return Result(cell, "done", metrics, "", seconds, draw_seconds, _now())


def _draw(cell: Cell, inputs: Inputs) -> tuple[SparseSecAgg, _Clients]:
    """Run one private round."""
    clients = _clients(cell, inputs)
    assert isinstance(cell, MeanCell | RecordingCell)
    settings = RoundSettings(
        encoder=cell.encoder,
        mechanism=cell.mechanism,
        compression=cell.compression or 1.0,
        n_rows=cell.rows,
        epsilon=cell.epsilon,
        noise_multiplier=cell.noise_multiplier,
        delta=cell.delta or 1e-5,
        n_bits=cell.bits or 18,
        threshold=cell.threshold,
        layers=_slices(clients) if cell.layers == "separate" else None,
    )
    seed = draw_seed(cell.seed, cell.round) if isinstance(cell, RecordingCell) else cell.seed
    return run_round(clients.rows, cell.clip_norm, settings, seed), clients


def _sketched_by(cell: Cell) -> str:
    """Return the encoder's name; nothing is sketched at compression 1."""
    return "identity" if cell.compression == 1 else cell.encoder


def _slices(clients: _Clients) -> dict[str, slice]:
    if not clients.shapes:
        return {"vector": slice(0, len(clients.mean))}
    ends = np.cumsum([int(np.prod(shape)) for shape in clients.shapes])
    starts = [0, *ends[:-1]]
    return {
        name: slice(int(start), int(end)) for name, start, end in zip(clients.names, starts, ends)
    }


def _clients(cell: Cell, inputs: Inputs) -> _Clients:
    if isinstance(cell, MeanCell):
        made = synthetic_clients(
            cell.mean,
            dim=cell.dim,
            n_clients=cell.clients or 0,
            sparsity=cell.sparsity or 0,
            norm=cell.norm,
            spread=cell.spread,
            seed=cell.seed,
        )
        names = [f"layer {k}" for k in range(len(made.shapes))]
        nonzeros = int(np.count_nonzero(made.mean)) if cell.sparsity else None
        return _Clients(made, made.mean, made.shapes, names, nonzeros)
    assert isinstance(cell, RecordingCell)
    if inputs.recording is None:
        raise ValueError("recording=None: a recorded round needs the folder of its recording.")
    shapes = recorded_round(inputs.recording, cell.round).shapes
    data = prepared_round(inputs.recording, cell.round, cell.clients, cell.clip_norm)
    return _Clients(data.X, data.truth, list(shapes.values()), list(shapes), None)


def _train(cell: TaskCell, inputs: Inputs) -> Result:
    from experiments.training.loop import run_training

    start = time.perf_counter()
    try:
        config = cell.training_config(**({} if inputs.data is None else {"data": inputs.data}))
        run = run_training(config, jobs=1)
    except Exception as error:
        return _refused(cell, error)
    accuracy = np.asarray(run.accuracy, dtype=float)
    measured = TrainingMetrics(
        accuracy=float(accuracy[-1]),
        best_accuracy=float(accuracy.max()),
        epsilon=float(run.epsilon),
        bits_per_parameter=float(run.bits_per_parameter),
    )
    metrics = _finite(asdict(measured))
    return Result(cell, "done", metrics, "", time.perf_counter() - start, 0.0, _now())


def _refused(cell: Cell, error: Exception) -> Result:
    status = "infeasible" if isinstance(error, InfeasibleError) else "failed"
    message = str(error) if status == "infeasible" else f"{type(error).__name__}: {error}"
    return Result(cell, status, {}, message, finished=_now())


def _finite(values: dict[str, Any]) -> dict[str, float | None]:
    """Return the values with None in place of what JSON has no word for."""
    return {
        name: value if value is not None and np.isfinite(value) else None
        for name, value in values.items()
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- one thread ---------------------------------------------------------------------------------

_lock = threading.Lock()
_depth = 0
_limits = ExitStack()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, OpenMP and the kernels to one thread, and silence what sweeps expect.

    Counted over the threads of the process: the first to enter silences and the last to leave
    lifts it, so that cells in joblib's threads do not lift each other's.
    """
    global _depth
    with _lock:
        if _depth == 0:
            _limits.enter_context(parallel.one_thread())
            _limits.enter_context(warnings.catch_warnings())
            # noise is simulated on purpose; a solver that stops early shows it in its error
            warnings.simplefilter("ignore", PrivacyWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _limits.close()
