"""A stand-in for ``sparse_secagg.RoundSpec`` until it is there: the same names, the same meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["RoundSpec"]


@dataclass(frozen=True, kw_only=True)
class RoundSpec:
    """What a private round is."""

    encoder: Any = "auto"
    compression: float | None = 10.0
    n_rows: int = 15
    mechanism: Any = "ddg"
    epsilon: float | None = 1.0
    delta: float = 1e-5
    noise_multiplier: float | None = None
    clip_norm: Any = 1.0
    n_bits: Any = 16
    decoder: Any = "amp"
    colluders: int = 0
    sparsity: int | None = None
    rounds: int = 1
    feedback: Any = None
    layers: Any = None
