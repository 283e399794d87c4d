"""Private rounds inside a Flower app: one mod for the clients, one strategy for the server.

    client:  app = ClientApp(mods=[private_mod])
    server:  PrivateFedAvg(RoundSpec(epsilon=4.0, …), roster, rounds=30).start(grid, arrays, …)

The stages of secure aggregation travel as Flower messages; the user's training function runs in the
masking stage only, and nothing but masked residues leaves a node. Needs ``sparse-secagg[flower]``.
"""

from sparse_secagg.flower.accountant import LedgerAccountant
from sparse_secagg.flower.mod import private_mod
from sparse_secagg.flower.node import PrivateNode
from sparse_secagg.flower.strategy import PrivateFedAvg

__all__ = ["LedgerAccountant", "PrivateFedAvg", "PrivateNode", "private_mod"]
