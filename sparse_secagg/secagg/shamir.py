"""Shamir's secret sharing over GF(65537), for 32-byte secrets.

A secret is 16 limbs of 16 bits, each the value at 0 of its own random polynomial of degree t − 1;
share x is the 16 values at x. Any t shares give the secret by Lagrange interpolation, fewer are
independent of it: this is true over every field with more elements than there are shares. The
field is small so that evaluating a polynomial everywhere is one exact product of float64 matrices:
t·(2^16)² stays far below 2^53.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.parallel import blas_for
from sparse_secagg.secagg.wire import pack, unpack

PRIME = 65537
SECRET_BYTES = 32
#: 16 field elements of 17 bits.
SHARE_BYTES = 34
MAX_SHARES = PRIME - 1

_LIMBS = 16
_LIMB_BITS = 17


def split(secrets: Sequence[bytes], threshold: int, n_shares: int) -> NDArray[np.uint8]:
    """Return shares of the secrets, (n_shares, len(secrets), 34) bytes; row x − 1 is share x."""
    if not 1 <= threshold <= n_shares <= MAX_SHARES:
        raise ValueError(
            f"threshold={threshold} and n_shares={n_shares} must satisfy "
            f"1 <= threshold <= n_shares <= {MAX_SHARES}."
        )
    if any(len(secret) != SECRET_BYTES for secret in secrets):
        raise ValueError(f"secrets must have {SECRET_BYTES} bytes each.")
    width = len(secrets) * _LIMBS
    coefficients = np.empty((threshold, width))
    coefficients[0] = np.frombuffer(b"".join(secrets), dtype="<u2")
    coefficients[1:] = _random_elements((threshold - 1) * width).reshape(-1, width)
    with blas_for(n_shares * threshold * width):
        products = _powers(n_shares, threshold) @ coefficients
    values = products.astype(np.int64) % PRIME
    packed = np.frombuffer(pack(values.ravel(), _LIMB_BITS), dtype=np.uint8)
    return packed.reshape(n_shares, len(secrets), SHARE_BYTES)


def combine(points: NDArray[np.integer], shares: NDArray[np.uint8]) -> bytes:
    """Return the secret from the shares (t, 34) at the distinct ``points`` (t,), 1 or more.

    Shares that are not field elements, or whose polynomials are no secret at 0, raise ValueError.
    """
    values = unpack(shares.tobytes(), _LIMB_BITS, shares.shape[0] * _LIMBS).astype(np.int64)
    if (values >= PRIME).any():
        raise ValueError("a share has an element outside the field.")
    weights = _weights_at_zero(np.asarray(points, dtype=np.int64).tobytes())
    limbs = weights @ values.reshape(-1, _LIMBS) % PRIME
    if (limbs > 0xFFFF).any():
        raise ValueError("the shares belong to no secret.")
    return limbs.astype("<u2").tobytes()


def _random_elements(size: int) -> NDArray[np.int64]:
    """Return uniform field elements: 2^32 − 1 = 65535·65537, so one 32-bit word is rejected."""
    words = np.frombuffer(os.urandom(4 * size), dtype="<u4")
    while (rejected := words == 0xFFFFFFFF).any():
        fresh = np.frombuffer(os.urandom(4 * int(rejected.sum())), dtype="<u4")
        words = np.concatenate([words[~rejected], fresh])
    return words.astype(np.int64) % PRIME


@lru_cache(maxsize=8)
def _powers(n_shares: int, threshold: int) -> NDArray[np.float64]:
    """Return x^k mod p for x = 1 … n_shares, k = 0 … threshold − 1."""
    x = np.arange(1, n_shares + 1, dtype=np.int64)
    powers = np.ones((threshold, n_shares), dtype=np.int64)
    for k in range(1, threshold):
        powers[k] = powers[k - 1] * x % PRIME
    return np.ascontiguousarray(powers.T, dtype=np.float64)


@lru_cache(maxsize=256)
def _weights_at_zero(points: bytes) -> NDArray[np.int64]:
    """Return the Lagrange weights λ_j = Π_{l≠j} x_l/(x_l − x_j)."""
    x = np.frombuffer(points, dtype=np.int64) % PRIME
    if (x == 0).any() or len(np.unique(x)) != len(x):
        raise ValueError("points must be distinct and none of them 0.")
    differences = (x[None, :] - x[:, None]) % PRIME
    np.fill_diagonal(differences, 1)
    numerator = _product(x[None, :])[0]
    return np.asarray(numerator * _inverse(x * _product(differences) % PRIME) % PRIME)


def _product(factors: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the product of each row, halving the columns at each step."""
    while factors.shape[1] > 1:
        half = factors.shape[1] // 2
        odd = factors[:, 2 * half :]
        factors = factors[:, :half] * factors[:, half : 2 * half] % PRIME
        factors = np.concatenate([factors, odd], axis=1)
    return factors[:, 0]


def _inverse(a: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a^(p−2), p − 2 = 65535 = 2^16 − 1: a product of 16 repeated squares."""
    result = np.ones_like(a)
    for _ in range(16):
        result = result * a % PRIME
        a = a * a % PRIME
    return result
