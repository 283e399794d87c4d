"""Low rank: shrink the singular values of each layer, optimally at noise τ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.amp.layers import layer_slices, shapes_within
from solvers.amp.scalar import Denoised, Denoiser, Shrink

__all__ = ["LowRank"]

#: From this many entries on a layer's singular values come from a randomised decomposition.
_EXACT_SVD_UP_TO = 2**21


@dataclass(frozen=True)
class LowRank:
    """Shrink the singular values of each layer, optimally in Frobenius norm at noise τ.

    A p×q layer, β = q/p ≤ 1, singular value s = τ√p·v becomes τ√p·√((v² − β − 1)² − 4β)/v where
    v > 1 + √β, else 0 (Gavish and Donoho's optimal shrinkage). The divergence of such a map
    is exact from all singular values; of layers above 2²¹ entries only the leading ones are
    computed, by a randomised decomposition, and the divergence is estimated by Monte Carlo.
    Entries outside matrices (biases, what the shapes do not cover) are shrunk linearly.

    Parameters
    ----------
    shapes : sequence of tuples
        Shapes of the layers, in the order of the flat vector. Axes beyond the second are
        merged into the first.
    max_rank : int, default=64
        Rank of the randomised decomposition.
    seed : int, default=0
        Public seed of its test matrix and of the Monte Carlo probe.

    See Also
    --------
    Shrink : For vectors.
    Auto : Uses it where it helps.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import LowRank
    >>> rng = np.random.default_rng(0)
    >>> x = 9.0 * np.outer(rng.standard_normal(60), rng.standard_normal(40)).ravel()
    >>> p = x + rng.standard_normal(2400)
    >>> estimate = LowRank([(60, 40)]).denoise(p, tau=1.0).estimate
    >>> bool(np.sum((estimate - x) ** 2) < 0.1 * np.sum((p - x) ** 2))
    True
    """

    shapes: Sequence[tuple[int, ...]]
    max_rank: int = 64
    seed: int = 0

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        estimate = np.empty_like(p)
        divergence = 0.0
        for part, shape in zip(layer_slices(self.shapes, len(p)).values(), self._all_shapes(p)):
            found = self._layer(p[part], shape, tau)
            estimate[part] = found.estimate
            divergence += found.divergence
        return Denoised(estimate, divergence)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the denoiser of some of the layers."""
        return replace(self, shapes=shapes_within(self.shapes, features, d))

    def _all_shapes(self, p: NDArray[np.floating]) -> list[tuple[int, ...]]:
        rest = len(p) - sum(math.prod(shape) for shape in self.shapes)
        return [*self.shapes, (rest,)] if rest else list(self.shapes)

    def _layer(self, p: NDArray[np.floating], shape: tuple[int, ...], tau: float) -> Denoised:
        if len(shape) < 2:
            return Shrink().denoise(p, tau)
        matrix = p.reshape(-1, shape[-1])
        if matrix.size <= _EXACT_SVD_UP_TO:
            return _shrink_exactly(matrix, tau)
        estimate = self._shrink_leading(matrix, tau)
        step = 0.1 * tau
        probe = np.random.default_rng(self.seed).choice([-1.0, 1.0], matrix.shape)
        moved = self._shrink_leading(matrix + (step * probe).astype(matrix.dtype), tau)
        divergence = float(np.sum(probe * (moved - estimate))) / step
        return Denoised(estimate.ravel(), divergence)

    def _shrink_leading(self, matrix: NDArray[np.floating], tau: float) -> NDArray[np.floating]:
        from sklearn.utils.extmath import randomized_svd

        rank = min(self.max_rank, *matrix.shape)
        U, s, Vt = randomized_svd(matrix, rank, n_iter=2, random_state=self.seed)
        shrunk, _ = _optimal_shrinkage(s, matrix.shape, tau)
        return np.asarray(((U * shrunk) @ Vt).astype(matrix.dtype, copy=False))


def _optimal_shrinkage(
    s: NDArray[np.floating], shape: tuple[int, ...], tau: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shrunk singular values and the derivative of the shrinkage."""
    long, short = max(shape), min(shape)
    beta = short / long
    scale = tau * math.sqrt(long)
    v = np.asarray(s, dtype=np.float64) / scale
    kept = v > 1.0 + math.sqrt(beta)
    v = np.where(kept, v, 2.0 + beta)
    root = np.sqrt((v**2 - beta - 1.0) ** 2 - 4.0 * beta)
    shrunk = root / v
    slope = 2.0 * (v**2 - beta - 1.0) / root - root / v**2
    return np.where(kept, scale * shrunk, 0.0), np.where(kept, slope, 0.0)


def _shrink_exactly(matrix: NDArray[np.floating], tau: float) -> Denoised:
    """Shrink all singular values; the divergence is that of a spectral function.

    Σ_i f'(s_i) + |p − q|·Σ_i f(s_i)/s_i + 2·Σ_{i≠j} s_i f(s_i)/(s_i² − s_j²).
    """
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    # singular values below the noise are dropped, so squaring them loses nothing
    squares, V = np.linalg.eigh(tall.T.astype(np.float64) @ tall)
    squares = np.maximum(squares, 0.0)
    s = np.sqrt(squares)
    shrunk, slope = _optimal_shrinkage(s, matrix.shape, tau)
    kept = np.flatnonzero(shrunk)
    leading = V[:, kept]
    estimate = ((tall @ leading) * (shrunk[kept] / s[kept])) @ leading.T
    if tall is not matrix:
        estimate = estimate.T
    difference = squares[kept, None] - squares[None, :]
    difference[np.arange(len(kept)), kept] = np.inf
    # two equal singular values: the limit is finite, and they do not occur with noise
    difference[difference == 0] = np.inf
    divergence = (
        slope.sum()
        + abs(matrix.shape[0] - matrix.shape[1]) * np.sum(shrunk[kept] / s[kept])
        + 2.0 * np.sum((s[kept] * shrunk[kept])[:, None] / difference)
    )
    return Denoised(estimate.astype(matrix.dtype).ravel(), float(divergence))
