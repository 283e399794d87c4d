"""Private mean estimation: clients send short noisy integer sketches, the server decodes their sum.

Names are imported on first use, so that ``import sparse_secagg`` costs nothing by itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparse_secagg.clipping import AdaptiveClip
    from sparse_secagg.encoders import (
        BlockEncoder,
        CountSketchEncoder,
        GaussianEncoder,
        HadamardEncoder,
        IdentityEncoder,
    )
    from sparse_secagg.estimator import SparseSecAgg
    from sparse_secagg.exceptions import InfeasibleError, PrivacyWarning, RefusedRoundError
    from sparse_secagg.feedback import ThresholdFeedback
    from sparse_secagg.mechanisms import CentralGaussian, DiscreteGaussian, Skellam
    from sparse_secagg.planner import plan
    from sparse_secagg.rounds import (
        ClientPolicy,
        RoundConfig,
        aggregate,
        client_encode,
        server_decode,
    )
    from sparse_secagg.secagg import (
        ClientSession,
        IdealSecAgg,
        Identity,
        MaskedSecAgg,
        Roster,
        RoundDocument,
        ServerSession,
    )
    from sparse_secagg.secagg.agent import AgentPolicy, ClientAgent
    from sparse_secagg.secagg.budget import Budget

__version__ = "0.1.0"

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
    "AgentPolicy": "secagg.agent",
    "Budget": "secagg.budget",
    "ClientAgent": "secagg.agent",
    "ClientSession": "secagg",
    "Identity": "secagg",
    "Roster": "secagg",
    "RoundDocument": "secagg",
    "ServerSession": "secagg",
    "ClientPolicy": "rounds",
    "RefusedRoundError": "exceptions",
    "RoundConfig": "rounds",
    "aggregate": "rounds",
    "client_encode": "rounds",
    "server_decode": "rounds",
    "AdaptiveClip": "clipping",
    "SparseSecAgg": "estimator",
    "ThresholdFeedback": "feedback",
}

__all__ = [
    "AdaptiveClip",
    "AgentPolicy",
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
    "RefusedRoundError",
    "Roster",
    "RoundConfig",
    "RoundDocument",
    "ServerSession",
    "Skellam",
    "SparseSecAgg",
    "ThresholdFeedback",
    "aggregate",
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
