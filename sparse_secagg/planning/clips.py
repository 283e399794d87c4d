"""Where sketches are clipped, as a multiple of the clients' clip c.

A sketch is about as long as its vector: ‖Sx‖/‖x‖ has mean 1 and standard deviation w ≈ 1/√(2m).
Clipping at f·c, f = 1 + t·w, shortens the sketches that are longer, which costs the mean of clients
that all hold one vector of norm c at most

    w²·E[(g − t)₊²]·c²,   g standard normal   (1/(4m) of c² at f = 1),

while the variance of the noise is proportional to f².
"""

from __future__ import annotations

import math
import numbers

__all__ = [
    "JL_CLIP",
    "SKETCH_CLIPS",
    "SketchClip",
    "check_sketch_clip",
    "clipping_error",
    "expected_spectral_factor",
    "length_spread",
    "tight_factor",
]

SketchClip = str | float

#: The paper's factor: Johnson–Lindenstrauss lengths rarely exceed it.
JL_CLIP = 1.1
SKETCH_CLIPS = ("tight", "jl", "spectral")
#: Noise error, relative to ‖μ‖², that "tight" assumes where it is not known. More noise asks for
#: a factor of 1, which is what this one gives from m = 800 on.
_USUAL_NOISE = 0.01


def check_sketch_clip(kind: SketchClip) -> SketchClip:
    """Return ``kind``, or raise if it is neither a name nor a finite positive factor."""
    if isinstance(kind, str):
        known = kind in SKETCH_CLIPS
    else:
        real = isinstance(kind, numbers.Real) and not isinstance(kind, bool)
        known = real and kind > 0 and math.isfinite(kind)
    if not known:
        raise ValueError(
            f"sketch_clip={kind!r} is not known; choose 'tight', 'jl', 'spectral' or a positive "
            "number, the factor by which the clip of sketches exceeds that of vectors."
        )
    return kind


def length_spread(m: int, row_dim: float = math.inf) -> float:
    """Return the standard deviation of ‖Sx‖/‖x‖ for a dense x.

    Parameters
    ----------
    m : int
        Length of a sketch.
    row_dim : float
        D, if S keeps m of the rows of a D×D orthogonal matrix; infinite for independent rows.
    """
    kept = 1.0 if math.isinf(row_dim) else (row_dim - m) / max(row_dim - 1, 1)
    return math.sqrt(max(kept, 0.0) / (2 * m))


def clipping_error(factor: float, spread: float) -> float:
    """Return E(1 − λ)², λ the share of its length that clipping at ``factor``·‖x‖ leaves a sketch.

    It is the squared error, relative to ‖μ‖², of the mean of clients that all hold one vector.
    """
    if spread == 0:
        return max(0.0, 1.0 - factor) ** 2
    t = (factor - 1.0) / spread
    return spread**2 * ((1 + t * t) * _tail(t) - t * _density(t))


def tight_factor(spread: float, relative_noise: float = _USUAL_NOISE) -> float:
    """Return the factor of least error, from 1 to the paper's 1.1.

    It minimises :func:`clipping_error` + ``relative_noise``·f², so E[(g − t)₊]·w = noise·f.

    Parameters
    ----------
    spread : float
        w, of :func:`length_spread`.
    relative_noise : float
        Squared error from noise at f = 1, relative to ‖μ‖².
    """
    from scipy.optimize import brentq  # a client takes the clip as it is told, without it

    def slope(t: float) -> float:
        excess = _density(t) - t * _tail(t)
        return relative_noise * (1 + t * spread) - spread * excess

    if slope(0.0) >= 0:
        return 1.0
    last = (JL_CLIP - 1.0) / spread
    if slope(last) <= 0:
        return JL_CLIP
    return 1.0 + spread * float(brentq(slope, 0.0, last, xtol=1e-12))


def expected_spectral_factor(d: int, m: int) -> float:
    """Return about σ_max(S) of an m×d Gaussian ensemble of variance 1/m: 1 + √(d/m)."""
    return 1.0 + math.sqrt(d / m)


def _tail(t: float) -> float:
    return 0.5 * math.erfc(t / math.sqrt(2.0))


def _density(t: float) -> float:
    return math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
