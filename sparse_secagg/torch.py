"""Between a PyTorch ``state_dict`` and the vector that a round is about.

Floating-point tensors follow each other in the vector, tied ones once; integer and boolean buffers
(counters) are no part of it and keep their values. Needs ``sparse-secagg[torch]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["flatten", "layers", "unflatten"]

StateDict = Mapping[str, torch.Tensor]


def flatten(state: StateDict, before: StateDict | None = None) -> NDArray[Any]:
    """Return the entries of a model, or its update since ``before``, as one NumPy vector.

    Parameters
    ----------
    state : mapping of str to Tensor
        A ``state_dict``, on any device.
    before : mapping of str to Tensor, optional
        The model before training. Each difference is taken on the tensor's own device.

    Returns
    -------
    ndarray of shape (d,)
        Entries in float32, or in float64 if a tensor is. One buffer is written, tensor by tensor.

    Raises
    ------
    ValueError
        A tensor of ``before`` is missing or has another shape; the message names it.

    See Also
    --------
    unflatten : The way back.

    Examples
    --------
    >>> import torch
    >>> from sparse_secagg.torch import flatten
    >>> before = {"weight": torch.zeros(2, 2), "steps": torch.tensor(7)}
    >>> after = {"weight": torch.ones(2, 2), "steps": torch.tensor(8)}
    >>> flatten(after, before).tolist()  # counters are no part of the vector
    [1.0, 1.0, 1.0, 1.0]
    """
    parts = dict(_parts(state))
    vector = np.empty(_length(parts), dtype=_dtype(parts))
    target = torch.from_numpy(vector)
    for name, where in layers(state).items():
        piece = parts[name].detach()
        if before is not None:
            piece = _difference(name, piece, before)
        target[where].copy_(piece.reshape(-1))
    return vector


def unflatten(vector: NDArray[Any] | torch.Tensor, like: StateDict) -> dict[str, torch.Tensor]:
    """Return the ``state_dict`` of a vector, with names, shapes, types and devices of ``like``.

    Tied tensors stay tied; tensors that are no part of the vector are those of ``like``. Values
    beyond the range of a small type stay at the end of that range.

    Parameters
    ----------
    vector : ndarray or Tensor of shape (d,)
        All floating-point entries.
    like : mapping of str to Tensor
        A ``state_dict`` of the model.

    Returns
    -------
    dict of str to Tensor
        What ``load_state_dict`` takes.

    Raises
    ------
    ValueError
        If the vector is longer or shorter than the model.

    See Also
    --------
    flatten : The way there.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from sparse_secagg.torch import unflatten
    >>> unflatten(np.arange(4.0), like={"weight": torch.zeros(2, 2)})["weight"].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    source = vector if isinstance(vector, torch.Tensor) else torch.from_numpy(np.asarray(vector))
    parts, where = dict(_parts(like)), layers(like)
    if tuple(source.shape) != (_length(parts),):
        raise ValueError(
            f"vector has shape {tuple(source.shape)}; the model's has ({_length(parts)},)."
        )
    made = {}
    for name, tensor in parts.items():
        kind = torch.finfo(tensor.dtype)
        piece = source[where[name]].clamp(kind.min, kind.max)
        made[_key(tensor)] = piece.to(tensor.device, tensor.dtype).reshape(tensor.shape)
    return {name: made.get(_key(tensor), tensor) for name, tensor in like.items()}


def layers(state: StateDict) -> dict[str, slice]:
    """Return where each tensor is in the vector: for ``RoundSpec(layers=…)`` and for priors.

    Parameters
    ----------
    state : mapping of str to Tensor
        A ``state_dict``.

    Returns
    -------
    dict of str to slice
        The place of each floating-point tensor, tied ones once.

    See Also
    --------
    flatten : Makes the vector.

    Examples
    --------
    >>> import torch
    >>> from sparse_secagg.torch import layers
    >>> layers(torch.nn.Linear(3, 2).state_dict())
    {'weight': slice(0, 6, None), 'bias': slice(6, 8, None)}
    """
    found, start = {}, 0
    for name, tensor in _parts(state):
        found[name] = slice(start, start + tensor.numel())
        start += tensor.numel()
    return found


def _parts(state: StateDict) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that are in the vector, tied ones once."""
    seen: set[Any] = set()
    for name, tensor in state.items():
        if tensor.is_floating_point() and _key(tensor) not in seen:
            seen.add(_key(tensor))
            yield name, tensor


def _key(tensor: torch.Tensor) -> Any:
    """Return what two tensors have in common exactly if they are the same entries."""
    if tensor.numel() == 0:
        return id(tensor)
    return (tensor.data_ptr(), tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride())


def _length(parts: StateDict) -> int:
    length = sum(int(tensor.numel()) for tensor in parts.values())
    if not length:
        raise ValueError(
            "the state_dict has no floating-point entries; there is nothing to average."
        )
    return length


def _dtype(parts: StateDict) -> type[np.floating[Any]]:
    wide = any(tensor.dtype == torch.float64 for tensor in parts.values())
    return np.float64 if wide else np.float32


def _difference(name: str, piece: torch.Tensor, before: StateDict) -> torch.Tensor:
    if name not in before:
        raise ValueError(f"tensor {name!r} is missing from the model before.")
    start = before[name].detach()
    if start.shape != piece.shape:
        raise ValueError(
            f"tensor {name!r} has shape {tuple(piece.shape)}, before {tuple(start.shape)}."
        )
    wide = torch.float64 if piece.dtype == torch.float64 else torch.float32
    return piece.to(wide) - start.to(piece.device, wide)
