"""Synthetic means and the clients that have them.

A mean is drawn from a seed and scaled to a given norm. Its clients come in pairs μ + e and μ − e,
so that μ is their exact mean whatever the deviations; e is Gaussian with ‖e‖ close to ``spread``.
With ‖μ‖ = 0.3, ``spread`` = 0.7 and a clip of 1 the clients are as long as their clip nearly
allows and none is clipped. Rows are made a block at a time, so n·d numbers are never held at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
#: ``draw(dim, sparsity, rng)`` returns a mean of any length.
Draw = Callable[[int, int, np.random.Generator], Vector]

#: Rank of a low-rank mean, exponent of a power law.
RANK, EXPONENT = 5, 1.0
#: Sizes of the layers of a layered mean, as shares of d, and their entries' relative scale.
LAYERS = ((0.5, 0.1), (0.3, 0.3), (0.15, 1.0), (0.05, 3.0))

_MEAN, _DEVIATIONS = 0, 1  # what a stream of a seed is for


@dataclass(frozen=True)
class SyntheticClients:
    """The rows x_i of n clients, made when they are asked for."""

    mean: Vector  # their exact mean
    n_clients: int
    spread: float  # root mean square norm of a deviation
    seed: int  # of the deviations
    shapes: tuple[tuple[int, ...], ...]  # of the layers of the vector

    @property
    def shape(self) -> tuple[int, int]:
        """Clients and length of a vector."""
        return self.n_clients, len(self.mean)

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        """Return the vectors of some clients."""
        return np.array([self._client(i) for i in range(*rows.indices(self.n_clients))])

    def _client(self, i: int) -> Vector:
        """Return x_i: 2k and 2k + 1 deviate by e and −e, a last one without a pair does not."""
        pair, second = divmod(i, 2)
        if not self.spread or 2 * pair + 1 >= self.n_clients:
            return self.mean
        rng = np.random.default_rng([self.seed, _DEVIATIONS, pair, 0])
        deviation = rng.standard_normal(len(self.mean), dtype=np.float32)
        scale = self.spread / math.sqrt(len(self.mean))
        moved: Vector = self.mean + (-scale if second else scale) * deviation
        return moved


def synthetic_clients(
    kind: str, *, dim: int, n_clients: int, sparsity: int, norm: float, spread: float, seed: int
) -> SyntheticClients:
    """Draw a mean of one of :data:`MEANS`, scaled to ``norm``, and return its clients.

    ``sparsity`` counts the nonzero entries of those in :data:`SPARSE`; a ``spread`` of 0 gives
    every client the mean.
    """
    drawn = MEANS[kind](dim, sparsity, np.random.default_rng([seed, _MEAN]))
    mean = norm / np.linalg.norm(drawn) * drawn
    return SyntheticClients(mean, n_clients, spread, seed, _shapes(kind, dim))


def _shapes(kind: str, dim: int) -> tuple[tuple[int, ...], ...]:
    if kind == "low_rank":
        return (_near_square(dim),)
    if kind == "layered":
        return tuple((size,) for size in _layer_sizes(dim))
    return ((dim,),)


def _sparse(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    x = np.zeros(dim)
    x[rng.choice(dim, sparsity, replace=False)] = rng.standard_normal(sparsity)
    return x


def _flat(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    return np.asarray(np.sign(_sparse(dim, sparsity, rng)))


def _power_law(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    sizes = np.arange(1, dim + 1) ** -EXPONENT
    return np.asarray(rng.permutation(sizes) * rng.choice([-1.0, 1.0], dim))


def _laplace(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    return rng.laplace(size=dim)


def _dense(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    return rng.standard_normal(dim)


def _low_rank(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    rows, columns = _near_square(dim)
    left, right = rng.standard_normal((rows, RANK)), rng.standard_normal((RANK, columns))
    return np.asarray(left @ right).ravel()


def _layered(dim: int, sparsity: int, rng: np.random.Generator) -> Vector:
    sizes = _layer_sizes(dim)
    return np.concatenate([s * rng.laplace(size=n) for n, (_, s) in zip(sizes, LAYERS)])


def _layer_sizes(dim: int) -> list[int]:
    sizes = [int(share * dim) for share, _ in LAYERS[1:]]
    return [dim - sum(sizes), *sizes]


def _near_square(dim: int) -> tuple[int, int]:
    """Return the two factors of d that are closest to each other."""
    rows = next(k for k in range(math.isqrt(dim), 0, -1) if dim % k == 0)
    return rows, dim // rows


#: Kinds of means, by name: entries Gaussian or of one size, the others zero; of size 1/k in random
#: places; independent Laplace or Gaussian entries; a matrix; layers of different sizes and scales.
MEANS: dict[str, Draw] = {
    "sparse": _sparse,
    "flat": _flat,
    "power_law": _power_law,
    "laplace": _laplace,
    "dense": _dense,
    "low_rank": _low_rank,
    "layered": _layered,
}
#: Those of which the number of nonzero entries is a parameter.
SPARSE = ("sparse", "flat")
