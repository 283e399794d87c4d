"""Secure aggregation: the modular sum, ideal or by pairwise masks, and what it costs in bytes."""

from sparse_secagg.secagg.dropouts import Dropouts
from sparse_secagg.secagg.errors import (
    BelowThresholdError,
    InvalidMessageError,
    ReuseError,
    ServerFaultError,
    TooFewClientsError,
)
from sparse_secagg.secagg.ideal import IdealSecAgg
from sparse_secagg.secagg.identities import Identity, Roster
from sparse_secagg.secagg.masked import MaskedSecAgg
from sparse_secagg.secagg.result import AggregationResult
from sparse_secagg.secagg.session import ClientSession, RoundDocument, ServerSession
from sparse_secagg.secagg.weights import survivor_weight, unit_weights

__all__ = [
    "AggregationResult",
    "BelowThresholdError",
    "ClientSession",
    "Dropouts",
    "IdealSecAgg",
    "Identity",
    "InvalidMessageError",
    "MaskedSecAgg",
    "ReuseError",
    "Roster",
    "RoundDocument",
    "ServerFaultError",
    "ServerSession",
    "TooFewClientsError",
    "survivor_weight",
    "unit_weights",
]
