"""A hook that records from any training loop.

    with Recorder("my-recording") as record:
        for number in range(rounds):
            record.start(number, model.state_dict())        # what all clients start from
            for client in cohort:
                ...                                         # train a copy of the model
                record.client(local.state_dict())           # what this client ends with

Weights are a PyTorch ``state_dict``, a mapping of names to arrays, a list of arrays or one array.
Names and shapes of the layers are kept; entries that are not floating-point numbers (counters of
batches) are not weights and are left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from experiments.recordings.recording import Recording, RoundWriter

Shapes = Mapping[str, tuple[int, ...]]


class Recorder:
    """Record what clients add to the weights, one round after the other.

    A round is written to disk when the next one starts or the ``with`` block ends. A round that
    an exception interrupts is dropped; those before it are kept.

    Parameters
    ----------
    path : path
        Folder of the recording: a new one, or one of the same layers to go on with.
    **description
        ``task``, ``model``, ``clip_norm``, ``seeds`` and ``notes`` of :meth:`Recording.create`.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> weights = {"weight": np.zeros((2, 3)), "bias": np.zeros(3)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Recorder(folder, task="example") as record:
    ...         record.start(0, weights)
    ...         for client in range(4):
    ...             record.client({"weight": np.ones((2, 3)), "bias": np.ones(3)})
    ...     record.recording[0].shape, record.recording.shapes
    ((4, 9), {'weight': (2, 3), 'bias': (3,)})
    """

    recording: Recording

    def __init__(self, path: str | os.PathLike[str], **description: Any) -> None:
        self._path, self._description = path, description
        self._round = contextlib.ExitStack()
        self._open: tuple[RoundWriter, NDArray[np.float64]] | None = None

    def start(self, number: int, weights: Any, *, clip_norm: float | None = None) -> None:
        """Begin a round: ``weights`` are what its clients start from. They are copied."""
        self._open = None
        self._round.close()
        arrays = _as_arrays(weights)
        if not hasattr(self, "recording"):
            self.recording = Recording.create(
                self._path, shapes=_shapes(arrays), exist_ok=True, **self._description
            )
        before = _flatten(arrays, self.recording.shapes)
        writer = self._round.enter_context(self.recording.writer(number, clip_norm=clip_norm))
        self._open = writer, before

    def client(self, weights: Any) -> None:
        """Add a client that ended with ``weights``."""
        if self._open is None:
            raise RuntimeError("no round is open; call start(number, weights) first.")
        writer, before = self._open
        writer.write(_flatten(_as_arrays(weights), self.recording.shapes) - before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open = None
        self._round.__exit__(*exception)


def _as_arrays(weights: Any) -> dict[str, NDArray[Any]]:
    """Return weights in any form as arrays by name, without those that are not floating point.

    Arrays without names are called ``layer_0``, ``layer_1``, …
    """
    if isinstance(weights, Mapping):
        named = {str(name): _as_array(value) for name, value in weights.items()}
        arrays = {name: array for name, array in named.items() if array.dtype.kind == "f"}
        if named and not arrays:
            raise ValueError(
                f"none of {', '.join(list(named)[:5])} holds floating-point numbers; pass weights."
            )
        return arrays
    several = isinstance(weights, Sequence) and not isinstance(weights, str)
    parts = weights if several else [weights]
    return {f"layer_{k}": _as_array(value) for k, value in enumerate(parts)}


def _as_array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):  # a tensor of PyTorch, which need not be installed here
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"weights hold {array.dtype}; pass arrays or tensors of real numbers.")
    return array


def _shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """Return names and shapes; a number counts as a vector of one entry."""
    return {name: array.shape or (1,) for name, array in arrays.items()}


def _flatten(arrays: Mapping[str, NDArray[Any]], shapes: Shapes) -> NDArray[np.float64]:
    """Return one vector of arrays that must have the given names and shapes, in that order."""
    found = _shapes(arrays)
    for name in {**shapes, **found}:
        if found.get(name) != shapes.get(name):
            raise ValueError(
                f"layer {name!r} has shape {found.get(name, 'missing')} in these weights and "
                f"{shapes.get(name, 'missing')} in the recording."
            )
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in shapes])
