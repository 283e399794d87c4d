"""Records that hold a :class:`~sparse_secagg.RoundSpec` instead of declaring its parameters again.

A record has fields of its own and a ``spec``. It is made of keywords of both kinds,
``MeanCell(dim=1000, compression=5)``, and gives the values of both as attributes; which names are
the spec's is read from the spec.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from experiments.spec import RoundSpec

__all__ = ["SPEC_NAMES", "HoldsSpec"]

#: Names of the parameters of a round.
SPEC_NAMES = frozenset(field.name for field in dataclasses.fields(RoundSpec))


class HoldsSpec:
    """Base of frozen data classes, ``init=False``, with a field ``spec`` and others of their own."""

    #: What of a round is not as the spec has it by default.
    defaults: ClassVar[dict[str, Any]] = {}

    spec: RoundSpec

    def __init__(self, *, spec: RoundSpec | None = None, **values: Any) -> None:
        own = {f.name: f for f in dataclasses.fields(self) if f.name != "spec"}  # type: ignore[arg-type]
        unknown = [name for name in values if name not in own and name not in SPEC_NAMES]
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no parameter {unknown[0]!r}; its own are "
                f"{', '.join(own)}, and those of a round."
            )
        for name, field in own.items():
            if name in values:
                value = values[name]
            elif field.default is not dataclasses.MISSING:
                value = field.default
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                raise TypeError(f"{type(self).__name__} needs {name}=…")
            object.__setattr__(self, name, value)
        given = {name: values[name] for name in values if name not in own}
        object.__setattr__(self, "spec", self._make_spec(spec, given))

    def _make_spec(self, spec: RoundSpec | None, given: dict[str, Any]) -> RoundSpec:
        """Return the spec with the given values in place of its own; of ε and z one frees the other."""
        if spec is None:
            spec = RoundSpec(**self.defaults)
        if given.get("epsilon") is not None:
            given.setdefault("noise_multiplier", None)
        if given.get("noise_multiplier") is not None:
            given.setdefault("epsilon", None)
        return dataclasses.replace(spec, **given)

    def __getattr__(self, name: str) -> Any:
        # only what is no field of its own arrives here; a copy may ask before there is a spec
        if name in SPEC_NAMES and "spec" in self.__dict__:
            return getattr(self.__dict__["spec"], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def with_values(self, **values: Any) -> Self:
        """Return a copy with other values, of its own or of the round."""
        return dataclasses.replace(self, **values)  # type: ignore[type-var]
