"""Decoders by name, import path or instance, with what is known of the mean beforehand."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from sparse_secagg.decoder_texts import parse_decoder

__all__ = ["make_decoder"]


def make_decoder(decoder: Any, prior: Any = None) -> Any:
    """Return a new solver for a name, or an unfitted copy of one.

    Parameters
    ----------
    decoder : str or Solver
        A text of :func:`sparse_secagg.decoder_texts.parse_decoder`, as ``"amp"``,
        ``"lasso:debias"`` or ``"package.module:Class"``, or an instance.
    prior : prior of :mod:`solvers.priors`, optional
        Handed to the solver, which must take one.

    Returns
    -------
    Solver
        One that nobody else uses.

    Raises
    ------
    ValueError
        If the name is unknown, or the solver takes no prior.

    See Also
    --------
    solvers.get : The same without priors.

    Examples
    --------
    >>> from sparse_secagg.rounds import make_decoder
    >>> make_decoder("linear")
    LinearUnsketch()
    """
    solver = parse_decoder(decoder) if isinstance(decoder, str) else clone(decoder)
    if prior is None:
        return solver
    if "prior" not in solver.get_params(deep=False):
        raise ValueError(
            f"prior={type(prior).__name__} cannot be used by decoder={decoder!r}, which takes no "
            "prior; use decoder='amp', or leave the prior out."
        )
    return solver.set_params(prior=prior)
