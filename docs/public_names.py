"""Which names are public: those in ``__all__`` of these modules, and nowhere else.

The site's reference is made of them (``conf.py``), and ``tests/test_docstrings.py`` checks that
each of their docstrings is complete. ``__all__`` of any other module is for the package itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

#: Module, title of its page, and what is in it.
MODULES = (
    ("sparse_secagg", "sparse_secagg", "Rounds, estimators, encoders, mechanisms, parties."),
    ("solvers", "solvers", "Sparse recovery, usable by itself."),
    ("solvers.denoisers", "solvers.denoisers", "What message passing expects of the entries."),
    ("solvers.priors", "solvers.priors", "What may be known before anything is measured."),
    ("sparse_secagg.planner", "sparse_secagg.planner", "What a round will cost and achieve."),
    ("sparse_secagg.estimator", "sparse_secagg.estimator", "What a round tells when it is over."),
    ("sparse_secagg.rounds", "sparse_secagg.rounds", "The round between parties, step by step."),
    ("sparse_secagg.privacy", "sparse_secagg.privacy", "Observers, Rényi curves and ledgers."),
    ("sparse_secagg.mechanisms", "sparse_secagg.mechanisms", "Exact integer noise."),
    ("sparse_secagg.encoders", "sparse_secagg.encoders", "Linear sketches from a public seed."),
    ("sparse_secagg.secagg", "sparse_secagg.secagg", "Sums that nobody can look inside."),
    ("sparse_secagg.transport", "sparse_secagg.transport", "Rounds between processes, over TLS."),
    ("sparse_secagg.flower", "sparse_secagg.flower", "Private rounds in a Flower app."),
    ("sparse_secagg.torch", "sparse_secagg.torch", "From a state_dict to a vector and back."),
    ("experiments", "experiments", "Sweeps, training, recordings."),
    ("experiments.recording", "experiments.recording", "What a recording holds."),
)

#: Extras without which a module cannot be imported.
NEEDS = {"sparse_secagg.flower": "flwr", "sparse_secagg.torch": "torch"}


def decoders() -> dict[str, str]:
    """Return where the class of each decoder is, by the name that ``solvers.get`` knows it by."""
    solvers = importlib.import_module("solvers")
    kinds = {name: type(solvers.get(name)) for name in solvers.names()}
    return {name: f"{kind.__module__}.{kind.__qualname__}" for name, kind in kinds.items()}


def is_importable(module: str) -> bool:
    """Return whether what a module needs is installed."""
    return module not in NEEDS or importlib.util.find_spec(NEEDS[module]) is not None


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the object of everything public in a module, but for modules and data."""
    home = importlib.import_module(module)
    for name in sorted(home.__all__):
        value = getattr(home, name)
        if not isinstance(value, ModuleType) and (inspect.isclass(value) or callable(value)):
            yield name, value
