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

import numpy as np
from rich.console import Console

from experiments.decoders import parse_decoder
from experiments.private_files import make_folder
from experiments.recordings.format import check_clip_norm
from experiments.recordings.prepared import (
    RoundData,
    RoundSettings,
    draw_seed,
    make_encoder,
    prepare_round,
    run_round,
)
from experiments.recordings.recording import Recording
from experiments.results.comparison import (
    CompareConfig,
    CompareResult,
    Outcome,
    RoundSummary,
    Setting,
)
from experiments.results.compressibility import compressibility, layer_slices
from experiments.results.metrics import cosine, relative_error, top_support
from experiments.sweeps.compare_checks import choose_bits, positions, settings
from experiments.sweeps.evaluation import one_thread
from solvers import Solver
from solvers import names as solver_names
from sparse_secagg import SparseSecAgg

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

    from experiments.report.compare_report import write

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
            from experiments.recordings.importers import import_arrays

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
        with one_thread():  # the same sums, to the last bit, as in a sweep
            data = prepare_round(number, recording[k], recording.clip_norm(k), config.clip_norm)
        summaries.append(_summarise(data, shapes))
        step(f"round {number}: read")
        cells = [
            _Cell(config, setting, n_bits[setting], draw, draw_seed(config.seed + draw, number))
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
        settings = RoundSettings(
            encoder=self.config.encoder,
            mechanism=self.config.mechanism,
            compression=self.setting.compression,
            n_rows=self.config.n_rows,
            epsilon=self.setting.epsilon,
            noise_multiplier=self.setting.noise_multiplier,
            delta=self.config.delta,
            n_bits=self.n_bits,
        )
        return run_round(data.X, data.clip_norm, settings, self.seed)


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
    """Make one private round and decode it with every solver, on one thread as sweeps do."""
    parts = layer_slices(shapes)
    outcomes = []
    with one_thread():
        fitted = cell.fit(data)
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
            make_encoder(config.encoder, 2.0, config.n_rows),
            epsilon=10.0,
            decoder=small,
            random_state=0,
            simulation_seed=0,
        ).fit(np.eye(20, 192))


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
    if 1 in config.compressions:
        if any(name.partition(":")[0] == "median" for name in config.decoders):
            raise ValueError(
                "decoder 'median' needs a sketch, and compression=1 sends none; leave one of them "
                "out."
            )
        usual = tuple(name for name in usual if name != "median")
        names = config.decoders or usual
    if "all" in names:
        every = [name for name in solver_names() if name not in ("working_set", "median")]
        names = (*(name for name in names if name != "all"), *usual, *every)
    return tuple(dict.fromkeys(names))
