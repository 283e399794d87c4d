"""From rows to sketches: weighted, clipped layer by layer, and multiplied by S.

The sketch is linear, so it is the short sketch that is scaled into the clip: rows are read and
never copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from sparse_secagg.clipped_rows import ClippedRows, as_rows, clip_factors
from sparse_secagg.encoders import BlockEncoder, HadamardEncoder, IdentityEncoder, LinearEncoder
from sparse_secagg.parameters import SketchClip
from sparse_secagg.planning.clips import JL_CLIP, check_sketch_clip, length_spread, tight_factor
from sparse_secagg.walsh_hadamard import next_power_of_two

__all__ = ["SketchCounts", "sketch_clip_norm", "sketch_rows", "with_seed"]


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
    encoder: LinearEncoder,
    X: Any,
    clip_norm: float,
    weights: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], SketchCounts]:
    """Return the sketches of the rows of X (n, d), weighted and then clipped.

    Rows with NaN or Inf count as 0.
    """
    parts = _clip(X, clip_norm, encoder, weights)
    if isinstance(encoder, BlockEncoder):
        encoders = [block.encoder for block in encoder.blocks_]
    else:
        encoders = [encoder]
    sketches = [_sketch(each, part) for each, part in zip(encoders, parts)]
    joined = sketches[0] if len(sketches) == 1 else np.concatenate(sketches, axis=1)
    return joined, SketchCounts(parts)


def sketch_clip_norm(encoder: LinearEncoder, clip_norm: float, kind: SketchClip) -> float:
    """Return the clip c' of the sketches of vectors within ``clip_norm``.

    Parameters
    ----------
    encoder : LinearEncoder
        Fitted. Vectors that are not sketched are not clipped again.
    clip_norm : float
        Clip c of the vectors.
    kind : {"tight", "jl", "spectral"} or float
        As ``sketch_clip`` of :class:`~sparse_secagg.RoundSpec`.

    Returns
    -------
    float
        The clip of a sketch, in the units of the data.

    Raises
    ------
    ValueError
        If the kind is unknown, or "spectral" is asked of an encoder that does not know σ_max(S).

    See Also
    --------
    RoundConfig.create : Uses it.

    Examples
    --------
    >>> from sparse_secagg import CountSketchEncoder, IdentityEncoder
    >>> from sparse_secagg.rounds import sketch_clip_norm
    >>> sketch_clip_norm(IdentityEncoder().fit_dimension(1000), 2.0, "tight")
    2.0
    >>> encoder = CountSketchEncoder(n_components=100).fit_dimension(1000)
    >>> 2.0 < sketch_clip_norm(encoder, 2.0, "tight") < 3.0
    True
    """
    check_sketch_clip(kind)
    if isinstance(encoder, IdentityEncoder):
        return clip_norm
    if kind == "tight":
        d = encoder.n_features_in_
        orthogonal = isinstance(encoder, HadamardEncoder)
        row_dim = next_power_of_two(d) if orthogonal else math.inf
        return clip_norm * tight_factor(length_spread(encoder.n_components_, row_dim))
    if kind == "jl":
        return JL_CLIP * clip_norm
    if not isinstance(kind, str):
        return float(kind) * clip_norm
    if not hasattr(encoder, "sigma_max"):
        raise ValueError(
            f"sketch_clip='spectral' needs the largest singular value of S, which "
            f"{type(encoder).__name__} does not offer; use GaussianEncoder, or sketch_clip='tight'."
        )
    return float(clip_norm * encoder.sigma_max())


def with_seed(encoder: LinearEncoder, seed: int) -> LinearEncoder:
    """Return an unfitted copy of an encoder with this public seed."""
    encoder = clone(encoder)
    if "random_state" in encoder.get_params(deep=False):
        encoder.set_params(random_state=seed)
    return encoder


def _clip(
    X: Any, clip_norm: float, encoder: LinearEncoder, weights: NDArray[np.float64] | None
) -> list[ClippedRows]:
    """Return the clipped rows, layer by layer; a row that is bad in one layer is zero in all."""
    rows = as_rows(X)
    if not isinstance(encoder, BlockEncoder):
        return [clip_factors(rows, clip_norm, weights)]
    layers = [
        clip_factors(as_rows(rows[:, block.features]), block.clip_share * clip_norm, weights)
        for block in encoder.blocks_
    ]
    bad = np.any([layer.nonfinite for layer in layers], axis=0)
    return [layer.without(bad) for layer in layers]


def _sketch(encoder: LinearEncoder, clipped: ClippedRows) -> NDArray[np.float64]:
    sketches = np.asarray(encoder.operator_.matmat(clipped.rows.T).T, dtype=np.float64)
    if (clipped.factors != 1).any():
        sketches *= clipped.factors[:, None]
    return sketches
