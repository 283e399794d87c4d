"""Secure aggregations by name."""

from __future__ import annotations

from typing import Any

from sparse_secagg.parameterised import clone
from sparse_secagg.secagg.contract import SecureAggregation
from sparse_secagg.secagg.ideal import IdealSecAgg
from sparse_secagg.secagg.masked import MaskedSecAgg

__all__ = ["make_secagg", "names"]

_REGISTRY: dict[str, type[SecureAggregation]] = {
    cls.name: cls for cls in (IdealSecAgg, MaskedSecAgg)
}


def names() -> list[str]:
    """Return the names of the secure aggregations."""
    return sorted(_REGISTRY)


def make_secagg(secagg: Any) -> SecureAggregation:
    """Return a new secure aggregation for a name, or a fresh copy of an instance.

    Parameters
    ----------
    secagg : str or SecureAggregation
        Either "ideal" or "masked", or an instance with parameters of its own.

    Returns
    -------
    SecureAggregation
        One that no other round uses.

    Raises
    ------
    ValueError
        If it is neither.

    See Also
    --------
    SecureAggregation : The contract.

    Examples
    --------
    >>> from sparse_secagg.secagg import make_secagg
    >>> make_secagg("masked")
    MaskedSecAgg()
    """
    if isinstance(secagg, SecureAggregation):
        made: SecureAggregation = clone(secagg)
        return made
    if not isinstance(secagg, str) or secagg not in _REGISTRY:
        raise ValueError(
            f"secagg={secagg!r} is not known; choose one of {', '.join(names())}, or an instance "
            "of these."
        )
    return _REGISTRY[secagg]()
