"""Private counts over many draws: recall, coverage, false discoveries; open domains; peak memory.

    python -m benchmarks.count_draws draws zipf --draws 50 --output zipf.jsonl
    python -m benchmarks.count_draws draws words --draws 50 --only-noise --output words.jsonl
    python -m benchmarks.count_draws draws words --scores   # ranks in Python's documentation
    python -m benchmarks.count_draws names 50000 --draws 20 --output names.jsonl   # --only-noise
    python -m benchmarks.count_draws rows 10000000 --kind parquet
    python -m benchmarks.count_draws show *.jsonl

Every draw is one line of the output file as soon as it is done; a second call goes on from there.
``--only-noise`` bounds the table anew, sketches the exact mean with a fresh sketch and adds normal
noise of the round's standard deviation: the same decoder at a fraction of the time.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

import solvers
from benchmarks.harness import Report
from benchmarks.private_counts import DELTA, EPSILON, TOP, zipf_table
from sparse_secagg import PrivateCounts
from sparse_secagg.counting.contributions import Contributions
from sparse_secagg.counting.domains import make_domain
from sparse_secagg.counting.names import ItemCodes, VoteRows
from sparse_secagg.counting.results import Estimates
from sparse_secagg.counting.sizes import size_rows
from sparse_secagg.counting.tables import read_batches
from sparse_secagg.mechanisms.randomness import SimulationRandomness
from sparse_secagg.round.decoders import make_decoder

#: Cells for the words: several times as many as there are words.
WORD_CELLS = 2**18
NORMAL_95 = 1.959964

app = typer.Typer(help=__doc__, add_completion=False)
Output = Annotated[Path | None, typer.Option(help="File to which every draw is appended.")]


# --- tables -------------------------------------------------------------------------------------


def words_table() -> pd.DataFrame:
    """Return which words the authors of Stack Exchange use; needs SPARSE_SECAGG_DATA."""
    from experiments.datasets import client_words, stack_exchange

    sets = client_words(stack_exchange())
    users = np.repeat(np.arange(len(sets.clients)), np.diff(sets.presence.indptr))
    return pd.DataFrame({"user": users, "item": np.array(sets.vocabulary)[sets.presence.indices]})


def table_of(name: str, quick: bool = False) -> tuple[pd.DataFrame, Any]:
    """Return a table and its domain."""
    if name == "zipf":
        n, d = (1000, 3000) if quick else (50_000, 200_000)
        return zipf_table(n, d), range(d)
    if name == "words":
        return words_table(), WORD_CELLS
    raise typer.BadParameter(f"no table {name!r}; there are zipf and words.")


def public_scores(domain: Any) -> Any:
    """Return how common words are in Python's own documentation, as a prior over the domain."""
    from experiments.datasets import public_words

    words, columns = public_words(), make_domain(domain)
    scores = np.full(columns.size, -float(len(words)))
    np.maximum.at(scores, columns.columns(words), -np.arange(len(words), dtype=float))
    return solvers.priors.Scores(scores)


# --- one draw -----------------------------------------------------------------------------------


def fitted_draw(table: pd.DataFrame, domain: Any, seed: int, **options: Any) -> dict[str, Any]:
    """Return what one seeded fit, all rounds in full, gives."""
    counts = PrivateCounts(
        domain=domain, epsilon=EPSILON, delta=DELTA, diagnostics=True,
        simulation_seed=seed, random_state=seed, **options,
    )  # fmt: skip
    start = time.perf_counter()
    counts.fit(table, user="user", item="item")
    seconds = time.perf_counter() - start
    truth = table.groupby("item").size()
    estimates = Estimates(
        counts.counts_, counts.std_err_, _length(counts.aggregates_["counts"]), counts.n_users_
    )
    return {
        "seed": seed,
        "kind": "fit",
        **measured(estimates, counts.bounded_counts_, _exact(counts.domain_, truth)),
        "trusted": counts.trusted_,
        "max_items": counts.max_items_,
        "epsilon": counts.epsilon_,
        "bytes": sum(counts.bytes_per_client_.values()),
        "components": counts.aggregates_["counts"].operator.shape[0],
        "bits": counts.aggregates_["counts"].config.mechanism.n_bits,
        "seconds": seconds,
        "megabytes": peak_megabytes(),
    }


class NoiseDraws:
    """Draws of bounding, sketch and noise around the exact table, decoded as a fit would."""

    def __init__(self, table: pd.DataFrame, domain: Any, max_items: int, **options: Any) -> None:
        self.domain = make_domain(domain)
        self.rows = Contributions(self.domain, SimulationRandomness(0))
        self.rows.read(read_batches(table, user="user", item="item"))
        self.n = len(self.rows.sizes())
        self.truth = _exact(self.domain, table.groupby("item").size())
        self.max_items = max_items
        counts = PrivateCounts(domain=domain, epsilon=EPSILON, delta=DELTA, **options)
        self.stage = counts.specs(self.n, max_items=max_items)[-1]
        self.noise_std = noise_std_of(self.stage, self.n)

    def draw(self, seed: int) -> dict[str, Any]:
        """Return what one draw gives."""
        start = time.perf_counter()
        held = self.rows.limited(self.max_items, SimulationRandomness(seed))
        bounded = np.bincount(held.columns, minlength=self.domain.size).astype(float)
        encoder = self.stage.spec.make_encoder().set_params(random_state=seed)
        encoder.fit_dimension(self.domain.size)
        noise = np.random.default_rng(seed).standard_normal(encoder.n_components_)
        sketch = encoder.operator_.matvec(bounded / self.n) + self.noise_std * noise
        solver = make_decoder(self.stage.spec.decoder)
        solver.fit(encoder.operator_, sketch, noise_std=self.noise_std)
        std_err = np.broadcast_to(solver.std_err_, bounded.shape)
        found = Estimates(self.n * solver.coef_, self.n * std_err, encoder.n_components_, self.n)
        return {
            "seed": seed,
            "kind": "noise",
            **measured(found, bounded, self.truth),
            "trusted": bool(solver.trusted_),
            "max_items": self.max_items,
            "seconds": time.perf_counter() - start,
        }


def measured(
    estimates: Estimates, bounded: np.ndarray, truth: np.ndarray, k: int = TOP
) -> dict[str, Any]:
    """Return how good estimates are, with the exact counts before and after bounding."""
    top = np.argsort(-truth, kind="stable")[:k]
    listed, found = estimates.largest(k), estimates.discoveries()
    missed = np.abs(estimates.values - bounded) > NORMAL_95 * estimates.std_err

    def adjusted(columns: np.ndarray) -> float:
        if not len(columns):
            return math.nan
        low, high = estimates.intervals(columns, selected=True).T
        return float(np.mean((low <= bounded[columns]) & (bounded[columns] <= high)))

    return {
        "recall": float(np.mean(truth[listed] >= truth[top].min())),
        "coverage": 1 - float(missed.mean()),
        "coverage of the top": 1 - float(missed[top].mean()),
        "adjusted, listed": adjusted(listed),
        "adjusted, discovered": adjusted(found),
        "discoveries": len(found),
        "false discoveries": float(np.mean(bounded[found] == 0)) if len(found) else 0.0,
        "std_err": float(np.median(estimates.std_err)),
    }


def named_draw(n: int, d: int, seed: int) -> dict[str, Any]:
    """Return how many items that nobody listed one seeded fit spells out."""
    table = zipf_table(n, d, seed)
    truth = np.bincount(table["item"], minlength=d)
    table["item"] = "item " + table["item"].astype(str)
    start = time.perf_counter()
    counts = PrivateCounts(
        domain="open", epsilon=EPSILON, delta=DELTA, simulation_seed=seed, random_state=seed
    ).fit(table, user="user", item="item")
    seconds = time.perf_counter() - start
    top = [f"item {k}" for k in np.argsort(-truth, kind="stable")[:TOP]]
    names = set(counts.names_.values())
    return {
        "seed": seed,
        "kind": "names",
        "users": n,
        "of top 20": len(names & set(top[:20])),
        "of top 100": len(names & set(top)),
        "named": len(names),
        "wrong": len(names - set(table["item"])),
        "cells": counts.aggregates_["names"].config.dim // (8 * 18)
        if "names" in counts.aggregates_
        else 0,
        "max_items": counts.max_items_,
        "epsilon": counts.epsilon_,
        "bytes": counts.bytes_per_client_,
        "trusted": counts.trusted_,
        "seconds": seconds,
        "megabytes": peak_megabytes(),
    }


class NoiseNames:
    """Draws of an open domain with normal noise in place of messages: the rest as in a fit."""

    def __init__(self, n: int, d: int) -> None:
        table = zipf_table(n, d)
        truth = np.bincount(table["item"], minlength=d)
        table["item"] = "item " + table["item"].astype(str)
        self.n, self.known = n, set(table["item"])
        self.top = [f"item {k}" for k in np.argsort(-truth, kind="stable")[:TOP]]
        self.counts = PrivateCounts(domain="open", epsilon=EPSILON, delta=DELTA)
        self.codes = ItemCodes(self.counts.item_bytes)
        self.domain = make_domain("open")
        self.rows = Contributions(self.domain, SimulationRandomness(0), codes=self.codes)
        self.rows.read(read_batches(table, user="user", item="item"))
        self.sizes = self.rows.sizes()

    def draw(self, seed: int) -> dict[str, Any]:
        """Return how many items are spelt out in one draw."""
        start = time.perf_counter()
        noise, private = np.random.default_rng(seed), SimulationRandomness(seed)

        def noisy(stage: Any, mean: np.ndarray) -> np.ndarray:
            return mean + noise_std_of(stage, self.n) * noise.standard_normal(len(mean))

        first = self.counts.specs(self.n)[0]
        shares = np.asarray(size_rows(self.sizes, self.n).mean(axis=0)).ravel()
        spread = noise_std_of(first, self.n)
        found = SimpleNamespace(sketch=noisy(first, shares), noise_std=spread, n_survivors=self.n)
        limit = self.counts.limit(found)  # type: ignore[arg-type]

        second = self.counts.specs(self.n, max_items=limit)[1]
        held = self.rows.limited(limit, private)
        bounded = np.bincount(held.columns, minlength=self.domain.size) / self.n
        encoder = second.spec.make_encoder().set_params(random_state=seed)
        operator = encoder.fit_dimension(self.domain.size).operator_
        solver = make_decoder(second.spec.decoder)
        sketch = noisy(second, operator.matvec(bounded))
        solver.fit(operator, sketch, noise_std=noise_std_of(second, self.n))
        cells = SimpleNamespace(unbiased=solver, operator=operator, n_survivors=self.n)
        ballot = self.counts.ballot(cells)  # type: ignore[arg-type]

        third = self.counts.specs(self.n, max_items=limit, ballot=ballot)[2]
        held = self.rows.within(np.array(ballot.cells), ballot.votes, private)
        votes, total = VoteRows(held, self.n, len(ballot.cells)), np.zeros(ballot.dim)
        for row in range(0, self.n, 2000):
            total += np.asarray(votes[row : row + 2000].sum(axis=0)).ravel()
        spelt = SimpleNamespace(sketch=noisy(third, total / self.n))
        names = set(self.counts.names(spelt, ballot).values())  # type: ignore[arg-type]
        return {
            "seed": seed,
            "kind": "names, noise",
            "users": self.n,
            "of top 20": len(names & set(self.top[:20])),
            "of top 100": len(names & set(self.top)),
            "named": len(names),
            "wrong": len(names - self.known),
            "cells": len(ballot.cells),
            "votes": ballot.votes,
            "max_items": limit,
            "bytes": {
                stage.name: stage.spec.config(stage.dim, self.n).mechanism.bits_per_client // 8
                for stage in (first, second, third)
            },
            "trusted": bool(solver.trusted_),
            "seconds": time.perf_counter() - start,
        }


def noise_std_of(stage: Any, n: int) -> float:
    """Return the standard deviation of the noise in the mean of a round."""
    mechanism = stage.spec.make_mechanism(n)
    mechanism.parameters_ = stage.spec.config(stage.dim, n).mechanism
    return float(mechanism.noise_std())


def rows_of_a_file(n_rows: int, kind: str, folder: Path) -> dict[str, Any]:
    """Count a file of so many rows, of 20,000 users, in a process of its own; return its peak."""
    path = folder / f"rows.{kind}"
    _write_rows(path, n_rows)
    code = (
        "import json, sys, time, warnings; warnings.simplefilter('ignore')\n"
        "from benchmarks.count_draws import peak_megabytes\n"
        "from sparse_secagg import PrivateCounts\n"
        "counts = PrivateCounts(domain=[f'item {k}' for k in range(1000)], max_items=4)\n"
        "start = time.perf_counter()\n"
        "counts.fit(sys.argv[1], user='user', item='item')\n"
        "print(json.dumps([time.perf_counter() - start, peak_megabytes(), counts.n_users_]))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
    )
    seconds, megabytes, users = json.loads(found.stdout)
    size = path.stat().st_size / 2**20
    path.unlink()
    return {
        "kind": kind, "rows": n_rows, "users": users, "megabytes of the file": size,
        "seconds": seconds, "megabytes": megabytes,
    }  # fmt: skip


def _write_rows(path: Path, n_rows: int, at_once: int = 500_000) -> None:
    """Write a table of scattered users, piece by piece."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    p = 1 / np.arange(1, 1001)
    names = np.array([f"item {k}" for k in range(1000)])
    schema = pa.schema([("user", pa.string()), ("item", pa.string())])
    csv_file = path.suffix == ".csv"
    writer: Any = (pa.csv.CSVWriter if csv_file else pa.parquet.ParquetWriter)(path, schema)
    with writer:
        for start in range(0, n_rows, at_once):
            size = min(at_once, n_rows - start)
            users = np.char.add("user ", rng.integers(0, 20_000, size).astype(str))
            items = names[rng.choice(1000, size, p=p / p.sum())]
            writer.write_table(pa.table([pa.array(users), pa.array(items)], schema=schema))


def peak_megabytes() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _length(aggregate: Any) -> int | None:
    m, d = aggregate.operator.shape
    return m if m < d else None


def _exact(domain: Any, truth: pd.Series) -> np.ndarray:
    columns = domain.columns([str(item) for item in truth.index])
    return np.bincount(columns, truth.to_numpy(), minlength=domain.size)


# --- many draws ---------------------------------------------------------------------------------


def repeated(draw: Callable[[int], dict[str, Any]], n: int, output: Path | None) -> list[dict]:
    """Return n draws; those that the file has are not made again."""
    done = _read(output) if output is not None and output.exists() else []
    for seed in range(len(done), n):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done.append(draw(seed))
        if output is not None:
            with output.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    return done[:n]


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@app.command()
def draws(
    table: Annotated[str, typer.Argument(help="zipf or words.")],
    draws: Annotated[int, typer.Option(help="How many.")] = 50,
    only_noise: Annotated[bool, typer.Option(help="The decoder alone, see above.")] = False,
    max_items: Annotated[int, typer.Option(help="For --only-noise.")] = 23,
    scores: Annotated[bool, typer.Option(help="Words: with public scores, fits only.")] = False,
    output: Output = None,
) -> None:
    """Count a table many times."""
    if scores and (only_noise or table != "words"):
        raise typer.BadParameter("--scores is for fits of the words.")
    rows, domain = table_of(table)
    options = {"prior": public_scores(domain)} if scores else {}
    if only_noise:
        source = NoiseDraws(rows, domain, max_items)
        found = repeated(source.draw, draws, output)
    else:
        found = repeated(lambda seed: fitted_draw(rows, domain, seed, **options), draws, output)
    _print(summary_of(f"{table}, {found[0]['kind']}", found))


@app.command()
def names(
    users: Annotated[int, typer.Argument(help="Users of the table.")],
    draws: Annotated[int, typer.Option(help="How many.")] = 20,
    only_noise: Annotated[bool, typer.Option(help="Noise in place of messages.")] = False,
    output: Output = None,
) -> None:
    """Spell out the items of Zipf tables that nobody listed."""
    if only_noise:
        draw = NoiseNames(users, 200_000).draw
    else:
        draw = lambda seed: named_draw(users, 200_000, seed)  # noqa: E731
    _print(names_of(repeated(draw, draws, output)))


@app.command()
def rows(
    n_rows: Annotated[int, typer.Argument(help="Rows of the file.")],
    kind: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
) -> None:
    """Count a long file and say how much memory it took."""
    with tempfile.TemporaryDirectory() as folder:
        typer.echo(json.dumps(rows_of_a_file(n_rows, kind, Path(folder))))


@app.command()
def show(files: list[Path]) -> None:
    """Summarise files of draws."""
    for path in files:
        found = _read(path)
        named = "wrong" in found[0]
        _print(names_of(found) if named else summary_of(path.stem, found))


def _print(report: Report) -> None:
    from rich.console import Console

    report.show(Console(width=120))


def summary_of(title: str, found: list[dict[str, Any]]) -> Report:
    """Return mean, least and most of every number over the draws."""
    report = Report(f"{title}: {len(found)} draws", ["", "mean", "least", "most"])
    for name in (name for name in found[0] if name not in ("seed", "kind")):
        values = np.array([draw[name] for draw in found], dtype=float)
        report.add(name, float(np.nanmean(values)), float(values.min()), float(values.max()))
    trusted = [draw["false discoveries"] for draw in found if draw["trusted"]]
    report.notes.append(
        f"false discoveries in trusted draws: {max(trusted, default=0.0):.3f} at most"
    )
    return report


def names_of(found: list[dict[str, Any]]) -> Report:
    """Return how many names were right, over the draws of each number of users."""
    report = Report(
        "open domain: items spelt out, least and mean over the draws",
        ["users", "draws", "of top 20", "of top 100", "wrong", "bytes", "seconds"],
    )
    for users in sorted({draw["users"] for draw in found}):
        own = [draw for draw in found if draw["users"] == users]

        def spread(name: str, own: list[dict[str, Any]] = own) -> str:
            values = [draw[name] for draw in own]
            return f"{min(values)}, {np.mean(values):.1f}"

        size = ", ".join(f"{max(d['bytes'].get(s, 0) for d in own):,}" for s in own[0]["bytes"])
        report.add(
            f"{users:,}", len(own), spread("of top 20"), spread("of top 100"),
            sum(draw["wrong"] for draw in own), size,
            f"{np.mean([draw['seconds'] for draw in own]):.0f}",
        )  # fmt: skip
    return report


def run(quick: bool) -> list[Report]:
    """Make a few draws of everything; the commands above make many."""
    number = 2 if quick else 5
    table, domain = table_of("zipf", quick)
    size = {"max_bytes": 1500} if quick else {}
    fits = repeated(lambda seed: fitted_draw(table, domain, seed, **size), number, None)
    noise = NoiseDraws(table, domain, fits[0]["max_items"], **size)
    reports = [
        summary_of("Zipf, fits", fits),
        summary_of("Zipf, noise alone", repeated(noise.draw, number, None)),
        names_of(
            repeated(lambda s: named_draw(2000 if quick else 20_000, 200_000, s), number, None)
        ),
    ]
    memory = Report("peak memory of files", ["kind", "rows", "users", "file, MB", "seconds", "MB"])
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("csv", "parquet"):
            for n_rows in (10**4, 10**5) if quick else (10**6, 10**7):
                memory.add(*rows_of_a_file(n_rows, kind, Path(folder)).values())
    if "SPARSE_SECAGG_DATA" in os.environ and not quick:
        words, cells = table_of("words")
        fits = repeated(lambda seed: fitted_draw(words, cells, seed), number, None)
        reports.append(summary_of("words, fits", fits))
    return [*reports, memory]


if __name__ == "__main__":
    app()
