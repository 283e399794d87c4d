"""Mechanisms: from a sketch to a private integer message, and back from the sum to the mean."""

from __future__ import annotations

from typing import Any

from sparse_secagg.mechanisms.base import IntegerMechanism
from sparse_secagg.mechanisms.central import CentralGaussian
from sparse_secagg.mechanisms.discrete_gaussian import DiscreteGaussian
from sparse_secagg.mechanisms.parameters import EncodeReport, MechanismParameters
from sparse_secagg.mechanisms.randomness import PrivateRandomness, Randomness, SimulationRandomness
from sparse_secagg.mechanisms.skellam import Skellam

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
]

_REGISTRY: dict[str, type[IntegerMechanism]] = {
    cls.name: cls for cls in (DiscreteGaussian, Skellam, CentralGaussian)
}


def names() -> list[str]:
    """Return the names of the mechanisms."""
    return sorted(_REGISTRY)


def get(name: str, **parameters: Any) -> IntegerMechanism:
    """Return a new mechanism by its name; keyword arguments are constructor parameters."""
    if name not in _REGISTRY:
        raise ValueError(f"mechanism={name!r} is not known; choose one of {', '.join(names())}.")
    return _REGISTRY[name](**parameters)


def from_parameters(parameters: MechanismParameters) -> IntegerMechanism:
    """Return a mechanism ready to encode and decode with a round's published parameters."""
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
