"""Checks of single values. NaN fails every one of them; errors name the argument and the value."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["check_delta", "check_integer", "check_positive"]


def check_positive(name: str, value: float, *, or_zero: bool = False) -> float:
    """Return ``value`` as a float, or raise if it is not a finite positive number."""
    if not (value >= 0 if or_zero else value > 0) or not math.isfinite(value):
        kind = "a finite number, at least 0" if or_zero else "a finite positive number"
        raise ValueError(f"{name}={value} must be {kind}.")
    return float(value)


def check_integer(name: str, value: int, smallest: int, largest: int | None = None) -> int:
    """Return ``value`` as an int, or raise if it is not a whole number within the limits."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < smallest or (largest is not None and value > largest):
        limits = f"from {smallest} to {largest}" if largest is not None else f"≥ {smallest}"
        raise ValueError(f"{name}={value!r} must be an integer {limits}.")
    return int(value)


def check_delta(delta: float) -> float:
    """Return δ, or raise if it is not strictly between 0 and 1."""
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie strictly between 0 and 1.")
    return float(delta)
