"""Numba kernels of the fast Walsh–Hadamard transform.

A stage of stride h replaces (a, b), h apart, by (a + b, a − b). Several stages run at once while
the numbers are in vector registers, so that a vector travels through the registers n/3 times
rather than n: :func:`butterflies` does 1 to 4 stages of consecutive strides, :func:`short_stages`
all strides below 16 registers, of which the first stay inside a register. Larger and larger blocks
are finished depth first: eight blocks of a size that a cache holds are combined while they are in
it, whatever the sizes of the caches.

Loops over sixteen places of one array are not vectorised by the compiler, which cannot know that
they do not overlap; hence vector instructions through LLVM. They are LLVM's own, of 64 bytes where
the machine has sixteen registers of that size to spare and of 32 elsewhere, and become whatever the
machine has.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba.core import config, types
from numba.extending import intrinsic

from solvers.compiling_kernels import numba


def _vector_bytes() -> int:
    """Return the size of a vector register; kernels on disk belong to one kind of processor."""
    features = config.CPU_FEATURES  # type: ignore[attr-defined]  # what the user says it has
    if features is None:
        features = binding.get_host_cpu_features().flatten()
    return 64 if "+avx512f" in features.split(",") else 32


_VECTOR_BYTES = _vector_bytes()
#: What NumPy aligns large arrays to.
_PIECE_BYTES = 16
_PIECES = _VECTOR_BYTES // _PIECE_BYTES
#: log₂ of the registers that the first pass combines.
_FIRST_STAGES = 4


# -- vector instructions ---------------------------------------------------------------------------


class _Vectors:
    """Reads, writes and constants of one array in vectors of ``lanes`` numbers."""

    def __init__(self, context, builder, array_type, array, lanes):
        number = context.get_value_type(array_type.dtype)
        self.builder = builder
        self.base = context.make_array(array_type)(context, builder, array).data
        self.bytes = array_type.dtype.bitwidth // 8
        self.type = ir.VectorType(number, lanes)

    def _place(self, start, stride, k):
        b = self.builder
        index = b.add(start, b.mul(stride, ir.Constant(stride.type, k)))
        return b.bitcast(b.gep(self.base, [index]), self.type.as_pointer())

    def load(self, start, stride, count):
        vectors = [self.builder.load(self._place(start, stride, k)) for k in range(count)]
        for vector in vectors:
            vector.align = self.bytes
        return vectors

    def store(self, vectors, start, stride):
        for k, vector in enumerate(vectors):
            self.builder.store(vector, self._place(start, stride, k)).align = self.bytes

    def permute(self, vector, order):
        order = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
        return self.builder.shuffle_vector(vector, ir.Constant(self.type, ir.Undefined), order)

    def scale(self, vectors, factor):
        first = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(ir.Constant(self.type, ir.Undefined), factor, first)
        factors = self.permute(one, [0] * self.type.count)
        return [self.builder.fmul(vector, factors) for vector in vectors]

    def stages_across(self, vectors):
        """Run the stages that combine whole vectors."""
        h = 1
        while h < len(vectors):
            for i in range(len(vectors)):
                if not i & h:
                    a, b = vectors[i], vectors[i + h]
                    vectors[i], vectors[i + h] = self.builder.fadd(a, b), self.builder.fsub(a, b)
            h *= 2
        return vectors

    def stages_inside(self, vector):
        """Run the stages that combine numbers of one vector: partner + number·(±1).

        The product is exact, so it may be contracted with the sum.
        """
        lanes, h = self.type.count, 1
        while h < lanes:
            partner = self.permute(vector, [i ^ h for i in range(lanes)])
            signs = ir.Constant(self.type, [-1.0 if i & h else 1.0 for i in range(lanes)])
            signed = self.builder.fmul(vector, signs, flags=("contract",))
            vector = self.builder.fadd(signed, partner, flags=("contract",))
            h *= 2
        return vector


def _butterflies(typingctx, array, start, stride, n_stages, parts, scale):
    """Run stages of strides ``stride``, 2·``stride``, … on one vector of columns from ``start``.

    ``n_stages`` and ``parts`` are literals: 1/``parts`` of a vector is wide. ``scale`` is None or
    multiplies the result.
    """
    count = 1 << n_stages.literal_value
    lanes = _VECTOR_BYTES * 8 // array.dtype.bitwidth // parts.literal_value

    def generate(context, builder, signature, args):
        vectors = _Vectors(context, builder, array, args[0], lanes)
        values = vectors.stages_across(vectors.load(args[1], args[2], count))
        if scale != types.none:
            values = vectors.scale(values, args[5])
        vectors.store(values, args[1], args[2])
        return context.get_dummy_value()

    signature = types.void(array, types.intp, types.intp, n_stages, parts, scale)
    return signature, generate


def _short_stages(typingctx, array, start):
    """Run the stages of strides 1, 2, … on 16 consecutive vectors from ``start``."""
    lanes = _VECTOR_BYTES * 8 // array.dtype.bitwidth

    def generate(context, builder, signature, args):
        vectors = _Vectors(context, builder, array, args[0], lanes)
        stride = ir.Constant(args[1].type, lanes)
        values = vectors.load(args[1], stride, 1 << _FIRST_STAGES)
        values = vectors.stages_across([vectors.stages_inside(value) for value in values])
        vectors.store(values, args[1], stride)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


butterflies: Any = intrinsic(prefer_literal=True)(_butterflies)
short_stages: Any = intrinsic(_short_stages)


# -- passes ----------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True)
def columns(a, start, stop, h, n_stages, scale):
    """Run ``n_stages`` stages, strides h, 2h, …, on columns start … stop-1: whole vectors."""
    lanes = _VECTOR_BYTES // a.itemsize
    if n_stages == 1:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 1, 1, scale)
    elif n_stages == 2:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 2, 1, scale)
    elif n_stages == 3:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 3, 1, scale)
    else:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 4, 1, scale)


@numba.njit(cache=True, nogil=True)
def pieces(a, start, stop, h, n_stages, scale):
    """Run the same stages on columns that are no whole vectors, 16 bytes at a time."""
    lanes = _PIECE_BYTES // a.itemsize
    if n_stages == 1:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 1, _PIECES, scale)
    elif n_stages == 2:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 2, _PIECES, scale)
    elif n_stages == 3:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 3, _PIECES, scale)
    else:
        for j in range(start, stop, lanes):
            butterflies(a, j, h, 4, _PIECES, scale)


@numba.njit(cache=True, nogil=True)
def combine(a, start, stop, h, n_stages, scale):
    """Run ``n_stages`` stages from stride h on, on columns start … stop-1.

    NumPy aligns large arrays to 16 bytes. Where vectors would straddle cache lines, pieces of one
    at both ends let all others lie inside.
    """
    offset = a.ctypes.data % _VECTOR_BYTES
    if offset == 0 or offset % _PIECE_BYTES != 0:
        columns(a, start, stop, h, n_stages, scale)
        return
    first, last = start + (_VECTOR_BYTES - offset) // a.itemsize, stop - offset // a.itemsize
    pieces(a, start, first, h, n_stages, scale)
    columns(a, first, last, h, n_stages, scale)
    pieces(a, last, stop, h, n_stages, scale)


@numba.njit(cache=True, nogil=True)
def log2(n):
    """Return the logarithm of a power of two."""
    k = 0
    while n > 1:
        n >>= 1
        k += 1
    return k


@numba.njit(cache=True, nogil=True)
def cached_block(a, start, n):
    """Transform a[start : start + n], unscaled, for n that fits the first cache."""
    h = 16 * _VECTOR_BYTES // a.itemsize
    for i in range(start, start + n, h):
        short_stages(a, i)
    while h < n:
        n_stages = log2(n // h)
        if n_stages > 4:
            n_stages = 3
        for i in range(start, start + n, h << n_stages):
            combine(a, i, i + h, h, n_stages, None)
        h <<= n_stages


@numba.njit(cache=True, nogil=True)
def transform_block(a, start, n):
    """Transform a[start : start + n], unscaled, n at least 16 vectors: depth first.

    Blocks of 8 to 32 KB come first; as soon as eight neighbours of a size are there, three stages
    make them one.
    """
    above = log2(n * a.itemsize // (16 * _VECTOR_BYTES))
    size = n if above <= 6 else n >> ((above - 4) // 3 * 3)
    for i in range(n // size):
        end = start + (i + 1) * size
        cached_block(a, end - size, size)
        done, h = i + 1, size
        while done % 8 == 0:
            first = end - 8 * h
            combine(a, first, first + h, h, 3, None)
            done, h = done // 8, 8 * h


@numba.njit(cache=True, nogil=True)
def last_stages(D, itemsize):
    """Return how many stages the last pass over a vector of length D combines: at most three."""
    return min(3, log2(D * itemsize // (16 * _VECTOR_BYTES)))


@numba.njit(cache=True, nogil=True)
def transform_short(a, scale):
    """Transform a vector of any length, scaled, one stage after the other."""
    h = 1
    while h < a.shape[0]:
        for i in range(0, a.shape[0], 2 * h):
            for j in range(i, i + h):
                a[j], a[j + h] = a[j] + a[j + h], a[j] - a[j + h]
        h *= 2
    for j in range(a.shape[0]):
        a[j] *= scale


@numba.njit(cache=True, nogil=True)
def transform_rows(X, scale):
    """Transform every row of X in place, scaled."""
    D = X.shape[1]
    if D * X.itemsize < 32 * _VECTOR_BYTES:
        for i in range(X.shape[0]):
            transform_short(X[i], scale)
        return
    n_stages = last_stages(D, X.itemsize)
    n = D >> n_stages
    for i in range(X.shape[0]):
        row = X[i]
        for start in range(0, D, n):
            transform_block(row, start, n)
        combine(row, 0, n, n, n_stages, scale)
