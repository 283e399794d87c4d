"""How the project's pictures look: colours, sizes and how they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.private_files import make_folder, open_private

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by colour-blind readers too; grey for their yellow, which
#: is too pale for a line on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888")
#: One a colour, so that curves differ in print without colours, too.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def new_figure(width: float = 7.0, height: float = 4.5) -> Figure:
    """Return an empty figure of so many inches; needs no display and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg`` and return their paths."""
    make_folder(stem.parent)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        save_picture(figure, path)
    return paths


def save_picture(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write one picture, readable for its owner: most show what was measured on clients' data."""
    with open_private(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=dpi)


def style(index: int) -> dict[str, Any]:
    """Return colour and marker of the index-th curve of a picture."""
    return {"color": PALETTE[index % len(PALETTE)], "marker": MARKERS[index % len(MARKERS)]}


def readable_on(colour: tuple[float, float, float, float]) -> str:
    """Return black or white, whichever is read more easily on the colour."""
    red, green, blue, _ = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
