"""The automatic choice of a decoder, by a risk estimate computed from y alone.

For random matrices the risk ‖x̂ − x‖² needs no truth. The energy ‖x‖² ≈ ‖y‖² − m·noise_std² gives
that of the linear unsketch and, by state evolution, of ridge; the Lasso and message passing
show theirs in the effective noise of their residual. Matrices that are not of that
kind are judged by the error on held-out measurements.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from solvers.amp import Ensemble, effective_noise
from solvers.base import Solution, Solver
from solvers.operators import DiagonalBlock, Operator, RowSubset, blocks_of
from solvers.registry import get

__all__ = ["AutoDecoder", "Choice", "lasso_risk", "linear_risk", "ridge_risk"]

#: Message passing is kept unless another risk is lower than its own by this factor: below, the
#: difference is within the error of the estimates.
_CLEARLY_LOWER = 0.9

#: Share of the measurements held out where the matrix is not a random ensemble.
_HELD_OUT = 0.2

_CANDIDATES = ("linear", "ridge", "working_set", "amp")


class Choice(str):
    """The name of the chosen solver, with the estimated risks and the reason."""

    risks: dict[str, float]
    reason: str

    def __new__(cls, name: str, risks: dict[str, float], reason: str) -> Choice:
        choice = super().__new__(cls, name)
        choice.risks, choice.reason = risks, reason
        return choice

    def __getnewargs__(self) -> tuple[str, dict[str, float], str]:  # type: ignore[override]
        return str(self), self.risks, self.reason


def _spread(d: int, m: int, ensemble: Ensemble) -> float:
    """Return E‖AᵀA x − x‖²/‖x‖² = (d/m)·(1 − m/D)."""
    return d / m * (1.0 - ensemble.row_share)


def linear_risk(energy: float, noise_std: float, d: int, m: int, ensemble: Ensemble) -> float:
    """Return the risk of Aᵀy: (d/m)·(1 − m/D)·‖x‖² + d·noise_std²."""
    return _spread(d, m, ensemble) * energy + d * noise_std**2


def ridge_risk(energy: float, noise_std: float, d: int, m: int, ensemble: Ensemble) -> float:
    """Return the risk of the best linear estimate, by the state evolution of linear shrinkage.

    The extrinsic variance e satisfies 1/e = 1/(posterior variance) − 1/τ² with
    τ² = noise_std² + (d/m)·(1 − m/D)·e and posterior variance v·τ²/(v + τ²), averaged over the
    D coordinates of which d are not known to be zero; v = ‖x‖²/d.
    """
    if energy <= 0.0:
        return 0.0
    v = energy / d
    share = ensemble.row_share * d / m  # d/D
    spread = _spread(d, m, ensemble) / share if share else d / m
    tau2 = noise_std**2 + d / m * v
    for _ in range(500):
        posterior = v * tau2 / (v + tau2)
        if share:
            average = share * posterior
            extrinsic = average * tau2 / (tau2 - average)
        else:
            extrinsic = posterior
        new = noise_std**2 + spread * extrinsic
        if abs(new - tau2) <= 1e-9 * tau2:
            break
        tau2 = new
    return d * v * tau2 / (v + tau2)


def lasso_risk(
    residual: NDArray[np.float64], n_nonzero: int, noise_std: float, ensemble: Ensemble
) -> float:
    """Return the risk of a Lasso estimate from its residual and support.

    The Lasso is a fixed point of message passing with soft thresholding, so
    z = residual/(1 − ‖x̂‖₀/m) has the effective noise of that fixed point.
    """
    m = len(residual)
    used = n_nonzero / m
    if used >= 1.0:
        return math.inf
    mean_square = float(residual @ residual) / (m * (1.0 - used) ** 2)
    tau = effective_noise(mean_square, used, ensemble.row_share, noise_std)
    excess = (tau**2 - noise_std**2) / max(1.0 - ensemble.row_share, 1e-6)
    overlap = used * ensemble.row_share
    return max((1.0 - overlap) ** 2 * excess * m + overlap * used * m * tau**2, 0.0)


@dataclass(frozen=True, kw_only=True)
class _AutoSolution(Solution):
    """A :class:`Solution` with the choice made."""

    choice: Choice


class AutoDecoder(Solver):
    """Decode with whichever of linear, ridge, Lasso and message passing has the least risk.

    Parameters
    ----------
    shapes : sequence of tuples, optional
        Shapes of the layers of x; message passing then also tries low rank and rows that are
        active together, layer by layer.
    prior : Prior, optional
        Side information, see :mod:`solvers.priors`; used where message passing expects less
        error with it.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    choice_ : Choice
        The name of the chosen solver; ``choice_.risks`` are the estimated ‖x̂ − x‖² (errors on
        held-out measurements where A is not a random ensemble) and ``choice_.reason`` says why.
    noise_std_ : float
        The noise level used; estimated by the scaled Lasso where it is not given.
    n_iter_ : int
        Iterations of the chosen solver.

    See Also
    --------
    solvers.amp.AMP : Message passing by itself.
    solvers.lasso.WorkingSet : The Lasso by itself.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((200, 1000)) / np.sqrt(200)
    >>> x = np.zeros(1000); x[:5] = 1
    >>> y = A @ x + 0.01 * rng.standard_normal(200)
    >>> solvers.get("auto").fit(A, y, noise_std=0.01).choice_
    'amp'
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]] | None = None, prior: Any = None) -> None:
        self.shapes = shapes
        self.prior = prior

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> _AutoSolution:
        blocks = [(block, Ensemble.of(block.operator)) for block in blocks_of(A)]
        if noise_std is None:
            lasso = self._candidate("working_set").solve(A, y, None, None)
            noise_std = float(lasso.noise_std or 0.0)
        if all(ensemble.isotropic for _, ensemble in blocks):
            solutions, choice = self._by_risk(A, y, noise_std, blocks)
        else:
            solutions, choice = {}, self._by_held_out(A, y, noise_std)
        found = solutions.get(str(choice))
        if found is None:
            found = self._candidate(str(choice)).solve(A, y, noise_std, None)
        return _AutoSolution(
            coef=found.coef,
            n_iter=found.n_iter,
            noise_std=noise_std,
            converged=found.converged,
            message=f"{choice}: {found.message}",
            choice=choice,
        )

    def _candidate(self, name: str) -> Solver:
        params: dict[str, Any] = {}
        if name == "amp" and self.shapes is not None:
            params = {"denoiser": "auto", "shapes": self.shapes}
        return get(name, **params)

    def _by_risk(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float,
        blocks: Sequence[tuple[DiagonalBlock, Ensemble]],
    ) -> tuple[dict[str, Solution], Choice]:
        amp, told = self._message_passing(A, y, noise_std)
        lasso = self._candidate("working_set").solve(A, y, noise_std, None)
        residual = y - A.matvec(lasso.coef)
        risks = dict.fromkeys(_CANDIDATES, 0.0)
        total = chance = 0.0
        for (columns, rows, B), ensemble in blocks:  # of several blocks the risks add up
            m, d = B.shape
            unit = float(np.mean(np.square(ensemble.scale)))
            energy = max(float(y[rows] @ y[rows]) - m * noise_std**2, 0.0)
            support = int(np.count_nonzero(lasso.coef[columns]))
            risks["linear"] += linear_risk(energy, noise_std, d, m, ensemble) / unit
            risks["ridge"] += ridge_risk(energy, noise_std, d, m, ensemble) / unit
            risks["working_set"] += lasso_risk(residual[rows], support, noise_std, ensemble) / unit
            total += energy / unit
            # ‖noise‖² fluctuates by √(2m)·noise_std², and the estimates with it
            chance = math.hypot(chance, math.sqrt(2 * m) * noise_std**2 / unit)
        risks["amp"] = float(amp.predicted_error)
        best = min(risks, key=lambda name: risks[name])
        if risks[best] >= min(_CLEARLY_LOWER * risks["amp"], risks["amp"] - chance):
            best = "amp"
        reason = (
            f"estimated squared error {risks[best]:.3g} of ‖x‖² ≈ {total:.3g}; "
            + ", ".join(f"{name} {risk:.3g}" for name, risk in risks.items() if name != best)
            + (f"; message passing {told}" if told else "")
        )
        return {"amp": amp, "working_set": lasso}, Choice(best, risks, reason)

    def _message_passing(
        self, A: Operator, y: NDArray[np.float64], noise_std: float
    ) -> tuple[Any, str]:
        """Return message passing with the prior or without it, whichever expects less error."""
        plain: Any = self._candidate("amp").solve(A, y, noise_std, None)
        if self.prior is None:
            return plain, ""
        told: Any = get("amp", prior=self.prior).solve(A, y, noise_std, None)
        both = (
            f"expects {told.predicted_error:.3g} with the prior and {plain.predicted_error:.3g} "
            "without"
        )
        if told.trusted >= plain.trusted and told.predicted_error < plain.predicted_error:
            return told, both
        return plain, both

    def _by_held_out(self, A: Operator, y: NDArray[np.float64], noise_std: float) -> Choice:
        m = A.shape[0]
        order = np.random.default_rng(0).permutation(m)
        n_test = int(_HELD_OUT * m)
        test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
        if n_test == 0:
            return Choice("ridge", {}, f"{m} measurements are too few to hold some out")
        part = RowSubset(A, train)
        risks = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for name in _CANDIDATES:
                x = self._candidate(name).solve(part, y[train], noise_std, None).coef
                risks[name] = float(np.mean((y[test] - A.matvec(x)[test]) ** 2))
        best = min(risks, key=lambda name: risks[name])
        reason = (
            f"A is not a random ensemble; mean squared error on {n_test} held-out measurements: "
            + ", ".join(f"{name} {risk:.3g}" for name, risk in risks.items())
        )
        return Choice(best, risks, reason)
