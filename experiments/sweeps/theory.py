"""What theory predicts for a round, to draw beside what was measured.

All are squared errors divided by ‖μ‖². The linear decoder's is exact in expectation,

    E‖Sᵀ(Sμ + N) − μ‖² = a·‖μ‖² + d·noise_std²,   a = (d − 1)/m for a count sketch;

the others are what an s-sparse mean allows: the Lasso's rate and least squares on the true support,
which no unbiased decoder can beat.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers import state_evolution
from solvers.amp import AMP
from sparse_secagg.encoders import registry

#: Draws of state evolution; a sweep averages over its seeds besides.
_LIMIT_DRAWS = 3


def linear_error(encoder: str, d: int, m: int, noise_std: float, norm: float) -> float | None:
    """Return the linear decoder's expected relative squared error; None if the encoder is silent.

    An encoder of one's own need not state the error of its unsketch.
    """
    try:
        compression = registry.get(encoder).unsketch_error_at(d, m)
    except NotImplementedError:
        return None
    return float(compression + d * noise_std**2 / norm**2)


def message_passing_limit(
    solver: Any, mean: NDArray[np.float64], noise_std: float, m: int, encoder: str | None
) -> float | None:
    """Return the relative error that state evolution predicts; None for other decoders.

    The limit is that of the estimate of least error, not of the debiased one.
    """
    if not isinstance(solver, AMP) or solver.debias or encoder in (None, "identity"):
        return None
    return state_evolution(
        mean,
        noise_std,
        m,
        ensemble="hadamard" if encoder == "hadamard" else "independent",
        denoiser=solver.denoiser,
        shapes=solver.shapes,
        prior=solver.prior,
        n_draws=_LIMIT_DRAWS,
    ).relative_error


def rate_distortion(bits: float, d: int) -> float:
    """Return 2^(−2B/d): the least worst-case relative error of d numbers told in B bits."""
    return float(2.0 ** (-2.0 * bits / d))


def predict(
    *,
    encoder: str | None,
    d: int,
    m: int,
    noise_std: float,
    central_std: float,
    norm: float,
    bits: float,
    sparsity: int | None,
) -> dict[str, float | None]:
    """Return the predicted relative errors of a round by name; None where one does not apply.

    ``theory_linear`` is the linear decoder's; ``theory_lasso`` and ``theory_support`` are those of
    the Lasso and of least squares on the true support, for an s-sparse mean; ``theory_central`` is
    the central Gaussian mechanism's without compression; no scheme with so many bits per client
    errs less than ``theory_bits`` on every mean of this norm. The encoder is None where the linear
    decoder's error has no closed form.
    """
    noise = noise_std**2 / norm**2
    lasso = support = None
    if sparsity is not None and sparsity < m:
        lasso = sparsity * noise * (2 * math.log(d) + 1)
        support = sparsity * noise / (1 - sparsity / m)
    return {
        "theory_linear": None if encoder is None else linear_error(encoder, d, m, noise_std, norm),
        "theory_lasso": lasso,
        "theory_support": support,
        "theory_central": d * central_std**2 / norm**2,
        "theory_bits": rate_distortion(bits, d),
    }
