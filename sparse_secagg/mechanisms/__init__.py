"""Mechanisms: from a sketch to a private integer message, and back from the sum to the mean."""

from __future__ import annotations

from typing import Any

from sparse_secagg.mechanisms.base import IntegerMechanism
from sparse_secagg.mechanisms.central import CentralGaussian
from sparse_secagg.mechanisms.discrete_gaussian import DiscreteGaussian
from sparse_secagg.mechanisms.parameters import EncodeReport, MechanismParameters
from sparse_secagg.mechanisms.randomness import PrivateRandomness, Randomness, SimulationRandomness
from sparse_secagg.mechanisms.skellam import Skellam
from sparse_secagg.parts import import_part, is_import_path

__all__ = [
    "CentralGaussian",
    "DiscreteGaussian",
    "EncodeReport",
    "IntegerMechanism",
    "MechanismParameters",
    "PrivateRandomness",
    "Randomness",
    "SimulationRandomness",
    "Skellam",
    "from_parameters",
    "get",
    "names",
    "register",
]

_REGISTRY: dict[str, type[IntegerMechanism]] = {
    cls.name: cls for cls in (DiscreteGaussian, Skellam, CentralGaussian)
}


def names() -> list[str]:
    """Return the names of the mechanisms."""
    return sorted(_REGISTRY)


def register(kind: type[IntegerMechanism], name: str | None = None) -> type[IntegerMechanism]:
    """Make a mechanism of one's own known, by default under its ``name``; return it."""
    name = kind.name if name is None else name
    if _REGISTRY.get(name, kind) is not kind:
        raise ValueError(f"mechanism name={name!r} is taken by {_REGISTRY[name].__name__}.")
    _REGISTRY[name] = kind
    return kind


def get(name: str, **parameters: Any) -> IntegerMechanism:
    """Return a new mechanism by its name or import path ``"package.module:Class"``.

    Keyword arguments are constructor parameters.
    """
    if name not in _REGISTRY and is_import_path(str(name)):
        # its own name is what the parameters of a round will say
        return register(import_part(name, "mechanism", IntegerMechanism))(**parameters)
    if name not in _REGISTRY:
        raise ValueError(f"mechanism={name!r} is not known; choose one of {', '.join(names())}.")
    return _REGISTRY[name](**parameters)


def from_parameters(parameters: MechanismParameters) -> IntegerMechanism:
    """Return a mechanism ready to encode and decode with a round's published parameters.

    Nothing is imported: the parameters may be somebody else's. See :func:`register`.
    """
    if parameters.mechanism not in _REGISTRY:
        raise ValueError(
            f"mechanism={parameters.mechanism!r} is not known here; there are "
            f"{', '.join(names())}. Register one of your own with mechanisms.register(Class)."
        )
    mechanism = get(
        parameters.mechanism,
        noise_multiplier=parameters.noise_multiplier,
        clip_norm=parameters.clip_norm,
        n_bits=parameters.n_bits,
        beta=parameters.beta,
        adjacency=parameters.adjacency,
        min_survivors=parameters.min_survivors,
        colluders=parameters.colluders,
        random_state=parameters.seed,
    )
    if parameters.rotation != "none":
        mechanism.set_params(rotation=parameters.rotation)
    mechanism.parameters_ = parameters
    return mechanism
