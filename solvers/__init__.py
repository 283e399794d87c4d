"""Sparse recovery: given A, y and the noise level, find x with y = A x + noise.

This package knows nothing of privacy, clients or experiments and can be used by itself::

    import solvers

    solvers.names()
    solver = solvers.get("working_set", tol=1e-6).fit(A, y, noise_std=0.01)
    solver.coef_, solver.dual_gap_
    solver.decode(Y)  # more measurements of the same A, as a batch
    solvers.state_evolution(x, 0.01, m=200)  # what message passing will reach, without running it

Names are imported on first use, so that ``import solvers`` compiles and loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvers import denoisers, inference, priors
    from solvers.amp.evolution import StateEvolution, state_evolution
    from solvers.amp.joint import decode_jointly
    from solvers.base import Solution, Solver
    from solvers.inference import (
        confidence_interval,
        discoveries,
        p_values,
        selected_intervals,
    )
    from solvers.operators import Operator, as_operator
    from solvers.registry import get, names, register

_HOME = {
    "Operator": "operators",
    "Solution": "base",
    "Solver": "base",
    "StateEvolution": "amp.evolution",
    "as_operator": "operators",
    "confidence_interval": "inference",
    "decode_jointly": "amp.joint",
    "discoveries": "inference",
    "get": "registry",
    "names": "registry",
    "p_values": "inference",
    "register": "registry",
    "selected_intervals": "inference",
    "state_evolution": "amp.evolution",
}

_MODULES = ("denoisers", "inference", "priors")

__all__ = [
    "Operator",
    "Solution",
    "Solver",
    "StateEvolution",
    "as_operator",
    "confidence_interval",
    "decode_jointly",
    "denoisers",
    "discoveries",
    "get",
    "inference",
    "names",
    "p_values",
    "priors",
    "register",
    "selected_intervals",
    "state_evolution",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
