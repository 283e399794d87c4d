"""Where the layers of a flat vector lie, and what is left of a denoiser on a part of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solvers.amp.scalar import Denoiser

__all__ = ["layer_slices", "restricted", "rows_of", "shapes_within"]


def layer_slices(shapes: Sequence[tuple[int, ...]], d: int) -> dict[str, slice]:
    """Return the slices of a flat vector of length d that hold layers of these shapes.

    They are named ``layer_0``, ``layer_1``, …; entries left over are named ``rest``.

    Parameters
    ----------
    shapes : sequence of tuples
        Shapes of the layers, in the order of the flat vector.
    d : int
        Length of the vector.

    Returns
    -------
    dict of str to slice
        Where each layer lies.

    Raises
    ------
    ValueError
        If the layers hold more entries than the vector.

    See Also
    --------
    Blocks : Uses such slices.

    Examples
    --------
    >>> from solvers.denoisers import layer_slices
    >>> layer_slices([(3, 2), (2,)], 9)
    {'layer_0': slice(0, 6, None), 'layer_1': slice(6, 8, None), 'rest': slice(8, 9, None)}
    """
    slices, start = {}, 0
    for k, shape in enumerate(shapes):
        stop = start + math.prod(shape)
        slices[f"layer_{k}"] = slice(start, stop)
        start = stop
    if start > d:
        raise ValueError(
            f"shapes={list(shapes)!r} hold {start} entries, but the vector has {d}; "
            "give the shapes of its layers, in order."
        )
    if start < d:
        slices["rest"] = slice(start, d)
    return slices


def rows_of(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the row of each entry of a layer, its first index; entries of a vector stand alone."""
    size = math.prod(shape)
    row = size // shape[0] if len(shape) > 1 and shape[0] else 1
    return np.arange(size) // row


def shapes_within(
    shapes: Sequence[tuple[int, ...]], features: slice, d: int
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the layers inside a slice of the vector, none of which it may part."""
    inside = []
    for shape, layer in zip(shapes, layer_slices(shapes, d).values()):
        if layer.stop <= features.start or layer.start >= features.stop:
            continue
        if layer.start < features.start or layer.stop > features.stop:
            raise ValueError(
                f"shapes={list(shapes)!r}: the layer at entries {layer.start} to {layer.stop} "
                f"reaches beyond the block of A at {features.start} to {features.stop}; give "
                "the layers as they were encoded."
            )
        inside.append(shape)
    return tuple(inside)


def restricted(denoiser: Denoiser, features: slice, d: int) -> Denoiser:
    """Return what a denoiser of d entries does on some of them.

    One that goes by where an entry is says so by a method ``part(features, d)``; others treat
    all entries alike and serve as they are.
    """
    part = getattr(denoiser, "part", None)
    if part is None:
        return denoiser
    found: Denoiser = part(features, d)
    return found
