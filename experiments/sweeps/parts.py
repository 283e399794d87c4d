"""Parts of one's own on their way to workers.

A worker knows the solvers, encoders and mechanisms of this project and nothing that was registered
in the parent, defined in its ``__main__`` or found in its current folder. Such classes travel with
the cells, by value, so that loky, Dask on another machine and spawned processes make them alike.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import solvers
from sparse_secagg import decoder_texts as decoders
from sparse_secagg import mechanisms
from sparse_secagg.counting.domains import HashedItems
from sparse_secagg.encoders import registry
from sparse_secagg.parts import import_part, is_import_path

#: A class is all that is wanted of a decoder, so any domain of items will do.
ANY_ITEMS = HashedItems(2)
#: Whose classes every worker has.
_OURS = ("solvers", "sparse_secagg", "experiments")


@dataclass(frozen=True)
class Parts:
    """Classes by their role and name, pickled."""

    #: Role ("decoder", "denoiser", "encoder" or "mechanism") and name of each.
    names: tuple[tuple[str, str], ...] = ()
    pickled: bytes = b""  # A dictionary of the same keys

    def install(self) -> None:
        """Make the classes known in this process, where they are not."""
        missing = [key for key in self.names if not _is_known(*key)]
        if not missing:
            return
        found = _cloudpickle().loads(self.pickled)
        for role, name in missing:
            _install(role, name, found[role, name])


NO_PARTS = Parts()


def collect(specs: Iterable[Any]) -> Parts:
    """Return the parts that the decoders, encoders and mechanisms of some rounds need."""
    found: dict[tuple[str, str], Any] = {}
    for decoder, encoder, mechanism in dict.fromkeys(
        (spec.decoder, spec.encoder, spec.mechanism) for spec in specs
    ):
        name, options = decoders.split_decoder(decoder)
        found["decoder", name] = type(decoders.parse_decoder(decoder, {"": (2, 2)}, ANY_ITEMS))
        for option in options.split(","):
            key, _, value = option.partition("=")
            if key.strip() == "denoiser" and is_import_path(value.strip()):
                found["denoiser", value.strip()] = import_part(value.strip(), "denoiser", object)
        found["encoder", encoder] = type(registry.get(encoder))
        found["mechanism", mechanism] = type(mechanisms.get(mechanism))
    own = {key: kind for key, kind in found.items() if kind.__module__.split(".")[0] not in _OURS}
    return Parts(tuple(own), _by_value(own)) if own else NO_PARTS


def _by_value(parts: dict[tuple[str, str], type]) -> bytes:
    cloudpickle = _cloudpickle()
    with ExitStack() as stack:
        for module in {kind.__module__ for kind in parts.values()}:
            found = sys.modules[module]
            if module != "__main__" and not _is_installed(found):
                cloudpickle.register_pickle_by_value(found)
                stack.callback(cloudpickle.unregister_pickle_by_value, found)
        return bytes(cloudpickle.dumps(parts))


def _cloudpickle() -> Any:
    """Return the module that joblib pickles with: its own copy before joblib 1.6."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return importlib.import_module("joblib.externals.cloudpickle")


def _is_installed(module: ModuleType) -> bool:
    """Return whether a module is a package's, which a worker has as well."""
    places = {sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")}
    file = Path(getattr(module, "__file__", None) or "").resolve()
    return any(file.is_relative_to(Path(place).resolve()) for place in places)


def _is_known(role: str, name: str) -> bool:
    if role in ("decoder", "denoiser"):
        return decoders.is_known(name) or name in solvers.names()
    if role == "encoder":
        return name in registry.names()
    return name in mechanisms.names()


def _install(role: str, name: str, kind: Any) -> None:
    if role == "encoder":
        registry.register(kind, name)
    elif role == "mechanism":
        mechanisms.register(kind)  # what a round's parameters say
        mechanisms.register(kind, name)  # what the cell says
    elif is_import_path(name):
        decoders.know(name, kind)
    else:
        solvers.register(name, kind)
