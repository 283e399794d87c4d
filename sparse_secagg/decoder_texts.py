"""Decoders by a short text: ``NAME`` or ``NAME:option,…``, in Python and on the command line.

linear                  a solver by its name
lasso                   the Lasso by working sets, ``working_set``
lasso:debias            an option that the solver's constructor takes, switched on
amp:low_rank,debias     a denoiser of message passing, and an option
amp:positive            entries known to be at least zero, as in histograms
amp:groups              rows of each layer active together, as a prior
amp:scores=FILE         public scores as a prior: one number per line and entry, or item,score
lasso:alpha=cv,tol=1e-8 any other parameter of the constructor
my_module:MySolver      a solver of one's own by its import path; options follow after a colon
amp:denoiser=my_module:MyDenoiser   a denoiser likewise
"""

from __future__ import annotations

import ast
import csv
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import solvers
from solvers import Solver, denoisers, priors
from sparse_secagg.parts import import_part, is_import_path, path_of

#: Names people know, for the solver that serves them best.
ALIASES = {"lasso": "working_set"}

#: Solvers that take public scores.
_TAKE_PRIORS = ("amp", "auto")

#: Solvers and denoisers of one's own that this process was handed, by import path.
_KNOWN: dict[str, Any] = {}

__all__ = [
    "ALIASES",
    "Columns",
    "check_decoder",
    "decoder_text",
    "is_known",
    "know",
    "parse_decoder",
    "read_scores",
    "read_value",
    "scores_prior",
    "split_decoder",
    "with_prior",
]


class Columns(Protocol):
    """What the entries of a vector are, where they are items: a domain of private counts."""

    @property
    def size(self) -> int:
        """Number of columns."""

    def columns(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Return the column of each item; −1 for those that have none."""


Shapes = Mapping[str, tuple[int, ...]] | Sequence[tuple[int, ...]]


def parse_decoder(
    spec: str | Solver, shapes: Shapes | None = None, domain: Columns | None = None
) -> Solver:
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
    domain : Columns, optional
        What the entries of the vector are, where they are items: for scores by item.

    Examples
    --------
    >>> from sparse_secagg.decoder_texts import parse_decoder
    >>> parse_decoder("lasso:debias,tol=1e-8")
    WorkingSet(debias=True, tol=1e-08)
    >>> parse_decoder("amp:low_rank", shapes={"weight": (784, 128)})
    AMP(denoiser='low_rank', shapes=((784, 128),))
    """
    if isinstance(spec, Solver):
        return spec
    name, text = split_decoder(spec)
    allowed = set(_make(name).get_params(deep=False))
    options = [option.strip() for option in text.split(",")] if text else []
    chosen = dict(_parameter(spec, name, option, allowed, domain) for option in options)
    if len(chosen) < len(options):
        raise ValueError(f"decoder {spec!r} sets one parameter twice; leave one of them out.")
    given = shapes.values() if isinstance(shapes, Mapping) else shapes or ()
    layers = tuple(tuple(shape) for shape in given)
    denoiser, grouped = chosen.get("denoiser"), chosen.get("prior") == "groups"
    if (grouped or denoiser == "low_rank") and not layers:
        raise ValueError(
            f"decoder {spec!r} needs the shapes of the layers, which are not known here; "
            "record them, or use 'amp'."
        )
    if grouped:
        chosen["prior"] = priors.Groups(shapes=list(layers))
    if "shapes" in allowed and layers and (name != "amp" or denoiser in ("low_rank", "auto")):
        chosen["shapes"] = layers
    return _make(name, **chosen)


def split_decoder(spec: str) -> tuple[str, str]:
    """Return the solver's name, or its import path, and the text of its options.

    Examples
    --------
    >>> split_decoder("amp:low_rank,debias")
    ('amp', 'low_rank,debias')
    >>> split_decoder("my_module:MySolver:tol=1e-8")
    ('my_module:MySolver', 'tol=1e-8')
    """
    name, _, rest = spec.strip().partition(":")
    if name in ALIASES or name in solvers.names():
        return ALIASES.get(name, name), rest
    kind, _, options = rest.partition(":")
    path = f"{name}:{kind}"
    if is_import_path(path.partition(",")[0]) and "," in kind and find_spec(name.split(".")[0]):
        raise ValueError(
            f"decoder {spec!r}: options of a solver of one's own follow a second colon, "
            "module:Class:option; give several decoders one by one."
        )
    return (path, options) if is_import_path(path) else (name, rest)


def know(path: str, part: Any) -> None:
    """Take a solver or denoiser that another process has at an import path."""
    _KNOWN.setdefault(path, part)


def is_known(path: str) -> bool:
    """Return whether :func:`know` was told."""
    return path in _KNOWN


def _make(name: str, **parameters: Any) -> Solver:
    if not is_import_path(name):
        return solvers.get(name, **parameters)
    kind = _KNOWN.get(name) or import_part(name, "decoder", Solver)
    made: Solver = kind(**parameters)
    return made


def decoder_text(decoder: str | Solver) -> str:
    """Return the text that :func:`parse_decoder` reads as the given solver.

    Examples
    --------
    >>> decoder_text(solvers.get("amp", debias=True))
    'amp:debias=True'
    """
    if isinstance(decoder, str):
        return decoder
    defaults = type(decoder)().get_params(deep=False)
    changed = {
        name: value
        for name, value in decoder.get_params(deep=False).items()
        if repr(value) != repr(defaults.get(name))
    }
    odd = [n for n, v in changed.items() if not isinstance(v, bool | int | float | str | None)]
    if odd:
        raise ValueError(
            f"decoder={decoder!r}: {odd[0]} cannot be written as text, which names a cell of a "
            "sweep; derive a class whose default it is and give its import path."
        )
    options = ",".join(f"{name}={value}" for name, value in changed.items())
    name = _name_of(type(decoder))
    return f"{name}:{options}" if options else name


def _name_of(kind: type) -> str:
    """Return the name under which a class of solvers is registered, else its import path."""
    for name in solvers.names():
        if type(solvers.get(name)) is kind:
            return name
    know(path_of(kind), kind)
    return path_of(kind)


def check_decoder(spec: str, encoder: Any, domain: Columns | None = None) -> None:
    """Raise ValueError for a decoder that cannot be made, or that the encoder does not suit."""
    # shapes are known later, and any will do to look at the options; so will any domain
    parse_decoder(spec, {"": (2, 2)}, domain)
    if split_decoder(spec)[0] == "median" and encoder != "count_sketch":
        raise ValueError(
            f"decoder 'median' needs encoder 'count_sketch', not {encoder!r}; leave one of them "
            "out."
        )


def read_scores(path: str | os.PathLike[str]) -> tuple[list[str], list[float]]:
    """Return the items and their public scores of a file; no items where it holds scores alone.

    A line is ``item,score``, as in CSV, or one score for each entry of the vector.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
        scores = [float(row[-1]) for row in rows]
    except OSError as error:
        raise ValueError(f"the scores cannot be read: {error}.") from error
    except ValueError:
        raise ValueError(f"{path} must hold item,score or a score in every line.") from None
    widths = {len(row) for row in rows}
    if widths not in ({1}, {2}):
        raise ValueError(f"{path} must hold item,score or a score in every line.")
    return ([row[0] for row in rows] if widths == {2} else []), scores


def scores_prior(path: str | os.PathLike[str], domain: Columns | None) -> priors.Scores:
    """Return the prior of a file of scores; those of items need the domain that they are of.

    Only the order of scores counts; columns of items without one come last.
    """
    items, scores = read_scores(path)
    if not items:
        return priors.Scores(np.asarray(scores))
    if domain is None:
        raise ValueError(f"{path} has scores of items, and no items are counted here.")
    values = np.asarray(scores)
    if not np.isfinite(values).all():
        raise ValueError(f"{path} must hold one finite score for each item.")
    found = np.full(domain.size, values.min(initial=0.0) - 1.0)
    columns = domain.columns(items)
    np.maximum.at(found, columns[columns >= 0], values[columns >= 0])
    return priors.Scores(found)


def with_prior(decoders: Sequence[str], prior: str | None) -> tuple[str, ...]:
    """Return the decoders, those that take a prior with ``scores:FILE``.

    Examples
    --------
    >>> with_prior(["linear", "amp"], "scores:words.csv")
    ('linear', 'amp:scores=words.csv')
    """
    if prior is None:
        return tuple(decoders)
    kind, _, path = prior.partition(":")
    if kind != "scores" or not path:
        raise ValueError(f"prior={prior!r} must be scores:FILE, of item,score or of scores alone.")
    found = []
    for text in decoders:
        takes = split_decoder(text)[0] in _TAKE_PRIORS
        takes = takes and "scores=" not in text and "groups" not in text
        sign = "," if ":" in text else ":"
        found.append(f"{text}{sign}scores={path}" if takes else text)
    if found == list(decoders):
        raise ValueError(
            f"prior={prior!r}: none of {', '.join(decoders)} takes a prior; amp and auto do."
        )
    return tuple(found)


def _parameter(
    spec: str, name: str, option: str, allowed: set[str], domain: Columns | None
) -> tuple[str, Any]:
    """Return the parameter that one option sets, and its value."""
    key, equals, value = (part.strip() for part in option.partition("="))
    if not equals and name == "amp":
        if key in denoisers.names():
            return "denoiser", key
        if key == "positive":
            return "denoiser", denoisers.Sparse(positive=True)
        if key == "groups":
            return "prior", "groups"
    if name in _TAKE_PRIORS and key == "scores":
        try:
            return "prior", scores_prior(value, domain)
        except ValueError as error:
            raise ValueError(f"decoder {spec!r}: {error}") from error
    switch = not equals and key in ("debias", "positive")
    if key == "denoiser" and is_import_path(value):
        kind = _KNOWN.get(value) or import_part(value, "denoiser", object)
        return key, kind()
    if key in allowed - {"shapes"} and (equals or switch):
        return key, read_value(value) if equals else True
    known = sorted(allowed & {"debias", "positive"})
    if name == "amp":
        known += ["positive", *denoisers.names()]
    known += [f"{each}=…" for each in sorted(allowed - {"debias", "positive", "shapes"})]
    raise ValueError(
        f"decoder {spec!r}: {name!r} has no option {option!r}; "
        + (f"it has {', '.join(known)}." if known else "it has none.")
    )


def read_value(text: str) -> Any:
    """Return a number, True, False or None where the text is one, else the text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
