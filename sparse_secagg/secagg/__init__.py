"""Secure aggregation: the modular sum, ideal or by pairwise masks, and what it costs in bytes."""

from sparse_secagg.secagg.charge import realised_epsilon, survivor_weight, unit_weights
from sparse_secagg.secagg.dropouts import Dropouts
from sparse_secagg.secagg.errors import (
    BelowThresholdError,
    InvalidMessageError,
    ReuseError,
    ServerFaultError,
)
from sparse_secagg.secagg.ideal import IdealSecAgg
from sparse_secagg.secagg.masked import MaskedSecAgg
from sparse_secagg.secagg.result import AggregationResult

__all__ = [
    "AggregationResult",
    "BelowThresholdError",
    "Dropouts",
    "IdealSecAgg",
    "InvalidMessageError",
    "MaskedSecAgg",
    "ReuseError",
    "ServerFaultError",
    "realised_epsilon",
    "survivor_weight",
    "unit_weights",
]
