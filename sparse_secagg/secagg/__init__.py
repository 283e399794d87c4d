"""Secure aggregation: the modular sum, ideal or by pairwise masks, and what it costs in bytes."""

from sparse_secagg.secagg.contract import Aggregation, SecureAggregation
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
from sparse_secagg.secagg.registry import make_secagg
from sparse_secagg.secagg.result import AggregationResult
from sparse_secagg.secagg.session import ClientSession, RoundDocument, ServerSession
from sparse_secagg.secagg.weights import survivor_weight, unit_weights

__all__ = [
    "Aggregation",
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
    "SecureAggregation",
    "ServerFaultError",
    "ServerSession",
    "TooFewClientsError",
    "make_secagg",
    "survivor_weight",
    "unit_weights",
]
