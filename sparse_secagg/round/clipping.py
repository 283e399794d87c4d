"""Adaptive clipping: follow a quantile of the clients' norms, privately.

Each round every client says by one bit whether its norm is within the clip C. From b̃, the noisy
share that is, the clip moves geometrically, C ← C·exp(−η·(b̃ − q)), towards the quantile q. The
bits, centred to ±½, go through a mechanism of their own, whose cost is added to the round's. A
client whose vector is zero says nothing, so that zeroing a client out moves the sum by ½ at most.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.mechanisms import DiscreteGaussian
from sparse_secagg.mechanisms.randomness import Randomness
from sparse_secagg.parameterised import Parameterised
from sparse_secagg.privacy.curves import DEFAULT_ORDERS

__all__ = ["AdaptiveClip"]

_N_BITS = 32  # one coordinate: bits cost nothing beside a sketch


class AdaptiveClip(Parameterised):
    """A clipping norm that follows a quantile of the clients' norms.

    Parameters
    ----------
    initial : float, default=0.1
        Where the clip starts.
    quantile : float, default=0.5
        Share q of clients whose norm should be within the clip.
    learning_rate : float, default=0.2
        η of the geometric update.
    noise_multiplier : float or "auto", default="auto"
        Noise on the count of bits, over its sensitivity; "auto" is n/10 for n clients, at least 1,
        so that the noise is a twentieth of the count and costs little beside the round.

    Attributes
    ----------
    clip_norm_ : float
        The clip to use in the next round.
    rdp_ : ndarray
        Rényi curve of the last update at ``accounting.DEFAULT_ORDERS``.

    See Also
    --------
    SparseSecAgg : Takes one as ``clip_norm``.

    Examples
    --------
    >>> import numpy as np
    >>> clip = AdaptiveClip(initial=0.1)
    >>> norms = np.full(100, 2.0)
    >>> for _ in range(100):
    ...     clip = clip.update(norms)
    >>> 1.5 < clip.clip_norm_ < 2.6
    True
    """

    clip_norm_: float
    rdp_: NDArray[np.float64]

    def __init__(
        self,
        initial: float = 0.1,
        *,
        quantile: float = 0.5,
        learning_rate: float = 0.2,
        noise_multiplier: float | str = "auto",
    ) -> None:
        self.initial = initial
        self.quantile = quantile
        self.learning_rate = learning_rate
        self.noise_multiplier = noise_multiplier

    @property
    def current(self) -> float:
        """The clip to use now."""
        self._check()
        return float(getattr(self, "clip_norm_", self.initial))

    def mechanism(
        self, n_clients: int, *, adjacency: str = "zero_out", colluders: int = 0
    ) -> DiscreteGaussian:
        """Return the calibrated mechanism that counts the bits of ``n_clients`` clients."""
        self._check()
        z = self.noise_multiplier
        mechanism = DiscreteGaussian(
            noise_multiplier=max(1.0, n_clients / 10) if z == "auto" else float(z),
            clip_norm=0.5,
            n_bits=_N_BITS,
            adjacency=adjacency,
            colluders=colluders,
            # one number needs no flattening: a fixed public rotation keeps simulations repeatable
            random_state=0,
        )
        mechanism.calibrate(n_clients, 1)
        return mechanism

    def update(
        self,
        norms: ArrayLike,
        rng: Randomness | None = None,
        *,
        adjacency: str = "zero_out",
        colluders: int = 0,
    ) -> Self:
        """Move the clip after a round.

        Parameters
        ----------
        norms : array-like of shape (n,)
            The clients' norms before clipping. Only one bit of each is used, and only in a noisy
            sum.
        rng : Randomness, optional
            Private randomness; the operating system's by default.
        adjacency : {"zero_out", "replace_one"}
            What neighbouring data sets differ by, for ``rdp_``.
        colluders : int
            Clients whose share of the noise does not count.
        """
        clip = self.current
        norms = np.asarray(norms, dtype=np.float64)
        if norms.ndim != 1 or norms.size == 0:
            raise ValueError(f"norms has shape {norms.shape}; pass one norm a client.")
        n = len(norms)
        bits = np.where(norms <= clip, 0.5, -0.5)
        bits[norms == 0] = 0.0
        mechanism = self.mechanism(n, adjacency=adjacency, colluders=colluders)
        messages = mechanism.encode(bits[:, None], rng)
        total = messages.sum(axis=0) % np.uint64(mechanism.parameters_.modulus)
        share = 0.5 + mechanism.decode(total, n)[0]
        # the share is a probability; outside only noise is left to follow
        share = min(max(share, 0.0), 1.0)
        self.clip_norm_ = clip * math.exp(-self.learning_rate * (share - self.quantile))
        self.rdp_ = mechanism.rdp(DEFAULT_ORDERS)
        return self

    def _check(self) -> None:
        for name, value, limit in [
            ("initial", self.initial, math.inf),
            ("quantile", self.quantile, 1.0),
            ("learning_rate", self.learning_rate, math.inf),
        ]:
            if not 0 < value < limit:
                raise ValueError(f"{name}={value} must lie strictly between 0 and {limit:g}.")
        z: Any = self.noise_multiplier
        if z != "auto" and not (isinstance(z, int | float) and 0 < z < math.inf):
            raise ValueError(f"noise_multiplier={z!r} must be 'auto' or a positive number.")
