import os
import platform
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from scipy.linalg import hadamard

from sparse_secagg.walsh_hadamard import fwht, next_power_of_two


@pytest.mark.parametrize("D", [1, 2, 4, 8, 16, 32, 64, 2048])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_the_dense_hadamard_matrix(D, dtype):
    X = np.random.default_rng(D).standard_normal((3, D)).astype(dtype)
    expected = X.astype(float) @ hadamard(D) / np.sqrt(D)
    transformed = fwht(X.copy())
    assert transformed.dtype == dtype
    np.testing.assert_allclose(transformed, expected, atol=20 * np.finfo(dtype).eps)


def recursive(v):
    """H_{2D} (a, b) = (H a + H b, H a − H b)/√2, down to lengths tested against the dense H."""
    if len(v) <= 2048:
        return fwht(v.copy())
    a, b = recursive(v[: len(v) // 2]), recursive(v[len(v) // 2 :])
    return np.concatenate([a + b, a - b]) / np.sqrt(2)


@pytest.mark.parametrize("log2_D", range(12, 20))
def test_long_transforms_equal_the_kronecker_recursion(log2_D):
    x = np.random.default_rng(log2_D).standard_normal(2**log2_D)
    expected = recursive(x)
    np.testing.assert_allclose(fwht(x.copy()), expected, atol=1e-12)
    single = fwht(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=3e-6)


def at_offset(x, offset):
    """Return a copy of x that begins ``offset`` elements after a multiple of 64 bytes."""
    raw = np.empty(x.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset * x.itemsize
    copy = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", range(1, 9))
def test_result_does_not_depend_on_where_the_array_begins(offset, dtype):
    for log2_D in (3, 7, 8, 11, 14, 18):
        X = np.random.default_rng(log2_D).standard_normal((3, 2**log2_D)).astype(dtype)
        np.testing.assert_array_equal(fwht(at_offset(X, offset)), fwht(at_offset(X, 0)))


def test_nothing_outside_the_array_is_touched():
    for dtype in (np.float32, np.float64):
        for D in (1, 4, 64, 256, 2**13, 2**18):
            guarded = np.full(D + 64, 7.0, dtype)
            fwht(guarded[32:-32])
            assert (guarded[:32] == 7).all()
            assert (guarded[-32:] == 7).all()


@pytest.mark.parametrize("log2_D", [4, 6, 8, 14, 18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_integers_transform_without_rounding(log2_D, dtype):
    """Sums below 2^24 are exact in both types, and √D is a power of two."""
    x = np.random.default_rng(log2_D).integers(-8, 9, 2**log2_D)
    sums = x.copy()
    h = 1
    while h < len(sums):  # in integers, one stage after the other
        pairs = sums.reshape(-1, 2, h)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        h *= 2
    ours = fwht(x.astype(dtype)).astype(np.float64)
    np.testing.assert_array_equal(ours * 2.0 ** (log2_D // 2), sums)


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_result_does_not_depend_on_the_number_of_threads(threads, monkeypatch):
    for shape in [(7, 2**18), (3, 2**19), (1, 2**20)]:
        X = np.random.default_rng(0).standard_normal(shape)
        monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
        expected = fwht(X.copy())
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        np.testing.assert_array_equal(fwht(X.copy()), expected)


def test_the_array_is_its_own_workspace():
    x = np.ones(2**20)
    fwht(x)
    tracemalloc.start()
    fwht(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**16


GENERIC = """
import numpy as np
from sparse_secagg.walsh_hadamard import fwht
x = np.zeros(2**14)
x[5] = 1
signs = 1.0 - 2.0 * (np.bitwise_count(np.arange(2**14) & 5) % 2)
assert np.array_equal(fwht(x) * 2**7, signs)
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="an x86-64 baseline")
def test_transform_runs_without_avx(tmp_path):
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "x86-64",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", GENERIC], env=environment, check=True)


def test_transform_is_its_own_inverse_and_works_in_place():
    X = np.random.default_rng(1).standard_normal((2, 3, 256))
    Y = X.copy()
    assert fwht(Y) is Y
    np.testing.assert_allclose(np.linalg.norm(Y, axis=-1), np.linalg.norm(X, axis=-1))
    np.testing.assert_allclose(fwht(Y), X, atol=1e-12)


def test_bad_input_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="length 12.*zeros to 16"):
        fwht(np.zeros(12))
    with pytest.raises(ValueError, match="ascontiguousarray"):
        fwht(np.zeros(8, dtype=int))
    with pytest.raises(ValueError, match="ascontiguousarray"):
        fwht(np.zeros((8, 8)).T[::2])
    read_only = np.zeros(256)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only.*copy"):
        fwht(read_only)


def test_next_power_of_two():
    assert [next_power_of_two(n) for n in (1, 2, 3, 4, 5, 1025)] == [1, 2, 4, 4, 8, 2048]
