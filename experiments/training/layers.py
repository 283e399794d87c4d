"""Groups of layers with a rate and a share of the clip each, as the paper's appendix has them.

``"embedding=10,rest=50"`` sketches the embedding at rate 10 and everything else at rate 50. A name
stands for the layer of that name and for all whose names go on with a dot after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from experiments.models.architectures import Architecture
from sparse_secagg.encoders import BlockEncoder

#: The group of all layers that no other group names.
REST = "rest"
_SHARES = ("size", "equal")


def check_groups(layer_compression: str, clip_shares: str) -> None:
    """Raise ValueError for groups that no model could have."""
    rates = parse_groups("layer_compression", layer_compression)
    for name, rate in rates.items():
        if not (rate >= 1 and math.isfinite(rate)):
            raise ValueError(f"layer_compression: {name}={rate:g} must be a number of at least 1.")
    if clip_shares in _SHARES:
        return
    shares = parse_groups("clip_shares", clip_shares)
    if not rates or {*rates, REST} != {*shares, REST}:
        raise ValueError(
            f"clip_shares={clip_shares!r} must be 'size', 'equal' or a share for each group of "
            "layer_compression, such as embedding=0.3,rest=0.9."
        )
    if not (all(share > 0 for share in shares.values()) and _squares(shares) <= 1 + 1e-9):
        raise ValueError(
            f"clip_shares={clip_shares!r} must be above 0, with squares that sum to at most 1: "
            f"they sum to {_squares(shares):.4g}."
        )


def _squares(shares: dict[str, float]) -> float:
    return math.fsum(share**2 for share in shares.values())


def parse_groups(option: str, text: str) -> dict[str, float]:
    """Return the number of each group of a text.

    Examples
    --------
    >>> parse_groups("layer_compression", "embedding=10,rest=50")
    {'embedding': 10.0, 'rest': 50.0}
    """
    found: dict[str, float] = {}
    for piece in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in piece.partition("="))
        try:
            found[name], twice = float(value), name in found
        except ValueError:
            twice = True
        if twice or not name:
            raise ValueError(
                f"{option}={text!r}: {piece!r} must be NAME=NUMBER, each name once, for example "
                "embedding=10,rest=50."
            )
    return found


def layer_groups(architecture: Architecture, names: list[str]) -> dict[str, list[slice]]:
    """Return where each group lies in the flat vector: one slice for each unbroken run of layers.

    Examples
    --------
    >>> from experiments.models import next_word_lstm
    >>> layer_groups(next_word_lstm(), ["embedding"])
    {'embedding': [slice(0, 960384, None)], 'rest': [slice(960384, 4050748, None)]}
    """
    groups: dict[str, list[slice]] = {}
    last = ""
    for layer, where in architecture.slices.items():
        group = next((n for n in names if layer == n or layer.startswith(f"{n}.")), REST)
        runs = groups.setdefault(group, [])
        if group == last:
            runs[-1] = slice(runs[-1].start, where.stop)
        else:
            runs.append(where)
        last = group
    unknown = [name for name in names if name not in groups and name != REST]
    if unknown:
        raise ValueError(
            f"layer_compression names {unknown[0]!r}, but the layers of {architecture.name} are "
            f"{', '.join(architecture.shapes)}."
        )
    return groups


def grouped_encoder(
    architecture: Architecture,
    layer_compression: str,
    clip_shares: str,
    encoder: Callable[[float | None], Any],
) -> BlockEncoder:
    """Return the encoder that sketches each group by itself.

    ``encoder`` makes the encoder of a rate, and that of layers that no group names of None.
    """
    rates = parse_groups("layer_compression", layer_compression)
    given = {} if clip_shares in _SHARES else parse_groups("clip_shares", clip_shares)
    layers, encoders, shares = {}, {}, {}
    for group, runs in layer_groups(architecture, [n for n in rates if n != REST]).items():
        size = sum(run.stop - run.start for run in runs)
        for k, run in enumerate(runs):
            name = group if len(runs) == 1 else f"{group} {k + 1}"
            layers[name] = run
            encoders[name] = encoder(rates.get(group))
            shares[name] = given.get(group, 1.0) * math.sqrt((run.stop - run.start) / size)
    layers = dict(sorted(layers.items(), key=lambda item: item[1].start))
    return BlockEncoder(layers, encoder=encoders, clip_shares=shares if given else clip_shares)
