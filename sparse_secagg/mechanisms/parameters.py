"""What calibration decides: everything public that clients and server must agree on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

__all__ = ["EncodeReport", "MechanismParameters"]


@dataclass(frozen=True)
class MechanismParameters:
    """Calibrated parameters of a mechanism. Lengths are in grid units of γ unless said.

    Parameters
    ----------
    mechanism : str
        Registered name.
    n_clients : int
        Clients whose messages are summed.
    min_survivors, colluders : int
        Clients guaranteed to be in the sum, and those of them whose noise the server may know;
        the noise is sized for the difference.
    dim, padded_dim : int
        Coordinates m of a sketch and D of a message.
    clip_norm : float
        Clip c' on the ℓ₂ norm of a sketch, in the units of the data.
    gamma : float
        Granularity γ: one grid unit in the units of the data.
    variance : Fraction
        Noise parameter σ²/γ² of one client (of the server, for central noise). Zero: no noise.
    n_bits : int
        Bits of one coordinate of a message; the modulus is 2^n_bits.
    beta : float
        Bias parameter of conditional rounding.
    norm_bound : float
        Bound B on a rounded vector, which the accounting uses.
    squared_bound : int
        What the integer check enforces, ⌊B²⌋.
    rotation : str
        One of "dft", "hadamard" and "none".
    seed : int
        Public seed of the rotation.
    adjacency : str
        Either "zero_out" or "replace_one".

    See Also
    --------
    IntegerMechanism.calibrate : Decides them.
    from_parameters : The mechanism that they describe.

    Examples
    --------
    >>> from sparse_secagg import DiscreteGaussian
    >>> from sparse_secagg.mechanisms import MechanismParameters
    >>> made = DiscreteGaussian(epsilon=1.0, n_bits=16).calibrate(n_clients=100, dim=50)
    >>> made.modulus, made.bits_per_client == 16 * made.padded_dim
    (65536, True)
    >>> MechanismParameters.from_json(made.to_json()) == made
    True
    """

    mechanism: str
    n_clients: int
    min_survivors: int
    colluders: int
    dim: int
    padded_dim: int
    clip_norm: float
    gamma: float
    variance: Fraction
    n_bits: int
    beta: float
    norm_bound: float
    squared_bound: int
    rotation: str
    seed: int
    adjacency: str

    @property
    def modulus(self) -> int:
        """M = 2^n_bits."""
        return 1 << self.n_bits

    @property
    def sigma(self) -> float:
        """σ: the noise of one client in the units of the data."""
        return self.gamma * math.sqrt(self.variance)

    @property
    def noise_shares(self) -> int:
        """Honest shares of noise guaranteed in the sum; one, the server's, for central noise."""
        return 1 if self.mechanism == "central" else self.min_survivors - self.colluders

    @property
    def noise_multiplier(self) -> float:
        """Z = √n·σ/(γB): noise of the guaranteed honest shares over the inflated sensitivity."""
        return math.sqrt(self.noise_shares * self.variance) / self.norm_bound

    @property
    def inflation(self) -> float:
        """γB/c': how much rounding adds to the sensitivity, and so to the noise."""
        return self.gamma * self.norm_bound / self.clip_norm

    @property
    def bias_bound(self) -> float:
        """β/(1−β)·γ√D: bound on the norm of the bias of conditional rounding."""
        return self.beta / (1.0 - self.beta) * self.gamma * math.sqrt(self.padded_dim)

    @property
    def bits_per_client(self) -> int:
        """D·b, the payload of one message."""
        return self.padded_dim * self.n_bits

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as JSON values, without loss: the fraction is a pair."""
        document = {item.name: getattr(self, item.name) for item in fields(self)}
        document["variance"] = [self.variance.numerator, self.variance.denominator]
        return document

    def to_json(self) -> str:
        """Return the parameters as JSON, without loss: floats round-trip, fractions are pairs."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> MechanismParameters:
        """Return the parameters written by :meth:`to_json`."""
        document: dict[str, Any] = json.loads(text)
        known = {field.name for field in fields(cls)}
        if set(document) != known:
            wrong = sorted(set(document) ^ known)
            raise ValueError(f"Not the parameters of a mechanism: unexpected or missing {wrong}.")
        # of integers only: a text such as "1e999999999" would be worked out to the last digit
        if [type(part) for part in document["variance"]] != [int, int]:
            raise ValueError("variance must be a pair of integers.")
        document["variance"] = Fraction(*document["variance"])
        return cls(**document)


@dataclass(frozen=True)
class EncodeReport:
    """What happened to the clients of one call of ``encode``. Data-dependent, so not private.

    Parameters
    ----------
    n_clients : int
        Vectors encoded.
    n_nonfinite : int
        Vectors with NaN or Inf, replaced by zero.
    n_clipped : int
        Vectors longer than the clip.
    n_rejected : int
        Rounded vectors that failed the integer check and were replaced by zero.

    See Also
    --------
    IntegerMechanism.encode : Keeps the last one in ``report_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import DiscreteGaussian
    >>> mechanism = DiscreteGaussian(epsilon=1.0, n_bits=16, clip_norm=1.0)
    >>> _ = mechanism.calibrate(n_clients=2, dim=3)
    >>> _ = mechanism.encode(np.array([[0.1, 0.0, 0.0], [9.0, 0.0, 0.0]]))
    >>> mechanism.report_
    EncodeReport(n_clients=2, n_nonfinite=0, n_clipped=1, n_rejected=0)
    """

    n_clients: int
    n_nonfinite: int
    n_clipped: int
    n_rejected: int
