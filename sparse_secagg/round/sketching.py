"""From rows to sketches: weighted, clipped layer by layer, and multiplied by S.

The sketch is linear, so it is the short sketch that is scaled into the clip: rows are read and
never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.clipped_rows import ClippedRows, as_rows, clip_factors
from sparse_secagg.sketches.described import Layer

__all__ = ["SketchCounts", "sketch_rows"]


@dataclass(frozen=True)
class SketchCounts:
    """What clipping met in a batch of rows. Data-dependent: not private.

    Attributes
    ----------
    parts : list of ClippedRows
        The rows, layer by layer.
    """

    parts: list[ClippedRows]

    @property
    def n_nonfinite(self) -> int:
        """Rows with NaN or Inf."""
        return int(np.any([part.nonfinite for part in self.parts], axis=0).sum())

    @property
    def n_clipped(self) -> int:
        """Rows that were too long, in any layer."""
        return int(np.any([part.clipped for part in self.parts], axis=0).sum())

    @property
    def norms(self) -> NDArray[np.float64]:
        """Norms of the weighted rows before clipping; zero for rows with NaN or Inf."""
        if len(self.parts) == 1:
            return self.parts[0].norms
        with np.errstate(over="ignore"):
            return np.asarray(np.linalg.norm([part.norms for part in self.parts], axis=0))

    def add_to(self, total: NDArray[np.float64], clipped_total: NDArray[np.float64]) -> None:
        """Add the sums of the rows before and after clipping to two totals of length d."""
        start = 0
        for part in self.parts:
            layer = slice(start, start + part.rows.shape[1])
            part.add_to(total[layer], clipped_total[layer])
            start = layer.stop


def sketch_rows(
    layers: Sequence[Layer],
    X: Any,
    clip_norm: float,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], SketchCounts]:
    """Return the sketches of the rows of X (n, d), weighted and then clipped layer by layer.

    Rows with NaN or Inf count as 0.
    """
    parts = _clip(X, clip_norm, layers, weights)
    sketches = [_sketch(layer, part) for layer, part in zip(layers, parts)]
    joined = sketches[0] if len(sketches) == 1 else np.concatenate(sketches, axis=1)
    return joined, SketchCounts(parts)


def _clip(
    X: Any, clip_norm: float, layers: Sequence[Layer], weights: NDArray[np.float64] | None
) -> list[ClippedRows]:
    """Return the clipped rows, layer by layer; a row that is bad in one layer is zero in all."""
    rows = as_rows(X)
    if len(layers) == 1:
        return [clip_factors(rows, layers[0].clip_share * clip_norm, weights)]
    parts = [
        clip_factors(as_rows(rows[:, layer.features]), layer.clip_share * clip_norm, weights)
        for layer in layers
    ]
    bad = np.any([part.nonfinite for part in parts], axis=0)
    return [part.without(bad) for part in parts]


def _sketch(layer: Layer, clipped: ClippedRows) -> NDArray[np.float64]:
    sketches = np.asarray(layer.sketch(clipped.rows), dtype=np.float64)
    if (clipped.factors != 1).any():
        sketches *= clipped.factors[:, None]
    return sketches
