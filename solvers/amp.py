"""Approximate message passing: sparse recovery that learns its prior and knows its error.

    z = y − A x + (s/m)·z_previous          residual with Onsager correction, s the divergence
    p = x + (1 − s/D)·Aᵀ z                  pseudo-data: x + τ·(nearly standard normal noise)
    x ← denoise(p, τ)                       s = Σ ∂x_j/∂p_j

D is infinite for matrices of independent entries and the number of columns of the orthogonal
matrix that A's rows come from (subsampled Hadamard). The effective noise τ is measured,
τ² = ‖z‖²/m for independent entries, and says how far x is from the truth:
τ² = noise_std² + (1/m − 1/D)·‖x − truth‖². It is the only thing the guard looks at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers import denoisers
from solvers.base import Solution, Solver, check_positive
from solvers.operators import Operator

__all__ = ["AMP", "AMPSolution", "Ensemble", "effective_noise"]

#: Columns whose norms differ by more than this ratio are normalised one by one. Below, one
#: common scale keeps the entries of A independent, as the theory has them.
_EQUAL_NORMS = 1.25

#: Up to this many columns the norms of an operator that offers products only are computed.
_NORMS_UP_TO = 20_000

#: A share m/D below this is the error of its own estimate.
_LEAST_SHARE = 0.03

#: The divergence may use up at most this share of the measurements: beyond, 1/(1 − s/m)
#: amplifies the noise in the estimate of s.
_MOST_USED = 0.98

#: A step may raise the effective noise by this factor (times 1 + 1/√m) before it is taken back.
_ALLOWED_RISE = 1.002

#: Iterations without progress in the effective noise after which it has settled.
_PATIENCE = 8

#: A last step below this share of the expected error ends well even if it was taken back.
_NEARLY_DONE = 0.1

#: Below this damping no step in the present direction lowers the effective noise.
_LEAST_DAMPING = 1 / 32


@dataclass(frozen=True)
class Ensemble:
    """What message passing has to know of a matrix: its column norms and the share m/D.

    Attributes
    ----------
    scale : float or ndarray of shape (d,)
        Norms of the columns; a number where they are nearly equal.
    row_share : float
        m/D: 0 for independent entries, m/d for orthogonal rows.
    isotropic : bool
        Whether AᵀA has the second moment of such an ensemble; if not, the theory does not hold.
    """

    scale: Any
    row_share: float
    isotropic: bool

    @classmethod
    def of(cls, A: Operator, seed: int = 0) -> Ensemble:
        """Measure A with a few products with random signs of a fixed, public seed.

        In units of the column norms ‖AᵀA g‖²/‖A g‖² is 1 + d/m for independent entries, and
        smaller by d/D where the rows are orthogonal in D dimensions.
        """
        m, d = A.shape
        rng = np.random.default_rng(seed)
        probes = rng.choice([-1.0, 1.0], (d, 1 + 20_000 // d)).astype(A.dtype)
        scale = cls._scale(A, probes)
        images = A.matmat(probes / _column(scale))
        back = A.rmatmat(images) / _column(scale)
        energy = float(np.sum(np.square(images, dtype=np.float64)))
        ratio = float(np.sum(np.square(back, dtype=np.float64))) / energy if energy else 1.0
        share = (d / m + 1.0 - ratio) * m / d
        isotropic = bool(share > -0.5)
        return cls(scale, min(share, 1.0) if share > _LEAST_SHARE else 0.0, isotropic)

    @staticmethod
    def _scale(A: Operator, probes: NDArray) -> Any:
        d = A.shape[1]
        if type(A).column_norms is Operator.column_norms and d > _NORMS_UP_TO:
            # products only: ‖A‖_F from products with random signs
            return float(np.linalg.norm(A.matmat(probes)) / math.sqrt(d * probes.shape[1])) or 1.0
        norms = A.column_norms()
        positive = norms[norms > 0]
        if len(positive) == 0:
            return 1.0
        if positive.max() <= _EQUAL_NORMS * positive.min():
            return float(np.sqrt(np.mean(positive**2)))
        return np.where(norms > 0, norms, 1.0)


def _column(scale: Any) -> Any:
    return scale[:, None] if isinstance(scale, np.ndarray) else scale


def effective_noise(
    mean_square: float, used: float, row_share: float, noise_std: float | None
) -> float:
    """Return τ from ‖z‖²/m, the share s/m of measurements used up and m/D.

    τ² = ‖z‖²/m·(1 − m/D) + noise_std²·m/D. Where the noise is not known it is what makes
    the fixed point consistent, noise_std² = τ²·(1 − s/m)/(1 − s/D).
    """
    if noise_std is not None:
        return math.sqrt(mean_square * (1.0 - row_share) + noise_std**2 * row_share)
    if row_share == 0.0:
        return math.sqrt(mean_square)
    share = min(row_share, 1.0 - 1e-6)
    inverse_gain = (1.0 - used) / (1.0 - used * share)
    return math.sqrt(mean_square * (1.0 - share) / (1.0 - share * inverse_gain))


@dataclass(frozen=True, kw_only=True)
class AMPSolution(Solution):
    """A :class:`Solution` with what message passing knows of its own error.

    Attributes
    ----------
    effective_noise : float
        Standard deviation τ of the error in each entry of the pseudo-data.
    predicted_error : float or None
        ‖coef − truth‖² that τ implies; None where the noise level is not known.
    history : ndarray
        Effective noise of each iterate, the start included.
    choice : dict or None
        Denoiser chosen for each layer, with ``denoiser="auto"``.
    fallback : str or None
        What was returned in place of the message-passing estimate, if anything.
    """

    effective_noise: float
    predicted_error: float | None
    history: NDArray[np.float64]
    choice: dict[str, str] | None = None
    fallback: str | None = None


class AMP(Solver):
    """Approximate message passing with a learnt prior, adaptive damping and a guard.

    Stops when a step changes x by at most ``tol`` times the error that the denoiser expects,
    ‖x_new − x‖ ≤ tol·τ·√s. A step that raises the effective noise is taken back and tried at
    half its length, so the estimate is the iterate of least effective noise; where no
    step helps, the Lasso is tried, and the zero vector is always among the candidates.

    Where A has sparse columns (a count sketch), the pseudo-data of x = 0 are far from normal:
    every heavy entry shows up wherever it collides. There it starts from a Lasso whose
    penalty follows the effective noise.

    Parameters
    ----------
    denoiser : str or Denoiser, default="sparse"
        "sparse", "soft", "shrink", "low_rank", "auto", or any object with
        ``denoise(p, tau)``; see :mod:`solvers.denoisers`.
    shapes : sequence of tuples, optional
        Shapes of the layers of x, for "low_rank" and "auto".
    tol : float, default=1e-2
    max_iter : int, default=100
        Products with A.
    debias : bool, default=False
        Return the pseudo-data p in place of x: unbiased over fresh draws of A and the noise,
        with error τ in each entry.
    seed : int, default=0
        Of the random signs that measure A: public.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    effective_noise_ : float
        Standard deviation τ of the error in each entry of the pseudo-data:
        τ² = noise_std² + (1/m − 1/D)·‖x − truth‖².
    predicted_error_ : float or None
        Its own estimate of ‖x − truth‖², where the noise level is known.
    history_ : ndarray
        Effective noise of each iterate.
    choice_ : dict or None
        Denoiser chosen for each layer, with ``denoiser="auto"``.
    fallback_ : str or None
        "lasso", where message passing lost its way and went on from the Lasso.
    n_iter_ : int

    See Also
    --------
    solvers.auto.AutoDecoder : chooses between this, the Lasso, ridge and the linear unsketch.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((200, 1000)) / np.sqrt(200)
    >>> x = np.zeros(1000); x[:5] = 1
    >>> y = A @ x + 0.01 * rng.standard_normal(200)
    >>> solver = solvers.get("amp").fit(A, y, noise_std=0.01)
    >>> bool(np.sum((solver.coef_ - x) ** 2) < 0.002)
    True
    """

    def __init__(
        self,
        denoiser: Any = "sparse",
        shapes: Sequence[tuple[int, ...]] | None = None,
        tol: float = 1e-2,
        max_iter: int = 100,
        debias: bool = False,
        seed: int = 0,
    ) -> None:
        self.denoiser = denoiser
        self.shapes = shapes
        self.tol = tol
        self.max_iter = max_iter
        self.debias = debias
        self.seed = seed

    @property
    def biased(self) -> bool:  # type: ignore[override]
        """Denoising shrinks; ``debias=True`` takes that back."""
        return not self.debias

    def _solve(
        self,
        A: Operator,
        y: NDArray[np.float64],
        noise_std: float | None,
        x0: NDArray[np.float64] | None,
    ) -> AMPSolution:
        return self._run(A, y[None], noise_std, None if x0 is None else x0[None])[0]

    def _decode(self, A: Operator, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        solutions = self._run(A, Y, self.noise_std_, None)
        late = [solution for solution in solutions if not solution.converged]
        if late:
            self._warn(f"{len(late)} of {len(Y)} right-hand sides: {late[0].message}")
        return np.array([solution.coef for solution in solutions]).reshape(-1, A.shape[1])

    def _run(
        self,
        A: Operator,
        Y: NDArray[np.float64],
        noise_std: float | None,
        X0: NDArray[np.float64] | None,
    ) -> list[AMPSolution]:
        """Run one chain for each row of Y; they share the products with A."""
        check_positive("tol", self.tol)
        if not (isinstance(self.max_iter, int | np.integer) and self.max_iter > 0):
            raise ValueError(f"max_iter={self.max_iter!r} must be an integer > 0.")
        denoiser = denoisers.get(self.denoiser, self.shapes)
        ensemble = Ensemble.of(A, self.seed)
        dtype = np.float32 if A.dtype == np.float32 else np.float64
        chains = [_Chain(y, ensemble, noise_std, denoiser, self.tol, A.shape[1], dtype) for y in Y]
        for k, chain in enumerate(chains):
            if X0 is not None:
                chain.start(X0[k] * ensemble.scale, used=0.0)
            elif A.has_sparse_columns or not ensemble.isotropic:
                chain.start(*_lasso_start(A, Y[k], ensemble))
        _advance(A, ensemble.scale, chains, self.max_iter)
        stalled = [chain for chain in chains if chain.stalled]
        if stalled:
            for chain in stalled:
                _restart_from_lasso(A, chain)
            _advance(A, ensemble.scale, stalled, self.max_iter)
        return [self._solution(chain) for chain in chains]

    def _solution(self, chain: _Chain) -> AMPSolution:
        scale = chain.ensemble.scale
        u = chain.p if self.debias else chain.x
        unit = float(np.sqrt(np.mean(np.square(scale))))
        choices = getattr(chain.denoiser, "choices", None)
        return AMPSolution(
            coef=np.asarray(u, dtype=np.float64) / scale,
            n_iter=chain.n_iter,
            noise_std=chain.noise_std,
            converged=chain.done,
            message=(
                f"stopped after {chain.n_iter} iterations, the last of which changed x by "
                f"{chain.change:.1e} of its expected error > tol={self.tol:.1e}; "
                "raise max_iter or tol."
            ),
            effective_noise=chain.tau / unit,
            predicted_error=None if (e := chain.predicted_error()) is None else e / unit**2,
            history=np.array(chain.history) / unit,
            choice=choices(chain.p, chain.denoised_at) if choices else None,
            fallback=chain.fallback,
        )


# --- one right-hand side ----------------------------------------------------------------


class _Chain:
    """The iterates for one right-hand side, in units where columns have norm 1.

    ``x`` is the iterate of least effective noise so far, ``target`` what the denoiser made of
    its pseudo-data, and ``candidate`` the point between them that is tried next.
    """

    def __init__(
        self,
        y: NDArray[np.float64],
        ensemble: Ensemble,
        noise_std: float | None,
        denoiser: denoisers.Denoiser,
        tol: float,
        d: int,
        dtype: Any,
    ) -> None:
        self.y, self.ensemble, self.noise_std = y, ensemble, noise_std
        self.denoiser, self.tol = denoiser, tol
        self.m = len(y)
        self.x = self.candidate = self.target = np.zeros(d, dtype=dtype)
        self.used = self.candidate_used = self.target_used = 0.0  # divergence over m
        self.z: NDArray[np.float64] | None = None
        self.tau = math.inf
        self.damping = 1.0
        self.step = self.change = math.inf
        self.history: list[float] = []
        self.changes: list[float] = []
        self.n_iter = 0
        self.done = self.stalled = False
        self.fallback: str | None = None
        self.p: NDArray | None = None
        self.denoised_at = 1.0

    def start(self, u: NDArray, used: float) -> None:
        """Begin at u in place of zero."""
        self.candidate = u.astype(self.x.dtype)
        self.candidate_used = min(used, _MOST_USED)

    def measure(self, product: NDArray) -> bool:
        """Given A @ candidate, accept it as the new x or take it back; return whether accepted."""
        self.n_iter += 1
        residual = self.y - product
        if self.z is None:
            z = residual / (1.0 - self.candidate_used)
        else:
            share = self.ensemble.row_share
            z = residual + self.candidate_used * (1.0 - share) * self.z
            z /= 1.0 - self.candidate_used * share
        tau = self._noise(z, self.candidate_used)
        rise = _ALLOWED_RISE + 0.1 / math.sqrt(self.m)
        if not tau <= rise * self.tau:
            self._take_back()
            return False
        self.x, self.used, self.z, self.tau = self.candidate, self.candidate_used, z, tau
        self.history.append(tau)
        return True

    def _noise(self, z: NDArray[np.float64], used: float) -> float:
        mean_square = float(z @ z) / self.m
        return effective_noise(mean_square, used, self.ensemble.row_share, self.noise_std)

    def denoise(self, correlation: NDArray) -> None:
        """Given Aᵀ z, denoise the pseudo-data and propose the next candidate."""
        overlap = self.used * self.ensemble.row_share  # s/D
        if self.p is None:
            p = self.x + (1.0 - overlap) * correlation
        elif overlap:
            p = (self.x - overlap * self.p) / (1.0 - overlap) + correlation
        else:
            p = self.x + correlation
        p = p.astype(self.x.dtype, copy=False)
        # below the noise that went in, the measured noise is off by chance
        at = max(self.tau, self.noise_std or 0.0, np.finfo(np.float64).tiny)
        self.target, divergence = self.denoiser.denoise(p, at)
        if divergence > _MOST_USED * self.m:
            # scaled down, map and divergence alike
            self.target = self.target * self.x.dtype.type(_MOST_USED * self.m / divergence)
            divergence = _MOST_USED * self.m
        self.target_used = max(divergence / self.m, 0.0)
        self.p, self.denoised_at = p, at
        step = float(np.linalg.norm(self.target - self.x))
        expected = at * math.sqrt(max(divergence, 1.0))
        # in the absence of noise the error goes down to rounding
        rounding = 10 * np.finfo(self.x.dtype).eps * float(np.linalg.norm(self.x))
        self._adapt_damping(step)
        self.change = step / expected
        self.changes.append(self.change)
        self.done = step <= max(self.tol * expected, rounding) or self._settled()
        self._propose()

    def _settled(self) -> bool:
        """Whether in the last iterations neither the effective noise fell nor the steps halved."""
        if len(self.changes) <= _PATIENCE:
            return False
        before = -_PATIENCE - 1
        return (
            self.history[-1] > (1.0 - 0.1 * self.tol) * self.history[before]
            and self.change > 0.5 * self.changes[before]
        )

    def _adapt_damping(self, step: float) -> None:
        """Damp where steps do not shrink, a cycle or worse; trust more where they shrink fast."""
        # a full step to the fixed point of a linear map would give 1 whatever the damping
        progress = (1.0 - step / self.step) / self.damping
        if progress < 0.1:
            self.damping = max(0.7 * self.damping, 2 * _LEAST_DAMPING)
        elif progress > 0.5:
            self.damping = min(1.3 * self.damping, 1.0)
        self.step = step

    def _take_back(self) -> None:
        self.damping /= 2
        self.done = self.damping < _LEAST_DAMPING
        self.stalled = self.done and self.change > _NEARLY_DONE
        self._propose()

    def _propose(self) -> None:
        b = self.x.dtype.type(self.damping)
        self.candidate = self.target if b == 1 else self.x + b * (self.target - self.x)
        self.candidate_used = self.used + self.damping * (self.target_used - self.used)

    def restart(self, u: NDArray, used: float, product: NDArray) -> None:
        """Go on from u in place of x where its effective noise is lower."""
        z = (self.y - product) / (1.0 - used)
        tau = self._noise(z, used)
        if tau >= self.tau:
            return
        self.start(u, used)
        self.z = self.p = None
        self.fallback = "lasso"
        self.tau = math.inf
        self.damping, self.step = 0.5, math.inf
        self.done = self.stalled = False

    def predicted_error(self) -> float | None:
        """Return the ‖x − truth‖² that explains the effective noise."""
        if self.noise_std is None:
            return None
        share = self.ensemble.row_share
        excess = max(self.tau**2 - self.noise_std**2, 0.0) / max(1.0 - share, 1e-6)
        overlap = self.used * share
        # x mixes, with weight s/D, the pseudo-data and an estimate whose error is independent
        mixed = overlap * self.used * self.m * self.tau**2
        return (1.0 - overlap) ** 2 * excess * self.m + mixed


def _advance(A: Operator, scale: Any, chains: list[_Chain], max_iter: int) -> None:
    """Run the chains in step until each is done: one product with A, one with Aᵀ an iteration."""
    for _ in range(max_iter):
        active = [chain for chain in chains if not chain.done]
        if not active:
            return
        products = _products(A, [chain.candidate / scale for chain in active])
        accepted = [chain for chain, product in zip(active, products) if chain.measure(product)]
        if accepted:
            rows = _transposed(A, [chain.z for chain in accepted if chain.z is not None])
            for chain, row in zip(accepted, rows):
                chain.denoise(row / scale)


def _products(A: Operator, vectors: list[NDArray]) -> list[NDArray]:
    if len(vectors) == 1:
        return [A.matvec(vectors[0])]
    return list(A.matmat(np.stack(vectors, axis=1)).T)


def _transposed(A: Operator, vectors: list[NDArray]) -> list[NDArray]:
    dtype = A.dtype
    if len(vectors) == 1:
        return [A.rmatvec(vectors[0].astype(dtype, copy=False))]
    return list(A.rmatmat(np.stack(vectors, axis=1).astype(dtype, copy=False)).T)


# --- the Lasso as a start and as a fallback ---------------------------------------------


def _lasso_start(
    A: Operator, y: NDArray[np.float64], ensemble: Ensemble, n_solves: int = 5
) -> tuple[NDArray, float]:
    """Return a Lasso estimate and its s/m, with the penalty of its own effective noise.

    That penalty keeps out what does not stand out of the effective noise, so the support stays
    small however dense the truth is. It falls as the estimate improves.
    """
    from solvers.lasso import alpha_from_noise
    from solvers.working_set import WorkingSet

    m, d = A.shape
    norms = np.broadcast_to(ensemble.scale, d)
    x, used = np.zeros(d), 0.0
    tau = float(np.linalg.norm(y)) / math.sqrt(m)
    for _ in range(n_solves):
        if tau == 0.0:
            break
        solver = WorkingSet(alpha=alpha_from_noise(tau, norms, m), tol=1e-3, max_iter=20)
        new = solver._solve(A, y, None, x).coef
        new_used = np.count_nonzero(new) / m
        residual = y - A.matvec(new)
        if new_used >= _MOST_USED:
            break
        new_tau = float(np.linalg.norm(residual)) / (math.sqrt(m) * (1.0 - new_used))
        if new_tau >= tau:
            break
        progress = new_tau / tau
        x, used, tau = new, new_used, new_tau
        if progress > 0.9:
            break
    return x * ensemble.scale, used


def _restart_from_lasso(A: Operator, chain: _Chain) -> None:
    """Offer the Lasso of the known noise to a chain that stopped making progress."""
    from solvers.working_set import WorkingSet

    x = WorkingSet(tol=1e-4)._solve(A, chain.y, chain.noise_std, None).coef
    used = np.count_nonzero(x) / chain.m
    if used < _MOST_USED:
        chain.restart(x * chain.ensemble.scale, used, A.matvec(x))
