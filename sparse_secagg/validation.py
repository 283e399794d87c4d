"""Constraints on single values: one object says what is allowed, checks it and words the error.

NaN meets no constraint; errors name the argument, the value and what would do.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "Constraint",
    "check_delta",
    "check_integer",
    "check_positive",
    "either",
    "instance",
    "not_negative",
    "nothing",
    "number",
    "one_of",
    "positive",
    "probability",
    "whole",
    "word",
]


@dataclass(frozen=True)
class Constraint:
    """What a value must be.

    Attributes
    ----------
    text : str
        The end of the sentence "name=value must ...".
    accepts : callable
        Whether a value meets the constraint. It never raises.
    """

    text: str
    accepts: Callable[[Any], bool]

    def check(self, name: str, value: Any) -> Any:
        """Return ``value``, or raise ValueError with the argument's ``name``."""
        if not self.accepts(value):
            raise ValueError(f"{name}={_shown(value)} must {self.text}.")
        return value


def number(
    low: float, high: float = math.inf, *, open_low: bool = False, text: str | None = None
) -> Constraint:
    """Return the constraint low ≤ value < high (low < value, if ``open_low``), finite."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
            return False
        real: Any = value
        above = real > low if open_low else real >= low
        return bool(above and real < high and math.isfinite(real))

    if text is None:
        bracket = "(" if open_low else "["
        text = f"be a finite number in {bracket}{low:g}, {high:g})"
    return Constraint(text, accepts)


def whole(low: int, high: int | None = None) -> Constraint:
    """Return the constraint that a value is an integer from ``low`` to ``high``."""

    def accepts(value: Any) -> bool:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return bool(is_whole and value >= low and (high is None or value <= high))

    return Constraint(
        f"be an integer from {low} to {high}" if high is not None else f"be an integer ≥ {low}",
        accepts,
    )


def one_of(*choices: str) -> Constraint:
    """Return the constraint that a value is one of some words."""
    return Constraint(
        f"be {' or '.join(map(repr, choices))}",
        lambda value: isinstance(value, str) and value in choices,
    )


def instance(text: str, *methods: str) -> Constraint:
    """Return the constraint that a value is an object with ``methods``; ``text`` says what it is.

    Classes do not pass, only instances.
    """

    def accepts(value: Any) -> bool:
        return not isinstance(value, type) and all(hasattr(value, name) for name in methods)

    return Constraint(f"be {text}", accepts)


#: The constraint that nothing is given.
nothing = Constraint("be None", lambda value: value is None)

#: Any word; what it names is looked up where it is used.
word = Constraint("be a name", lambda value: isinstance(value, str) and value != "")


def either(*constraints: Constraint) -> Constraint:
    """Return the constraint that one of several is met."""
    texts = [constraint.text.removeprefix("be ") for constraint in constraints]
    return Constraint(
        "be " + ", or ".join(texts),
        lambda value: any(constraint.accepts(value) for constraint in constraints),
    )


positive = number(0, open_low=True, text="be a finite positive number")
not_negative = number(0, text="be a finite number, at least 0")
probability = number(0, 1, open_low=True, text="lie strictly between 0 and 1")


def check_positive(name: str, value: float, *, or_zero: bool = False) -> float:
    """Return ``value`` as a float, or raise if it is not a finite positive number."""
    return float((not_negative if or_zero else positive).check(name, value))


def check_integer(name: str, value: int, smallest: int, largest: int | None = None) -> int:
    """Return ``value`` as an int, or raise if it is not a whole number within the limits."""
    return int(whole(smallest, largest).check(name, value))


def check_delta(delta: float) -> float:
    """Return δ, or raise if it is not strictly between 0 and 1."""
    return float(probability.check("delta", delta))


def _shown(value: Any) -> str:
    """Return a value as an error shows it: never more than a line of it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
