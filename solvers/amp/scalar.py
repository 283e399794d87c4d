"""Scalar denoisers: each entry of x from its own pseudo-datum p = x + τ·g, τ known.

A scale mixture learnt from all entries (sparse), soft thresholding, linear shrinkage; tabulated
over u = p/τ, so that they cost one look-up for each entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

__all__ = [
    "Denoised",
    "Denoiser",
    "Learnt",
    "Scales",
    "Shrink",
    "Soft",
    "Sparse",
    "learn_group_weights",
    "nodes_and_counts",
    "risk",
    "scales_of",
    "weighed",
]

#: Ratio of neighbouring variances in the scale mixture: a Gaussian of any variance is within
#: 1 % in risk of a mixture of two neighbours.
_RATIO = 4.0

#: Sweeps and Newton steps over the mixture weights, each O(nodes) whatever d is.
_SWEEPS = 10
_NEWTON_STEPS = 50
_WEIGHT_TOLERANCE = 1e-9

#: Precision of the log-likelihood of a group's entries: a small group's mean needs less.
_LIKELIHOOD_TOLERANCE = 1e-3

#: Share of zeros that the sweeps start from. Most of what is decoded is sparse, and mass moves
#: away from zero faster than towards it.
_START_AT_ZERO = 0.9

#: Logarithm of the odds, before p is seen, that x = 0. Fitting the weights to pure noise gains
#: about 1 in log-likelihood and rarely 3; one signal among noise makes an estimate worse than
#: nothing if it is not there.
_LOG_ODDS_OF_ZERO = 2.0

#: Weight that a start for similar counts spreads over all scales.
_OPEN_MINDED = 1e-4

_TINY = np.finfo(np.float64).tiny


class Denoised(NamedTuple):
    """An estimate and the divergence Σ_j ∂x̂_j/∂p_j of the map that made it.

    Parameters
    ----------
    estimate : ndarray of shape (d,)
        The estimate x̂ of x.
    divergence : float
        Its divergence at p, exact or a Monte Carlo estimate of fixed seed.

    See Also
    --------
    Denoiser : What returns one.
    risk : The squared error that it predicts.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Soft
    >>> found = Soft(threshold=1.0).denoise(np.array([3.0, -0.5]), tau=1.0)
    >>> found.estimate.tolist(), found.divergence  # one of the two entries still moves with p
    ([2.0, 0.0], 1.0)
    """

    estimate: NDArray[np.floating]
    divergence: float


@runtime_checkable
class Denoiser(Protocol):
    """What message passing asks of a denoiser: any object with this method is one.

    See Also
    --------
    Sparse, Soft, Shrink, LowRank, SharedScale : Those that are built in.
    get : A denoiser by its name.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> class Keep:
    ...     '''Believe the pseudo-data as they are.'''
    ...     def denoise(self, p, tau):
    ...         return solvers.denoisers.Denoised(p, float(len(p)))
    >>> isinstance(Keep(), solvers.denoisers.Denoiser)
    True
    """

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        """Estimate x from p = x + τ·(standard normal noise)."""
        ...


def risk(p: NDArray[np.floating], tau: float, denoised: Denoised) -> float:
    """Return Stein's unbiased estimate of ‖x̂ − x‖²: ‖x̂ − p‖² + 2τ²·divergence − dτ².

    Parameters
    ----------
    p : ndarray of shape (d,)
        The pseudo-data, x + τ·(standard normal noise).
    tau : float
        Standard deviation τ of that noise.
    denoised : Denoised
        What a denoiser made of p and τ.

    Returns
    -------
    float
        The estimated squared error. It needs no x, and may be negative.

    See Also
    --------
    Auto : Chooses a denoiser for each layer by it.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Sparse, risk
    >>> rng = np.random.default_rng(0)
    >>> x = np.where(rng.random(5000) < 0.05, 5.0, 0.0)
    >>> p = x + rng.standard_normal(5000)
    >>> found = Sparse().denoise(p, tau=1.0)
    >>> bool(abs(risk(p, 1.0, found) / np.sum((found.estimate - x) ** 2) - 1) < 0.2)
    True
    """
    change = denoised.estimate - p
    square = float(np.dot(change, change))
    return square + tau**2 * (2 * denoised.divergence - len(p))


# --- scalar denoisers: a table over u = p/τ ---------------------------------------------


def _tabulated(
    p: NDArray[np.floating],
    tau: float,
    positive_side: NDArray[np.floating],
    negative_side: NDArray[np.floating],
) -> Denoised:
    """Apply a scalar function given at the nodes, as f(u) and −f(−u)."""
    from solvers.amp import _kernels as kernels

    grid = kernels.nodes()
    table = np.stack([positive_side, negative_side])
    slopes = np.diff(table, axis=1) / np.diff(grid)
    estimate = np.empty_like(p)
    divergence = kernels.apply_table(p, tau, grid, table, slopes, estimate)
    return Denoised(estimate, float(divergence))


def nodes_and_counts(
    p: NDArray[np.floating], tau: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the nodes and how many |p|/τ lie at each; row 0 for p ≥ 0, row 1 for p < 0."""
    from solvers.amp import _kernels as kernels

    grid = kernels.nodes()
    counts = np.zeros((2, len(grid)))
    kernels.bin_entries(p, tau, grid, counts)
    return grid, counts


@dataclass(frozen=True)
class Soft:
    """Soft thresholding: ``x̂ = sign(p)·max(|p| − threshold·τ, 0)``.

    Parameters
    ----------
    threshold : float, optional
        By default the one of least estimated risk (Stein) for the p at hand.

    See Also
    --------
    Sparse : Learns a prior, and shrinks large entries less.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Soft
    >>> Soft(threshold=2.0).denoise(np.array([5.0, -5.0, 1.0]), tau=1.0).estimate.tolist()
    [3.0, -3.0, 0.0]
    """

    threshold: float | None = None

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        threshold = self._least_risk(p, tau) if self.threshold is None else self.threshold
        excess = np.abs(p) - p.dtype.type(threshold * tau)
        kept = excess > 0
        return Denoised(
            np.where(kept, np.copysign(excess, p), p.dtype.type(0)), float(np.count_nonzero(kept))
        )

    @staticmethod
    def _least_risk(p: NDArray[np.floating], tau: float) -> float:
        grid, counts = nodes_and_counts(p, tau)
        number = counts.sum(axis=0)
        above = number.sum() - np.cumsum(number)
        # Stein at threshold u: Σ min(|p|, u)² + 2·#{|p| > u} − d, in units of τ²
        estimate = np.cumsum(number * grid**2) + above * (grid**2 + 2.0)
        return float(grid[estimate.argmin()])


@dataclass(frozen=True)
class Shrink:
    """Linear shrinkage x̂ = p·v/(v + τ²), v = max(mean p² − τ², 0): for dense x.

    See Also
    --------
    Sparse : For vectors most of whose entries are zero or small.
    LowRank : For matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Shrink
    >>> Shrink().denoise(np.array([2.0, -2.0]), tau=1.0).estimate.tolist()  # v = 3
    [1.5, -1.5]
    """

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        mean_square = float(np.dot(p, p)) / len(p)
        factor = max(0.0, 1.0 - tau**2 / mean_square) if mean_square > 0 else 0.0
        return Denoised(p * p.dtype.type(factor), factor * len(p))


@dataclass(frozen=True)
class Sparse:
    """Posterior mean under a Bernoulli–Gaussian prior whose scales and rates are learnt.

    The prior is (1 − Σ_k w_k)·δ₀ + Σ_k w_k·N(0, v_k) with v_k on a geometric grid that covers
    everything p can tell apart; the weights maximise the likelihood of p by
    expectation-maximisation. One scale is the Bernoulli–Gaussian prior, weights on many scales
    make power laws and Laplace laws, and a weight of zero on δ₀ a dense vector.

    Parameters
    ----------
    positive : bool, default=False
        Half-Gaussians on x ≥ 0 in place of Gaussians: for histograms.

    See Also
    --------
    Soft : Thresholding, which learns no prior.
    SharedScale : Where entries are zero or not in groups.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Sparse
    >>> rng = np.random.default_rng(0)
    >>> x = np.where(rng.random(5000) < 0.02, 8.0, 0.0)
    >>> p = x + rng.standard_normal(5000)
    >>> estimate = Sparse().denoise(p, tau=1.0).estimate
    >>> bool(np.sum((estimate - x) ** 2) < 0.1 * np.sum((p - x) ** 2))
    True
    """

    positive: bool = False

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        grid, counts = nodes_and_counts(p, tau)
        scales = scales_of(grid, counts, self.positive)
        learnt = scales.learn(counts)
        found = _tabulated(p, tau, *scales.two_sides(learnt.means))
        return weighed(found, tau, learnt.evidence)


class Learnt(NamedTuple):
    """A prior learnt from pseudo-data: weights, posterior means at the nodes, evidence."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    evidence: float  # log-likelihood over that of x = 0


@dataclass(frozen=True)
class Scales:
    """The components of a scale mixture at the nodes: zero first, then half-normal or normal.

    Attributes
    ----------
    positive : bool
        Whether the nodes of both signs are told apart; if not, they are folded.
    log_densities, means : ndarray of shape (nodes, scales)
        Log-density of u = x/τ + g, and E(x/τ | u), under each scale.
    """

    positive: bool
    log_densities: NDArray[np.float64]
    means: NDArray[np.float64]

    def fold(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return counts (…, 2, nodes) as one row over the nodes of this mixture."""
        if self.positive:
            return counts.reshape(*counts.shape[:-2], -1)
        return np.asarray(counts.sum(axis=-2))

    def two_sides(
        self, f: NDArray[np.float64]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return a function at the nodes as f(u) and −f(−u), u ≥ 0."""
        if not self.positive:
            return f, f
        half = len(f) // 2
        return f[:half], -f[half:]

    def only(self, kept: NDArray[np.bool_]) -> Scales:
        """Return the mixture of some of the scales; zero stays."""
        return Scales(self.positive, self.log_densities[:, kept], self.means[:, kept])

    def every(self, step: int) -> Scales:
        """Return the mixture at every ``step``-th node of each sign."""
        sides = 2 if self.positive else 1
        rows = [
            table.reshape(sides, -1, table.shape[1])[:, ::step].reshape(-1, table.shape[1])
            for table in (self.log_densities, self.means)
        ]
        return Scales(self.positive, *rows)

    def learn(
        self, counts: NDArray[np.float64], start: NDArray[np.float64] | None = None
    ) -> Learnt:
        """Learn the weights that make the counts most likely, faster from a good start."""
        near, tolerance = None, _WEIGHT_TOLERANCE
        if start is not None:
            number = counts.sum()
            near = _opened(start, min(_OPEN_MINDED, 0.1 / number))  # about 0.1 in log-likelihood
            tolerance = max(tolerance, _LIKELIHOOD_TOLERANCE / number)
        maximise = partial(_maximise, tolerance=tolerance, start=near)
        weights, evidence = self._fit(counts, maximise)
        mixed = weights > 0
        log_posterior = self.log_densities[:, mixed] + np.log(weights[mixed])
        log_posterior -= log_posterior.max(axis=1, keepdims=True)
        posterior = np.exp(log_posterior)
        f = np.einsum("ij,ij->i", posterior, self.means[:, mixed]) / posterior.sum(axis=1)
        return Learnt(weights, f, evidence)

    def fit(
        self, counts: NDArray[np.float64], tolerance: float = _WEIGHT_TOLERANCE
    ) -> tuple[NDArray[np.float64], float]:
        """Return the weights alone, and the evidence: log-likelihood over that of x = 0."""
        return self._fit(counts, partial(_maximise, tolerance=tolerance))

    def fit_roughly(
        self,
        counts: NDArray[np.float64],
        tolerance: float,
        start: NDArray[np.float64],
        enough: float = -math.inf,
    ) -> tuple[NDArray[np.float64], float]:
        """Do as :meth:`fit` from weights of similar counts: fast where the tolerance is rough.

        Faster still where the evidence can be seen to stay below ``enough``.
        """
        from solvers.amp import _kernels as kernels

        near, number = _opened(start), self.fold(counts)
        enough_each = (enough - float(number @ self._densities[1])) / float(number.sum())
        return self._fit(
            counts,
            lambda share, densities: kernels.maximise_weights(
                share, densities, tolerance, near, _SWEEPS, _NEWTON_STEPS, enough_each
            ),
        )

    def _fit(
        self,
        counts: NDArray[np.float64],
        maximise: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    ) -> tuple[NDArray[np.float64], float]:
        number = self.fold(counts)
        used = number > 0
        number, densities, top = number[used], self._densities[0][used], self._densities[1][used]
        weights = maximise(number / number.sum(), densities)
        mixture = densities @ weights
        return weights, float(number @ (np.log(np.maximum(mixture, _TINY)) + top))

    @cached_property
    def _densities(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Densities over the largest at each node, and its logarithm over that of zero."""
        relative = self.log_densities - self.log_densities[:, :1]
        top = relative.max(axis=1)
        return np.exp(relative - top[:, None]), top


def scales_of(grid: NDArray[np.float64], counts: NDArray[np.float64], positive: bool) -> Scales:
    """Return the scales that pseudo-data with these counts can tell apart.

    In units of τ²: zero, then from the largest square of p down to what is not noise.
    """
    number = counts.sum(axis=tuple(range(counts.ndim - 1)))
    top = max(float(grid[np.flatnonzero(number)[-1]]), 1.0) ** 2
    # d entries of variance 1 + v are told from variance 1 when v exceeds √(2/d)
    bottom = 0.5 / math.sqrt(number.sum())
    n = 2 + math.ceil(math.log(top / bottom, _RATIO))
    variances = np.concatenate([[0.0], top * _RATIO ** -np.arange(n)])
    u = np.concatenate([grid, -grid]) if positive else grid
    log_densities, means = (_half_gaussian if positive else _gaussian)(u, variances)
    return Scales(positive, log_densities, means)


def weighed(found: Denoised, tau: float, evidence: float) -> Denoised:
    """Average the estimate with x = 0, by the posterior odds of the prior that was learnt.

    The weight w follows p: by Tweedie's formula ∂evidence/∂p = x̂/τ², which adds
    w(1 − w)·‖x̂‖²/τ² to the divergence.
    """
    weight = float(scipy.special.expit(evidence - _LOG_ODDS_OF_ZERO))
    if weight > 1.0 - 1e-9:
        return found
    estimate = found.estimate * found.estimate.dtype.type(weight)
    slope = (1.0 - weight) * float(np.dot(found.estimate, found.estimate)) / tau**2
    return Denoised(estimate, weight * (found.divergence + slope))


def _gaussian(
    u: NDArray[np.float64], variances: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log-densities of u = x + g under x ~ N(0, v), and E(x | u, v)."""
    total = 1.0 + variances
    log_density = -0.5 * (u**2)[:, None] / total - 0.5 * np.log(total)
    return log_density, u[:, None] * (variances / total)


def _half_gaussian(
    u: NDArray[np.float64], variances: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Do the same for x = |N(0, v)|; the posterior is N(uv/(1 + v), v/(1 + v)) on x ≥ 0."""
    total = 1.0 + variances
    std = np.sqrt(variances / total)
    z = u[:, None] * std  # posterior mean over its standard deviation, untruncated
    log_cdf = scipy.special.log_ndtr(z)
    # a half-Gaussian is twice a Gaussian on x ≥ 0; at v = 0 it is the point mass
    log_density = -0.5 * (u**2)[:, None] / total - 0.5 * np.log(total)
    log_density += math.log(2.0) + log_cdf
    hazard = np.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - log_cdf)
    return log_density, np.maximum(std * (z + hazard), 0.0)


def _learn_weights(
    number: NDArray[np.float64],
    log_densities: NDArray[np.float64],
    tolerance: float = _WEIGHT_TOLERANCE,
) -> NDArray[np.float64]:
    """Maximise Σ number·log(densities @ w) over the simplex: a concave problem.

    A few sweeps of expectation-maximisation, w ← w·densitiesᵀ(share/(densities @ w)), then
    Newton steps on w ≥ 0. (Sweeps alone would take thousands for a dense vector in noise, and
    an unfinished maximisation makes the denoiser jump from one iteration to the next.) Stops when
    no scale could raise the mean log-likelihood by more than the tolerance: the largest entry of
    densitiesᵀ(share/(densities @ w)) is then 1 + tolerance, an upper bound by concavity.
    """
    densities = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    return _maximise(number / number.sum(), densities, tolerance)


def _opened(weights: NDArray[np.float64], share: float = _OPEN_MINDED) -> NDArray[np.float64]:
    """Return weights to start from: no scale is ruled out."""
    return (1.0 - share) * weights + share / len(weights)


def _maximise(
    share: NDArray[np.float64],
    densities: NDArray[np.float64],
    tolerance: float,
    start: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    if start is None:
        transposed = np.ascontiguousarray(densities.T)
        k = densities.shape[1]
        w = np.full(k, (1.0 - _START_AT_ZERO) / (k - 1))
        w[0] = _START_AT_ZERO
        for _ in range(_SWEEPS):
            w *= transposed @ (share / (densities @ w))
    else:
        w = start
    for _ in range(_NEWTON_STEPS):
        mixture = densities @ w
        ratio = densities / mixture[:, None]
        pull = share @ ratio
        if pull.max() <= 1.0 + tolerance:
            break
        last, w = w, _line_search(w, _newton_target(w, ratio, share, pull), densities, share)
        if w is last:  # rounding outweighs what is left to gain
            break
    return np.asarray(w / w.sum())


def learn_group_weights(log_densities: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Learn how common each scale is among groups; return its posterior in each, and the evidence.

    ``log_densities`` (groups, scales) are relative to the first scale, which is zero.
    """
    weights = _learn_weights(np.ones(len(log_densities)), log_densities)
    with np.errstate(divide="ignore"):
        log_posterior = log_densities + np.log(weights)
    log_mixture = scipy.special.logsumexp(log_posterior, axis=1)
    return np.exp(log_posterior - log_mixture[:, None]), float(log_mixture.sum())


def _newton_target(
    w: NDArray[np.float64],
    ratio: NDArray[np.float64],
    share: NDArray[np.float64],
    pull: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise the quadratic model of Σ w − Σ share·log(densities @ w) over w ≥ 0."""
    hessian = (ratio * share[:, None]).T @ ratio
    diagonal = np.diag_indices(len(w))
    hessian[diagonal] += 1e-10
    try:
        factor = np.linalg.cholesky(hessian).T
    except np.linalg.LinAlgError:  # entries so large that rounding outweighs the ridge
        hessian[diagonal] += 1e-12 * np.trace(hessian)
        factor = np.linalg.cholesky(hessian).T
    goal = np.linalg.solve(factor.T, hessian @ w + pull - 1.0)
    return np.asarray(scipy.optimize.nnls(factor, goal, maxiter=30 * len(w))[0])


def _line_search(
    w: NDArray[np.float64],
    target: NDArray[np.float64],
    densities: NDArray[np.float64],
    share: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the first of target, halfway, … that does not lower the likelihood."""

    def value(v: NDArray[np.float64]) -> float:
        return float(v.sum() - share @ np.log(np.maximum(densities @ v, _TINY)))

    start, step = value(w), 1.0
    while step > 1e-6:
        new = w + step * (target - w)
        if value(new) <= start:
            return new
        step /= 2
    return w
