"""What a training run leaves behind: a table, curves as pictures, and machine-readable results."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.report.html import Finding, Picture, version_tables, write_report
from experiments.report.layout import print_table
from experiments.report.style import PALETTE, apart, decoder_style, finish, new_figure, save, tidy
from experiments.report.tables import TextTable, write_tables
from experiments.report.terminal import literal
from experiments.training.config import TrainingConfig
from experiments.training.records import RoundRecord, TrainingResult
from experiments.versions import versions
from sparse_secagg.privacy import describe_observer
from sparse_secagg.privacy.conversion import stated
from sparse_secagg.private_files import make_folder, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What the accuracy of a training run is measured on, and why it is not charged.
ACCURACY_ON = "held-out test data, which is taken to be public"

#: Most rounds of a run that the table shows; the others are in the JSON.
_ROWS = 12


def as_document(result: TrainingResult) -> dict[str, Any]:
    """Return the result, its weights aside, as JSON values; infinite ε is null."""
    plain = ("n_parameters", "population", "observer", "bits_per_parameter", "unconverged")
    history = result.history
    return {
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
        "not_private_because": not_private_because(result.config),
        "accuracy": result.accuracy,
        "final_accuracy": result.accuracy[-1],
        "accuracy_on": ACCURACY_ON,
    }


def not_private_because(config: TrainingConfig) -> list[str]:
    """Return what keeps a run's ε from being a guarantee; nothing where it is one."""
    if config.spec.noise_multiplier == 0:
        return [
            "no noise is added; give --epsilon (of all rounds together) or --noise-multiplier (of "
            "each), and --private-noise"
        ]
    if not config.private_noise:
        return [
            "the noise comes from the seed, so that the run can be repeated; for a result that "
            "leaves this machine, give --private-noise"
        ]
    return []


def write(result: TrainingResult, folder: Path, command: str = "") -> list[Path]:
    """Write ``training.json``, the curves as pictures, tables and the report; return the paths."""
    make_folder(folder)
    path = folder / "training.json"
    write_text(path, json.dumps(as_document(result), indent=2) + "\n")
    figure, table = draw(result), _table(result)
    files = [path, *save(figure, folder / "training"), *write_tables([table], folder / "training")]
    picture = Picture(figure, f"test accuracy on {ACCURACY_ON}, and privacy spent")
    found = Finding(result.config.task, pictures={"": picture}, tables=[table])
    notes = [f"Not private: {reason}." for reason in not_private_because(result.config)]
    made = version_tables([versions()])
    more = {"notes": notes, "command": command, "closing": "", "versions": made}
    return [*files, write_report(folder / "report.html", "training", [found], **more)]


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
    print_table(_table(result), console)
    console.print(literal(f"Accuracy is that on {ACCURACY_ON}."))
    if result.unconverged:
        console.print(f"The decoder stopped early in {result.unconverged} rounds.")


def progress_text(record: RoundRecord, config: TrainingConfig) -> str:
    """Return one line about a round: accuracy, and ε so far."""
    observer = (
        record.privacy.release if config.spec.mechanism == "central" else record.privacy.colluders
    )
    return f"{config.task}: test accuracy {record.accuracy:.1%}, ε {_epsilon(observer)}"


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
    noise = (
        f"ε = {stated(spec.epsilon)} in all"
        if spec.noise_multiplier is None
        else f"z = {spec.noise_multiplier:g}"
    )
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
    return "∞" if math.isinf(value) else stated(value, 3)


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
