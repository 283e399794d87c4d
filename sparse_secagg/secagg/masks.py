"""Masks: m residues modulo M, uniform on all of Z_M, from a 32-byte key.

The key stream is AES-256 in counter mode. It is read as words of 8, 16, 32 or 64 bits, each word
is cut to its low b = ⌈log₂ M⌉ bits, and the first m words below M are the mask: for M a power of
two every word, otherwise rejection sampling, which leaves no bias for any M.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from sparse_secagg import kernels
from sparse_secagg.secagg.wire import bit_width

KEY_BYTES = 32
#: Bytes of key stream made at once: they stay in the second-level cache until they are added.
_CHUNK = 1 << 17
_ZEROS = bytes(_CHUNK)
_FROM_ZERO = modes.CTR(bytes(16))


class KeyStream:
    """AES-256-CTR from counter 0: a key makes one mask, so the counter may start anew."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key), _FROM_ZERO).encryptor()

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite at most ``_CHUNK`` bytes with the next bytes of the stream."""
        self._encryptor.update_into(memoryview(_ZEROS)[: len(out)], out.data)


class MaskSum:
    """Σ ± mask(key) over Z_M^m, one key after the other.

    Parameters
    ----------
    length : int
        m.
    modulus : int
        M.
    """

    def __init__(self, length: int, modulus: int) -> None:
        bits = bit_width(modulus)
        self.length, self.modulus = length, modulus
        self._word: np.dtype[Any] = np.dtype(f"<u{_word_bytes(bits)}")
        self._low_bits = np.uint64((1 << bits) - 1)
        self._is_power = modulus == 1 << bits
        # For a power of two the sum wraps with the words, since 2^b divides their range. Otherwise
        # it is reduced now and then, in words wide enough for that to be rare.
        sum_word = self._word if self._is_power else np.dtype("<u4" if bits <= 16 else "<u8")
        self._sum: NDArray[Any] = np.zeros(length, dtype=sum_word)
        self._added, self._most = 0, int(np.iinfo(sum_word).max) // modulus - 1
        self._residues = np.empty(0 if self._is_power else length, dtype=self._word)
        self._buffer = np.empty(_CHUNK, dtype=np.uint8)

    def add(self, key: bytes, sign: int = 1) -> None:
        """Add (sign = 1) or subtract (sign = −1) the mask of ``key``."""
        (self._add_words if self._is_power else self._add_residues)(KeyStream(key), sign)

    def value(self) -> NDArray[np.uint64]:
        """Return the sum so far, in [0, M)."""
        total = self._sum.astype(np.uint64)
        if self._is_power:
            return total & self._low_bits
        return total % np.uint64(self.modulus)

    def _add_words(self, stream: KeyStream, sign: int) -> None:
        combine = np.add if sign > 0 else np.subtract
        step = _CHUNK // self._word.itemsize
        for start in range(0, self.length, step):
            part = self._sum[start : start + step]
            combine(part, self._read(stream, len(part)), out=part)

    def _add_residues(self, stream: KeyStream, sign: int) -> None:
        modulus, filled = np.uint64(self.modulus), 0
        while filled < self.length:
            # On average 2^b/M < 2 words a residue; what is read too much is not used.
            expected = ((self.length - filled) << bit_width(self.modulus)) // self.modulus
            words = self._read(stream, min(_CHUNK // self._word.itemsize, expected + 16))
            filled = kernels.modular.keep_residues(
                words, self._low_bits, modulus, self._residues, filled
            )
        if self._added == self._most:
            self._sum %= self._sum.dtype.type(self.modulus)
            self._added = 0
        kernels.modular.add_lazily(
            self._sum, self._residues, self._sum.dtype.type(self.modulus), sign < 0
        )
        self._added += 1

    def _read(self, stream: KeyStream, n_words: int) -> NDArray[Any]:
        out = self._buffer[: n_words * self._word.itemsize]
        stream.fill(out)
        return out.view(self._word)


def mask(key: bytes, length: int, modulus: int) -> NDArray[np.uint64]:
    """Return the mask of one key."""
    total = MaskSum(length, modulus)
    total.add(key)
    return total.value()


def add_modulo(
    a: NDArray[np.uint64],
    b: NDArray[np.uint64],
    modulus: int,
    sign: int = 1,
    out: NDArray[np.uint64] | None = None,
) -> NDArray[np.uint64]:
    """Return a ± b mod M for vectors of residues, written to ``out`` where that is given."""
    if a.shape != b.shape:  # a kernel would read beyond the shorter one
        raise ValueError(f"a of shape {a.shape} and b of shape {b.shape} must have one shape.")
    out = np.empty_like(a) if out is None else out
    kernels.modular.add_residues(a, b, np.uint64(modulus), sign < 0, out)
    return out


def _word_bytes(bits: int) -> int:
    return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
