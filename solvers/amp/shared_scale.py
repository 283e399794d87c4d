"""Entries that are active together: a scale that the entries of a group share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.amp.scalar import (
    Denoised,
    Denoiser,
    Scales,
    learn_group_weights,
    nodes_and_counts,
    scales_of,
    weighed,
)

__all__ = ["SharedScale"]


@dataclass(frozen=True, eq=False)
class SharedScale:
    """Posterior mean under a scale that the entries of a group share.

    A group is zero, or its entries are normal with one variance; how many groups have which
    variance is learnt.

    Parameters
    ----------
    group : ndarray of int of shape (d,)
        Number of the group of each entry, from zero on.
    positive : bool, default=False
        Half-Gaussians on x ≥ 0.

    See Also
    --------
    solvers.priors.Groups : The same by labels, or by the shapes of layers.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import SharedScale, Sparse
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat(np.arange(200), 10)
    >>> x = np.where(group < 10, 2.0, 0.0) * rng.standard_normal(2000)
    >>> p = x + rng.standard_normal(2000)
    >>> together = SharedScale(group).denoise(p, tau=1.0).estimate
    >>> apart = Sparse().denoise(p, tau=1.0).estimate
    >>> bool(np.sum((together - x) ** 2) < np.sum((apart - x) ** 2))
    True
    """

    group: NDArray[np.int64]
    positive: bool = False

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        from solvers.amp import _kernels as kernels

        grid, counts = nodes_and_counts(p, tau)
        scales = scales_of(grid, counts, self.positive)
        relative = scales.log_densities - scales.log_densities[:, :1]
        log_densities = np.zeros((int(self.group.max()) + 1, relative.shape[1]))
        table = _two_sided(scales, relative, odd=False)
        kernels.group_log_densities(p, tau, grid, self.group, table, log_densities)
        posterior, evidence = learn_group_weights(log_densities)
        estimate = np.empty_like(p)
        means = _two_sided(scales, scales.means, odd=True)
        divergence = kernels.apply_group_posterior(
            p, tau, grid, self.group, posterior, means, estimate
        )
        return weighed(Denoised(estimate, float(divergence)), tau, evidence)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the denoiser of some of the entries; a group that is parted becomes smaller."""
        numbers = np.unique(self.group[features], return_inverse=True)[1]
        return SharedScale(numbers.astype(np.int64).ravel(), self.positive)


def _two_sided(scales: Scales, values: NDArray[np.float64], odd: bool) -> NDArray[np.float64]:
    """Return values (nodes, scales) as an array (2, nodes, scales): f(u), and ±f(−u)."""
    if not scales.positive:
        return np.stack([values, values])
    half = len(values) // 2
    return np.stack([values[:half], -values[half:] if odd else values[half:]])
