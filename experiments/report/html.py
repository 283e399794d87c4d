"""A one-page HTML report, the same for every command: figures, tables, versions, how to reproduce.

One file without scripts or links to elsewhere: it works offline, and can be mailed.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from experiments.report.tables import TextTable, value_text
from experiments.results.table import SweepTable
from experiments.results.verdicts import Verdict
from sparse_secagg.private_files import make_folder, write_text

#: Rows beyond which a table starts folded; the browser unfolds it without a script.
LONG_TABLE = 60
SIMULATED = (
    "Every cell is a function of its parameters and seed; the same command gives the same numbers, "
    "whatever the number of jobs. Noise was simulated: nothing here is private."
)


@dataclass(frozen=True)
class Picture:
    """A figure and its caption."""

    figure: Any
    caption: str

    @property
    def data(self) -> str:
        """The figure as vector graphics, encoded to stand inside the page."""
        drawn = io.BytesIO()
        self.figure.savefig(drawn, format="svg")
        return base64.b64encode(drawn.getvalue()).decode()


@dataclass(frozen=True)
class Finding:
    """One question and what was found."""

    title: str
    question: str = ""
    lines: Sequence[str] = ()  # what was found, in words
    #: Figures by the end of their name, and tables.
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    tables: Sequence[TextTable] = ()
    verdicts: Sequence[Verdict] = ()
    failures: Sequence[str] = ()  # cells that failed, and why
    table: SweepTable | None = None  # of the sweep, where it was one
    details: Mapping[str, Any] = field(default_factory=dict)  # further values for JSON


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.jinja")


def render(
    title: str,
    found: Sequence[Finding],
    *,
    notes: Sequence[str] = (),
    command: str = "",
    closing: str = SIMULATED,
    versions: Sequence[TextTable] = (),
) -> str:
    """Return the report as HTML; every text in it is escaped."""
    text: str = _template().render(
        title=title,
        found=found,
        configuration=configuration_table,
        notes=notes,
        command=command,
        closing=closing,
        versions=versions,
        long_table=LONG_TABLE,
    )
    return text + "\n"


def write_report(path: Path, title: str, found: Sequence[Finding], **more: Any) -> Path:
    """Write the report and return its path; further arguments as for :func:`render`."""
    make_folder(path.parent)
    write_text(path, render(title, found, **more))
    return path


def version_tables(versions: Iterable[dict[str, str] | None]) -> list[TextTable]:
    """Return the different environments that made results, a table each."""
    made = {json.dumps(each or {}, sort_keys=True) for each in versions}
    heads = ("package", "version")
    return [
        TextTable("", heads, tuple(sorted(json.loads(document).items())))
        for document in sorted(made)
        if document != "{}"
    ]


def configuration_table(fixed: dict[str, Any]) -> TextTable:
    """Return the parameters that do not vary."""
    rows = tuple((name, value_text(value)) for name, value in fixed.items())
    return TextTable("Configuration", ("parameter", "value"), rows)
