"""What the planner takes the mean to be, where more than its sparsity is known.

Message passing that uses a prior is predicted by state evolution with its own denoiser,

    τ² = noise_std² + (1/m − 1/D)·extrinsic(τ),    x̂ = denoise(μ + τ·g, τ),  g standard normal,

where extrinsic is ‖x̂ − μ‖² for independent rows. The errors depend on τ alone, so they are
measured once, at τ in geometric progression, and a plan over all lengths and bits interpolates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MeanLaw", "mean_law"]

#: Nodes of τ per doubling.
_PER_OCTAVE = 3
#: Entries that are drawn for each node, in at least two and at most so many draws.
_ENTRIES, _MOST_DRAWS = 100_000, 10
#: The fixed point is found to this relative precision, in at most so many steps.
_TOLERANCE, _MOST_STEPS = 1e-4, 300

_Draw = Callable[[np.random.Generator], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class MeanLaw:
    """Means of norm 1 as they may be, and the errors of message passing on them.

    Attributes
    ----------
    draw : callable
        ``draw(rng)`` returns a mean of norm 1.
    denoiser_at : callable
        ``denoiser_at(x, norm, rng)`` returns the denoiser that meets the mean norm·x.
    d : int
        Length of the means.
    nonzeros : int or None
        Their nonzero entries, if they are few.
    """

    draw: _Draw
    denoiser_at: Callable[[NDArray[np.float64], float, np.random.Generator], Any]
    d: int
    nonzeros: int | None
    _nodes: dict[tuple[float, int], tuple[float, float]] = field(default_factory=dict, repr=False)

    def error(self, *, norm: float, noise_variance: float, m: float, row_dim: float) -> float:
        """Return E‖x̂ − μ‖² at the fixed point that is reached from knowing nothing.

        Parameters
        ----------
        norm : float
            ‖μ‖.
        noise_variance : float
            Of a coordinate of the mean sketch.
        m, row_dim : float
            Length of the sketch, and D; infinite for independent rows.
        """
        feedback = max(0.0, 1.0 / m - 1.0 / row_dim)
        tau2 = noise_variance + feedback * norm**2
        error, extrinsic = self._errors(math.sqrt(tau2), norm, row_dim)
        for _ in range(_MOST_STEPS):
            last, tau2 = tau2, noise_variance + feedback * extrinsic
            if tau2 >= last * (1.0 - _TOLERANCE):
                break
            error, extrinsic = self._errors(math.sqrt(tau2), norm, row_dim)
        return error

    def _errors(self, tau: float, norm: float, row_dim: float) -> tuple[float, float]:
        """Return the error at τ and what of it comes back as noise."""
        place = _PER_OCTAVE * math.log2(tau / norm)
        left = math.floor(place)
        share = place - left
        low, high = self._node(left, norm), self._node(left + 1, norm)
        error, divergence = (
            math.exp((1.0 - share) * math.log(a) + share * math.log(b)) for a, b in zip(low, high)
        )
        overlap = min(divergence / row_dim, 0.99)
        rest = max(error * norm**2 - overlap * divergence * tau**2, 0.0)
        return error * norm**2, rest / (1.0 - overlap) ** 2

    def _node(self, k: int, norm: float) -> tuple[float, float]:
        """Return error and divergence for means of norm 1 at τ = 2^(k / _PER_OCTAVE)."""
        if (norm, k) not in self._nodes:
            self._nodes[norm, k] = self._measured(2.0 ** (k / _PER_OCTAVE), norm)
        return self._nodes[norm, k]

    def _measured(self, tau: float, norm: float) -> tuple[float, float]:
        draws = min(max(2, -(-_ENTRIES // self.d)), _MOST_DRAWS)
        total = np.zeros(2)
        for seed in range(draws):
            rng = np.random.default_rng([seed])
            x = self.draw(rng)
            denoiser = self.denoiser_at(x, norm, rng)
            found = denoiser.denoise(norm * (x + tau * rng.standard_normal(self.d)), norm * tau)
            total += float(np.sum((found.estimate / norm - x) ** 2)), float(found.divergence)
        error, divergence = np.maximum(total / draws, np.finfo(np.float64).tiny)
        return float(error), float(divergence)


def mean_law(prior: Any, d: int, sparsity: int | None) -> MeanLaw | None:
    """Return what a prior says about the mean; None where it says nothing to plan with.

    Parameters
    ----------
    prior : object
        A prior of :mod:`solvers.priors`, which needs the sparsity; or the means themselves: a
        vector, ``f(rng, d)`` that draws one, an object with ``rvs(size, random_state)``.
    d : int
        Length of the mean.
    sparsity : int or None
        Its nonzero entries, where known.
    """
    if prior is None:
        return None
    if not hasattr(prior, "refine"):
        return _law_of_means(prior, d)
    tells = hasattr(prior, "draw") or hasattr(prior, "about")
    if sparsity is None or not tells:
        return None

    def draw(rng: np.random.Generator) -> NDArray[np.float64]:
        if hasattr(prior, "draw"):
            return _scaled(prior.draw(rng, d, sparsity))
        x = np.zeros(d)
        x[rng.choice(d, sparsity, replace=False)] = rng.standard_normal(sparsity)
        return _scaled(x)

    def denoiser_at(x: NDArray[np.float64], norm: float, rng: np.random.Generator) -> Any:
        known = prior.about(norm * x, rng) if hasattr(prior, "about") else prior
        return known.refine(_plain_denoiser())

    return MeanLaw(draw, denoiser_at, d, sparsity)


def _law_of_means(means: Any, d: int) -> MeanLaw:
    draw = _drawing(means, d)
    x = draw(np.random.default_rng(0))
    nonzeros = int(np.count_nonzero(x))
    plain = _plain_denoiser()
    return MeanLaw(draw, lambda x, norm, rng: plain, d, nonzeros if 2 * nonzeros <= d else None)


def _plain_denoiser() -> Any:
    from solvers import denoisers

    return denoisers.get("sparse")


def _drawing(means: Any, d: int) -> _Draw:
    if hasattr(means, "rvs"):
        return lambda rng: _scaled(means.rvs(size=d, random_state=rng))
    if callable(means):
        return lambda rng: _scaled(means(rng, d))
    x = np.asarray(means, dtype=np.float64)
    if x.shape != (d,):
        raise ValueError(
            f"prior has shape {x.shape}, but d={d}; give a mean of d entries, a function "
            "f(rng, d) that draws one, or a prior of solvers.priors."
        )
    fixed = _scaled(x)
    return lambda rng: fixed


def _scaled(x: Any) -> NDArray[np.float64]:
    x = np.asarray(x, dtype=np.float64)
    norm = np.linalg.norm(x)
    if not (norm > 0 and math.isfinite(norm)):
        raise ValueError("prior draws a mean that is zero or not finite; there is nothing to plan.")
    scaled: NDArray[np.float64] = x / norm
    return scaled
