"""Denoisers: estimate x from pseudo-data p = x + τ·g, g standard normal, τ known.

Message passing reduces y = A x + noise to this problem once an iteration; what it knows about x
sits in the denoiser alone. A denoiser is any object with

    denoise(p, tau) -> Denoised(estimate, divergence)

where the divergence Σ_j ∂x̂_j/∂p_j is exact or a Monte Carlo estimate of fixed, public seed. It
keeps no state: the same p and τ give the same answer. Where nothing is said about the
parameters of a prior, they are learnt from p itself. One that goes by where an entry is also has
``part(features, d)``, what is left of it on a slice: A may be block-diagonal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.amp.layers import layer_slices, restricted, rows_of, shapes_within
from solvers.amp.low_rank import LowRank
from solvers.amp.scalar import Denoised, Denoiser, Shrink, Soft, Sparse, risk
from solvers.amp.shared_scale import SharedScale

__all__ = [
    "Auto",
    "Blocks",
    "Denoised",
    "Denoiser",
    "LowRank",
    "SharedScale",
    "Shrink",
    "Soft",
    "Sparse",
    "get",
    "layer_slices",
    "names",
    "risk",
]


@dataclass(frozen=True)
class Blocks:
    """One denoiser for each of several slices of the vector.

    Parameters
    ----------
    slices : mapping of str to slice
        Named parts, with explicit start and stop. They must not overlap.
    denoisers : mapping of str to Denoiser
        One for each name.
    otherwise : Denoiser
        For entries in no slice.

    Raises
    ------
    ValueError
        If slices and denoisers do not have the same names.

    See Also
    --------
    layer_slices : Slices of the layers of a model.
    Auto : Chooses a denoiser for each layer by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Blocks, Shrink, Soft
    >>> denoiser = Blocks(
    ...     {"weights": slice(0, 2), "biases": slice(2, 4)},
    ...     {"weights": Soft(threshold=1.0), "biases": Shrink()},
    ... )
    >>> denoiser.denoise(np.array([3.0, 0.5, 2.0, -2.0]), tau=1.0).estimate.tolist()
    [2.0, 0.0, 1.5, -1.5]
    """

    slices: Mapping[str, slice]
    denoisers: Mapping[str, Denoiser]
    otherwise: Denoiser = field(default_factory=Sparse)

    def __post_init__(self) -> None:
        missing = set(self.slices) ^ set(self.denoisers)
        if missing:
            raise ValueError(
                f"slices and denoisers must have the same names; {sorted(missing)} have only one."
            )

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        estimate = np.empty_like(p)
        free = np.ones(len(p), dtype=bool)
        divergence = 0.0
        for name, part in self.slices.items():
            if not free[part].all() or len(free[part]) == 0:
                raise ValueError(
                    f"slices[{name!r}]={part} is empty in a vector of length {len(p)} or "
                    "overlaps another slice; slices must be disjoint."
                )
            free[part] = False
            found = self.denoisers[name].denoise(p[part], tau)
            estimate[part] = found.estimate
            divergence += found.divergence
        if free.any():
            found = self.otherwise.denoise(p[free], tau)
            estimate[free] = found.estimate
            divergence += found.divergence
        return Denoised(estimate, divergence)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the denoisers of what lies in a slice of the vector."""
        slices, inner = {}, {}
        for name, where in self.slices.items():
            start, stop, _ = where.indices(d)
            low, high = max(start, features.start), min(stop, features.stop)
            if low < high:
                slices[name] = slice(low - features.start, high - features.start)
                inside = slice(low - start, high - start)
                inner[name] = restricted(self.denoisers[name], inside, stop - start)
        return Blocks(slices, inner, self.otherwise)


@dataclass(frozen=True)
class Auto:
    """For each layer, of sparse, by rows, low rank and linear shrinkage the one of least risk.

    The risk is Stein's unbiased estimate at the current effective noise, so what is
    chosen is what lowers the next effective noise most.

    Parameters
    ----------
    shapes : sequence of tuples, optional
        Shapes of the layers, in the order of the flat vector; by default one layer without
        matrix structure.

    See Also
    --------
    Blocks : Where the denoiser of each part is known.
    risk : What is compared.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.denoisers import Auto
    >>> rng = np.random.default_rng(0)
    >>> x = np.where(rng.random(2000) < 0.02, 8.0, 0.0)
    >>> Auto().choices(x + rng.standard_normal(2000), tau=1.0)
    {'rest': 'sparse'}
    """

    shapes: Sequence[tuple[int, ...]] = ()

    def denoise(self, p: NDArray[np.floating], tau: float) -> Denoised:
        estimate = np.empty_like(p)
        divergence = 0.0
        for part, _, found in self._chosen(p, tau).values():
            estimate[part] = found.estimate
            divergence += found.divergence
        return Denoised(estimate, divergence)

    def part(self, features: slice, d: int) -> Denoiser:
        """Return the choice among some of the layers."""
        return Auto(shapes_within(self.shapes, features, d))

    def choices(self, p: NDArray[np.floating], tau: float) -> dict[str, str]:
        """Return the name of the denoiser chosen for each layer."""
        return {name: choice for name, (_, choice, _) in self._chosen(p, tau).items()}

    def _chosen(
        self, p: NDArray[np.floating], tau: float
    ) -> dict[str, tuple[slice, str, Denoised]]:
        shapes = list(self.shapes)
        chosen = {}
        for k, (name, part) in enumerate(layer_slices(shapes, len(p)).items()):
            candidates: dict[str, Denoiser] = {"sparse": Sparse(), "shrink": Shrink()}
            if k < len(shapes) and len(shapes[k]) > 1:
                candidates["low_rank"] = LowRank([shapes[k]])
                candidates["rows"] = SharedScale(rows_of(shapes[k]))
            tried = {kind: each.denoise(p[part], tau) for kind, each in candidates.items()}
            best = min(tried, key=lambda kind: risk(p[part], tau, tried[kind]))
            chosen[name] = (part, best, tried[best])
        return chosen


# --- by name ----------------------------------------------------------------------------

soft, sparse, shrink, low_rank, blocks, auto = Soft, Sparse, Shrink, LowRank, Blocks, Auto

_BY_NAME: dict[str, Any] = {
    "auto": Auto,
    "low_rank": LowRank,
    "positive": partial(Sparse, positive=True),
    "shrink": Shrink,
    "soft": Soft,
    "sparse": Sparse,
}


def names() -> list[str]:
    """Return the names that :func:`get` accepts.

    Returns
    -------
    list of str
        The names, sorted.

    See Also
    --------
    get : A denoiser by one of them.

    Examples
    --------
    >>> import solvers
    >>> "sparse" in solvers.denoisers.names()
    True
    """
    return sorted(_BY_NAME)


def get(name: str | Denoiser, shapes: Sequence[tuple[int, ...]] | None = None) -> Denoiser:
    """Return a denoiser by its name, or a denoiser as it is.

    Parameters
    ----------
    name : str or Denoiser
        One of :func:`names`.
    shapes : sequence of tuples, optional
        Layer shapes, for "low_rank" (required) and "auto".

    Returns
    -------
    Denoiser
        A new one for a name; the object itself otherwise.

    Raises
    ------
    ValueError
        If the name is unknown, the object has no method ``denoise``, or shapes are missing.

    See Also
    --------
    names : What there is.

    Examples
    --------
    >>> import solvers
    >>> solvers.denoisers.get("positive")
    Sparse(positive=True)
    """
    if not isinstance(name, str):
        if not isinstance(name, Denoiser):
            raise ValueError(
                f"denoiser={name!r} has no method denoise(p, tau); pass one of {names()} or an "
                "object that has it."
            )
        return name
    if name not in _BY_NAME:
        raise ValueError(f"denoiser={name!r} is unknown; there are {', '.join(names())}.")
    if name == "low_rank" and not shapes:
        raise ValueError(
            'denoiser="low_rank" needs shapes, the shapes of the layers in order, such as '
            "shapes=[(784, 128), (128,)]."
        )
    if name in ("low_rank", "auto") and shapes:
        made: Denoiser = _BY_NAME[name](tuple(tuple(shape) for shape in shapes))
    else:
        made = _BY_NAME[name]()
    return made
