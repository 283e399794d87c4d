"""Several sketches of the same mean, decoded as one.

Each sketch keeps its residual and its pseudo-data; they meet in the denoiser, which sees their
average with weights 1/τ_k². With s the divergence of the denoiser, sketch k corrects its residual
for the share s·(weight of k) that it has in the estimate. State evolution has
1/τ² = Σ_k 1/(noise_k² + error/m_k): for equal sketches the same as one of twice the length.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from solvers.amp.ensemble import Ensemble
from solvers.amp.message_passing import AMP, AMPSolution
from solvers.base import check_measurements, check_noise_std
from solvers.operators import as_operator, blocks_of

__all__ = ["decode_jointly"]


def decode_jointly(
    measurements: Iterable[tuple[Any, ArrayLike, float | None]], **params: Any
) -> AMPSolution:
    """Estimate one mean from several rounds, each with its own matrix, sketch and noise.

    Parameters
    ----------
    measurements : iterable of (A, y, noise_std)
        One triple for each round: y = A x + noise. The matrices have the same number of columns
        and are independent of each other: rounds draw fresh public seeds.
    **params
        Parameters of :class:`~solvers.amp.AMP`: denoiser, prior, debias, tol, ….

    Returns
    -------
    AMPSolution
        With ``coef``, ``std_err`` (for ``debias=True``), ``effective_noise``,
        ``predicted_error`` and ``trusted``.

    See Also
    --------
    solvers.priors.Previous : Uses an earlier estimate in place of an earlier sketch.

    Examples
    --------
    >>> import numpy as np, solvers
    >>> rng = np.random.default_rng(0)
    >>> x = np.zeros(1000); x[:30] = 1
    >>> rounds = []
    >>> for _ in range(2):
    ...     A = rng.standard_normal((150, 1000))
    ...     A /= np.linalg.norm(A, axis=0)
    ...     rounds.append((A, A @ x + 0.1 * rng.standard_normal(150), 0.1))
    >>> one = solvers.get("amp").fit(rounds[0][0], rounds[0][1], noise_std=0.1).coef_
    >>> both = solvers.decode_jointly(rounds).coef
    >>> bool(np.sum((both - x) ** 2) < 0.5 * np.sum((one - x) ** 2))
    True
    """
    rounds = list(measurements)
    if not rounds:
        raise ValueError("measurements is empty; give a triple (A, y, noise_std) for each round.")
    operators = [as_operator(A) for A, _, _ in rounds]
    d = operators[0].shape[1]
    for k, A in enumerate(operators):
        if A.shape[1] != d:
            raise ValueError(
                f"the matrix of round {k} has {A.shape[1]} columns, that of round 0 has {d}; "
                "decode rounds of the same vector."
            )
    solver = AMP(**params)
    for k, A in enumerate(operators):
        for block in blocks_of(A):
            _check_ensemble(k, Ensemble.of(block.operator, solver.seed), len(operators))
    sketches = [check_measurements(y, A.shape[0]) for A, (_, y, _) in zip(operators, rounds)]
    noises = [check_noise_std(noise) for _, _, noise in rounds]
    with np.errstate(invalid="ignore", over="ignore"):
        solution = solver.solve_jointly(operators, [sketches], noises, None)[0]
    if not np.isfinite(solution.coef).all():
        raise OverflowError("the estimate overflowed: rescale the matrices and sketches.")
    if not solution.converged:
        warnings.warn(f"decode_jointly: {solution.message}", ConvergenceWarning, stacklevel=2)
    return solution


def _check_ensemble(k: int, ensemble: Ensemble, n_rounds: int) -> None:
    if not ensemble.isotropic:
        raise ValueError(
            f"the matrix of round {k} is far from a random matrix (its columns are correlated) "
            "and has no theory for joint decoding; decode the rounds one by one with a Lasso."
        )
    if np.ndim(ensemble.scale) and n_rounds > 1:
        raise ValueError(
            f"the columns of the matrix of round {k} have norms that differ by more than a "
            "quarter; joint decoding needs nearly equal norms, so rescale them."
        )
