"""Bytes that secure aggregation itself sends, beside the payload."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from sparse_secagg.secagg import IdealSecAgg, MaskedSecAgg
from sparse_secagg.secagg.setup import resolve_threshold

__all__ = ["guaranteed_survivors", "protocol_bytes", "resolve_secagg"]


def resolve_secagg(secagg: Any) -> IdealSecAgg | MaskedSecAgg:
    """Return the secure aggregation that a name or an instance stands for."""
    if secagg == "ideal":
        return IdealSecAgg()
    if secagg == "masked":
        return MaskedSecAgg()
    if isinstance(secagg, IdealSecAgg | MaskedSecAgg):
        return secagg
    raise ValueError(
        f"secagg={secagg!r} cannot be planned; choose 'ideal', 'masked' or an instance of these."
    )


def guaranteed_survivors(secagg: IdealSecAgg | MaskedSecAgg, n_clients: int) -> int | None:
    """Return the clients without whom there is no sum: the threshold; None where there is none."""
    if isinstance(secagg, IdealSecAgg) and secagg.threshold is None:
        return None
    return resolve_threshold(secagg.threshold, n_clients)


def protocol_bytes(secagg: IdealSecAgg | MaskedSecAgg, n_clients: int) -> int:
    """Return the bytes that a client sends in a round nobody leaves, beside its payload."""
    if isinstance(secagg, IdealSecAgg):
        return 0
    members = n_clients if secagg.neighbors is None else secagg.neighbors + 1
    base, per_client, per_member = _message_sizes()
    return round(base + per_client * n_clients + per_member * members)


@lru_cache(maxsize=1)
def _message_sizes() -> tuple[float, float, float]:
    """Return the bytes of any round, for each client and for each member of a neighbourhood.

    Sizes are linear in both, so three small rounds of the protocol itself tell them.
    """
    shapes = [(4, None, 4), (6, None, 6), (6, 2, 3)]
    sent = [
        MaskedSecAgg(neighbors=k, modulus=256).aggregate(np.zeros((n, 1), np.uint64)).protocol_up[0]
        for n, k, _ in shapes
    ]
    terms = np.array([(1, n, members) for n, _, members in shapes], dtype=float)
    base, per_client, per_member = np.linalg.solve(terms, np.array(sent, dtype=float))
    return float(base), float(per_client), float(per_member)
