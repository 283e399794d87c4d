"""The parameters of a private round, each declared once: name, default, constraint, description.

Whoever takes a parameter of a round has it from here. Classes inherit the fields (mechanisms,
:class:`~sparse_secagg.RoundSpec`, :class:`~sparse_secagg.SparseSecAgg`), functions take the
signature (:func:`takes_round_parameters`), and the command line makes its options of them.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from sparse_secagg.validation import (
    Constraint,
    either,
    instance,
    not_negative,
    nothing,
    number,
    one_of,
    positive,
    probability,
    whole,
    word,
)

__all__ = [
    "MAX_BITS",
    "NOT_GIVEN",
    "NoiseParameters",
    "RoundParameters",
    "SketchClip",
    "check_parameter",
    "check_parameters",
    "default",
    "describe",
    "documented",
    "round_parameters",
    "takes_round_parameters",
]

#: Bits of the largest modulus: sums of two residues fit a 64-bit word.
MAX_BITS = 63

SketchClip = str | float


def parameter(value: Any, constraint: Constraint, text: str, **options: Any) -> Any:
    """Declare a parameter of a round.

    Parameters
    ----------
    value : object
        The default.
    constraint : Constraint
        What a value must be.
    text : str
        What it is, in a sentence or two.
    **options
        For :func:`dataclasses.field`.
    """
    return field(default=value, metadata={"constraint": constraint, "text": text}, **options)


@dataclass(kw_only=True, eq=False, repr=False)
class NoiseParameters:
    """What is promised of the noise, and the grid it lives on."""

    epsilon: float = parameter(
        1.0,
        positive,
        "ε of (ε, δ)-DP of all ``rounds`` together; ``observer`` says against whom.",
    )
    delta: float = parameter(1e-5, probability, "δ of (ε, δ)-DP.")
    noise_multiplier: float | None = parameter(
        None,
        either(nothing, not_negative),
        "z = √n·σ/(γB) of one round in place of ``epsilon``; 0 adds no noise and is not private.",
    )
    clip_norm: Any = parameter(
        1.0,
        either(positive, instance("an AdaptiveClip", "update", "current")),
        "ℓ₂ clip of a client's vector. An AdaptiveClip follows a quantile of the clients' norms "
        "from round to round, at a cost that is added to the round's.",
    )
    n_bits: Any = parameter(
        16,
        either(whole(1, MAX_BITS), nothing),
        "Bits of one coordinate of a message; the modulus is 2^n_bits. None: as the planner "
        "chooses.",
    )
    rotation: str = parameter(
        "dft", one_of("dft", "hadamard"), "Transform that flattens sketches before rounding."
    )
    beta: float | str = parameter(
        math.exp(-0.5),
        either(number(0, 1, text="be a number in [0, 1), usually exp(-1/2)"), one_of("theory")),
        "Bias of conditional rounding, in [0, 1); 'theory' is min(√(γ/n), 1/n).",
    )
    adjacency: str = parameter(
        "zero_out",
        one_of("zero_out", "replace_one"),
        "Neighbouring cohorts: one client's vector becomes zero, or any other vector.",
    )
    min_survivors: int | None = parameter(
        None,
        either(nothing, whole(1)),
        "Clients that must survive; the noise is sized for them, and below them nothing is "
        "decoded. None: the threshold of secure aggregation; where there is none, any number is "
        "decoded and the realised ε comes with it.",
    )
    colluders: int = parameter(
        0,
        whole(0),
        "Clients that may tell the server their noise: it is sized without theirs, and ε is "
        "against the server together with them.",
    )
    rounds: int = parameter(1, whole(1), "Rounds that share ``epsilon``.")


@dataclass(kw_only=True, eq=False, repr=False)
class RoundParameters(NoiseParameters):
    """Everything that says what a private round is. Where None is allowed, the planner chooses."""

    encoder: Any = parameter(
        "auto",
        either(word, instance("an encoder", "fit_dimension"), nothing),
        "'auto', 'count_sketch', 'hadamard', 'gaussian', 'identity', 'package.module:Class' or an "
        "instance. 'auto' is the fastest: a count sketch for scipy sparse matrices, Hadamard for "
        "everything else; the kind of container decides, never what is in it.",
        kw_only=False,
    )
    compression: float | None = parameter(
        10,
        either(nothing, number(1, text="be a finite number of at least 1")),
        "d/m, for an encoder given by name. None: as the planner chooses.",
    )
    n_rows: int = parameter(15, whole(1), "Rows t of a count sketch, for an encoder given by name.")
    mechanism: Any = parameter(
        "ddg",
        either(word, instance("a mechanism", "calibrate")),
        "'ddg', 'skellam', 'central' or an instance, which brings its own promise and bits.",
    )
    sketch_clip: SketchClip = parameter(
        "tight",
        either(one_of("tight", "jl", "spectral"), positive),
        "Clip of a sketch over that of a vector: the factor of the least predicted error, which "
        "is 1 from m = 800 on; the paper's 1.1; σ_max(S) (Gaussian ensemble only); or a number.",
    )
    layers: Any = parameter(
        None,
        either(nothing, instance("a dict of names to slices", "items")),
        "Named slices of the vector that are encoded one by one, each with its share of the clip.",
    )
    secagg: Any = parameter(
        "ideal",
        either(word, instance("a secure aggregation", "begin")),
        "'ideal', 'masked' or an instance. The noise is sized for the survivors it guarantees.",
    )
    decoder: Any = parameter(
        "amp",
        either(word, instance("a solver", "fit"), nothing),
        "Solver that makes the mean of the sketch: a name, 'package.module:Class' or an instance.",
    )
    prior: Any = parameter(
        None,
        either(nothing, instance("a prior of solvers.priors")),
        "What is known of the mean beforehand, for decoders that take a prior.",
    )
    sparsity: int | None = parameter(
        None,
        either(nothing, whole(1)),
        "Nonzero coordinates of the mean, where known: the planner then considers sparse decoders.",
    )
    feedback: Any = parameter(
        None,
        either(nothing, instance("a ThresholdFeedback", "apply")),
        "Threshold the sketch and carry the error over to the next round. An experiment: it makes "
        "the mean biased.",
    )
    population: int | None = parameter(
        None,
        either(nothing, whole(1)),
        "Clients from whom each round's cohort, of fixed size, is drawn in secret.",
    )
    observer: str = parameter(
        "server",
        one_of("server", "release"),
        "Whom ``epsilon`` is about. Sampling helps only against 'release', anyone who sees only "
        "the results; it needs ``population``.",
    )


def round_parameters() -> dict[str, Field[Any]]:
    """Return the declaration of every parameter of a round, by name."""
    return {item.name: item for item in fields(RoundParameters)}


def default(name: str) -> Any:
    """Return the default of a parameter."""
    return round_parameters()[name].default


def describe(name: str) -> str:
    """Return what a parameter is, in words."""
    return str(round_parameters()[name].metadata["text"])


def check_parameter(name: str, value: Any) -> Any:
    """Return the value of a parameter, or raise if it is not allowed."""
    return round_parameters()[name].metadata["constraint"].check(name, value)


def check_parameters(holder: NoiseParameters) -> None:
    """Raise unless every parameter that ``holder`` has, and uses, meets its constraint."""
    for item in fields(holder):
        if "constraint" in item.metadata:
            value = getattr(holder, item.name)
            unused = item.name == "epsilon" and holder.noise_multiplier is not None
            if not (unused and value is None):
                item.metadata["constraint"].check(item.name, value)


#: Marks a parameter whose default is the declared one.
NOT_GIVEN = MISSING

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_round_parameters(
    *, defaults: Mapping[str, Any] | None = None, leave_out: tuple[str, ...] = ()
) -> Callable[[_Function], _Function]:
    """Give a function of ``**parameters`` the names, defaults and descriptions of a round's.

    Parameters
    ----------
    defaults : mapping, optional
        Defaults that differ, by name: None, where the function has the planner choose.
    leave_out : tuple of str
        Parameters that the function does not take.
    """
    changed = dict(defaults or {})

    def decorate(function: _Function) -> _Function:
        taken = {n: item for n, item in round_parameters().items() if n not in leave_out}
        own = inspect.signature(function)
        rest = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=changed.get(name, item.default),
                annotation=item.type,
            )
            for name, item in taken.items()
        ]

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{**changed, **kwargs})

        called.takes_round_parameters = True  # type: ignore[attr-defined]
        called.__signature__ = own.replace(parameters=[*rest, *added])  # type: ignore[attr-defined]
        if function.__doc__ and "{parameters}" in function.__doc__:
            called.__doc__ = function.__doc__.replace("{parameters}", _document(taken, changed))
        return called  # type: ignore[return-value]

    return decorate


_Class = TypeVar("_Class", bound=type[NoiseParameters])


def documented(cls: _Class) -> _Class:
    """Put the descriptions of a round's parameters where the class's docstring says so."""
    if cls.__doc__ and "{parameters}" in cls.__doc__:
        taken = {item.name: item for item in fields(cls) if "text" in item.metadata}
        cls.__doc__ = cls.__doc__.replace("{parameters}", _document(taken, {}))
    return cls


def _document(taken: Mapping[str, Field[Any]], changed: Mapping[str, Any]) -> str:
    """Return the numpydoc entries of parameters, indented for a function's docstring."""
    entries = []
    for name, item in taken.items():
        entries.append(f"{name} : default={changed.get(name, item.default)!r}")
        entries.append(f"    {item.metadata['text']}")
    return "\n    ".join(entries)
