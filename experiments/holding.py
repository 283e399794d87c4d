"""Records that hold a :class:`~sparse_secagg.RoundSpec` instead of declaring its parameters again.

A record has fields of its own and a ``spec``. It is made of keywords of both kinds,
``MeanCell(dim=1000, compression=5)``, and gives the values of both as attributes; which names are
the spec's is read from the spec.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from sparse_secagg import RoundSpec, mechanisms
from sparse_secagg.clipping import AdaptiveClip
from sparse_secagg.decoder_texts import decoder_text
from sparse_secagg.encoders import registry
from sparse_secagg.parameters import round_parameters
from sparse_secagg.parts import path_of

#: Names of the parameters of a round.
ROUND_NAMES = frozenset(round_parameters())

#: Parameters that are always written down; others where they are not as the spec has them by
#: default, so that a spec may learn new ones and old results stay valid.
_ALWAYS = (
    "decoder",
    "encoder",
    "mechanism",
    "compression",
    "n_rows",
    "n_bits",
    "epsilon",
    "noise_multiplier",
    "delta",
    "clip_norm",
)
#: A clip that follows the median of the norms, and where it starts: the paper's choice.
ADAPTIVE, _ADAPTIVE_START = "adaptive", 0.1


@dataclass(frozen=True, init=False, eq=False)
class HoldsSpec:
    """Base of frozen data classes, ``init=False``, with a ``spec`` and fields of their own."""

    #: What of a round is not as the spec has it by default.
    defaults: ClassVar[dict[str, Any]] = {}

    #: What messages call such records, in the plural.
    called: ClassVar[str] = ""

    spec: RoundSpec  # the private round

    def __init__(self, *, spec: RoundSpec | None = None, **values: Any) -> None:
        own = {field.name: field for field in dataclasses.fields(self) if field.name != "spec"}
        unknown = [name for name in values if name not in own and name not in ROUND_NAMES]
        if unknown:
            what = self.called or type(self).__name__
            names = ", ".join([*own, *sorted(ROUND_NAMES - own.keys())])
            raise ValueError(
                f"{unknown[0]}={values[unknown[0]]!r}: {what} have no such parameter; there are "
                f"{names}."
            )
        for name, field in own.items():
            value = values.get(name, field.default)
            if value is dataclasses.MISSING:
                raise ValueError(f"{type(self).__name__} needs {name}.")
            object.__setattr__(self, name, value)
        given = {name: values[name] for name in values if name not in own}
        base = RoundSpec(**self.defaults) if spec is None else spec
        object.__setattr__(self, "spec", _changed(base, given))

    def __getattr__(self, name: str) -> Any:
        # only what is no field of its own arrives here; a copy may ask before there is a spec
        if name in ROUND_NAMES and "spec" in self.__dict__:
            return getattr(self.__dict__["spec"], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def with_values(self, **values: Any) -> Self:
        """Return a copy with other values, of its own or of the round; ε frees z and vice versa."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return type(self)(**{**own, **values})


def _changed(spec: RoundSpec, given: dict[str, Any]) -> RoundSpec:
    """Return the spec with the given values in place of its own; of ε and z one frees the other."""
    epsilon, z = given.get("epsilon"), given.get("noise_multiplier")
    if epsilon is not None and z is not None:
        raise ValueError(
            f"epsilon={epsilon} and noise_multiplier={z} both set the noise; give one of them."
        )
    if epsilon is not None:
        given["noise_multiplier"] = None
    elif z is not None:
        given["epsilon"] = None
    elif "epsilon" in given and "noise_multiplier" not in given and spec.noise_multiplier is None:
        raise ValueError("epsilon=None and noise_multiplier=None set no noise; give one of them.")
    for name, text in (("decoder", decoder_text), ("encoder", _name), ("mechanism", _name)):
        if name in given and not isinstance(given[name], str):
            given[name] = text(given[name])
    if isinstance(given.get("clip_norm"), str):
        if given["clip_norm"] != ADAPTIVE:
            raise ValueError(
                f"clip_norm={given['clip_norm']!r} must be a positive number or {ADAPTIVE!r}."
            )
        given["clip_norm"] = AdaptiveClip(_ADAPTIVE_START)
    return spec.replace(**given) if given else spec


def _name(part: Any) -> str:
    """Return the text that stands for an encoder or mechanism given as an instance."""
    kind = type(part)
    if repr(part) != repr(kind()):
        raise ValueError(
            f"{part!r} has parameters of its own, which a text that names a cell cannot say; give "
            "them to the cell, or derive a class whose defaults they are and give its import path."
        )
    for module in (registry, mechanisms):
        for name in module.names():
            if name != "blocks" and type(module.get(name)) is kind:
                return str(name)
    return path_of(kind)


def spec_values(spec: RoundSpec) -> dict[str, Any]:
    """Return the parameters that name a round, as JSON values in one canonical form."""
    found = {name: getattr(spec, name) for name in _ALWAYS}
    for name, declared in round_parameters().items():
        value = getattr(spec, name)
        if name not in found and value != declared.default:
            found[name] = value
    if isinstance(spec.clip_norm, AdaptiveClip):
        found["clip_norm"] = ADAPTIVE
    for name in ("compression", "epsilon", "noise_multiplier", "delta", "clip_norm"):
        if isinstance(found[name], int):
            found[name] = float(found[name])  # 10 and 10.0 are the same round
    if spec.encoder != "count_sketch":
        found["n_rows"] = None
    return found
