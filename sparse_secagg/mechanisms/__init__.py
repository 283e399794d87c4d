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
    """Return the names of the mechanisms.

    Returns
    -------
    list of str
        The names, sorted.

    See Also
    --------
    get : A mechanism by one of them.

    Examples
    --------
    >>> from sparse_secagg import mechanisms
    >>> {"central", "ddg", "skellam"} <= set(mechanisms.names())
    True
    """
    return sorted(_REGISTRY)


def register(kind: type[IntegerMechanism], name: str | None = None) -> type[IntegerMechanism]:
    """Make a mechanism of one's own known, by default under its ``name``; return it.

    Parameters
    ----------
    kind : subclass of IntegerMechanism
        The mechanism.
    name : str, optional
        Another name to know it by.

    Returns
    -------
    type
        The class itself, so that this is also a decorator.

    Raises
    ------
    ValueError
        If the name belongs to another mechanism.

    See Also
    --------
    get : Finds it by its name, or by its import path without registration.

    Examples
    --------
    >>> from sparse_secagg import mechanisms
    >>> @mechanisms.register
    ... class Audited(mechanisms.DiscreteGaussian):
    ...     '''The same noise, under a name of its own.'''
    ...     name = "audited"
    >>> type(mechanisms.get("audited")).__name__
    'Audited'
    """
    name = kind.name if name is None else name
    if _REGISTRY.get(name, kind) is not kind:
        raise ValueError(
            f"mechanism name={name!r} is taken by {_REGISTRY[name].__name__}; give {kind.__name__} "
            "a class attribute name of its own."
        )
    _REGISTRY[name] = kind
    return kind


def get(name: str, **parameters: Any) -> IntegerMechanism:
    """Return a new mechanism by its name or import path ``"package.module:Class"``.

    Parameters
    ----------
    name : str
        One of :func:`names`, or an import path.
    **parameters
        What its constructor takes.

    Returns
    -------
    IntegerMechanism
        The mechanism, not calibrated yet.

    Raises
    ------
    ValueError
        If the name is unknown, or the import path leads to no mechanism.

    See Also
    --------
    names : What there is.
    from_parameters : A mechanism that is calibrated already.

    Examples
    --------
    >>> from sparse_secagg import mechanisms
    >>> mechanism = mechanisms.get("ddg", epsilon=1.0, n_bits=16)
    >>> mechanism.calibrate(n_clients=100, dim=50).n_bits
    16
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

    Parameters
    ----------
    parameters : MechanismParameters
        What the server calibrated.

    Returns
    -------
    IntegerMechanism
        The calibrated mechanism.

    Raises
    ------
    ValueError
        If the mechanism that the parameters name is not registered here.

    See Also
    --------
    get : A mechanism that is still to be calibrated.

    Examples
    --------
    >>> from sparse_secagg import mechanisms
    >>> server = mechanisms.get("ddg", epsilon=1.0, n_bits=16)
    >>> parameters = server.calibrate(n_clients=100, dim=50)
    >>> client = mechanisms.from_parameters(parameters)
    >>> client.parameters_ == parameters
    True
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
