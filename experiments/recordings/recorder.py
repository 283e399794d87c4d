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
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from experiments.recordings.recording import Recording, RoundWriter

__all__ = ["Recorder", "as_arrays", "flatten", "layer_shapes"]


class Recorder:
    """Record what clients add to the weights, one round after the other.

    A round is written to disk when the next one starts or the ``with`` block ends. A round that
    an exception interrupts is dropped; those before it are kept.

    Parameters
    ----------
    path : path
        Folder of the recording: a new one, or one of the same layers to go on with.
    shapes : mapping of str to tuple of int, optional
        Layers by name; by default those of the first weights.
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

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        **description: Any,
    ) -> None:
        self._path, self._shapes, self._description = path, shapes, description
        self._recording: Recording | None = None
        self._round = contextlib.ExitStack()
        self._writer: RoundWriter | None = None
        self._before: NDArray[np.float64] | None = None

    @property
    def recording(self) -> Recording:
        """The recording, once the layers are known."""
        if self._recording is None:
            raise RuntimeError("nothing is recorded yet; call start(number, weights) first.")
        return self._recording

    def __call__(self, number: int, updates: Any, *, clip_norm: float | None = None) -> None:
        """Record a round whose updates (n, d) are at hand; see :meth:`Recording.append`."""
        self._finish()
        if self._recording is None:
            self._open(self._shapes)
        self.recording.append(number, updates, clip_norm=clip_norm)

    def start(self, number: int, weights: Any, *, clip_norm: float | None = None) -> None:
        """Begin a round: ``weights`` are what its clients start from. They are copied."""
        self._finish()
        arrays = as_arrays(weights)
        if self._recording is None:
            self._open(self._shapes or layer_shapes(arrays))
        before = flatten(arrays, self.recording.shapes)
        self._writer = self._round.enter_context(self.recording.writer(number, clip_norm=clip_norm))
        self._before = before

    def client(self, weights: Any) -> None:
        """Add a client that ended with ``weights``."""
        self.update(flatten(as_arrays(weights), self.recording.shapes) - self._start)

    def update(self, update: Any) -> None:
        """Add a client by what it adds to the weights, in any of the forms of weights."""
        if self._writer is None:
            raise RuntimeError("no round is open; call start(number, weights) first.")
        self._writer.write(flatten(as_arrays(update), self.recording.shapes))

    @property
    def _start(self) -> NDArray[np.float64]:
        if self._before is None:
            raise RuntimeError("no round is open; call start(number, weights) first.")
        return self._before

    def _open(self, shapes: Mapping[str, tuple[int, ...]] | None) -> None:
        self._recording = Recording.create(
            self._path, shapes=shapes, exist_ok=True, **self._description
        )

    def _finish(self) -> None:
        self._writer = self._before = None
        self._round.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer = self._before = None
        self._round.__exit__(kind, error, trace)


def as_arrays(weights: Any) -> dict[str, NDArray[Any]]:
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
    if isinstance(weights, Sequence) and not isinstance(weights, str):
        return {f"layer_{k}": _as_array(value) for k, value in enumerate(weights)}
    return {"layer_0": _as_array(weights)}


def _as_array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):  # a tensor of PyTorch, which need not be installed here
        value = value.detach().cpu()
        value = value.double() if value.is_floating_point() else value
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"weights hold {array.dtype}; pass arrays or tensors of real numbers.")
    return array


def layer_shapes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """Return names and shapes; a number counts as a vector of one entry."""
    return {name: array.shape or (1,) for name, array in arrays.items()}


def flatten(
    arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> NDArray[np.float64]:
    """Return one vector of arrays that must have the given names and shapes, in that order.

    One array of the right length needs no name.
    """
    dim = sum(int(np.prod(shape)) for shape in shapes.values())
    if len(arrays) == 1 and (not shapes or next(iter(arrays.values())).shape == (dim,)):
        return next(iter(arrays.values())).astype(np.float64).ravel()
    found = layer_shapes(arrays)
    if found != dict(shapes):
        differing = [name for name in {**shapes, **found} if shapes.get(name) != found.get(name)]
        name = differing[0]
        raise ValueError(
            f"layer {name!r} has shape {found.get(name, 'missing')} in these weights and "
            f"{shapes.get(name, 'missing')} in the recording."
        )
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in shapes])
