"""What a training run leaves behind: a table, curves as pictures, and machine-readable results.

What the private rounds release and what was measured on the exact data are kept apart: the latter
stands under :data:`EVALUATION` in the terminal and under ``evaluation`` in JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.datasets.domains import is_public
from experiments.private_files import make_folder, write_text
from experiments.report.html import Picture, Section, version_tables, write_report
from experiments.report.style import PALETTE, apart, decoder_style, finish, new_figure, save, tidy
from experiments.report.tables import TextTable, print_table, write_tables
from experiments.report.terminal import literal
from experiments.training import tasks
from experiments.training.config import TrainingConfig
from experiments.training.heavy_hitters import HeavyHittersResult
from experiments.training.records import RoundRecord, TrainingResult
from experiments.versions import versions
from sparse_secagg.privacy import describe_observer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Heading of whatever nothing was charged for.
EVALUATION = "Not private, for evaluation"
#: What the accuracy of a training run is measured on, and why it is not charged.
ACCURACY_ON = "held-out test data, which is taken to be public"

#: Most rounds of a run that the table shows; the others are in the JSON.
_ROWS = 12


def as_document(result: TrainingResult) -> dict[str, Any]:
    """Return the result, its weights aside, as JSON values; infinite ε is null."""
    plain = ("n_parameters", "population", "observer", "bits_per_parameter", "unconverged")
    history = result.history
    document: dict[str, Any] = {
        "config": result.config.parameters() | {"data": result.config.data},
        **{name: getattr(result, name) for name in (*plain, "not_private")},
        **{
            f"epsilon_{name}": [_finite(getattr(record.privacy, name)) for record in history]
            for name in ("server", "colluders", "release")
        },
        **{
            name: [getattr(record, name) for record in history] for name in ("clip_norm", "seconds")
        },
        "epsilon": _finite(result.epsilon),
        "delta": result.config.spec.delta,
        "not_private_because": not_private_because(result),
    }
    if isinstance(result, HeavyHittersResult):
        return document | {
            "domain": {
                "description": result.domain.description,
                "size": result.domain.size,
                "public": is_public(result.domain),
            },
            "columns": list(result.columns),
            "top": list(result.top),
            "evaluation": {"not_private": True, **asdict(result.evaluation)},
        }
    return document | {
        "accuracy": result.accuracy,
        "final_accuracy": result.accuracy[-1],
        "accuracy_on": ACCURACY_ON,
    }


def not_private_because(result: TrainingResult) -> list[str]:
    """Return what keeps the reported ε from being a guarantee; nothing where it is one."""
    reasons = []
    if isinstance(result, HeavyHittersResult) and not is_public(result.domain):
        reasons.append(
            f"the domain is {result.domain.description}: that an item has a column tells that "
            "somebody holds it; give a public list or a number of hash cells (--domain)"
        )
    if math.isinf(result.epsilon):
        reasons.append("no noise was added; give --noise-multiplier or --epsilon")
    elif not result.config.private_noise:
        reasons.append(
            "the noise came from the seed, so that the run can be repeated; for a result that "
            "leaves this machine, use --private-noise"
        )
    return reasons


def write(result: TrainingResult, folder: Path, command: str = "") -> list[Path]:
    """Write ``training.json``, the curves as pictures, tables and the report; return the paths."""
    make_folder(folder)
    path = folder / "training.json"
    write_text(path, json.dumps(as_document(result), indent=2) + "\n")
    files, pictures, tables, lines = [path], [], [], []
    if isinstance(result, HeavyHittersResult):
        released = [(str(k), name) for k, name in enumerate(result.top, 1)]
        tables.append(TextTable("Released items", ("rank", "item"), tuple(released), 2))
        lines.append(f"ε = {_epsilon(result.epsilon)} against {_against(result)}.")
    else:
        figure = draw(result)
        files += save(figure, folder / "training")
        pictures.append(Picture(figure, f"test accuracy on {ACCURACY_ON}, and privacy spent"))
        tables.append(_table(result))
    files += write_tables(tables, folder / "training")
    section = Section(result.config.task, "", lines, pictures, tables)
    notes = [f"Not private: {reason}." for reason in not_private_because(result)]
    made = version_tables([versions()])
    more = {"notes": notes, "command": command, "closing": "", "versions": made}
    return [*files, write_report(folder / "report.html", "training", [section], **more)]


def _against(result: TrainingResult) -> str:
    return describe_observer(result.observer, result.config.spec.colluders)


def show(result: TrainingResult, console: Console) -> None:
    """Print the run: what it was, a table of rounds, and what it cost."""
    config, spec = result.config, result.config.spec
    console.print(
        literal(config.task, "bold")
        + literal(
            f": {result.n_parameters:,} parameters, "
            f"{spec.encoder if spec.compression != 1 else 'no sketch'}, r = {spec.compression:g}, "
            f"b = {spec.n_bits}: {result.bits_per_parameter:.3g} bits per parameter; decoder "
            f"{spec.decoder}."
        )
    )
    if isinstance(result, HeavyHittersResult):
        _show_hitters(result, console)
    else:
        print_table(_table(result), console)
        console.print(literal(f"Accuracy is that on {ACCURACY_ON}."))
    if result.unconverged:
        console.print(f"The decoder stopped early in {result.unconverged} rounds.")
    for reason in not_private_because(result):
        console.print("[yellow]Not private[/yellow]:", literal(f"{reason}."))


def _show_hitters(result: HeavyHittersResult, console: Console) -> None:
    """Print what is released, and apart from it what was measured on the exact data."""
    delta = result.config.spec.delta
    spent = f"ε = {_epsilon(result.epsilon)} against {_against(result)} at δ = {delta:g}"
    console.print(literal(f"Domain: {result.domain.description}."))
    console.print(literal(f"Released ({spent}): the {len(result.top)} most common,"))
    console.print(literal(_few(result.top)))
    exact = result.evaluation
    console.print(literal(f"{EVALUATION} (from the exact data, not charged):", "bold"))
    console.print(
        literal(
            f"relative error {exact.relative_error:.3f}; precision {exact.precision:.0%}, recall "
            f"{exact.recall:.0%} of the {len(exact.top)} most common; {exact.outside:.1%} of what "
            f"clients hold lies outside the domain.\nTruly most common: {_few(exact.top)}"
        )
    )


def _few(names: Sequence[str], most: int = 15) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def progress_text(record: RoundRecord, config: TrainingConfig) -> str:
    """Return one line about a round: accuracy, where it may be told, and ε so far."""
    observer = (
        record.privacy.release if config.spec.mechanism == "central" else record.privacy.colluders
    )
    spent = f"ε {_epsilon(observer)}"
    if not tasks.get(config.task).trains:  # its accuracy is measured on the clients' own data
        return f"{config.task}: {spent}"
    return f"{config.task}: test accuracy {record.accuracy:.1%}, {spent}"


def draw(result: TrainingResult, *, width: float = 1.0) -> Figure:
    """Return the curves of accuracy and of ε over rounds."""
    config, rounds = result.config, [record.number for record in result.history]
    spec, private = config.spec, not math.isinf(result.epsilon)
    figure = new_figure(width * (10 if private else 6), 3.8)
    left, *right = figure.subplots(1, 2 if private else 1, squeeze=False)[0]
    look = decoder_style(spec.decoder) | {"marker": ""}
    left.plot(rounds, result.accuracy, label=f"accuracy, decoder {spec.decoder}", **look)
    left.set(xlabel="round", ylabel="test accuracy")
    for panel in right:
        spent = {
            name: [getattr(record.privacy, name) for record in result.history]
            for name, _ in _observers(result)
        }
        dashes = apart(spent)  # observers who learn the same are told apart
        for (name, values), colour, usual in zip(spent.items(), PALETTE[2:], ("-", "--", ":")):
            label = f"ε against {describe_observer(name, spec.colluders)}"
            style = dashes.get(name, usual)
            panel.plot(rounds, values, color=colour, linestyle=style, label=label)
        panel.set(xlabel="round", ylabel=f"ε at δ = {spec.delta:g}", title="Privacy spent so far")
    for panel in (left, *right):
        panel.set_xlim(0, rounds[-1])
        panel.locator_params(axis="x", integer=True)
        tidy(panel)
    noise = f"z = {spec.noise_multiplier:g}"
    if spec.noise_multiplier is None:
        noise = f"ε = {spec.epsilon:g} in all"
    caption = (
        f"{config.task}, d = {result.n_parameters:,}, n = {config.clients:,} of "
        f"{result.population:,}, r = {spec.compression:g}, {noise}, b = {spec.n_bits}, "
        f"{len(rounds)} rounds, seed {config.seed}"
    )
    finish(figure, [left, *right], caption)
    return figure


def _table(result: TrainingResult) -> TextTable:
    observers = _observers(result)
    heads = ("round", "test accuracy", *(f"ε ({heading})" for _, heading in observers), "clip")
    history = result.history
    step = math.ceil(len(history) / _ROWS)
    rows = [
        (
            str(record.number),
            f"{record.accuracy:.2%}",
            *(_epsilon(getattr(record.privacy, name)) for name, _ in observers),
            f"{record.clip_norm:.3g}",
        )
        for record in history
        if record.number % step == 0 or record is history[-1]
    ]
    return TextTable(f"{len(history)} rounds", heads, tuple(rows), 0)


def _observers(result: TrainingResult) -> list[tuple[str, str]]:
    """Return the observers whose ε a run shows, with short headings."""
    colluders = result.config.spec.colluders
    also = [("colluders", f"server + {colluders}")] if colluders else []
    return [("server", "server"), *also, ("release", "release")]


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3g}"


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
