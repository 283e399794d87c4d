"""``sparse-secagg demo``: three things to do with the library, on embedded data, in its own words.

Each part runs over the public API and returns its numbers and a sentence; of the numbers alone the
picture is drawn.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console

from experiments.cli.options import AsJson, Output, Seed
from sparse_secagg.privacy.conversion import stated

SIMULATED = (
    "As it ran, nothing here is private: the noise came from the seed, so that the demo can be "
    "repeated. ε is what the same rounds cost with private noise."
)


def demo(output: Output = Path("demo-output"), as_json: AsJson = False, seed: Seed = 0) -> None:
    """Train and count privately and compare decoders, in minutes: one picture and one page."""
    from experiments.report.console import bar
    from experiments.report.demo_figure import draw_demo
    from experiments.report.html import Finding, Picture, write_report
    from experiments.report.style import save
    from experiments.sweeps.engine import quiet
    from sparse_secagg.private_files import make_folder, write_text

    if seed < 0:
        raise typer.BadParameter(f"--seed {seed} must be at least 0.")
    make_folder(output)
    console = Console(stderr=as_json)
    parts, lines, found = (train, count, decode), [], dict[str, Any](seed=seed)
    with bar() as bars, quiet():
        task = bars.add_task("", total=len(parts))
        for part in parts:
            bars.update(task, description=part.__name__)
            found[part.__name__], line = part(seed)
            lines.append(line)
            bars.advance(task)
    found |= {"lines": lines, "not_private": True, "not_private_because": SIMULATED}
    figure = draw_demo(found)
    files = save(figure, output / "demo")
    write_text(output / "demo.json", json.dumps(found, indent=2) + "\n")
    shown = [Finding("What it shows", "", lines, {"": Picture(figure, "the demo")})]
    more = {"closing": SIMULATED, "command": f"sparse-secagg demo --seed {seed}"}
    files += [output / "demo.json", write_report(output / "demo.html", "demo", shown, **more)]
    if as_json:
        typer.echo(json.dumps(found | {"files": [str(f) for f in files]}, indent=2))
    for text in () if as_json else (*lines, SIMULATED, *(f"written: {file}" for file in files)):
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def train(seed: int) -> tuple[dict[str, Any], str]:
    """Train on digits of 300 clients, plainly and within ε = 4 for all rounds together."""
    from experiments import TrainingConfig, run_training

    config = TrainingConfig(task="digits-300", seed=seed)
    plain = run_training(config)
    private = run_training(config.with_values(compression=10, epsilon=4.0))
    budget = f"ε = {stated(private.epsilon, 2)}, "
    budget += f"{private.bits_per_parameter:.2g} bits per parameter"
    values = {"epsilon": private.epsilon, "plain": plain.accuracy, "private": private.accuracy}
    return values | {"budget": budget}, (
        f"Training: {private.accuracy[-1]:.1%} of test digits right within {budget}, for "
        f"{len(private.history)} rounds in all; {plain.accuracy[-1]:.1%} without either."
    )


def count(seed: int) -> tuple[dict[str, Any], str]:
    """Count which files of Python's library use which names of NumPy's and scikit-learn's code."""
    from experiments.datasets import choose_domain, python_identifiers
    from experiments.datasets.text import public_word_scores
    from solvers.priors import Scores
    from sparse_secagg import PrivateCounts

    data = python_identifiers()
    domain = choose_domain(None, data)
    names = list(domain.names(range(domain.size)))
    users = np.repeat(np.arange(len(data.clients)), np.diff(data.presence.indptr))
    known = Scores(public_word_scores(names))  # how often Python's docstrings say them
    counts = PrivateCounts(domain=names, epsilon=1.0, prior=known)
    counts.set_params(random_state=seed, simulation_seed=seed)
    counts.fit(users, [data.vocabulary[k] for k in data.presence.indices])
    exact = dict(zip(names, np.diff(data.on(domain).tocsc().indptr).tolist()))
    top = [asdict(record) | {"exact": exact[record.item]} for record in counts.top(20)]
    budget = f"ε = {stated(counts.epsilon_, 2)}, 95 % intervals, "
    budget += f"≤ {counts.max_items_} names per file"
    values = {"epsilon": counts.epsilon_, "top": top, "n": counts.n_users_, "budget": budget}
    text = ", ".join("{item} {count:.0f} ({low:.0f}–{high:.0f})".format(**r) for r in top[:5])
    return values, f"Counting, {budget}: {text}, …"


def decode(seed: int) -> tuple[list[dict[str, Any]], str]:
    """Decode sparser and less sparse means with every decoder, on the same sketches and noise."""
    from experiments import Grid, MeanCell, run_sweep

    decoders, sparsity = ("linear", "ridge", "working_set", "amp"), (5, 20, 80, 320, 1280)
    cell = MeanCell(dim=2000, clients=200, compression=5, noise_multiplier=1.0)
    grid = Grid({"sparsity": sparsity}, cell, decoders=decoders, seeds=range(seed, seed + 3))
    rows = run_sweep(grid, backend="sequential").summary()
    values = [row.setting | {"relative_error": row.interval.mean} for row in rows if row.interval]
    found = {v["decoder"]: v["relative_error"] for v in values if v["sparsity"] == 20}
    text = f"relative squared error {found['linear']:.2g} linearly, {found['amp']:.2g} by amp."
    return values, f"Decoding 20 nonzeros of 2000 at d/m = 5: {text}"
