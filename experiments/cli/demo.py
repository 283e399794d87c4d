"""``sparse-secagg demo``: three things to do with the library, on embedded data, in its own words.

Each part runs over the public API, draws its panel, and returns its numbers and a sentence.
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

SIMULATED = (
    "As it ran, nothing here is private: the noise came from the seed, so that the demo can be "
    "repeated. ε is what the same rounds cost with private noise."
)


def demo(output: Output = Path("demo-output"), as_json: AsJson = False, seed: Seed = 0) -> None:
    """Train privately, publish private counts, compare decoders: one picture and one page."""
    from experiments.report.console import bar
    from experiments.report.html import Finding, Picture, write_report
    from experiments.report.style import new_figure, save
    from experiments.sweeps.engine import quiet
    from sparse_secagg.private_files import make_folder, write_text

    if seed < 0:
        raise typer.BadParameter(f"--seed {seed} must be at least 0.")
    make_folder(output)
    console = Console(stderr=as_json)
    figure = new_figure(14.0, 4.6)
    parts, lines, found = (train, count, decode), [], dict[str, Any]()
    with bar(console) as bars, quiet():
        task = bars.add_task("", total=len(parts))
        for part, panel in zip(parts, figure.subplots(1, len(parts))):
            bars.update(task, description=part.__name__)
            found[part.__name__], line = part(panel, seed)
            lines.append(line)
            panel.legend(fontsize=9, loc="lower right")
            panel.spines[["top", "right"]].set_visible(False)
            bars.advance(task)
    found |= {"lines": lines, "not_private": True, "not_private_because": SIMULATED}
    files = save(figure, output / "demo")
    write_text(output / "demo.json", json.dumps(found, indent=2) + "\n")
    shown = [Finding("What it shows", "", lines, {"": Picture(figure, "the demo")})]
    more = {"closing": SIMULATED, "command": f"sparse-secagg demo --seed {seed}"}
    files += [output / "demo.json", write_report(output / "demo.html", "demo", shown, **more)]
    if as_json:
        typer.echo(json.dumps(found | {"files": [str(f) for f in files]}, indent=2))
    for text in () if as_json else (*lines, SIMULATED, *(f"written: {file}" for file in files)):
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def train(panel: Any, seed: int) -> tuple[dict[str, Any], str]:
    """Train on digits of 300 clients, plainly and within ε = 4 for all rounds together."""
    from experiments import TrainingConfig, run_training

    config = TrainingConfig(task="digits-300", seed=seed)
    plain = run_training(config)
    private = run_training(config.with_values(compression=10, epsilon=4.0))
    budget = f"ε = {private.epsilon:.2g}, {private.bits_per_parameter:.2g} bits per parameter"
    for run, look, label in ((plain, "k--", "no noise, no compression"), (private, "-", budget)):
        panel.plot(range(1, len(run.history) + 1), run.accuracy, look, label=label)
    panel.set(xlabel="round", ylabel="test accuracy", title="Private training, handwritten digits")
    values = {"epsilon": private.epsilon, "plain": plain.accuracy, "private": private.accuracy}
    return values, (
        f"Training: {private.accuracy[-1]:.1%} of test digits right within {budget}, for "
        f"{len(private.history)} rounds in all; {plain.accuracy[-1]:.1%} without either."
    )


def count(panel: Any, seed: int) -> tuple[dict[str, Any], str]:
    """Count which files of Python's library use which names of NumPy's and scikit-learn's code."""
    from experiments.datasets import choose_domain, python_identifiers
    from sparse_secagg import PrivateCounts

    data = python_identifiers()
    names = list((domain := choose_domain(None, data)).names(range(domain.size)))
    users = np.repeat(np.arange(len(data.clients)), np.diff(data.presence.indptr))
    counts = PrivateCounts(domain=names, epsilon=1.0, random_state=seed, simulation_seed=seed)
    counts.fit(users, [data.vocabulary[k] for k in data.presence.indices])
    exact = dict(zip(names, np.diff(data.on(domain).tocsc().indptr).tolist()))
    top = counts.top(20)
    value, places = np.array([r.count for r in top]), range(len(top))
    error = [value - [r.low for r in top], [r.high for r in top] - value]
    panel.barh(places, [exact[r.item] for r in top], color="0.88", label="exact (not private)")
    label = f"ε = {counts.epsilon_:.2g}, 95 % intervals,\n≤ {counts.max_items_} names per file"
    panel.errorbar(value, places, xerr=error, fmt="o", color="#D55E00", label=label)
    panel.set_yticks(places, [r.item.replace("$", r"\$") for r in top], fontsize=8)
    panel.invert_yaxis()
    panel.set(xlabel="files", title=f"Private counts: names in {counts.n_users_:,} files")
    values = {"epsilon": counts.epsilon_, "top": [asdict(r) for r in top], "n": counts.n_users_}
    text = ", ".join(f"{r.item} {r.count:.0f} ({r.low:.0f}–{r.high:.0f})" for r in top[:5])
    return values, f"Counting, {label}: {text}, …".replace("\n", " ")


def decode(panel: Any, seed: int) -> tuple[list[dict[str, Any]], str]:
    """Decode sparser and less sparse means with every decoder, on the same sketches and noise."""
    from experiments import Grid, MeanCell, run_sweep
    from experiments.report.style import decoder_style

    decoders, sparsity = ("linear", "ridge", "working_set", "amp"), (5, 20, 80, 320, 1280)
    cell = MeanCell(dim=2000, clients=200, compression=5, noise_multiplier=1.0)
    grid = Grid({"sparsity": sparsity}, cell, decoders=decoders, seeds=range(seed, seed + 3))
    rows = run_sweep(grid, backend="sequential").summary()
    values = [row.setting | {"relative_error": row.interval.mean} for row in rows if row.interval]
    for name in decoders:
        errors = [v["relative_error"] for v in values if v["decoder"] == name]
        panel.plot(sparsity, errors, label=name, **decoder_style(name))
    panel.set(xscale="log", yscale="log", xlabel="nonzeros of 2000", ylabel="‖μ̂−μ‖² / ‖μ‖²")
    panel.set(title="Decoders against sparsity, d/m = 5")
    found = {v["decoder"]: v["relative_error"] for v in values if v["sparsity"] == 20}
    text = f"relative squared error {found['linear']:.2g} linearly, {found['amp']:.2g} by amp."
    return values, f"Decoding 20 nonzeros of 2000 at d/m = 5: {text}"
