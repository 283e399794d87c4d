"""Encoders by name or import path, and as plain data that a round's description can carry."""

from __future__ import annotations

import difflib
from typing import Any

from sklearn.base import clone

from sparse_secagg.encoders.base import LinearEncoder
from sparse_secagg.encoders.blocks import BlockEncoder
from sparse_secagg.encoders.count_sketch import CountSketchEncoder
from sparse_secagg.encoders.gaussian import GaussianEncoder
from sparse_secagg.encoders.hadamard import HadamardEncoder
from sparse_secagg.encoders.identity import IdentityEncoder
from sparse_secagg.parts import import_part, is_import_path, path_of
from sparse_secagg.sketches.lengths import layers_from_json

_REGISTRY: dict[str, type[LinearEncoder]] = {
    "blocks": BlockEncoder,
    "count_sketch": CountSketchEncoder,
    "gaussian": GaussianEncoder,
    "hadamard": HadamardEncoder,
    "identity": IdentityEncoder,
}


def names() -> list[str]:
    """Return the names of the encoders."""
    return sorted(_REGISTRY)


def register(kind: type[LinearEncoder], name: str | None = None) -> type[LinearEncoder]:
    """Make an encoder of one's own known, by default under its import path; return it.

    Descriptions of rounds name encoders. One that came from elsewhere is made only of encoders that
    this process knows, so a client has to register what it is ready to use.
    """
    name = path_of(kind) if name is None else name
    if _REGISTRY.get(name, kind) is not kind:
        raise ValueError(f"encoder name={name!r} is taken by {_REGISTRY[name].__name__}.")
    _REGISTRY[name] = kind
    return kind


def get(name: str, **parameters: Any) -> LinearEncoder:
    """Return a new encoder by its name or import path ``"package.module:Class"``.

    Keyword arguments are constructor parameters.
    """
    if name not in _REGISTRY and is_import_path(str(name)):
        register(import_part(name, "encoder", LinearEncoder), name)
    if name not in _REGISTRY:
        close = difflib.get_close_matches(str(name), _REGISTRY, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names())}."
        raise ValueError(f"encoder={name!r} is not known; {hint}")
    return _REGISTRY[name](**parameters)


def to_dict(encoder: LinearEncoder) -> dict[str, Any]:
    """Describe an encoder, its seed aside, by JSON values."""
    known = {kind: name for name, kind in _REGISTRY.items()}
    if type(encoder) not in known:  # it is here, so this process may make it again
        known[register(type(encoder))] = path_of(type(encoder))
    name = known[type(encoder)]
    parameters = encoder.get_params(deep=False)
    parameters.pop("random_state", None)
    if isinstance(encoder, BlockEncoder):
        parameters = _blocks_to_dict(encoder)
    return {"name": name, **{key: value for key, value in parameters.items() if value is not None}}


def from_dict(document: dict[str, Any]) -> LinearEncoder:
    """Return the encoder that :func:`to_dict` described.

    Nothing is imported: the description may be somebody else's. See :func:`register`.
    """
    if document.get("name") not in _REGISTRY:
        raise ValueError(
            f"encoder={document.get('name')!r} is not known here; there are {', '.join(names())}. "
            "Register one of your own with sparse_secagg.encoders.registry.register(Class)."
        )
    parameters = {key: value for key, value in document.items() if key != "name"}
    if document.get("name") == "blocks":
        parameters = _blocks_from_dict(parameters)
    try:
        return get(document.get("name", ""), **parameters)
    except TypeError as error:
        raise ValueError(f"encoder {document} is not a valid description: {error}") from None


def with_seed(encoder: LinearEncoder, seed: int) -> LinearEncoder:
    """Return an unfitted copy of an encoder with this public seed."""
    encoder = clone(encoder)
    if "random_state" in encoder.get_params(deep=False):
        encoder.set_params(random_state=seed)
    return encoder


def _blocks_to_dict(encoder: BlockEncoder) -> dict[str, Any]:
    document: dict[str, Any] = {"clip_shares": encoder.clip_shares}
    if encoder.layers is not None:
        document["layers"] = {name: [s.start, s.stop] for name, s in encoder.layers.items()}
    if isinstance(encoder.encoder, LinearEncoder):
        document["encoder"] = to_dict(encoder.encoder)
    elif encoder.encoder is not None:
        document["encoders"] = {name: to_dict(inner) for name, inner in encoder.encoder.items()}
    return document


def _blocks_from_dict(parameters: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(parameters)
    if "layers" in parameters:
        parameters["layers"] = layers_from_json(parameters["layers"])
    if "encoder" in parameters:
        parameters["encoder"] = from_dict(parameters["encoder"])
    if "encoders" in parameters:
        parameters["encoder"] = {
            name: from_dict(inner) for name, inner in parameters.pop("encoders").items()
        }
    return parameters
