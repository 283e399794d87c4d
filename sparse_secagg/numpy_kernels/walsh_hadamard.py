"""The fast Walsh–Hadamard transform in NumPy.

A stage of stride h replaces (a, b), h apart, by (a + b, a − b). Stages run in ascending order of
their stride and a scale multiplies at the end, so every number is the same sum as in the compiled
kernels, rounded in the same places. Blocks that a cache holds are finished first.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sparse_secagg.numpy_kernels.pieces import pieces

__all__ = ["combine", "transform_block", "transform_rows"]

#: Entries transformed while they are in cache.
_BLOCK = 1 << 13
#: Strides below this run on a transposed copy, where NumPy's loops are long.
_SHORT = 64


def transform_rows(X: NDArray[Any], scale: Any) -> None:
    """Transform every row of X in place, scaled."""
    for row in X:
        transform_block(row, 0, len(row))
        row *= scale


def transform_block(a: NDArray[Any], start: int, n: int) -> None:
    """Transform a[start : start + n], unscaled: blocks, then up to three stages at a time."""
    for block in pieces(start, start + n, _BLOCK):
        _transform_in_cache(a[block])
    h = _BLOCK
    while h < n:
        n_stages = min(3, (n // h).bit_length() - 1)
        for i in range(start, start + n, h << n_stages):
            combine(a, i, i + h, h, n_stages, None)
        h <<= n_stages


def combine(a: NDArray[Any], start: int, stop: int, h: int, n_stages: int, scale: Any) -> None:
    """Run ``n_stages`` stages from stride h on, on columns start … stop-1.

    ``scale`` is None or multiplies the result.
    """
    count = 1 << n_stages
    for columns in pieces(start, stop, _BLOCK // count):
        parts = [a[columns.start + k * h : columns.stop + k * h] for k in range(count)]
        for stage in range(n_stages):
            for k in range(count):
                if not k >> stage & 1:
                    _butterfly(parts[k], parts[k + (1 << stage)])
        if scale is not None:
            for part in parts:
                part *= scale


def _transform_in_cache(a: NDArray[Any]) -> None:
    table = a.reshape(-1, min(len(a), _SHORT))
    turned = table.T.copy()
    _stages_down(turned)
    table[:] = turned.T
    _stages_down(table)


def _stages_down(table: NDArray[Any]) -> None:
    """Run all stages along the first axis of a contiguous table."""
    h = 1
    while h < len(table):
        pairs = table.reshape(-1, 2, h, table.shape[1])
        _butterfly(pairs[:, 0], pairs[:, 1])
        h *= 2


def _butterfly(a: NDArray[Any], b: NDArray[Any]) -> None:
    difference = a - b
    a += b
    b[:] = difference
