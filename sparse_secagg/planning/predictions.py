"""Predicted squared errors of decoders, one function each, collected in :data:`PREDICTIONS`.

A prediction takes a :class:`Situation` and returns E‖μ̂ − μ‖² for the sketch ŷ = Sμ + noise. The
linear decoder's is exact for every μ. Those of the sparse decoders are state evolution: decoding
behaves like denoising μ + τ·normal, where

    τ² = noise_std² + (1/m − 1/D)·error(τ),     D infinite for independent rows,

for a mean with s nonzero entries drawn from a normal distribution and scaled to the given norm, or
for means of another law (:mod:`sparse_secagg.planning.laws`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from sparse_secagg.planning.laws import MeanLaw

__all__ = ["PREDICTIONS", "SPARSE_DECODERS", "Situation"]

#: Fixed points are found to this relative precision, in at most so many steps.
_TOLERANCE = 2e-4
_MOST_STEPS = 300
#: Noise, relative to ‖μ‖, below which it makes no difference to the recovery itself.
_LEAST_NOISE = 1e-9
#: How far from its transition a decoder recovers every time, in units of 1/√s; measured.
_LASSO_MARGIN = 3.0
_MESSAGE_PASSING_MARGIN = 12.0
#: Log-odds that are as good as certainty.
_CERTAIN = 40.0
#: Midpoints of x from 0 to 1, squared.
_STEP = 1.0 / 192
_NODES = ((np.arange(192) + 0.5) * _STEP) ** 2


@dataclass(frozen=True)
class Situation:
    """What a decoder meets.

    Attributes
    ----------
    d, m : int or float
        Lengths of the vectors and of the sketch.
    row_dim : float
        D, if S keeps m of the rows of a D×D orthogonal matrix; infinite for independent rows.
    unsketch_error : float
        E‖SᵀSx − x‖²/‖x‖².
    noise_std : float
        Noise in each coordinate of the mean sketch.
    norm : float
        ‖μ‖.
    sparsity : int or None
        Nonzero entries of μ, where known.
    law : MeanLaw or None
        What else is known of μ, for message passing.
    """

    d: int
    m: float
    row_dim: float
    unsketch_error: float
    noise_std: float
    norm: float
    sparsity: int | None = None
    law: MeanLaw | None = None

    @property
    def feedback(self) -> float:
        """1/m − 1/D: the share of the decoder's own error that comes back as noise."""
        return max(0.0, 1.0 / self.m - 1.0 / self.row_dim)

    @property
    def nonzeros(self) -> int:
        """The sparsity; raises where it is not known."""
        if self.sparsity is None:
            raise ValueError("sparsity=None: the error of a sparse decoder depends on it.")
        return self.sparsity

    @property
    def entry_variance(self) -> float:
        """Mean square of a nonzero entry."""
        return self.norm**2 / self.nonzeros

    @property
    def noise_variance(self) -> float:
        """noise_std², or what makes no difference to a recovery without noise."""
        return max(self.noise_std, _LEAST_NOISE * self.norm) ** 2


def linear_error(at: Situation) -> float:
    """Return the error of Sᵀŷ: compression and noise. ‖S‖_F² = d, so noise adds d·noise_std²."""
    return at.unsketch_error * at.norm**2 + at.d * at.noise_std**2


def lasso_error(at: Situation) -> float:
    """Return the error of the Lasso at the alpha of the noise level."""
    return _clear_of_transition(_lasso_state_evolution, at, _LASSO_MARGIN)


def message_passing_error(at: Situation) -> float:
    """Return the error of message passing, which learns the prior where none is given."""
    if at.law is not None:
        if at.law.nonzeros is None:  # compressible means are recovered gradually
            return _evolution_of_law(at)
        at = replace(at, sparsity=at.law.nonzeros)
        return _clear_of_transition(_evolution_of_law, at, _MESSAGE_PASSING_MARGIN)
    return _clear_of_transition(_bayes_state_evolution, at, _MESSAGE_PASSING_MARGIN)


def _clear_of_transition(
    evolve: Callable[[Situation], float], at: Situation, margin: float
) -> float:
    """Return the error, or that of answering zero where luck would decide.

    Below some m recovery fails. In finite dimensions that transition is a range of relative width
    1/√s, so a situation counts only if a sketch shorter by 1 + margin/√s would recover, too.
    """
    error = evolve(at)
    if at.feedback == 0:
        return error
    shorter = evolve(replace(at, m=at.m / (1.0 + margin / math.sqrt(at.nonzeros))))
    return error if shorter <= 2.0 * error else max(error, at.norm**2)


# -- message passing ------------------------------------------------------------------------------


def _evolution_of_law(at: Situation) -> float:
    assert at.law is not None
    return at.law.error(norm=at.norm, noise_variance=at.noise_variance, m=at.m, row_dim=at.row_dim)


def _bayes_state_evolution(at: Situation) -> float:
    """Return the error at the fixed point that is reached from knowing nothing."""
    noise, feedback = at.noise_variance, at.feedback
    tau2 = noise + feedback * at.norm**2
    error = _bayes_risk(at, tau2)
    for _ in range(_MOST_STEPS):
        last, tau2 = tau2, noise + feedback * error
        if tau2 >= last * (1.0 - _TOLERANCE):
            break
        error = _bayes_risk(at, tau2)
    return error


def _bayes_risk(at: Situation, tau2: float) -> float:
    """Return the mean posterior variance of a Bernoulli–Gaussian vector seen with noise τ.

    With π(p) the probability that an entry seen as p is not zero and p ~ N(0, v + τ²) for those
    which are not, it is s·(w·τ² + w²·E[(1 − π(p))·p²]), w = v/(v + τ²).
    """
    s, v = at.nonzeros, at.entry_variance
    total = v + tau2
    gain = v / total
    odds = math.log(s / (at.d - s)) if s < at.d else _CERTAIN
    odds += 0.5 * math.log(tau2 / total)
    growth = 0.5 * v / tau2  # of the log-odds with x², p = √total·x
    # nodes as far as 1 − π and the normal density reach
    reach = min(81.0, max(_CERTAIN - odds, 1.0) / growth)
    squares = reach * _NODES
    weights = np.exp(-0.5 * squares) * (_STEP * math.sqrt(reach))
    doubtful = float(weights @ (squares * expit(-odds - growth * squares)))
    return s * (gain * tau2 + gain * v * math.sqrt(2.0 / math.pi) * doubtful)


# -- the Lasso ------------------------------------------------------------------------------------


def _lasso_state_evolution(at: Situation) -> float:
    """Return the Lasso's error: that of soft thresholding at the threshold alpha stands for.

    A threshold t·τ leaves a entries; the optimality conditions make it the solution at
    m·alpha = t·τ·(1 − a/m)/(1 − a/D). This grows with t, so t is found in a bracket.
    """
    wanted = math.sqrt(at.noise_variance * 2.0 * math.log(max(at.d, 2)))

    def excess(t: float) -> float:
        tau2, kept = _soft_fixed_point(at, t)
        if not kept < at.m:
            return -wanted
        left = 1.0 if at.feedback == 0 else (1.0 - kept / at.m) / (1.0 - kept / at.row_dim)
        return t * math.sqrt(tau2) * left - wanted

    high = math.sqrt(2.0 * math.log(max(at.d, 2)))
    while excess(high) < 0:
        high *= 1.5
    t = float(brentq(excess, 0.0, high, xtol=1e-6, rtol=1e-6))
    return _soft_risk(at, _soft_fixed_point(at, t)[0], t)[0]


def _soft_fixed_point(at: Situation, t: float) -> tuple[float, float]:
    """Return τ² at the fixed point of soft thresholding at t·τ, and the entries kept.

    The map of τ² is concave, so a secant through two of its points never passes the fixed point.
    """
    noise, feedback = at.noise_variance, at.feedback
    tau2 = noise + feedback * at.norm**2
    largest = 1e6 * tau2
    for _ in range(_MOST_STEPS):
        first = noise + feedback * _soft_risk(at, tau2, t)[0]
        second = noise + feedback * _soft_risk(at, first, t)[0]
        if second > largest:
            return math.inf, math.inf
        bend = (second - first) - (first - tau2)
        step = first - tau2
        new = second
        if bend != 0 and abs(second - first) < abs(step):
            new = max(noise, tau2 - step * step / bend)
        if abs(new - tau2) <= 1e-8 * tau2:
            tau2 = new
            break
        tau2 = new
    return tau2, _soft_risk(at, tau2, t)[1]


def _soft_risk(at: Situation, tau2: float, t: float) -> tuple[float, float]:
    """Return the error of soft thresholding at t·τ and the number of entries it keeps."""
    s, v = at.nonzeros, at.entry_variance
    zero_error, zeros_kept = _truncated(tau2, t * math.sqrt(tau2), 0.0)
    total = v + tau2
    gain = v / total
    error, kept = _truncated(total, t * math.sqrt(tau2), gain)
    return (
        (at.d - s) * zero_error + s * (error + gain * tau2),
        (at.d - s) * zeros_kept + s * kept,
    )


def _truncated(variance: float, threshold: float, gain: float) -> tuple[float, float]:
    """Return E(η(p) − gain·p)² and P(|p| > threshold), p normal, η soft thresholding."""
    scale = math.sqrt(variance)
    u = threshold / scale
    above = math.erfc(u / math.sqrt(2.0))
    edge = u * math.exp(-0.5 * u * u) * math.sqrt(2.0 / math.pi)
    square_above = variance * (above + edge)  # E p² over |p| > threshold
    first_above = scale * math.exp(-0.5 * u * u) * math.sqrt(2.0 / math.pi)
    kept = (
        (1.0 - gain) ** 2 * square_above
        - 2.0 * (1.0 - gain) * threshold * first_above
        + threshold**2 * above
    )
    return kept + gain**2 * (variance - square_above), above


#: Decoders whose error is known, by the name of the solver. To predict one better, replace its
#: function.
PREDICTIONS: dict[str, Callable[[Situation], float]] = {
    "linear": linear_error,
    "working_set": lasso_error,
    "fista": lasso_error,
    "ista": lasso_error,
    "sklearn_lasso": lasso_error,
    "amp": message_passing_error,
}

#: Those which need to know how sparse the mean is.
SPARSE_DECODERS = frozenset(PREDICTIONS) - {"linear"}
