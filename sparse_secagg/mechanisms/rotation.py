"""Flattening: a public random rotation that spreads a vector evenly over its coordinates.

"dft", the default: pairs of coordinates become complex numbers, each is turned by a random phase,
then an orthonormal discrete Fourier transform of any length; D = m + (m mod 2). "hadamard": random
signs, then an orthonormal Walsh–Hadamard transform; D = the next power of two. Signs with a real
Fourier transform would not do: they can double a coordinate's variance.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.public_randomness import random_signs, stream_key, words
from sparse_secagg.walsh_hadamard import fwht, next_power_of_two

__all__ = ["ROTATIONS", "Rotation", "padded_dim"]

ROTATIONS = ("dft", "hadamard")


def padded_dim(kind: str, dim: int) -> int:
    """Return D, the dimension after padding ``dim`` coordinates for a rotation."""
    if kind not in ROTATIONS:
        raise ValueError(f"rotation={kind!r} is not known; choose one of {', '.join(ROTATIONS)}.")
    return dim + dim % 2 if kind == "dft" else next_power_of_two(dim)


class Rotation:
    """The rotation named by ``kind`` and the public ``seed``, the same for all clients of a round.

    Parameters
    ----------
    kind : {"dft", "hadamard"}
        Which transform.
    dim : int
        Coordinates m of the vectors.
    seed : int
        Public seed of the phases or signs.
    """

    def __init__(self, kind: str, dim: int, seed: int) -> None:
        self.kind, self.dim, self.seed = kind, dim, seed
        self.padded_dim = padded_dim(kind, dim)

    def forward(
        self, Y: NDArray[np.float64], factors: NDArray[np.float64] | float = 1.0
    ) -> NDArray[np.float64]:
        """Rotate the rows of Y (n, m), each times its factor; returns a new array (n, D)."""
        Z = np.empty((len(Y), self.padded_dim))
        np.multiply(Y, np.reshape(factors, (-1, 1)), out=Z[:, : self.dim])
        Z[:, self.dim :] = 0.0
        if self.kind == "hadamard":
            Z *= _signs(self.seed, self.padded_dim)
            return np.asarray(fwht(Z))
        pairs = Z.view(np.complex128)
        pairs *= _phases(self.seed, self.padded_dim // 2)
        return _transform(pairs).view(np.float64)

    def inverse(self, Z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Undo :meth:`forward` for the rows of Z (n, D); returns (n, m)."""
        if self.kind == "hadamard":
            Y = np.asarray(fwht(np.array(Z, dtype=np.float64, order="C")))
            Y *= _signs(self.seed, self.padded_dim)
        else:
            pairs = np.ascontiguousarray(Z, dtype=np.float64).view(np.complex128)
            pairs = _transform(pairs, inverse=True)
            pairs *= _phases(self.seed, self.padded_dim // 2).conj()
            Y = pairs.view(np.float64)
        return Y[:, : self.dim]


def _transform(pairs: NDArray[np.complex128], inverse: bool = False) -> NDArray[np.complex128]:
    """Return the orthonormal Fourier transforms of the rows.

    One row is NumPy's, of a client that has no more; SciPy fills the vector registers with many.
    """
    if len(pairs) == 1:
        one = np.fft.ifft if inverse else np.fft.fft
        return np.asarray(one(pairs, norm="ortho"))
    import scipy.fft

    many = scipy.fft.ifft if inverse else scipy.fft.fft
    return np.asarray(many(pairs, norm="ortho", overwrite_x=not inverse))


@lru_cache(maxsize=2)
def _phases(seed: int, size: int) -> NDArray[np.complex128]:
    turns = (words(stream_key(seed, "rotation-phases"), 0, size) >> np.uint64(11)) * 2.0**-53
    return np.asarray(np.exp(2j * np.pi * turns))


@lru_cache(maxsize=2)
def _signs(seed: int, size: int) -> NDArray[np.float64]:
    return random_signs(stream_key(seed, "rotation-signs"), size)
