"""Linear encoders: scikit-learn transformers whose ``operator_`` the decoders invert."""

from __future__ import annotations

from sparse_secagg.encoders.base import LinearEncoder
from sparse_secagg.encoders.blocks import Block, BlockEncoder
from sparse_secagg.encoders.count_sketch import CountSketchEncoder
from sparse_secagg.encoders.gaussian import GaussianEncoder
from sparse_secagg.encoders.hadamard import HadamardEncoder
from sparse_secagg.encoders.identity import IdentityEncoder

__all__ = [
    "Block",
    "BlockEncoder",
    "CountSketchEncoder",
    "GaussianEncoder",
    "HadamardEncoder",
    "IdentityEncoder",
    "LinearEncoder",
]
