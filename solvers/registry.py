"""Solvers by name: the built-in ones, those registered, and those of installed packages."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from importlib import metadata
from typing import Any

from solvers.base import Solver

__all__ = ["ENTRY_POINTS", "get", "names", "register"]

#: Entry-point group in which a package announces its solvers.
ENTRY_POINTS = "sparse_secagg.solvers"

_BUILT_IN: dict[str, str] = {
    "amp": "solvers.amp.message_passing:AMP",
    "auto": "solvers.auto:AutoDecoder",
    "celer": "solvers.lasso.adapters:CelerLasso",
    "cosamp": "solvers.greedy:CoSaMP",
    "fista": "solvers.lasso.proximal:FISTA",
    "iht": "solvers.greedy:IHT",
    "ista": "solvers.lasso.proximal:ISTA",
    "linear": "solvers.linear:LinearUnsketch",
    "median": "solvers.linear:MedianUnsketch",
    "omp": "solvers.greedy:OMP",
    "ridge": "solvers.linear:Ridge",
    "skglm": "solvers.lasso.adapters:SkglmLasso",
    "sklearn_lasso": "solvers.lasso.adapters:SklearnLasso",
    "sqrt_lasso": "solvers.lasso.square_root:SqrtLasso",
    "working_set": "solvers.lasso.working_set:WorkingSet",
}

#: Adapters, offered where the package they wrap is installed.
_NEEDS: dict[str, str] = {"celer": "celer", "skglm": "skglm"}

_REGISTERED: dict[str, Callable[..., Solver]] = {}


def names() -> list[str]:
    """Return the names that :func:`get` accepts.

    Returns
    -------
    list of str
        Those that are built in, registered, or announced by installed packages.

    See Also
    --------
    get : Makes a solver by its name.

    Examples
    --------
    >>> import solvers
    >>> "amp" in solvers.names()
    True
    """
    available = {name for name in _BUILT_IN if _is_installed(name)}
    return sorted(available | set(_REGISTERED) | {point.name for point in _entry_points()})


def get(name: str | Solver, **params: Any) -> Solver:
    """Return a new solver by its name.

    Parameters
    ----------
    name : str or Solver
        One of :func:`names`. A solver is returned as it is, with ``params`` set.
    **params
        Constructor parameters of the solver.

    Returns
    -------
    Solver
        A new one, not fitted.

    Raises
    ------
    ValueError
        If the name is unknown; the message suggests one.

    See Also
    --------
    names : What there is.

    Examples
    --------
    >>> import solvers
    >>> solvers.get("working_set", tol=1e-8)
    WorkingSet(tol=1e-08)
    """
    if isinstance(name, Solver):
        name.set_params(**params)
        return name
    return _factory(name)(**params)


def register(name: str, factory: Callable[..., Solver] | None = None) -> Any:
    """Make a solver available by name; usable as a decorator.

    Parameters
    ----------
    name : str
        A Python identifier. A name that is taken is refused, unless by the same class.
    factory : callable, optional
        Class or function that returns a solver from keyword arguments.

    Returns
    -------
    callable
        The factory, or a decorator where none was given.

    See Also
    --------
    get : Finds it.

    Examples
    --------
    >>> import solvers
    >>> @solvers.register("zero")
    ... class Zero(solvers.Solver):
    ...     def _solve(self, A, y, noise_std, x0):
    ...         return solvers.Solution(coef=A.rmatvec(y) * 0)
    >>> solvers.get("zero").fit([[1.0]], [1.0]).coef_.tolist()
    [0.0]
    """
    if factory is None:
        return lambda factory: register(name, factory)
    if not name.isidentifier():
        raise ValueError(f"name={name!r} must be a Python identifier, such as 'my_solver'.")
    taken = _REGISTERED.get(name)
    same = taken is not None and _full_name(taken) == _full_name(factory)
    if name in _BUILT_IN or (taken is not None and not same):
        raise ValueError(f"name={name!r} is taken by another solver; choose a different one.")
    _REGISTERED[name] = factory
    return factory


def _factory(name: str) -> Callable[..., Solver]:
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _BUILT_IN:
        if not _is_installed(name):
            raise ImportError(
                f"solver {name!r} needs the package {_NEEDS[name]!r}: pip install {_NEEDS[name]}"
            )
        module, _, attribute = _BUILT_IN[name].partition(":")
        built_in: Callable[..., Solver] = getattr(importlib.import_module(module), attribute)
        return built_in
    for point in _entry_points():
        if point.name == name:
            loaded: Callable[..., Solver] = point.load()
            return loaded
    close = difflib.get_close_matches(str(name), names(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "check the spelling."
    raise ValueError(f"no solver {name!r}; {hint} There are: {', '.join(names())}.")


def _is_installed(name: str) -> bool:
    return name not in _NEEDS or importlib.util.find_spec(_NEEDS[name]) is not None


def _entry_points() -> metadata.EntryPoints:
    return metadata.entry_points(group=ENTRY_POINTS)


def _full_name(factory: Callable[..., Solver]) -> str:
    return f"{factory.__module__}.{factory.__qualname__}"
