"""Plain data that nobody can change: dictionaries and lists of JSON values, frozen throughout."""

from __future__ import annotations

from typing import Any, Never

import numpy as np

__all__ = ["FrozenDict", "freeze"]


class FrozenDict(dict[str, Any]):
    """A dictionary that refuses to change; equal to any dictionary of the same items."""

    def _refuse(self, *_: Any, **__: Any) -> Never:
        raise TypeError("this dictionary is part of a frozen record; make a new record instead.")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


def freeze(value: Any) -> Any:
    """Return JSON values in a form that cannot change: tuples for lists, frozen dictionaries."""
    if isinstance(value, dict):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value
