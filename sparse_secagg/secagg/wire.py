"""Vectors over Z_M on the wire: b = ⌈log₂ M⌉ bits a coordinate, packed without gaps.

Value i occupies bits [i·b, (i+1)·b) of a little-endian bit stream of ⌈m·b/8⌉ bytes; the bits left
over in the last byte are zero.
"""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg import kernels

MAX_BITS = 63


def check_modulus(modulus: object) -> int:
    """Return M as an int, or raise if it is not in 2 … 2^63."""
    if modulus is None:
        raise ValueError(
            "modulus=None: secure aggregation adds in Z_M; pass the mechanism's modulus, "
            "for example MaskedSecAgg(modulus=2**16)."
        )
    if not isinstance(modulus, numbers.Integral) or isinstance(modulus, bool):
        raise ValueError(f"modulus={modulus!r} must be an integer from 2 to 2**63.")
    modulus = int(modulus)
    if not 2 <= modulus <= 1 << MAX_BITS:
        raise ValueError(f"modulus={modulus} is not between 2 and 2**63.")
    return modulus


def bit_width(modulus: int) -> int:
    """Return b, the bits that hold every residue modulo M."""
    return (check_modulus(modulus) - 1).bit_length()


def packed_size(length: int, bits: int) -> int:
    """Return the bytes that ``length`` integers of ``bits`` bits take."""
    _check_bits(bits)
    return -(-length * bits // 8)


def pack(values: ArrayLike, bits: int) -> bytes:
    """Return integers in [0, 2^bits) as a bit stream."""
    _check_bits(bits)
    values = np.ascontiguousarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(
            f"values has dtype {values.dtype} and {values.ndim} dimensions; "
            "pass a one-dimensional array of integers."
        )
    if values.size and (int(values.min()) < 0 or int(values.max()) >> bits):
        raise ValueError(f"values do not all lie in [0, 2**{bits}); raise bits or reduce them.")
    words = np.zeros(-(-len(values) * bits // 64) + 1, dtype="<u8")
    kernels.wire.pack_words(values, bits, words)
    return words.tobytes()[: packed_size(len(values), bits)]


def unpack(data: bytes, bits: int, length: int) -> NDArray[np.uint64]:
    """Return the ``length`` integers that :func:`pack` wrote; raise if ``data`` is not such."""
    size = packed_size(length, bits)
    if len(data) != size:
        raise ValueError(
            f"data has {len(data)} bytes; {length} integers of {bits} bits take {size}."
        )
    unused = 8 * size - length * bits
    if unused and data[-1] >> (8 - unused):
        raise ValueError("the unused bits of the last byte are not zero.")
    words = np.zeros(-(-length * bits // 64) + 1, dtype="<u8")
    words.view(np.uint8)[:size] = np.frombuffer(data, dtype=np.uint8)
    values = np.empty(length, dtype=np.uint64)
    kernels.wire.unpack_words(words, bits, values)
    return values


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= MAX_BITS:
        raise ValueError(f"bits={bits} is not between 1 and {MAX_BITS}.")
