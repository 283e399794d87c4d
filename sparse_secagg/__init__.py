"""Private mean estimation: clients send short noisy integer sketches, the server decodes their sum.

Names are imported on first use, so that ``import sparse_secagg`` costs nothing by itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparse_secagg.siblings import check_siblings

if TYPE_CHECKING:
    from sparse_secagg.agent import AgentPolicy, ClientAgent
    from sparse_secagg.announcement import announce_round
    from sparse_secagg.counts import PrivateCounts
    from sparse_secagg.encoders import (
        BlockEncoder,
        CountSketchEncoder,
        GaussianEncoder,
        HadamardEncoder,
        IdentityEncoder,
    )
    from sparse_secagg.estimator import SparseSecAgg
    from sparse_secagg.exceptions import (
        AggregateFileError,
        InfeasibleError,
        PrivacyWarning,
        RefusedRoundError,
    )
    from sparse_secagg.mechanisms import CentralGaussian, DiscreteGaussian, Skellam
    from sparse_secagg.planner import plan
    from sparse_secagg.round.aggregate import Aggregate
    from sparse_secagg.round.clipping import AdaptiveClip
    from sparse_secagg.round.config import RoundConfig
    from sparse_secagg.round.feedback import ThresholdFeedback
    from sparse_secagg.round.messages import aggregate, client_encode, server_decode
    from sparse_secagg.round.policy import ClientPolicy
    from sparse_secagg.round.spec import RoundSpec
    from sparse_secagg.secagg import (
        ClientSession,
        IdealSecAgg,
        Identity,
        MaskedSecAgg,
        Roster,
        RoundDocument,
        ServerSession,
    )
    from sparse_secagg.secagg.budget import Budget

__version__ = "0.2.0"

check_siblings(__file__, "solvers", "experiments")

_HOME = {
    "BlockEncoder": "encoders",
    "CountSketchEncoder": "encoders",
    "GaussianEncoder": "encoders",
    "HadamardEncoder": "encoders",
    "IdentityEncoder": "encoders",
    "CentralGaussian": "mechanisms",
    "DiscreteGaussian": "mechanisms",
    "Skellam": "mechanisms",
    "InfeasibleError": "exceptions",
    "PrivacyWarning": "exceptions",
    "plan": "planner",
    "IdealSecAgg": "secagg",
    "MaskedSecAgg": "secagg",
    "AgentPolicy": "agent",
    "announce_round": "announcement",
    "Budget": "secagg.budget",
    "ClientAgent": "agent",
    "ClientSession": "secagg",
    "Identity": "secagg",
    "Roster": "secagg",
    "RoundDocument": "secagg",
    "ServerSession": "secagg",
    "ClientPolicy": "round.policy",
    "RefusedRoundError": "exceptions",
    "RoundConfig": "round.config",
    "aggregate": "round.messages",
    "client_encode": "round.messages",
    "server_decode": "round.messages",
    "AdaptiveClip": "round.clipping",
    "Aggregate": "round.aggregate",
    "AggregateFileError": "exceptions",
    "RoundSpec": "round.spec",
    "PrivateCounts": "counts",
    "SparseSecAgg": "estimator",
    "ThresholdFeedback": "round.feedback",
}

__all__ = [
    "AdaptiveClip",
    "AgentPolicy",
    "Aggregate",
    "AggregateFileError",
    "BlockEncoder",
    "Budget",
    "CentralGaussian",
    "ClientAgent",
    "ClientPolicy",
    "ClientSession",
    "CountSketchEncoder",
    "DiscreteGaussian",
    "GaussianEncoder",
    "HadamardEncoder",
    "IdealSecAgg",
    "Identity",
    "IdentityEncoder",
    "InfeasibleError",
    "MaskedSecAgg",
    "PrivacyWarning",
    "PrivateCounts",
    "RefusedRoundError",
    "Roster",
    "RoundConfig",
    "RoundDocument",
    "RoundSpec",
    "ServerSession",
    "Skellam",
    "SparseSecAgg",
    "ThresholdFeedback",
    "aggregate",
    "announce_round",
    "client_encode",
    "plan",
    "server_decode",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
