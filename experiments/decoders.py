"""Decoders by a short text: ``NAME`` or ``NAME:option,…``, as on the command line.

linear                  a solver by its name
lasso                   the Lasso by working sets, ``working_set``
lasso:debias            an option that the solver's constructor takes, switched on
amp:low_rank,debias     a denoiser of message passing, and an option
amp:positive            entries known to be at least zero, as in histograms
lasso:alpha=cv,tol=1e-8 any other parameter of the constructor
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import solvers
from solvers import Solver, denoisers

__all__ = ["ALIASES", "parse_decoder"]

#: Names people know, for the solver that serves them best.
ALIASES = {"lasso": "working_set"}

Shapes = Mapping[str, tuple[int, ...]] | Sequence[tuple[int, ...]]


def parse_decoder(spec: str | Solver, shapes: Shapes | None = None) -> Solver:
    """Return the solver that a text describes.

    Parameters
    ----------
    spec : str or Solver
        ``NAME`` or ``NAME:option,…``; a solver is returned as it is. An option is a switch
        (``debias``, ``positive``), a denoiser (``low_rank``, ``auto``, …; for ``amp``) or
        ``parameter=value``.
    shapes : mapping or sequence of tuples, optional
        Shapes of the layers in the order of the flat vector, for those solvers that can use them:
        ``amp:low_rank``, which needs them, ``amp:auto`` and ``auto``.

    Examples
    --------
    >>> from experiments.decoders import parse_decoder
    >>> parse_decoder("lasso:debias,tol=1e-8")
    WorkingSet(debias=True, tol=1e-08)
    >>> parse_decoder("amp:low_rank", shapes={"weight": (784, 128)})
    AMP(denoiser='low_rank', shapes=((784, 128),))
    """
    if isinstance(spec, Solver):
        return spec
    name, _, text = spec.strip().partition(":")
    name = ALIASES.get(name, name)
    allowed = _parameters(name)
    options = [option.strip() for option in text.split(",")] if text else []
    chosen = dict(_parameter(spec, name, option, allowed) for option in options)
    if len(chosen) < len(options):
        raise ValueError(f"decoder {spec!r} sets one parameter twice; leave one of them out.")
    if "shapes" in allowed and shapes and (name != "amp" or _uses_shapes(chosen)):
        layers = shapes.values() if isinstance(shapes, Mapping) else shapes
        chosen["shapes"] = tuple(tuple(shape) for shape in layers)
    if chosen.get("denoiser") == "low_rank" and "shapes" not in chosen:
        raise ValueError(
            f"decoder {spec!r} needs the shapes of the layers, which are not known here; "
            "record them, or use 'amp'."
        )
    return solvers.get(name, **chosen)


def _uses_shapes(chosen: Mapping[str, Any]) -> bool:
    return chosen.get("denoiser") in ("low_rank", "auto")


def _parameters(name: str) -> set[str]:
    """Return the constructor's parameters; an unknown name is refused with what there is."""
    return set(solvers.get(name).get_params(deep=False))


def _parameter(spec: str, name: str, option: str, allowed: set[str]) -> tuple[str, Any]:
    """Return the parameter that one option sets, and its value."""
    key, equals, value = (part.strip() for part in option.partition("="))
    if not equals and name == "amp":
        if key in denoisers.names():
            return "denoiser", key
        if key == "positive":
            return "denoiser", denoisers.Sparse(positive=True)
    switch = not equals and key in ("debias", "positive")
    if key in allowed - {"shapes"} and (equals or switch):
        return key, _value(value) if equals else True
    known = sorted(allowed & {"debias", "positive"})
    if name == "amp":
        known += ["positive", *denoisers.names()]
    known += [f"{each}=…" for each in sorted(allowed - {"debias", "positive", "shapes"})]
    raise ValueError(
        f"decoder {spec!r}: {name!r} has no option {option!r}; "
        + (f"it has {', '.join(known)}." if known else "it has none.")
    )


def _value(text: str) -> Any:
    """Return a number, True, False or None where the text is one, else the text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
