"""Private rounds inside a Flower app: one mod for the clients, one strategy for the server.

    client:  app = ClientApp(mods=[private_mod])
    server:  PrivateFedAvg(RoundSpec(epsilon=4.0, …), roster, rounds=30).start(grid, arrays, …)

The stages of secure aggregation travel as Flower messages; the user's training function runs in the
masking stage only, and nothing but masked residues leaves a node. Needs ``sparse-secagg[flower]``.

Names are imported on first use: a node starts a process for every message, and has no use for the
server's half.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparse_secagg.flower.accountant import LedgerAccountant
    from sparse_secagg.flower.mod import private_mod
    from sparse_secagg.flower.node import PrivateNode
    from sparse_secagg.flower.strategy import PrivateFedAvg

_HOME = {
    "LedgerAccountant": "accountant",
    "PrivateFedAvg": "strategy",
    "PrivateNode": "node",
    "private_mod": "mod",
}

__all__ = ["LedgerAccountant", "PrivateFedAvg", "PrivateNode", "private_mod"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
