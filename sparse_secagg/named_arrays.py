"""Between a model, which is named arrays, and the vector that a round is about.

The entries of all floating-point arrays follow each other in the order of their names' insertion;
integer and boolean arrays (counters, masks) are no part of the vector and keep their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a model's floating-point arrays, in the order of the vector.

    Attributes
    ----------
    names : tuple of str
    shapes : tuple of tuple of int
    dtypes : tuple of str
        As NumPy spells them.

    Examples
    --------
    >>> import numpy as np
    >>> model = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float16), "n": np.int64(4)}
    >>> layout = Layout.of(model)
    >>> layout.dim, layout.layers["b"]
    (9, slice(6, 9, None))
    >>> layout.unflatten(np.arange(9.0), like=model)["b"]
    array([6., 7., 8.], dtype=float16)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Layout:
        """Return the layout of a model; raise where there is nothing to average."""
        kept = {k: np.asarray(a) for k, a in arrays.items() if _is_float(np.asarray(a).dtype)}
        if not kept:
            raise ValueError(
                f"none of the {len(arrays)} arrays is of a floating-point type; there is nothing "
                "to average."
            )
        return cls(
            tuple(kept),
            tuple(a.shape for a in kept.values()),
            tuple(a.dtype.str for a in kept.values()),
        )

    @property
    def dim(self) -> int:
        """Length of the vector."""
        return sum(map(math.prod, self.shapes))

    @property
    def layers(self) -> dict[str, slice]:
        """Where each array is in the vector: what ``RoundSpec(layers=…)`` takes."""
        found, start = {}, 0
        for name, shape in zip(self.names, self.shapes):
            found[name] = slice(start, start + math.prod(shape))
            start = found[name].stop
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the vector: float32, unless an array holds more."""
        wide = any(np.dtype(d).itemsize > 4 for d in self.dtypes)
        return np.dtype(np.float64 if wide else np.float32)

    def flatten(
        self, arrays: Mapping[str, Any], before: Mapping[str, Any] | None = None
    ) -> NDArray[Any]:
        """Return the vector of a model, or its difference from the one ``before``.

        Raises
        ------
        ValueError
            An array is missing, is new, or has another shape; the message names it.
        """
        vector = np.empty(self.dim, dtype=self.dtype)
        for name, piece, array in self._pieces(vector, arrays):
            piece[...] = array.reshape(-1)
            if before is not None:
                piece -= np.asarray(before[name]).reshape(-1)
        return vector

    def unflatten(self, vector: NDArray[Any], like: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the model of a vector: types and shapes as here, all other arrays as in ``like``.

        Values beyond the range of a small type stay at the end of that range.
        """
        if vector.shape != (self.dim,):
            raise ValueError(
                f"vector has shape {vector.shape}; the model's has ({self.dim},) entries."
            )
        model = {name: np.asarray(array) for name, array in like.items()}
        for name, shape, dtype in zip(self.names, self.shapes, self.dtypes):
            kind = np.finfo(np.dtype(dtype))
            piece = np.clip(vector[self.layers[name]], float(kind.min), float(kind.max))
            model[name] = piece.astype(dtype).reshape(shape)
        return model

    def _pieces(
        self, vector: NDArray[Any], arrays: Mapping[str, Any]
    ) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
        floats = {k for k, a in arrays.items() if _is_float(np.asarray(a).dtype)}
        if floats != set(self.names):
            odd = sorted(floats ^ set(self.names))
            raise ValueError(
                f"the model's arrays are {', '.join(map(repr, self.names))[:200]}; "
                f"{odd[0]!r} is {'new' if odd[0] in floats else 'missing'}."
            )
        for (name, where), shape in zip(self.layers.items(), self.shapes):
            array = np.asarray(arrays[name])
            if array.shape != shape:
                raise ValueError(f"array {name!r} has shape {array.shape}; expected {shape}.")
            yield name, vector[where], array


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f"
