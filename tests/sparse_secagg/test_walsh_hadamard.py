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


@pytest.mark.parametrize("log2_D", [14, 15, 17, 18])
def test_blocked_transform_equals_the_kronecker_recursion(log2_D):
    """H_{2D} (a, b) = (H a + H b, H a − H b)/√2, down to lengths tested against the dense H."""
    x = np.random.default_rng(log2_D).standard_normal(2**log2_D)

    def recursive(v):
        if len(v) <= 2048:
            return fwht(v.copy())
        a, b = recursive(v[: len(v) // 2]), recursive(v[len(v) // 2 :])
        return np.concatenate([a + b, a - b]) / np.sqrt(2)

    np.testing.assert_allclose(fwht(x.copy()), recursive(x), atol=1e-12)


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_result_does_not_depend_on_the_number_of_threads(threads, monkeypatch):
    X = np.random.default_rng(0).standard_normal((7, 2**15))
    expected = fwht(X.copy())
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    np.testing.assert_array_equal(fwht(X.copy()), expected)


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


def test_next_power_of_two():
    assert [next_power_of_two(n) for n in (1, 2, 3, 4, 5, 1025)] == [1, 2, 4, 4, 8, 2048]
