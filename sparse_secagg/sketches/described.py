"""The sketch that a round's description names, made without an encoder.

What :mod:`sparse_secagg.encoders.registry` writes is read here as plain data: a client needs the
map x ↦ S x, and nothing that inverts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.public_randomness import stream_key
from sparse_secagg.sketches.count_sketch import CountSketch
from sparse_secagg.sketches.hadamard import SubsampledHadamard
from sparse_secagg.sketches.lengths import (
    clip_shares_of,
    count_sketch_shape,
    layer_slices,
    layers_from_json,
    resolve_n_components,
)

__all__ = ["LIGHT", "Layer", "Sketch", "layers_of"]


class Sketch(Protocol):
    """A linear map of rows."""

    @property
    def length(self) -> int:
        """The length m of a sketch."""

    def sketch(self, X: NDArray[Any]) -> NDArray[np.floating]:
        """Return the sketches (n, m) of the rows of X (n, d)."""


@dataclass(frozen=True)
class Layer:
    """A part of the vectors that is clipped and sketched by itself.

    Parameters
    ----------
    features : slice
        Where it lies in the vector.
    clip_share : float
        Its share of the clip.
    length : int
        The length of its sketch.
    sketch : callable
        From the rows of the layer to their sketches.
    """

    features: slice
    clip_share: float
    length: int
    sketch: Callable[[Any], NDArray[np.floating]]


class _Whole:
    """No compression: S = I."""

    def __init__(self, d: int) -> None:
        self.length = d

    def sketch(self, X: NDArray[Any]) -> NDArray[np.floating]:
        return np.array(X)


class _Stacked:
    """Layers' sketches, one after the other."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.length = sum(layer.length for layer in layers)

    def sketch(self, X: NDArray[Any]) -> NDArray[np.floating]:
        return np.concatenate([each.sketch(X[:, each.features]) for each in self.layers], axis=1)


def layers_of(description: Mapping[str, Any], d: int, seed: int) -> list[Layer]:
    """Return the layers of vectors of length d, and their sketches, from a description and a seed.

    Raises ValueError if the description is not one of a sketch in :data:`LIGHT`.
    """
    sketch = _sketch_of(description, d, seed)
    if isinstance(sketch, _Stacked):
        return sketch.layers
    return [Layer(slice(0, d), 1.0, sketch.length, sketch.sketch)]


def _sketch_of(description: Mapping[str, Any], d: int, seed: int) -> Sketch:
    name = description.get("name")
    if name not in LIGHT:
        raise ValueError(f"encoder={name!r} is none of {', '.join(sorted(LIGHT))}.")
    parameters = {key: value for key, value in description.items() if key != "name"}
    try:
        return LIGHT[name](d, seed, **parameters)
    except TypeError as error:
        raise ValueError(
            f"encoder {dict(description)} is not a valid description: {error}"
        ) from None


def _count_sketch(
    d: int,
    seed: int,
    n_components: int | None = None,
    compression: float | None = None,
    n_rows: int = 15,
) -> Sketch:
    return CountSketch(*count_sketch_shape(d, n_components, compression, n_rows), seed)


def _hadamard(
    d: int, seed: int, n_components: int | None = None, compression: float | None = None
) -> Sketch:
    return SubsampledHadamard(d, resolve_n_components(d, n_components, compression), seed)


def _identity(d: int, seed: int) -> Sketch:
    return _Whole(d)


def _blocks(
    d: int,
    seed: int,
    layers: Mapping[str, Any] | None = None,
    encoder: Mapping[str, Any] | None = None,
    encoders: Mapping[str, Mapping[str, Any]] | None = None,
    clip_shares: Any = "size",
) -> Sketch:
    if layers is not None:
        layers = layers_from_json(layers)
    slices = layer_slices(layers, d)
    shares = clip_shares_of(clip_shares, slices)
    made = []
    for k, (name, features) in enumerate(slices.items()):
        inner = encoder or {"name": "count_sketch"}
        if encoders is not None:
            if name not in encoders:
                raise ValueError(f"encoders has no entry for layer {name!r}.")
            inner = encoders[name]
        inner_seed = int(stream_key(seed, "block", k))
        sketch = _sketch_of(inner, features.stop - features.start, inner_seed)
        made.append(Layer(features, shares[name], sketch.length, sketch.sketch))
    return _Stacked(made)


#: Sketches that are made without an encoder, by their name in a description.
LIGHT: dict[str, Callable[..., Sketch]] = {
    "blocks": _blocks,
    "count_sketch": _count_sketch,
    "hadamard": _hadamard,
    "identity": _identity,
}
