"""A one-page HTML report of sweeps: figures, tables, configuration, versions, how to reproduce.

One file without scripts or links to elsewhere: it works offline, and can be mailed.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from experiments.private_files import make_folder, write_text
from experiments.report.sweep_figures import draw_sweep
from experiments.results.conclusions import Conclusion
from experiments.results.summary import Summary
from experiments.results.table import SweepTable
from experiments.sweeps.axes import AXES
from experiments.sweeps.claims import Verdict

__all__ = ["Section", "render", "write_report"]

#: Settings beyond which a table starts folded.
LONG_TABLE = 150

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid #ccc;
       padding-top: 1.5rem; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; text-align: right;
       white-space: nowrap; }
th { background: #f4f4f4; } th:first-child, td:first-child { text-align: left; }
pre { background: #f4f4f4; padding: 0.8rem; overflow-x: auto; }
.pass { color: #00664a; font-weight: 600; } .fail { color: #a33c00; font-weight: 600; }
"""


@dataclass(frozen=True)
class Section:
    """One sweep of a report.

    Attributes
    ----------
    title, question : str
        What it is called and what it asks.
    table : SweepTable
        What was found.
    conclusion : Conclusion
        The same in words.
    """

    title: str
    question: str
    table: SweepTable
    conclusion: Conclusion


def write_report(
    path: Path,
    title: str,
    sections: Sequence[Section],
    verdicts: Sequence[Verdict] = (),
    command: str = "",
) -> Path:
    """Write the report and return its path."""
    make_folder(path.parent)
    write_text(path, render(title, sections, verdicts, command))
    return path


def render(
    title: str,
    sections: Sequence[Section],
    verdicts: Sequence[Verdict] = (),
    command: str = "",
) -> str:
    """Return the report as HTML; every text in it is escaped."""
    body = [f"<h1>Sweep: {escape(title)}</h1>", _verdicts(verdicts)]
    body += [_section(section) for section in sections]
    body.append("<h2>How to reproduce</h2>")
    body.append(f"<pre>{escape(command) or 'run_sweep(grid)'}</pre>")
    body.append(
        "<p>Every cell is a function of its parameters and seed; the same command gives the same "
        "numbers, whatever the number of jobs. Noise was simulated: nothing here is private.</p>"
    )
    body.append("<h2>Versions</h2>" + _versions(sections))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _section(section: Section) -> str:
    table, found = section.table, section.conclusion
    lines = "".join(f"<li>{escape(line)}</li>" for line in found.lines)
    n_seeds = len({result.cell.seed for result in table.results})
    metric = table.metric.replace("_", " ")
    return "\n".join(
        [
            f"<h2>{escape(section.title)}</h2>",
            f"<p>{escape(section.question)}</p>" if section.question else "",
            f"<ul>{lines}</ul>",
            _figure(section),
            f"<h3>{escape(metric.capitalize())}, mean and 95 % interval of {n_seeds} seeds</h3>",
            _folded(_summary(table), len(table.summary())),
            _refusals(table),
            "<h3>Configuration</h3>",
            _rows(("parameter", "value"), [(n, _text(v)) for n, v in table.fixed.items()]),
        ]
    )


def _figure(section: Section) -> str:
    """Return the picture as an image of vector graphics inside the page."""
    drawn = io.BytesIO()
    table = section.table
    draw_sweep(table, table.metric, section.conclusion.marked).savefig(drawn, format="svg")
    data = base64.b64encode(drawn.getvalue()).decode()
    caption = f"{table.metric.replace('_', ' ')} over {' and '.join(table.axes)}"
    if len(table.axes) == 1:
        caption += "; bands are 95 % intervals over seeds"
    else:
        caption += "; below each number its bits a parameter; frames mark what the text names"
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{escape(section.title)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _summary(table: SweepTable) -> str:
    decoders = list(dict.fromkeys(result.cell.decoder for result in table.results))
    names = [name for name in table.varying if name != "decoder"]
    winners = {tuple(row.setting.values()): row.winner for row in table.winners()}
    lines: dict[tuple[Any, ...], dict[str, Summary]] = {}
    for row in table.summary():
        place = tuple(row.setting[name] for name in names)
        lines.setdefault(place, {})[row.setting.get("decoder", decoders[0])] = row
    body = []
    for place, found in lines.items():
        cells = [_text(value) for value in place]
        cells += [_value(found.get(decoder)) for decoder in decoders]
        bits = [row.extra["bits_per_parameter"] for row in found.values() if row.interval]
        cells.append(f"{bits[0]:.3g}" if bits else "")
        if len(decoders) > 1:
            cells.append(str(winners.get(place, "")))
        body.append(cells)
    heads = [AXES[name].label if name in AXES else name for name in names]
    heads += [*decoders, "bits a parameter", *(["winner"] if len(decoders) > 1 else [])]
    return _rows(heads, body)


def _folded(table: str, n_rows: int) -> str:
    """Fold a long table away; the browser unfolds it without a script."""
    if n_rows <= LONG_TABLE:
        return table
    return f"<details><summary>{n_rows} settings</summary>{table}</details>"


def _value(row: Summary | None) -> str:
    if row is None:
        return ""
    return str(row.interval) if row.interval is not None else row.status


def _refusals(table: SweepTable) -> str:
    reasons = dict.fromkeys(row.message for row in table.summary() if row.message)
    return "".join(f"<p>Without a value: {escape(reason)}</p>" for reason in reasons)


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    parts = []
    for verdict in verdicts:
        word = "pass" if verdict.passed else "fail"
        evidence = "".join(f"<li>{escape(line)}</li>" for line in verdict.evidence)
        parts.append(
            f'<p><span class="{word}">{word.upper()}</span> {escape(verdict.claim)}</p>'
            f"<ul>{evidence}</ul>"
        )
    return "\n".join(parts)


def _versions(sections: Sequence[Section]) -> str:
    made = {
        json.dumps(result.versions or {}, sort_keys=True)
        for section in sections
        for result in section.table.results
    }
    return "\n".join(
        _rows(("package", "version"), sorted(json.loads(document).items()))
        for document in sorted(made)
    )


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rows(heads: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>" for line in body
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )
