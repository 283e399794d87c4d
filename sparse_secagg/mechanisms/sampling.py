"""Exact discrete Gaussian noise, N_Z(0, σ²) with P(x) ∝ exp(−x²/(2σ²)), for rational σ² = p/q.

Two ways, both in integers only and both exact: inversion of a tabulated distribution function, and
rejection where a table would be too large or would not pay.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.mechanisms.inversion import draw, table_of
from sparse_secagg.mechanisms.randomness import Randomness, as_randomness
from sparse_secagg.mechanisms.rejection import draw_by_rejection, laplace_scale
from sparse_secagg.mechanisms.tail_sums import Gaussian

__all__ = ["discrete_gaussian", "round_up_variance"]

#: Tables grow with σ: 6 MB and a quarter of a second at this scale.
_LARGEST_TABLE_SCALE = 1 << 14
_WORD = 1 << 64


def discrete_gaussian(
    sigma2: Fraction | tuple[int, int] | int,
    size: int | tuple[int, ...],
    rng: Randomness | None = None,
) -> NDArray[Any]:
    """Draw exact discrete Gaussian samples.

    Parameters
    ----------
    sigma2 : Fraction, (numerator, denominator) or int
        The variance parameter σ², positive. A float is refused: say which rational is meant.
    size : int or tuple of int
        Shape of the result.
    rng : Randomness, optional
        Source of private randomness; None draws from the operating system's.

    Returns
    -------
    ndarray
        int64; Python integers (dtype object) for σ of 2**55 and more.

    Notes
    -----
    For σ up to 2**14, and where at least σ samples are asked for, one random word is looked up for
    each sample in a table of the distribution function (:mod:`.inversion`); the table is made once
    for a σ² and kept. Everything else is drawn by rejection (:mod:`.rejection`). Both are exact,
    and which one is used depends on ``sigma2`` and ``size`` alone.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from sparse_secagg.mechanisms.randomness import SimulationRandomness
    >>> discrete_gaussian(Fraction(25, 4), 5, SimulationRandomness(0)).dtype
    dtype('int64')
    """
    sigma2 = check_variance(sigma2)
    rng = as_randomness(rng)
    shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
    count = math.prod(shape)
    # Public numbers only, and not what happens to be cached: a seed must repeat in any process.
    if laplace_scale(sigma2) <= min(_LARGEST_TABLE_SCALE, count):
        return draw(table_of(Gaussian(sigma2)), count, rng).reshape(shape)
    return draw_by_rejection(sigma2, count, rng).reshape(shape)


def round_up_variance(variance: float) -> Fraction:
    """Return the smallest p/2^k ≥ ``variance`` that the 64-bit path can draw.

    k is the largest, up to 30, with 2pqt² < 2^64 and (|y|qt − p) < 2^32 for |y| ≤ 16σ; zero once
    σ² itself leaves that range.
    """
    if not (variance > 0 and math.isfinite(variance)):
        raise ValueError(f"variance={variance} must be a finite positive number.")
    exact = Fraction(variance)
    t = laplace_scale(exact)
    k = 30
    while k > 0 and (
        2 * (exact * 2**k + 1) * 2**k * t * t >= _WORD or (16 * t) * t * 2**k >= 2**32
    ):
        k -= 1
    return Fraction(math.ceil(exact * 2**k), 2**k)


def check_variance(sigma2: Fraction | tuple[int, int] | int) -> Fraction:
    """Return σ² as a Fraction, or raise."""
    if isinstance(sigma2, tuple) and len(sigma2) == 2:
        p, q = sigma2
        if not all(isinstance(v, int | np.integer) for v in (p, q)) or q == 0:
            raise ValueError(f"sigma2={sigma2} must be two integers, the second not 0.")
        sigma2 = Fraction(int(p), int(q))
    elif isinstance(sigma2, int | np.integer) and not isinstance(sigma2, bool):
        sigma2 = Fraction(int(sigma2))
    if not isinstance(sigma2, Fraction):
        raise TypeError(
            f"sigma2={sigma2!r} must be a Fraction or a pair of integers; for a float, "
            "Fraction(value) is exact and round_up_variance(value) is fast to draw."
        )
    if sigma2 <= 0:
        raise ValueError(f"sigma2={sigma2} must be positive.")
    return sigma2
