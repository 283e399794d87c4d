"""Proximal gradient without momentum (ISTA), the algorithm that others are compared with."""

from __future__ import annotations

from solvers.fista import FISTA

__all__ = ["ISTA"]


class ISTA(FISTA):
    """Proximal gradient x+ = S(x + A^T (y - A x) / L, m alpha / L), monotone and slow.

    Objective, parameters, certified step, continuation, screening and stopping rule are
    those of :class:`~solvers.fista.FISTA`; only the momentum is missing.
    """

    _accelerated = False
