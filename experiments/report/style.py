"""How the project's pictures look: a colour and marker per decoder, legends that fit, captions."""

from __future__ import annotations

import re
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparse_secagg.decoder_texts import ALIASES, split_decoder
from sparse_secagg.private_files import make_folder, open_private

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")

#: Okabe and Ito's colours, told apart by colour-blind readers too; grey for their yellow, which
#: is too pale for a line on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")

#: Colour and marker of every decoder, in all figures; solvers of one problem share a colour.
_DECODERS = {
    "linear": (PALETTE[0], "o"),
    "median": (PALETTE[5], "v"),
    "ridge": (PALETTE[2], "s"),
    "working_set": (PALETTE[3], "D"),
    "ista": (PALETTE[3], "<"),
    "fista": (PALETTE[3], ">"),
    "sklearn_lasso": (PALETTE[3], "d"),
    "celer": (PALETTE[3], "h"),
    "skglm": (PALETTE[3], "8"),
    "sqrt_lasso": (PALETTE[3], "p"),
    "cosamp": (PALETTE[7], "1"),
    "omp": (PALETTE[7], "^"),
    "iht": (PALETTE[4], "P"),
    "amp": (PALETTE[1], "X"),
    "auto": (PALETTE[6], "*"),
}
#: Of a decoder of one's own, by its name.
_OTHERS = (("#6A3D9A", "h"), ("#B15928", "8"), ("#1B7837", "H"), ("#7F0000", "p"))
_LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 2)), (0, (6, 1, 1, 1)))
#: Lines of a decoder with options: which decoder, hence which colour, is said by its name.
_OPTIONS = ("", "debias", "low_rank", "low_rank,debias", "auto", "auto,debias")


def decoder_style(decoder: str) -> dict[str, Any]:
    """Return colour, marker and line of a decoder: the same in every figure of the project."""
    name, options = split_decoder(decoder)
    name = ALIASES.get(name, name)
    pick = zlib.crc32(name.encode()) % len(_OTHERS)
    colour, marker = _DECODERS.get(name, _OTHERS[pick])
    other = 1 + zlib.crc32(options.encode()) % (len(_LINES) - 1)
    line = _OPTIONS.index(options) if options in _OPTIONS else other
    filled = {} if not options else {"markerfacecolor": "white"}
    return {"color": colour, "marker": marker, "linestyle": _LINES[line], **filled}


def decoder_styles(decoders: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the looks of a figure's decoders: forms of one differ in their lines, if few."""
    looks: dict[str, dict[str, Any]] = {}
    for decoder in decoders:
        look = decoder_style(decoder)
        alike = [own for own in looks.values() if own["marker"] == look["marker"]]
        taken = [own["linestyle"] for own in alike]
        if look["linestyle"] in taken:
            look["linestyle"] = next((x for x in _LINES if x not in taken), look["linestyle"])
        looks[decoder] = look
    return looks


def decoder_label(decoder: str) -> str:
    """Return a decoder's text as a picture shows it: files without their folders, long ones cut."""
    text = re.sub(r"=[^,]*/", "=", decoder)
    return text if len(text) <= 32 else f"{text[:31]}…"


def shades(n: int) -> list[dict[str, Any]]:
    """Return colours and markers for the ordered values of a parameter, light to dark."""
    import matplotlib

    scale = matplotlib.colormaps["viridis_r"]
    places = [0.15 + 0.85 * k / max(n - 1, 1) for k in range(n)]
    markers = "os^DvPX*<>"
    return [
        {"color": scale(place), "marker": markers[k % len(markers)], "linestyle": "-"}
        for k, place in enumerate(places)
    ]


def apart(curves: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return lines for curves that lie on one another, so that all are seen; by name.

    Curves coincide where they differ by less than half a per cent at every point. Their dashes are
    interleaved.
    """
    groups: list[list[str]] = []
    for name, values in curves.items():
        for group in groups:
            if _coincide(values, curves[group[0]]):
                group.append(name)
                break
        else:
            groups.append([name])
    return {
        name: (5.0 * k, (5.0, 5.0 * (len(group) - 1)))
        for group in groups
        if len(group) > 1
        for k, name in enumerate(group)
    }


def _coincide(a: Sequence[float], b: Sequence[float]) -> bool:
    if len(a) != len(b) or len(a) < 2:
        return False
    return all(abs(x - y) <= 0.005 * max(abs(x), abs(y)) for x, y in zip(a, b))


def new_figure(width: float = 7.0, height: float = 4.5) -> Figure:
    """Return an empty figure of so many inches; needs no display and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # measures texts, for the legend
    return figure


def finish(
    figure: Figure, axes: Sequence[Axes], caption: str, *, handles: Sequence[Any] | None = None
) -> None:
    """Write the caption above and one legend below all panels, both inside the picture.

    The legend has as many columns as fit; the picture grows for its lines, so that panels keep
    their size.
    """
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(caption, max(20, int(13.5 * width)))
    figure.suptitle("\n".join(lines), fontsize=8.5, color="0.25")
    for panel in axes:
        panel.title.set_fontsize(10)
    grown = height + 0.14 * max(len(lines) - 1, 0)
    found = _handles(axes) if handles is None else {h.get_label(): h for h in handles}
    if not found:
        figure.set_size_inches(width, grown)
        return
    labels = ["\n".join(textwrap.wrap(str(label), int(11 * width))) for label in found]
    for columns in range(min(len(found), 8), 0, -1):
        legend = figure.legend(
            list(found.values()),
            labels,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=8.5,
            columnspacing=1.2,
            handlelength=2.6,
        )
        box = legend.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
        if box.width <= 0.97 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    figure.set_size_inches(width, grown + box.height / figure.dpi)


def _handles(axes: Sequence[Axes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            found.setdefault(label, handle)
    return found


def tidy(panel: Axes) -> None:
    """Leave of a panel's frame what is needed to read it."""
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png``, ``stem.svg`` and ``stem.pdf`` and return their paths."""
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in FORMATS]
    for path in paths:
        save_picture(figure, path)
    return paths


def save_picture(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write one picture, readable for its owner: most show what was measured on clients' data."""
    with open_private(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=dpi)


def plain_logarithms(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis 0.2, 0.5, 1 instead of powers; so few that none covers another."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    within_a_decade_or_two = high < 100 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if within_a_decade_or_two else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def mark_values(panel: Axes, values: Sequence[float]) -> None:
    """Label an axis with the values that were tried, slanted where there are many."""
    ticks = sorted(set(values))
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45 if len(ticks) > 6 else 0)
    panel.minorticks_off()


def readable_on(colour: tuple[float, float, float, float]) -> str:
    """Return black or white, whichever is read more easily on the colour."""
    red, green, blue, _ = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
