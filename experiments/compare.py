"""Every decoder on recorded updates: one private round a draw, decoded by all of them.

A draw fixes the sketch and the noise; ``SparseSecAgg.fit`` makes the round once and ``decode``
tries each decoder on the same aggregate, so decoders differ by nothing but themselves. The noise is
simulated: results are repeatable, and not private.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning

from experiments.compare_checks import choose_bits, positions, settings
from experiments.compare_result import (
    CompareConfig,
    CompareResult,
    Outcome,
    RoundSummary,
    Setting,
)
from experiments.compare_rounds import RoundData, compressibility, layer_slices, prepare_round
from experiments.decoders import parse_decoder
from experiments.metrics import cosine, relative_error, top_support
from experiments.private_files import make_folder
from experiments.recording import Recording
from experiments.recording_format import check_clip_norm
from solvers import Solver
from solvers import names as solver_names
from sparse_secagg import PrivacyWarning, SparseSecAgg
from sparse_secagg.encoders import LinearEncoder, registry

__all__ = [
    "CompareConfig",
    "CompareResult",
    "compare_recording",
    "default_decoders",
    "run_compare",
]


def default_decoders(encoder: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return the decoders worth trying: fast ones of each kind, and their unbiased variants."""
    names = ["linear", "ridge", "lasso", "lasso:debias", "amp", "amp:debias", "auto"]
    if encoder == "count_sketch":
        names.insert(1, "median")
    if any(len(shape) > 1 for shape in shapes.values()):
        names += ["amp:low_rank", "amp:low_rank,debias", "amp:auto", "amp:auto,debias"]
    return tuple(names)


def compare_recording(
    path: Path,
    config: CompareConfig,
    *,
    output: Path,
    jobs: int = 1,
    console: Console | None = None,
) -> tuple[CompareResult, list[Path]]:
    """Compare on what lies at ``path``, with a progress bar, and write tables and pictures.

    Parameters
    ----------
    path : Path
        Folder of a recording, a packed recording, or a ``.npy`` or ``.npz`` file.
    config : CompareConfig
        What to compare.
    output : Path
        Folder for the results; it is created before any work is done.
    jobs : int
        Processes.
    console : Console, optional
        Where the progress is shown.

    Returns
    -------
    result : CompareResult
    files : list of Path
        What was written.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from experiments.compare_report import write

    text = TextColumn("{task.description:<40}")
    columns = (text, BarColumn(), TimeElapsedColumn(), Remaining())
    with _opened(path) as recording, Progress(*columns, console=console) as bar:
        make_folder(output)
        task = bar.add_task("checking", total=None)

        def progress(done: int, total: int, description: str) -> None:
            bar.update(task, description=description, completed=done, total=total)

        result = run_compare(recording, config, jobs=jobs, progress=progress)
        bar.update(task, description="drawing")
        result = replace(result, recording=str(path))
        return result, write(result, output)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Recording]:
    """Open a recording in any form; files are unpacked into a temporary folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; record with sparse-secagg train --record.")
    if path.is_dir():
        yield Recording.open(path)
        return
    with tempfile.TemporaryDirectory(prefix="sparse-secagg-") as folder:
        if path.suffix in (".npy", ".npz"):
            from experiments.recording_importers import import_arrays

            yield import_arrays(path, Path(folder) / path.stem)
        else:
            yield Recording.unpack(path, Path(folder) / path.stem)


# --- running -------------------------------------------------------------------------------


def run_compare(
    recording: Recording,
    config: CompareConfig | None = None,
    *,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> CompareResult:
    """Decode recorded rounds with every decoder.

    Parameters
    ----------
    recording : Recording
        What to compare on.
    config : CompareConfig, optional
        What to compare.
    jobs : int
        Processes; -1 for one a core.
    progress : callable, optional
        Called as ``progress(done, total, description)``.
    """
    config = config or CompareConfig()
    where = positions(recording, config)
    chosen = settings(config)
    shapes = recording.shapes
    names = _names(config, shapes)
    solvers = {name: parse_decoder(name, shapes or None) for name in names}
    check_clip_norm(config.clip_norm)
    n_bits = choose_bits(recording, where, chosen, config)
    for name, solver in solvers.items():
        _compile(name, solver, config)  # a decoder that this encoder does not suit says so here
    total = len(where) * (1 + len(chosen) * config.draws)
    done = 0

    def step(description: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, description)

    summaries, outcomes = [], []
    for k in where:
        number = recording.rounds[k]
        data = prepare_round(number, recording[k], recording.clip_norm(k), config.clip_norm)
        summaries.append(_summarise(data, shapes))
        step(f"round {number}: read")
        cells = [
            _Cell(config, setting, n_bits[setting], draw, _seed(config.seed, number, draw))
            for setting in chosen
            for draw in range(config.draws)
        ]
        for found in _each(cells, data, solvers, shapes, jobs):
            outcomes += found
            step(f"round {number}: {found[0].setting}")
    return CompareResult(
        recording=str(recording.path),
        task=recording.metadata.task,
        config=config,
        settings=chosen,
        decoders={name: not solver.biased for name, solver in solvers.items()},
        n_bits=n_bits,
        rounds=summaries,
        outcomes=outcomes,
    )


@dataclass(frozen=True)
class _Cell:
    """One draw at one setting."""

    config: CompareConfig
    setting: Setting
    n_bits: int
    draw: int
    seed: int

    def fit(self, data: RoundData) -> SparseSecAgg:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            return SparseSecAgg(
                _encoder(self.config, self.setting.compression),
                mechanism=self.config.mechanism,
                epsilon=self.setting.epsilon or 1.0,
                delta=self.config.delta,
                noise_multiplier=self.setting.noise_multiplier,
                clip_norm=data.clip_norm,
                n_bits=self.n_bits,
                decoder="linear",
                random_state=self.seed,
                simulation_seed=self.seed,
            ).fit(data.X)


def _each(
    cells: list[_Cell],
    data: RoundData,
    solvers: Mapping[str, Solver],
    shapes: Mapping[str, tuple[int, ...]],
    jobs: int,
) -> Iterator[list[Outcome]]:
    if jobs == 1:
        yield from (_run_cell(cell, data, solvers, shapes) for cell in cells)
        return
    from joblib import Parallel, delayed

    run = delayed(_run_cell)
    yield from Parallel(n_jobs=jobs, return_as="generator")(
        run(cell, data, solvers, shapes) for cell in cells
    )


def _run_cell(
    cell: _Cell,
    data: RoundData,
    solvers: Mapping[str, Solver],
    shapes: Mapping[str, tuple[int, ...]],
) -> list[Outcome]:
    """Make one private round and decode it with every solver."""
    fitted = cell.fit(data)
    parts = layer_slices(shapes)
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it shows in the error
        for name, solver in solvers.items():
            _compile(name, solver, cell.config)
            start = time.perf_counter()
            estimate = fitted.decode(solver)
            seconds = time.perf_counter() - start
            precision, recall = top_support(estimate, data.truth, cell.config.top)
            outcomes.append(
                Outcome(
                    round=data.number,
                    draw=cell.draw,
                    setting=cell.setting,
                    decoder=name,
                    relative_error=relative_error(estimate, data.truth),
                    cosine=cosine(estimate, data.truth),
                    precision=precision,
                    recall=recall,
                    seconds=seconds,
                    layer_errors={
                        layer: relative_error(estimate[part], data.truth[part])
                        for layer, part in parts.items()
                    },
                )
            )
    return outcomes


_compiled: set[tuple[str, str]] = set()


def _compile(name: str, solver: Solver, config: CompareConfig) -> None:
    """Decode a small problem first: kernels compile outside the clock."""
    if (name, config.encoder) in _compiled:
        return
    _compiled.add((name, config.encoder))
    from sklearn.base import clone

    small = clone(solver)
    if getattr(small, "shapes", None):
        small.set_params(shapes=((12, 16),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SparseSecAgg(
            _encoder(config, 2.0), epsilon=10.0, decoder=small, random_state=0, simulation_seed=0
        ).fit(np.eye(20, 192))


def _encoder(config: CompareConfig, compression: float) -> LinearEncoder:
    params: dict[str, Any] = {} if config.encoder == "identity" else {"compression": compression}
    if config.n_rows is not None:
        params["n_rows"] = config.n_rows
    return registry.get(config.encoder, **params)


def _seed(seed: int, number: int, draw: int) -> int:
    """Return a seed for sketch and noise, the same at every setting."""
    return int(np.random.SeedSequence([seed, number, draw]).generate_state(1)[0])


def _summarise(data: RoundData, shapes: Mapping[str, tuple[int, ...]]) -> RoundSummary:
    return RoundSummary(
        number=data.number,
        n=data.X.shape[0],
        d=data.X.shape[1],
        clip_norm=data.clip_norm,
        clip_source=data.clip_source,
        n_clipped=data.n_clipped,
        n_nonfinite=data.n_nonfinite,
        mean_norm=float(np.linalg.norm(data.truth)),
        compressibility=compressibility(data.truth, shapes),
    )


def _names(config: CompareConfig, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    usual = default_decoders(config.encoder, shapes)
    names = config.decoders or usual
    if "all" in names:
        every = [name for name in solver_names() if name not in ("working_set", "median")]
        names = (*(name for name in names if name != "all"), *usual, *every)
    return tuple(dict.fromkeys(names))
