"""State evolution: the error that message passing will reach, from a scalar recursion.

    τ² = noise_std² + (1/m − 1/D)·‖x_ext − x‖²,    x̂ = denoise(x + τ·g, τ),  g standard normal

with x_ext = x̂ for independent entries (D = ∞). No matrix and no measurements are drawn: one draw of
g stands for one draw of the whole experiment, and the recursion runs to its fixed point on it, so
the spread between experiments is predicted along with the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solvers.amp import denoisers
from solvers.amp.priors import refined
from solvers.base import check_noise_std

__all__ = ["StateEvolution", "state_evolution"]

#: Entries of the truth that the recall curve goes down to.
_RANKS = 1000

#: The recursion of a draw stops when its error changes by less than this share.
_TOLERANCE = 1e-3
_ITERATIONS = 100

#: Draws that are compared by rank for the recall curve.
_RANKED_DRAWS = 10


@dataclass(frozen=True)
class StateEvolution:
    """What message passing will reach, over draws of the matrix and the noise.

    Parameters
    ----------
    error : float
        Mean of ‖x̂ − x‖².
    error_std : float
        Standard deviation of ‖x̂ − x‖² between draws.
    relative_error : float
        Mean of ‖x̂ − x‖²/‖x‖².
    tau : float
        Effective noise at the fixed point, root mean square over the draws: the standard error
        of each entry of the debiased estimate.
    recall : ndarray
        ``recall[k - 1]`` is the share of the k largest entries of x, by magnitude, that are among
        the k largest of the estimate.

    See Also
    --------
    state_evolution : Predicts one.

    Examples
    --------
    >>> import solvers
    >>> limit = solvers.state_evolution([1.0] + [0.0] * 99, 0.01, m=50, n_draws=2)
    >>> limit.relative_error < 0.1
    True
    """

    error: float
    error_std: float
    relative_error: float
    tau: float
    recall: NDArray[np.float64]


def state_evolution(
    x_or_prior: ArrayLike | Callable[..., Any] | Any,
    noise_std: float | Sequence[float],
    m: int | Sequence[int],
    d: int | None = None,
    ensemble: str | int = "independent",
    denoiser: Any = "sparse",
    *,
    shapes: Sequence[tuple[int, ...]] | None = None,
    prior: Any = None,
    n_draws: int = 30,
    seed: int = 0,
) -> StateEvolution:
    """Predict the error of message passing without running it.

    Parameters
    ----------
    x_or_prior : array-like of shape (d,), callable or scipy distribution
        The truth; or ``f(rng, d)`` that draws one, or an object with ``rvs(size, random_state)``.
    noise_std : float or sequence of float
        Noise in each measurement; a sequence for several sketches that are decoded together.
    m : int or sequence of int
        Number of measurements, of each sketch.
    d : int, optional
        Length of x; needed for a prior.
    ensemble : "independent", "count_sketch", "gaussian", "hadamard" or int
        Independent entries (the first three are the same here), or rows of an orthogonal matrix:
        of D columns, D the next power of two for "hadamard".
    denoiser : str or Denoiser, default="sparse"
        As in :class:`~solvers.amp.AMP`.
    shapes : sequence of tuples, optional
        Shapes of the layers, for denoisers that need them.
    prior : Prior, optional
        Side information, as in :class:`~solvers.amp.AMP`: what it lowers the limit to.
    n_draws : int, default=30
        Experiments that are averaged.
    seed : int, default=0
        Of the draws.

    Returns
    -------
    StateEvolution
        The error, the effective noise and the recall to expect.

    See Also
    --------
    solvers.amp.AMP : What it predicts.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> x = np.zeros(1000)
    >>> x[:20] = 1
    >>> limit = solvers.state_evolution(x, noise_std=0.05, m=300, n_draws=5)
    >>> bool(limit.relative_error < 0.02), bool(limit.recall[19] > 0.99)
    (True, True)
    """
    draw, d = _drawing(x_or_prior, d)
    sizes, noises = _sketches(m, noise_std)
    inverse = _inverse_dimension(ensemble, d, max(sizes))
    chosen = refined(denoisers.get(denoiser, shapes), prior)
    if not (isinstance(n_draws, int | np.integer) and n_draws > 0):
        raise ValueError(f"n_draws={n_draws!r} must be an integer > 0.")
    errors, relative, squares, recalls = [], [], [], []
    for k in range(n_draws):
        rng = np.random.default_rng([seed, k])
        x = draw(rng)
        error, tau, estimate = _fixed_point(x, sizes, noises, inverse, chosen, rng)
        errors.append(error)
        relative.append(error / max(float(x @ x), np.finfo(np.float64).tiny))
        squares.append(tau**2)
        if k < _RANKED_DRAWS:
            recalls.append(_recall(estimate, x))
    shortest = min(len(recall) for recall in recalls)
    return StateEvolution(
        error=float(np.mean(errors)),
        error_std=float(np.std(errors)),
        relative_error=float(np.mean(relative)),
        tau=math.sqrt(float(np.mean(squares))),
        recall=np.mean([recall[:shortest] for recall in recalls], axis=0),
    )


def _fixed_point(
    x: NDArray[np.float64],
    sizes: Sequence[int],
    noises: Sequence[float],
    inverse: float,
    denoiser: denoisers.Denoiser,
    rng: np.random.Generator,
) -> tuple[float, float, NDArray[np.floating]]:
    """Run the recursion of one experiment; return its error, τ and estimate."""
    g = rng.standard_normal(len(x))
    # ‖z‖²/m of one experiment is its mean times this
    chance = [float(rng.chisquare(m)) / m for m in sizes]
    extrinsic = error = float(x @ x)
    for _ in range(_ITERATIONS):
        squares = [
            f * (noise**2 + (1.0 / m - inverse) * extrinsic)
            for f, noise, m in zip(chance, noises, sizes)
        ]
        precision = sum(1.0 / max(square, 1e-200) for square in squares)
        tau = 1.0 / math.sqrt(precision)
        found = denoiser.denoise(x + tau * g, tau)
        before, error = error, float(np.sum((found.estimate - x) ** 2))
        overlap = min(found.divergence * inverse / len(sizes), 0.99)  # s/D of each sketch
        # x̂ is p with weight s/D, and else an estimate whose error is independent of that of p
        independent = error - overlap * found.divergence / len(sizes) * tau**2
        extrinsic = max(independent / (1.0 - overlap) ** 2, 0.0)
        if abs(error - before) <= _TOLERANCE * before:
            break
    return error, tau, found.estimate


def _recall(estimate: NDArray[np.floating], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for k = 1, 2, …, the share of the k largest entries that are found among k."""
    n = min(_RANKS, int(np.count_nonzero(x)), len(x))
    if n == 0:
        return np.empty(0)
    true_rank = _ranks(np.abs(x), n)
    found_rank = _ranks(np.abs(estimate), n)
    # an entry counts from the larger of its two ranks on
    both = np.maximum(true_rank, found_rank)
    counts = np.bincount(both[both < n], minlength=n)
    return np.cumsum(counts) / np.arange(1, n + 1)


def _ranks(size: NDArray[np.floating], n: int) -> NDArray[np.int64]:
    """Return the rank of each entry among the n largest, and n for all others."""
    order = np.argsort(-size, kind="stable")[:n]
    ranks = np.full(len(size), n)
    ranks[order] = np.arange(n)
    return ranks


# --- arguments --------------------------------------------------------------------------


def _drawing(
    x_or_prior: Any, d: int | None
) -> tuple[Callable[[np.random.Generator], NDArray[np.float64]], int]:
    """Return a function that draws the truth, and its length."""
    if not callable(x_or_prior) and not hasattr(x_or_prior, "rvs"):
        x = np.asarray(x_or_prior, dtype=np.float64)
        if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
            raise ValueError(f"x_or_prior has shape {x.shape}; pass a finite vector (d,).")
        if d is not None and d != len(x):
            raise ValueError(f"d={d}, but x_or_prior has {len(x)} entries; leave d out.")
        return lambda rng: x, len(x)
    if d is None or d < 1:
        raise ValueError(f"d={d}: a prior needs the length d > 0 of the vectors to draw.")
    if hasattr(x_or_prior, "rvs"):
        return lambda rng: np.asarray(x_or_prior.rvs(size=d, random_state=rng), np.float64), d
    return lambda rng: np.asarray(x_or_prior(rng, d), dtype=np.float64), d


def _sketches(m: Any, noise_std: Any) -> tuple[list[int], list[float]]:
    sizes = [int(size) for size in np.atleast_1d(m)]
    noises = [float(check_noise_std(noise) or 0.0) for noise in np.atleast_1d(noise_std)]
    if len(noises) == 1:
        noises *= len(sizes)
    if len(noises) != len(sizes):
        raise ValueError(f"m={m!r} and noise_std={noise_std!r} must have the same length.")
    if min(sizes) < 1:
        raise ValueError(f"m={m!r} must be at least 1.")
    return sizes, noises


def _inverse_dimension(ensemble: str | int, d: int, m: int) -> float:
    """Return 1/D."""
    if isinstance(ensemble, str):
        if ensemble in ("independent", "count_sketch", "gaussian"):
            return 0.0
        if ensemble != "hadamard":
            raise ValueError(
                f'ensemble={ensemble!r} must be "independent", "count_sketch", "gaussian", '
                '"hadamard" or the number of columns of an orthogonal matrix.'
            )
        ensemble = 1 << (d - 1).bit_length()
    if ensemble < max(d, m):
        raise ValueError(f"ensemble={ensemble}: orthogonal rows have D >= d={d} and m={m} columns.")
    return 1.0 / ensemble
