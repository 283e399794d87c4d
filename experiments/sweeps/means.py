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

#: Clusters of clients, rank of a low-rank mean, exponent of a power law.
N_CLUSTERS, RANK, EXPONENT = 4, 5, 1.0
#: Sizes of the layers of a layered mean, as shares of d, and their entries' relative scale.
LAYERS = ((0.5, 0.1), (0.3, 0.3), (0.15, 1.0), (0.05, 3.0))

_MEAN, _DEVIATIONS = 0, 1  # what a stream of a seed is for


@dataclass(frozen=True)
class MeanKind:
    """How a kind of mean is drawn."""

    #: ``draw(dim, sparsity, rng)`` returns one centre a row: one, or one for each cluster.
    draw: Callable[[int, int, np.random.Generator], NDArray[np.float64]]
    uses_sparsity: bool  # whether the number of nonzero entries is a parameter of it
    description: str  # in words, for help and reports


@dataclass(frozen=True)
class SyntheticClients:
    """The rows x_i of n clients, made when they are asked for.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        Their exact mean.
    centres : ndarray of shape (k, d)
        What the deviations are around: client i has centre i modulo k.
    n_clients : int
        How many.
    spread : float
        Root mean square norm of a deviation.
    seed : int
        Of the deviations.
    shapes : tuple of tuples
        Shapes of the layers of the vector.
    """

    mean: Vector
    centres: NDArray[np.float64]
    n_clients: int
    spread: float
    seed: int
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Clients and length of a vector."""
        return self.n_clients, len(self.mean)

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        """Return the vectors of some clients."""
        return np.array([self._client(i) for i in range(*rows.indices(self.n_clients))])

    def _client(self, i: int) -> Vector:
        """Return x_i. Clients i and i + k, k centres apart, deviate by e and −e."""
        k = len(self.centres)
        pair, place = divmod(i, 2 * k)
        base: Vector = self.centres[place % k]
        partner = i + k if place < k else i - k
        if not self.spread or partner >= self.n_clients:
            return base
        rng = np.random.default_rng([self.seed, _DEVIATIONS, pair, place % k])
        deviation = rng.standard_normal(len(base), dtype=np.float32)
        scale = self.spread / math.sqrt(len(base))
        moved: Vector = base + (scale if place < k else -scale) * deviation
        return moved


def synthetic_clients(
    kind: str,
    *,
    dim: int,
    n_clients: int,
    sparsity: int,
    norm: float,
    spread: float,
    seed: int,
) -> SyntheticClients:
    """Draw a mean of one of :data:`MEANS`, scaled to ``norm``, and return its clients.

    ``sparsity`` counts the nonzero entries of a "sparse" mean, and of each centre of "clustered"
    clients; a ``spread`` of 0 gives every client its centre.
    """
    rng = np.random.default_rng([seed, _MEAN])
    centres = MEANS[kind].draw(dim, sparsity, rng)[:n_clients]
    counts = np.bincount(np.arange(n_clients) % len(centres), minlength=len(centres))
    mean = counts @ centres / n_clients
    scale = norm / np.linalg.norm(mean)
    shapes = _shapes(kind, dim)
    return SyntheticClients(scale * mean, scale * centres, n_clients, spread, seed, shapes)


def _shapes(kind: str, dim: int) -> tuple[tuple[int, ...], ...]:
    if kind == "low_rank":
        return (_near_square(dim),)
    if kind == "layered":
        return tuple((size,) for size in _layer_sizes(dim))
    return ((dim,),)


def _sparse(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    x = np.zeros((1, dim))
    x[0, rng.choice(dim, sparsity, replace=False)] = rng.standard_normal(sparsity)
    return x


def _flat(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.sign(_sparse(dim, sparsity, rng))


def _clustered(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.concatenate([_sparse(dim, sparsity, rng) for _ in range(N_CLUSTERS)])


def _power_law(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    sizes = np.arange(1, dim + 1) ** -EXPONENT
    values: Vector = rng.permutation(sizes) * rng.choice([-1.0, 1.0], dim)
    return values[None, :]


def _laplace(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.laplace(size=(1, dim))


def _dense(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.standard_normal((1, dim))


def _low_rank(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    rows, columns = _near_square(dim)
    left, right = rng.standard_normal((rows, RANK)), rng.standard_normal((RANK, columns))
    return (left @ right).reshape(1, dim)


def _layered(dim: int, sparsity: int, rng: np.random.Generator) -> NDArray[np.float64]:
    sizes = _layer_sizes(dim)
    parts = [scale * rng.laplace(size=size) for size, (_, scale) in zip(sizes, LAYERS)]
    return np.concatenate(parts)[None, :]


def _layer_sizes(dim: int) -> list[int]:
    sizes = [int(share * dim) for share, _ in LAYERS[1:]]
    return [dim - sum(sizes), *sizes]


def _near_square(dim: int) -> tuple[int, int]:
    """Return the two factors of d that are closest to each other."""
    rows = next(k for k in range(math.isqrt(dim), 0, -1) if dim % k == 0)
    return rows, dim // rows


#: Kinds of means, by name.
MEANS = {
    "sparse": MeanKind(_sparse, True, "s Gaussian entries, the others zero"),
    "flat": MeanKind(_flat, True, "s entries of one size, the others zero"),
    "power_law": MeanKind(_power_law, False, "entries of size 1/k in random places"),
    "laplace": MeanKind(_laplace, False, "independent Laplace entries"),
    "dense": MeanKind(_dense, False, "independent Gaussian entries"),
    "low_rank": MeanKind(_low_rank, False, f"a matrix of rank {RANK}"),
    "clustered": MeanKind(
        _clustered, True, f"{N_CLUSTERS} clusters of clients, each around s entries of its own"
    ),
    "layered": MeanKind(_layered, False, "layers of very different sizes and scales"),
}
