"""Parts of one's own by an import path: ``"package.module:Class"``.

Importing a module runs it, so paths are followed where the user of this process wrote them and
never where they came with a round's description: see ``from_dict`` of the encoders and
``from_parameters`` of the mechanisms.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["import_part", "is_import_path", "path_of"]


def is_import_path(text: str) -> bool:
    """Return whether a text has the form of ``"package.module:Class"``."""
    module, colon, name = text.partition(":")
    names = [*module.split("."), *name.split(".")]
    return bool(colon) and all(each.isidentifier() for each in names)


def path_of(kind: type) -> str:
    """Return the import path of a class."""
    return f"{kind.__module__}:{kind.__qualname__}"


def import_part(path: str, role: str, base: type) -> Any:
    """Return the class at an import path, or raise ValueError with what is wrong.

    Parameters
    ----------
    path : str
        ``"package.module:Class"``.
    role : str
        What it is to be, for messages: ``"encoder"``, ``"mechanism"``, ``"decoder"``.
    base : type
        What it must derive from.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for each in name.split("."):
            found = getattr(found, each)
    except ImportError as error:
        raise ValueError(
            f"{role}={path!r}: {error}. Is the folder of {module!r} on the Python path?"
        ) from error
    except AttributeError:
        raise ValueError(f"{role}={path!r}: module {module!r} has no {name!r}.") from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{role}={path!r} must be a class that derives from {base.__name__}.")
    return found
