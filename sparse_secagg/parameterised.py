"""Parameters as scikit-learn's estimators have them, for parts that a client needs without it.

A part is made of its parameters alone, so a copy is made of them, too. scikit-learn's ``clone``,
``get_params(deep=True)`` of an estimator that holds a part and ``set_params(part__name=…)`` work.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, Self, TypeVar

__all__ = ["Parameterised", "clone"]


class Parameterised:
    """A part whose parameters are the arguments of its constructor, kept under their names."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, with those of parts that are parameters if ``deep``."""
        parameters: dict[str, Any] = {}
        for name in sorted(_signature(type(self))):
            value = parameters[name] = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                inner = value.get_params()
                parameters.update({f"{name}__{key}": each for key, each in inner.items()})
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name, ``part__name`` for those of a part."""
        known = _signature(type(self))
        for key, value in parameters.items():
            name, nested, inner = key.partition("__")
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}."
                )
            if nested:
                getattr(self, name).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, default in _signature(type(self)).items()
            if repr(value := getattr(self, name)) != repr(default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


_Part = TypeVar("_Part")


def clone(part: _Part) -> _Part:
    """Return a new part with the same parameters and nothing of what it learned since."""
    parameters = part.get_params(deep=False)  # type: ignore[attr-defined]
    return type(part)(
        **{
            name: clone(value)
            if hasattr(value, "get_params") and not isinstance(value, type)
            else copy.deepcopy(value)
            for name, value in parameters.items()
        }
    )


def _signature(kind: type) -> dict[str, Any]:
    """Return the parameters of a class's constructor and their defaults, in order."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]
    return {
        p.name: p.default for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
