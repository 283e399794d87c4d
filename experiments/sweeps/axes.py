"""The axes of a sweep: their values by default, how they are read from text, how they are drawn."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

Value = int | float


@dataclass(frozen=True)
class Axis:
    """A parameter that varies."""

    label: str
    parse: Callable[[str], Value]  # int or float
    values: tuple[Value, ...]  # when none are given
    log: bool = True  # whether it is drawn on a logarithmic scale


def whole(text: str | float) -> int:
    """Read 1000, 1e3 or 1_000."""
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)


AXES: dict[str, Axis] = {
    "sparsity": Axis("nonzero entries s", whole, (5, 10, 20, 50, 100, 200, 500, 1000, 2000)),
    "density": Axis("s/m", float, (0.05, 0.1, 0.2, 0.3, 0.4, 0.5), log=False),
    "compression": Axis("compression r = d/m", float, (1, 2, 5, 10, 20, 50, 100)),
    "n_bits": Axis("bits b", whole, (10, 12, 14, 16, 18, 20), log=False),
    "clients": Axis("clients n", whole, (100, 200, 500, 1000)),
    "epsilon": Axis("ε of a round", float, (0.5, 1, 2, 4, 8)),
    "noise_multiplier": Axis("noise multiplier z", float, (0.3, 0.5, 1, 2, 4)),
    "dim": Axis("dimension d", whole, (1000, 2000, 5000, 10_000, 20_000)),
    "n_rows": Axis("rows t of the count sketch", whole, (10, 15, 20, 25), log=False),
    "threshold": Axis(
        "share of the sketch set to zero", float, (0.0, 0.25, 0.5, 0.75, 0.9), log=False
    ),
    "rounds": Axis("rounds of training", whole, (20, 50, 100)),
}


def parse_axis(text: str) -> tuple[str, tuple[Value, ...]]:
    """Read ``NAME`` (with the values by default) or ``NAME=V1,V2,…``.

    Examples
    --------
    >>> parse_axis("sparsity=5,10,2e2")
    ('sparsity', (5, 10, 200))
    """
    name, equals, rest = text.partition("=")
    name = name.strip().replace("-", "_")
    if name not in AXES:
        close = difflib.get_close_matches(name, AXES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no axis {name!r}; {hint}there are {', '.join(AXES)}.")
    axis = AXES[name]
    if not equals:
        return name, axis.values
    values: list[Value] = []
    for piece in rest.split(","):
        try:
            values.append(axis.parse(piece))
        except (ValueError, OverflowError):
            kind = "a number" if axis.parse is float else "a whole number"
            example = ",".join(f"{value:g}" for value in axis.values[:3])
            raise ValueError(
                f"axis {name!r}: {piece.strip()!r} is not {kind}; write for example "
                f"{name}={example}."
            ) from None
    if len(set(values)) < len(values):
        raise ValueError(f"axis {name!r} has a value twice: {rest}.")
    return name, tuple(values)
