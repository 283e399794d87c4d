"""A page about private counts: picture, table, privacy statement, bytes, how to reproduce.

One HTML file without scripts or links to elsewhere. Names of items are data of strangers: every one
is escaped.
"""

from __future__ import annotations

import base64
import io
import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparse_secagg.counting.results import Count
from sparse_secagg.private_files import open_private

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BARS", "UNTRUSTED", "draw", "figure_of", "shown", "write_report"]

#: What is said where the decoder's own checks fail.
UNTRUSTED = (
    "The intervals cannot be trusted: the sketch is too short for these counts, and what the "
    "decoder measured contradicts its standard errors. Allow more bytes, or more users."
)

#: Bars that the picture has at most.
BARS = 40
_LONGEST = 32

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 56rem; margin: 2rem auto;
       padding: 0 1rem; }
img { max-width: 100%; } pre { background: #f4f4f4; padding: .8rem; overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
.warning { color: #a33c00; font-weight: 600; }
</style></head><body>
<h1>{{ title }}</h1>
{% if not_private %}<p class="warning">Not private: the randomness of this run was seeded.</p>
{% endif %}
{% if not trusted %}<p class="warning">{{ untrusted }}</p>
{% endif %}
<p>{{ statement }}</p>
<img alt="Bars of the largest counts with intervals" src="data:image/png;base64,{{ picture }}">
<p>{{ caption }}</p>
<h2>Counts</h2>
<table><tr><th>item</th><th>users</th><th>low</th><th>high</th><th>significant</th></tr>
{% for r in records %}<tr><td>{{ r.item }}</td><td>{{ "{:,.0f}".format(r.count) }}</td>
<td>{{ "{:,.0f}".format(r.low) }}</td><td>{{ "{:,.0f}".format(r.high) }}</td>
<td>{{ "yes" if r.significant else "no" }}</td></tr>
{% endfor %}</table>
<h2>What it cost</h2>
<table>{% for name, value in facts.items() %}<tr><td>{{ name }}</td><td>{{ value }}</td></tr>
{% endfor %}</table>
<h2>How to reproduce</h2>
<pre>{{ command }}</pre>
</body></html>
"""


def shown(item: str) -> str:
    """Return an item as one short printable line."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in item)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def figure_of(records: Sequence[Count], title: str, *, width: float = 7.5) -> Figure:
    """Return a picture of the counts, bars with whiskers, so many inches wide."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bars = list(records)[:BARS]
    figure = Figure(figsize=(width, 1.2 + 0.21 * max(len(bars), 3)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = range(len(bars))
    counts = [record.count for record in bars]
    whiskers = [
        [max(record.count - record.low, 0) for record in bars],
        [max(record.high - record.count, 0) for record in bars],
    ]
    colours = ["#56b4e9" if record.significant else "#dddddd" for record in bars]
    axes.barh(places, counts, color=colours, height=0.7)
    axes.errorbar(counts, places, xerr=whiskers, fmt="none", ecolor="#1a1a1a", lw=0.8)
    axes.set_yticks(places, [shown(record.item) for record in bars])
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlim(left=0)
    axes.set_xlabel("users, with 95 % intervals;\ngrey: not significant")
    lines = textwrap.wrap(title, int(13 * width))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=9)  # never cut by long labels
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw(records: Sequence[Count], title: str) -> bytes:
    """Return a picture of the counts as PNG."""
    import matplotlib as mpl

    out = io.BytesIO()
    with mpl.rc_context({"text.parse_math": False, "font.size": 9}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as a box
        figure_of(records, title).savefig(out, format="png", dpi=130)
    return out.getvalue()


def write_report(
    path: str | os.PathLike[str],
    records: Sequence[Count],
    *,
    title: str,
    statement: str,
    caption: str,
    facts: Mapping[str, Any],
    command: str,
    not_private: bool,
    trusted: bool = True,
) -> Path:
    """Write the page, readable by its owner only, and return its path."""
    try:
        import jinja2
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "a report needs jinja2 and matplotlib: pip install 'sparse-secagg[cli]'."
        ) from None
    picture = base64.b64encode(draw(records, caption)).decode()
    template = jinja2.Environment(autoescape=True).from_string(_PAGE)
    text = template.render(
        title=title, statement=statement, caption=caption, facts=facts, command=command,
        not_private=not_private, trusted=trusted, untrusted=UNTRUSTED, picture=picture,
        records=records,
    )  # fmt: skip
    with open_private(Path(path), "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(path)
