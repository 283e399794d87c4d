"""Approximate message passing: sparse recovery that learns its prior and knows its error.

    x = denoise(p, τ),  s = Σ ∂x_j/∂p_j       estimate from the pseudo-data, and its divergence
    z' = (y − A x + (s/m)(1 − m/D)·z)/(1 − s/D)     residual with Onsager correction
    p' = (x − (s/D)·p)/(1 − s/D) + Aᵀz'             next pseudo-data
    (z, p) ← (1 − b)·(z, p) + b·(z', p')            damped: a mixture of the last and the next

D is infinite for matrices of independent entries and the number of columns of the orthogonal
matrix that A's rows come from (subsampled Hadamard). Pseudo-data are p = truth + τ·(nearly
standard normal noise), τ² = ‖z‖²/m·(1 − m/D) + noise_std²·m/D = noise_std² + (1/m − 1/D)·error.
That stays true of a mixture, whose residual and pseudo-data are the same mixture of residuals and
pseudo-data; so b is free, and the one of least ‖z‖ keeps the iteration from diverging. (Damping x
alone, with the Onsager term of the last iterate, makes τ smaller than the noise of p.)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.amp import denoisers
from solvers.amp.ensemble import Ensemble
from solvers.amp.layers import restricted
from solvers.amp.priors import refined
from solvers.base import Solution, Solver, check_positive
from solvers.lasso.problem import alpha_from_noise
from solvers.lasso.working_set import WorkingSet
from solvers.operators import DiagonalBlock, Operator, blocks_of
from solvers.standard_errors import (
    effective_noise,
    few_rows_factor,
    in_blocks,
    measured_spread,
    notes,
)

__all__ = ["AMP", "AMPSolution", "effective_noise"]

#: Least weight of a new iterate. Without it the iteration could stop short of a fixed point;
#: with a larger one it diverges on some count sketches of four rows.
_LEAST_DAMPING = 0.1

#: Iterations in which the effective noise did not fall, after which it has settled.
_PATIENCE = 4

#: Smaller shares of the measurements that x leaves unused are rounding.
_LEAST_LEFT = 1e-6

#: Smallest τ that is told from zero; its square is far from underflow.
_LEAST_NOISE = 1e-100

#: A residual below this share of y is rounding, in storage of single precision too.
_ROUNDING = 1e-6

#: Change of the residual, relative to itself, above which the iteration has stopped nowhere near
#: a fixed point; where it ends well it is below 0.1.
_FAR_FROM_FIXED = 0.3

#: Relative difference between the variance of the pseudo-data and τ² beyond chance that is put
#: down to columns that share buckets (0.03 in sketches of four rows).
_ALLOWED_CONTRADICTION = 0.1

#: The denoiser expects an error τ²s, the residual implies another. Where the first exceeds the
#: second by the larger factor, x fits the noise of a few hundred measurements; up to the smaller
#: one they agree.
_OVERFITTED, _IN_AGREEMENT = 1.5, 1.25

#: Iterations after which a state is one of the iteration, no longer one of the start.
_FIRST_STEPS = 3

#: Largest s/m of a start: its residual is divided by 1 − s/m.
_MOST_USED = 0.98


@dataclass(frozen=True, kw_only=True)
class AMPSolution(Solution):
    """A :class:`Solution` with what message passing knows of its own error.

    Attributes
    ----------
    effective_noise : float
        Standard deviation τ of the error in each entry of the pseudo-data.
    predicted_error : float or None
        ‖coef − truth‖² that the residual implies; None where the noise level is not known.
    trusted : bool
        Whether what was measured agrees with the theory that τ rests on.
    history : ndarray
        Effective noise of each iterate, the start included.
    choice : dict or None
        Denoiser chosen for each layer, with ``denoiser="auto"``.
    fallback : str or None
        What was returned in place of the message-passing estimate, if anything.
    """

    effective_noise: float
    predicted_error: float | None
    trusted: bool
    history: NDArray[np.float64]
    choice: dict[str, str] | None = None
    fallback: str | None = None


class AMP(Solver):
    """Approximate message passing with a learnt prior.

    Every step is damped so that the effective noise falls as far as it can. Stops when a
    full step changes x by at most ``tol`` times the error that the denoiser expects,
    ‖x_new − x‖ ≤ tol·τ·√s, or when the effective noise has stopped falling. The zero vector is
    always among the candidates. Where A has sparse columns (a count sketch), the pseudo-data of
    x = 0 are far from normal, since every heavy entry shows up wherever it collides: there it
    starts from a Lasso whose penalty follows the effective noise.

    Parameters
    ----------
    denoiser : str or Denoiser, default="sparse"
        "sparse", "positive", "soft", "shrink", "low_rank", "auto", or any object with
        ``denoise(p, tau)``; see :mod:`solvers.denoisers`.
    shapes : sequence of tuples, optional
        Shapes of the layers of x, for "low_rank" and "auto".
    prior : Prior, optional
        What is known about x beforehand: public scores, groups that are active together, an
        earlier estimate; see :mod:`solvers.priors`.
    tol : float, default=1e-2
        A full step that changes x by less than this share of its error is the last.
    max_iter : int, default=100
        Products with A.
    debias : bool, default=False
        Return the pseudo-data p in place of x: unbiased over fresh draws of A and the noise,
        with standard error τ in each entry.
    seed : int, default=0
        Public seed of the random signs that measure A.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    std_err_ : float, ndarray of shape (d,) or None
        With ``debias=True``, the standard error of each entry; one per entry where the
        columns of A have norms of their own, or A is block-diagonal: each block (a layer that
        is sketched by itself) is then a problem of its own.
    effective_noise_ : float
        Standard deviation τ of the error in each entry of the pseudo-data:
        τ² = noise_std² + (1/m − 1/D)·‖x − truth‖².
    predicted_error_ : float or None
        Its own estimate of ‖x − truth‖², where the noise level is known.
    trusted_ : bool
        Whether the iteration converged and ‖p − x‖ is what τ says it should be. If not,
        ``fit`` warns, and τ and the predicted error are not to be relied on.
    history_ : ndarray
        Effective noise of each iterate.
    choice_ : dict or None
        Denoiser chosen for each layer, with ``denoiser="auto"``.
    fallback_ : str or None
        "lasso", where A is far from a random matrix and message passing has no theory.
    n_iter_ : int

    See Also
    --------
    solvers.auto.AutoDecoder : Chooses between this, the Lasso, ridge and the linear unsketch.

    Notes
    -----
    A start ``x0`` must not depend on A: an estimate from an earlier round, say.

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
        prior: Any = None,
    ) -> None:
        self.denoiser = denoiser
        self.shapes = shapes
        self.prior = prior
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
        return self.solve_jointly([A], [[y]], [noise_std], x0)[0]

    def _decode(self, A: Operator, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        solutions = self.solve_jointly([A], [[y] for y in Y], [self.noise_std_], None)
        late = [solution for solution in solutions if not solution.converged]
        if late:
            self._warn(f"{len(late)} of {len(Y)} right-hand sides: {late[0].message}")
        return np.array([solution.coef for solution in solutions]).reshape(-1, A.shape[1])

    def solve_jointly(
        self,
        operators: Sequence[Operator],
        sketches: Sequence[Sequence[NDArray[np.float64]]],
        noise_std: Sequence[float | None],
        x0: NDArray[np.float64] | None,
    ) -> list[AMPSolution]:
        """Run one chain for each tuple of sketches; chains share the products with A.

        The blocks of block-diagonal matrices are problems of their own, each with its own
        effective noise.
        """
        check_positive("tol", self.tol)
        if not (isinstance(self.max_iter, int | np.integer) and self.max_iter > 0):
            raise ValueError(f"max_iter={self.max_iter!r} must be an integer > 0.")
        denoiser = refined(denoisers.get(self.denoiser, self.shapes), self.prior)
        if not any(A.diagonal_blocks for A in operators):
            return self._solve_block(operators, sketches, noise_std, x0, denoiser)
        d = operators[0].shape[1]
        solved = []
        for blocks in zip(*_matching_blocks(operators)):
            columns = blocks[0].features
            solved.append(
                self._solve_block(
                    [block.operator for block in blocks],
                    [[y[b.components] for y, b in zip(ys, blocks)] for ys in sketches],
                    noise_std,
                    None if x0 is None else x0[columns],
                    restricted(denoiser, columns, d),
                )
            )
        return [_joined(parts) for parts in zip(*solved)]

    def _solve_block(
        self,
        operators: Sequence[Operator],
        sketches: Sequence[Sequence[NDArray[np.float64]]],
        noise_std: Sequence[float | None],
        x0: NDArray[np.float64] | None,
        denoiser: denoisers.Denoiser,
    ) -> list[AMPSolution]:
        ensembles = [Ensemble.of(A, self.seed) for A in operators]
        dtype = np.result_type(np.float32, *[A.dtype for A in operators])
        if not all(ensemble.isotropic for ensemble in ensembles):
            return [self._from_lasso(operators[0], ys[0], noise_std[0]) for ys in sketches]
        d = operators[0].shape[1]
        chains = []
        for ys in sketches:
            blocks = [_Block(*world) for world in zip(ys, ensembles, noise_std)]
            chain = _Chain(blocks, denoiser, self.tol, np.zeros(d, dtype))
            chains.append(chain)
            if x0 is not None:
                chain.start(x0)
            elif operators[0].has_sparse_columns:
                chain.start(*_lasso_start(operators[0], ys[0], ensembles[0]))
        _advance(operators, chains, self.max_iter)
        widened = max(few_rows_factor(A) for A in operators)
        return [self._solution(chain, noise_std[0], widened) for chain in chains]

    def _solution(
        self, chain: _Chain, noise_std: float | None, widened: tuple[float, str]
    ) -> AMPSolution:
        columns = chain.blocks[0].columns
        scale = 1.0 if columns is None else columns
        unit = float(np.sqrt(np.mean(np.square(scale))))
        u = chain.p if self.debias else chain.estimate()
        choices = getattr(chain.denoiser, "choices", None)
        error = chain.predicted_error()
        contradiction = chain.contradiction()
        return AMPSolution(
            coef=np.asarray(u, dtype=np.float64) / scale,
            n_iter=chain.n_iter,
            noise_std=noise_std,
            converged=contradiction is None,
            message=contradiction or "",
            effective_noise=chain.tau / unit,
            predicted_error=None if error is None else error / unit**2,
            trusted=contradiction is None,
            std_err=widened[0] * chain.tau / scale if self.debias else None,
            std_err_note=widened[1] if self.debias else "",
            history=np.array(chain.history) / unit,
            choice=choices(chain.p, chain.tau) if choices else None,
        )

    def _from_lasso(
        self, A: Operator, y: NDArray[np.float64], noise_std: float | None
    ) -> AMPSolution:
        """Answer with the Lasso where A is not a random matrix."""
        found = WorkingSet(debias=self.debias).solve(A, y, noise_std, None)
        tau = float(np.linalg.norm(y - A.matvec(found.coef))) / math.sqrt(len(y))
        return AMPSolution(
            coef=found.coef,
            std_err=found.std_err,
            n_iter=found.n_iter,
            noise_std=noise_std,
            converged=False,
            message="A is far from a random matrix (its columns are correlated), so the estimate "
            'is the Lasso\'s; use a Lasso solver, such as "working_set".',
            effective_noise=tau,
            predicted_error=None,
            trusted=False,
            history=np.array([tau]),
            fallback="lasso",
        )


# --- layers that are sketched one by one -------------------------------------------------


def _matching_blocks(operators: Sequence[Operator]) -> list[Sequence[DiagonalBlock]]:
    """Return the blocks of each operator, which must lie in the same columns."""
    blocks = [blocks_of(A) for A in operators]
    columns = [[block.features for block in each] for each in blocks]
    if any(each != columns[0] for each in columns):
        raise ValueError(
            "the rounds have different layers, so that they cannot be decoded together; encode "
            "them with the same layers, or decode them one by one."
        )
    return blocks


def _joined(parts: Sequence[AMPSolution]) -> AMPSolution:
    """Return the solutions of the blocks as one; its effective noise is a root mean square."""
    widths = [len(part.coef) for part in parts]
    errors = [part.predicted_error for part in parts]
    contradictions = [part.message for part in parts if not part.converged]
    histories = [part.history for part in parts]
    longest = max(len(history) for history in histories)
    padded = [np.pad(history, (0, longest - len(history)), "edge") for history in histories]
    chosen = [list(part.choice.values()) for part in parts if part.choice]
    choices = [kind for kinds in chosen for kind in kinds]
    unbiased = all(part.std_err is not None for part in parts)
    return AMPSolution(
        coef=np.concatenate([part.coef for part in parts]),
        n_iter=max(part.n_iter for part in parts),
        noise_std=parts[0].noise_std,
        converged=not contradictions,
        message=contradictions[0] if contradictions else "",
        effective_noise=_root_mean_square([part.effective_noise for part in parts], widths),
        predicted_error=None if None in errors else sum(error or 0.0 for error in errors),
        trusted=all(part.trusted for part in parts),
        std_err=in_blocks([part.std_err for part in parts], widths) if unbiased else None,
        std_err_note=notes([(None, part.std_err_note) for part in parts]),
        history=np.array([_root_mean_square(list(each), widths) for each in zip(*padded)]),
        choice={f"layer_{k}": kind for k, kind in enumerate(choices)} or None,
        fallback=next((part.fallback for part in parts if part.fallback), None),
    )


def _root_mean_square(values: Sequence[float], widths: Sequence[int]) -> float:
    return float(np.sqrt(np.average(np.square(values), weights=widths)))


# --- one right-hand side ----------------------------------------------------------------


class _Block:
    """One sketch of x: its residual z and pseudo-data p, each a mixture over the iterates.

    Everything is in units where the columns of A have norm 1. One common norm divides y, so that
    x stays as it is; norms of their own multiply the entries of x.
    """

    def __init__(self, y: NDArray[np.float64], ensemble: Ensemble, noise_std: float | None) -> None:
        scale = ensemble.scale
        own = np.ndim(scale) > 0  # each column has a norm of its own
        self.unit = 1.0 if own else float(scale)
        self.columns: NDArray[np.float64] | None = scale if own else None
        self.y = y if self.unit == 1.0 else y / self.unit
        self.m = len(y)
        self.noise_std = None if noise_std is None else noise_std / self.unit
        self.row_share = ensemble.row_share
        self.used = 0.0  # s/m
        self.z = self.proposed = self.y
        self.p: NDArray[np.floating] | None = None
        self.tau = math.inf
        self.damping = 1.0
        self._spread = 1.0

    # --- products, in units of the columns

    def times(self, A: Operator, vectors: list[NDArray[np.floating]]) -> list[NDArray[np.floating]]:
        """Return A x for each x."""
        if self.columns is not None:
            vectors = [x / self.columns for x in vectors]
        products = [A.matvec(vectors[0])] if len(vectors) == 1 else A.matmat(_stack(vectors)).T
        return [self._in_unit(product) for product in products]

    def transposed(
        self, A: Operator, residuals: list[NDArray[np.float64]]
    ) -> list[NDArray[np.floating]]:
        """Return Aᵀ z for each z."""
        vectors = [z.astype(A.dtype, copy=False) for z in residuals]
        products = [A.rmatvec(vectors[0])] if len(vectors) == 1 else A.rmatmat(_stack(vectors)).T
        if self.columns is not None:
            return [product / self.columns for product in products]
        return [self._in_unit(product) for product in products]

    def _in_unit(self, product: NDArray[np.floating]) -> NDArray[np.floating]:
        return product if self.unit == 1.0 else product / self.unit

    def in_units(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return x in the units of the pseudo-data."""
        return x if self.columns is None else x * self.columns

    # --- one iteration

    def propose(self, product: Any, divergence: float) -> None:
        """Given A x, find the residual that corrects for what x has seen of A."""
        self.used = divergence / self.m
        residual = self.y - product
        if self.p is None:
            # a start: the residual for which the correction would reproduce itself
            self.z = self.proposed = residual / (1.0 - min(self.used, _MOST_USED))
            return
        residual += self.used * (1.0 - self.row_share) * self.z
        residual /= 1.0 - self.used * self.row_share
        self.proposed = residual

    def error(self) -> float:
        """Return what the proposed residual says of ‖x − truth‖²; may be negative by chance."""
        assert self.noise_std is not None
        overlap = self.used * self.row_share  # s/D
        excess = float(self.proposed @ self.proposed) - self.m * self.noise_std**2
        # x is p with weight s/D, and else an estimate whose error is independent of that of p
        return (1.0 - overlap) ** 2 * excess + overlap * self.used * self.m * self.tau**2

    def advance(self, x: NDArray[np.floating], correlation: NDArray[np.floating]) -> None:
        """Given Aᵀ z of the proposed residual, mix it with the last one for the least τ."""
        p = self._pseudo_data_of(x, correlation.astype(x.dtype, copy=False))
        if not self.row_share:  # orthogonal rows leave no room for another spread
            self._spread = measured_spread(
                correlation, self.proposed, self.z, self.used, self.noise_std
            )
        if self.p is None:
            self.z, self.p = self.proposed, p
        else:
            self.damping = _least_square(self.z, self.proposed)
            self.z = self.z + self.damping * (self.proposed - self.z)
            p -= self.p
            p *= p.dtype.type(self.damping)
            p += self.p
            self.p = p
        self.tau = self._effective_noise()

    def distance(self) -> float:
        """Return how far the mixture is from a fixed point, ‖z' − z‖/‖z‖."""
        size = float(np.linalg.norm(self.z))
        if size <= _ROUNDING * float(np.linalg.norm(self.y)):
            return 0.0
        return float(np.linalg.norm(self.proposed - self.z)) / size

    @property
    def below_noise(self) -> bool:
        """Whether the residual is no larger than the noise that went in, so that τ is that."""
        return self.noise_std is not None and self.tau <= self.noise_std

    def _pseudo_data_of(
        self, x: NDArray[np.floating], correlation: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        overlap = x.dtype.type(self.used * self.row_share)
        if self.p is None:
            return x + (1 - overlap) * correlation
        if overlap == 0.0:
            return x + correlation
        if overlap > 1 - _LEAST_LEFT:  # all of S, and all of x used: the pseudo-data are y itself
            return self.p
        return np.asarray((x - overlap * self.p) / (1 - overlap) + correlation)

    def _effective_noise(self) -> float:
        mean_square = self._spread * float(self.z @ self.z) / self.m
        tau = effective_noise(mean_square, self.used, self.row_share, self.noise_std)
        # below the noise that went in, the measured noise is off by chance
        return max(tau, self.noise_std or 0.0)


class _State(NamedTuple):
    """Where a chain has been, and the error that its residual implied there."""

    x: NDArray[np.floating]
    p: NDArray[np.floating]
    tau: float
    divergence: float
    blocks: list[_Block]
    implied: float


class _Chain:
    """The iterates for one right-hand side: sketches of the same x, and one denoiser."""

    def __init__(
        self,
        blocks: list[_Block],
        denoiser: denoisers.Denoiser,
        tol: float,
        zero: NDArray[np.floating],
    ) -> None:
        self.blocks, self.denoiser, self.tol = blocks, denoiser, tol
        self.d = len(zero)
        self.x = self.p = zero
        self.divergence = 0.0
        self.shares = [1.0 / len(blocks) for _ in blocks]  # weights of the sketches' pseudo-data
        self.tau = self.change = math.inf
        self.history: list[float] = []
        self.n_iter = 0
        self.done = False
        self.agreed: _State | None = None  # of least error among those that agree
        self.went_back = False

    def start(self, x: NDArray[np.floating], used: float = 0.0) -> None:
        """Begin at x in place of zero.

        ``used`` is the share s/m of a method that made x of the first sketch.
        """
        self.x = self.blocks[0].in_units(x).astype(self.x.dtype)
        self.divergence = used * self.blocks[0].m
        self.shares = [1.0] + [0.0] * (len(self.blocks) - 1)

    def propose(self, products: Sequence[Any]) -> None:
        """Given A x of each sketch, find the residuals of x."""
        for block, share, product in zip(self.blocks, self.shares, products):
            block.propose(product, share * self.divergence)

    def judge(self) -> bool:
        """Return whether x is final: a small step, or an effective noise that fell no more."""
        self.n_iter += 1
        h = self.history
        settled = len(h) > _PATIENCE and h[-1] > (1.0 - 0.1 * self.tol) * h[-1 - _PATIENCE]
        self.done = self.change <= self.tol or settled
        self._remember()
        return self.done

    def settle(self) -> None:
        """Go back to the last state that can be believed, if x has come to fit the noise."""
        implied = self.predicted_error()
        if implied is None or self.agreed is None:
            return
        chance = 2 * self.tau**2 * math.sqrt(2 * sum(block.m for block in self.blocks))
        if self.tau**2 * self.divergence > _OVERFITTED * (implied + chance):
            self.went_back = True
            self.x, self.p, self.tau, self.divergence, self.blocks = self.agreed[:-1]

    def _remember(self) -> None:
        """Keep the state of least error among those whose two estimates of it agree."""
        implied = self.predicted_error()
        if self.n_iter < _FIRST_STEPS or implied is None:
            return
        if self.tau**2 * self.divergence > _IN_AGREEMENT * implied:
            return
        if self.agreed is None or implied < self.agreed.implied:
            blocks = [copy.copy(block) for block in self.blocks]
            self.agreed = _State(self.x, self.p, self.tau, self.divergence, blocks, implied)

    def advance(self, correlations: Sequence[NDArray[np.floating]]) -> None:
        """Given Aᵀ z of each sketch, mix, weigh and denoise the pseudo-data."""
        for block, correlation in zip(self.blocks, correlations):
            block.advance(self.x, correlation)
        self._weigh()
        self.history.append(self.tau)
        before = self.x
        self.x, self.divergence = self.denoiser.denoise(self.p, self.tau)
        expected = self.tau * math.sqrt(max(self.divergence, 1.0))
        # in the absence of noise the error goes down to rounding
        rounding = 10 * np.finfo(self.x.dtype).eps * float(np.linalg.norm(self.x))
        # what the step would have been without damping
        step = float(np.linalg.norm(self.x - before)) / max(block.damping for block in self.blocks)
        self.change = 0.0 if step <= rounding else step / expected

    def _weigh(self) -> None:
        """Average the sketches' pseudo-data with weights 1/τ²."""
        precisions = np.array([max(block.tau, _LEAST_NOISE) ** -2.0 for block in self.blocks])
        self.shares = list(precisions / precisions.sum())
        self.tau = 1.0 / math.sqrt(precisions.sum())
        self.p = _mixture(self.shares, [block.p for block in self.blocks if block.p is not None])

    # --- what is known in the end

    def estimate(self) -> NDArray[np.floating]:
        """Return x, or zero where the residual says that zero is nearer to the truth."""
        square = sum(float(block.proposed @ block.proposed) for block in self.blocks)
        zero = sum(float(block.y @ block.y) for block in self.blocks)
        return self.x if square < zero else np.zeros_like(self.x)

    def predicted_error(self) -> float | None:
        """Return the ‖x − truth‖² that the residuals imply; None where the noise is unknown."""
        if any(block.noise_std is None for block in self.blocks):
            return None
        # the variance of each is that of ‖z‖², of order m·τ⁴
        precisions = [1.0 / block.m / max(block.tau, _LEAST_NOISE) ** 2 for block in self.blocks]
        errors = [block.error() for block in self.blocks]
        return max(float(np.average(errors, weights=precisions)), 0.0)

    def consistency(self) -> float:
        """Return (‖p − x‖² + 2τ²s − ‖x − truth‖²)/(dτ²): by Stein's identity it is near 1."""
        gap = self.p - self.x
        error = self.predicted_error()
        if error is None:
            error = self.tau**2 * self.divergence
        square = float(np.dot(gap, gap)) + 2 * self.tau**2 * self.divergence - error
        return square / (self.d * self.tau**2)

    def contradiction(self) -> str | None:
        """Say what contradicts the theory that τ rests on, if anything does."""
        if not self.done:
            return (
                f"stopped after {self.n_iter} iterations, the last of which changed x by "
                f"{self.change:.1e} of its expected error > tol={self.tol:.1e}; "
                "raise max_iter or tol."
            )
        if self.went_back:
            return (
                "the estimate came to fit the noise, which the effective noise does not show, so "
                "that an earlier one was returned; use more measurements, or another decoder."
            )
        if any(block.below_noise for block in self.blocks):
            return None  # τ is then an upper bound
        distance = max(block.distance() for block in self.blocks)
        if distance > _FAR_FROM_FIXED:
            return (
                f"the effective noise stopped falling at {self.tau:.3g}, far from a fixed point "
                f"(the residual would still change by {distance:.0%}), so that neither it nor the "
                "predicted error can be trusted; use more measurements, more rows of a count "
                "sketch, or another decoder."
            )
        chance = math.sqrt(2 / self.d) + sum(math.sqrt(2 * b.m) for b in self.blocks) / self.d
        found = self.consistency()
        if self.tau > 2 * _LEAST_NOISE and abs(found - 1.0) > _ALLOWED_CONTRADICTION + 6 * chance:
            return (
                f"the pseudo-data have {found:.2f} times the variance that the residual implies, "
                "so that neither the effective noise nor the predicted error can be trusted; "
                "use more measurements, more rows of a count sketch, or another decoder."
            )
        return None


def _advance(operators: Sequence[Operator], chains: list[_Chain], max_iter: int) -> None:
    """Run the chains until each is done: one product with A and one with Aᵀ an iteration."""
    active = chains
    _propose(operators, active)
    for _ in range(max_iter):
        _correlate(operators, active)
        _propose(operators, active)
        active = [chain for chain in active if not chain.judge()]
        if not active:
            break
    for chain in chains:
        chain.settle()


def _propose(operators: Sequence[Operator], chains: list[_Chain]) -> None:
    if not any(chain.x.any() for chain in chains):
        for chain in chains:
            chain.propose([0.0] * len(operators))
        return
    products = [
        chains[0].blocks[k].times(A, [chain.x for chain in chains]) for k, A in enumerate(operators)
    ]
    for chain, own in zip(chains, zip(*products)):
        chain.propose(own)


def _correlate(operators: Sequence[Operator], chains: list[_Chain]) -> None:
    correlations = [
        chains[0].blocks[k].transposed(A, [chain.blocks[k].proposed for chain in chains])
        for k, A in enumerate(operators)
    ]
    for chain, own in zip(chains, zip(*correlations)):
        chain.advance(own)


# --- mixtures ---------------------------------------------------------------------------


def _least_square(z: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    """Return the b in [0.1, 1] for which z + b·(new − z) is shortest."""
    step = new - z
    square = float(step @ step)
    if square == 0.0:
        return 1.0
    return min(max(-float(z @ step) / square, _LEAST_DAMPING), 1.0)


def _mixture(
    weights: Sequence[float] | NDArray[np.floating], vectors: list[NDArray[np.floating]]
) -> NDArray[np.floating]:
    """Return Σ weights·vectors, in the type of the vectors."""
    if len(vectors) == 1:
        return vectors[0]
    mixed = vectors[0] * vectors[0].dtype.type(weights[0])
    for weight, vector in zip(weights[1:], vectors[1:]):
        mixed += vector.dtype.type(weight) * vector
    return mixed


def _stack(vectors: list[NDArray[np.floating]]) -> NDArray[np.floating]:
    return np.stack(vectors, axis=1)


# --- the Lasso as a start ----------------------------------------------------------------


def _lasso_start(
    A: Operator, y: NDArray[np.float64], ensemble: Ensemble, n_solves: int = 5
) -> tuple[NDArray[np.floating], float]:
    """Return a Lasso estimate and its s/m, with the penalty of its own effective noise.

    That penalty keeps out what does not stand out of the effective noise, so the support stays
    small however dense the truth is. It falls as the estimate improves.
    """
    m, d = A.shape
    norms = np.broadcast_to(ensemble.scale, d)
    x, used = np.zeros(d), 0.0
    tau = float(np.linalg.norm(y)) / math.sqrt(m)
    for _ in range(n_solves):
        if tau == 0.0:
            break
        solver = WorkingSet(alpha=alpha_from_noise(tau, norms, m), tol=1e-3, max_iter=20)
        new = solver.solve(A, y, None, x).coef
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
    return x, used
