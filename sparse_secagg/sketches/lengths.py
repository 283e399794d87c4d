"""How long a sketch is, and what the layers of a vector are."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

__all__ = [
    "clip_shares_of",
    "count_sketch_shape",
    "layer_slices",
    "layers_from_json",
    "resolve_n_components",
]

DEFAULT_COMPRESSION = 10


def resolve_n_components(d: int, n_components: int | None, compression: float | None) -> int:
    """Return the sketch length m asked for by ``n_components`` or ``compression`` = d/m.

    With neither given, compression is 10; the result is at least 1.
    """
    if n_components is not None and compression is not None:
        raise ValueError(
            f"n_components={n_components} and compression={compression} both set the length of "
            "the sketch; give one of them."
        )
    if n_components is not None:
        if not isinstance(n_components, numbers.Integral) or isinstance(n_components, bool):
            raise ValueError(f"n_components={n_components!r} must be an integer from 1 to d={d}.")
        if not 1 <= n_components <= d:
            raise ValueError(
                f"n_components={n_components} is not between 1 and the dimension d={d}; "
                "for no compression use IdentityEncoder."
            )
        return int(n_components)
    if compression is None:
        compression = DEFAULT_COMPRESSION
    if not isinstance(compression, numbers.Real) or not (
        compression >= 1 and math.isfinite(compression)
    ):
        raise ValueError(
            f"compression={compression!r} must be a finite number of at least 1; "
            "10 makes sketches ten times shorter than the vectors."
        )
    return max(1, int(d / compression))


def count_sketch_shape(
    d: int, n_components: int | None, compression: float | None, n_rows: int
) -> tuple[int, int]:
    """Return the rows t and the width w of a count sketch; its length is their product."""
    m = resolve_n_components(d, n_components, compression)
    if not isinstance(n_rows, numbers.Integral) or n_rows < 1:
        raise ValueError(f"n_rows={n_rows!r} must be a positive integer; 15 is usual.")
    rows = min(int(n_rows), m)
    return rows, m // rows


def layers_from_json(document: Mapping[str, Any]) -> dict[str, slice]:
    """Return named slices from their ends, in the order of the vector: JSON may have another."""
    layers = {str(name): slice(*ends) for name, ends in document.items()}
    return dict(sorted(layers.items(), key=lambda item: item[1].start))


def layer_slices(layers: Mapping[str, slice] | None, d: int) -> dict[str, slice]:
    """Return the layers of a vector of length d, which follow each other and cover it."""
    if layers is None:
        return {"all": slice(0, d)}
    found = {}
    end = 0
    for name, features in layers.items():
        start, stop, step = features.indices(d)
        if start != end or stop <= start or step != 1 or (features.stop or d) > d:
            raise ValueError(
                f"layers[{name!r}]={features} does not continue at entry {end} of a vector of "
                f"length {d}; layers follow each other without gap or overlap."
            )
        found[name] = slice(start, stop)
        end = stop
    if end != d:
        raise ValueError(f"layers cover {end} of {d} entries; add a layer for slice({end}, {d}).")
    return found


def clip_shares_of(clip_shares: Any, layers: Mapping[str, slice]) -> dict[str, float]:
    """Return the layers' shares w_l of the clip, Σ w_l² ≤ 1, from "size", "equal" or a mapping."""
    sizes = {name: features.stop - features.start for name, features in layers.items()}
    if isinstance(clip_shares, Mapping):
        return _given_shares(clip_shares, layers)
    if clip_shares == "equal":
        return dict.fromkeys(layers, len(layers) ** -0.5)
    if clip_shares == "size":
        total = sum(sizes.values())
        return {name: math.sqrt(size / total) for name, size in sizes.items()}
    raise ValueError(
        f"clip_shares={clip_shares!r} is unknown; use 'size', 'equal' or a dictionary "
        "of layer name to share."
    )


def _given_shares(given: Mapping[str, Any], layers: Mapping[str, slice]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for name in layers:
        share = given.get(name)
        if not isinstance(share, numbers.Real) or not 0 < float(share) <= 1:
            raise ValueError(
                f"clip_shares[{name!r}]={share!r} must be a number in (0, 1]; "
                "every layer needs one."
            )
        shares[name] = float(share)
    total = math.fsum(share**2 for share in shares.values())
    if not total <= 1 + 1e-12:
        raise ValueError(
            f"clip_shares have squares that sum to {total:.6g}, above 1, so that layers "
            f"could exceed the clip together; divide each by {math.sqrt(total):.6g}."
        )
    return shares
