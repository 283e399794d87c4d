"""The same seed gives the same S everywhere: pinned values, a slow twin, other processes."""

import hashlib
import math
import subprocess
import sys

import numpy as np
import pytest

from sparse_secagg import BlockEncoder, CountSketchEncoder, GaussianEncoder, HadamardEncoder
from sparse_secagg.public_randomness import (
    random_signs,
    resolve_seed,
    smallest_words,
    stream_key,
    words,
)

MASK = 2**64 - 1


def slow_key(seed, label, *numbers):
    text = "/".join(map(str, (seed, label, *numbers)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def slow_word(key, i):
    """SplitMix64 in Python integers."""
    z = (key + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class TestTwins:
    def test_streams_equal_python_integers(self):
        key = stream_key(7, "test", 3)
        assert int(key) == slow_key(7, "test", 3)
        for start in (0, 5, 2**40):
            expected = [slow_word(int(key), i) for i in range(start, start + 50)]
            assert words(key, start, start + 50).tolist() == expected

    def test_count_sketch_hashes_equal_python_integers(self):
        encoder = CountSketchEncoder(n_components=77, n_rows=7, random_state=11).fit_dimension(500)
        buckets, signs = encoder.operator_.hashes(np.arange(500))
        for row in range(7):
            key = slow_key(11, "count-sketch", row // 2)
            for j in range(0, 500, 7):
                half = slow_word(key, j) >> 32 if row % 2 == 0 else slow_word(key, j) & (2**32 - 1)
                assert buckets[row, j] == ((half >> 1) * 11) >> 31
                assert signs[row, j] == 1 - 2 * (half & 1)

    def test_normals_equal_the_box_muller_formula(self):
        S = GaussianEncoder(n_components=5, random_state=11).fit_dimension(30).operator_.toarray()
        key = slow_key(11, "gaussian")
        for j in range(30):
            for i in range(5):
                counter = 2 * (j * 3 + i // 2)
                u = ((slow_word(key, counter) >> 11) + 1) / 2**53
                v = (slow_word(key, counter + 1) >> 11) / 2**53
                wave = math.cos if i % 2 == 0 else math.sin
                expected = math.sqrt(-2 * math.log(u)) * wave(2 * math.pi * v) / math.sqrt(5)
                assert S[i, j] == pytest.approx(expected, rel=1e-13)


class TestPinned:
    """Values of version 0.1; a change here breaks every stored seed."""

    def test_words(self):
        assert words(stream_key(0, "test"), 0, 3).tolist() == [
            0x5DB025ED88560144,
            0xA01AC48F084B2023,
            0xAFCBF1AC3C4B04F7,
        ]

    def test_count_sketch(self):
        S = CountSketchEncoder(6, n_rows=3, random_state=42).fit_dimension(8).operator_
        buckets, signs = S.hashes(np.arange(8))
        assert buckets.tolist() == [
            [1, 0, 1, 1, 1, 0, 1, 0],
            [1, 1, 1, 0, 1, 0, 1, 1],
            [1, 0, 1, 0, 1, 0, 0, 1],
        ]
        assert signs.tolist() == [
            [1, 1, -1, 1, 1, -1, 1, -1],
            [1, -1, -1, -1, 1, 1, -1, 1],
            [-1, -1, -1, -1, 1, 1, -1, -1],
        ]

    def test_hadamard(self):
        S = HadamardEncoder(4, random_state=42).fit_dimension(6).operator_
        assert S.rows.tolist() == [0, 3, 5, 6]
        assert (2 * S.toarray()).tolist() == [
            [1, -1, 1, -1, 1, 1],
            [1, 1, -1, -1, 1, -1],
            [1, 1, 1, 1, -1, 1],
            [1, -1, -1, 1, -1, -1],
        ]

    def test_gaussian_to_4_ulp(self):
        S = GaussianEncoder(3, random_state=42).fit_dimension(4).operator_.toarray()
        pinned = [
            ["0x1.05f7d687a8b8ap-1", "0x1.7d94ddd8c47c7p-1", "-0x1.ab42530fdbcf3p-6"],
            ["0x1.daef564ce158fp-2", "-0x1.25bb115276561p+0", "0x1.708438d7d0894p-1"],
            ["-0x1.880e9e5b4f730p-3", "-0x1.2b99f06bf1ad3p+0", "0x1.c204a56a3f443p-2"],
        ]
        expected = np.array([[float.fromhex(value) for value in row] for row in pinned])
        np.testing.assert_array_max_ulp(S[:, :3], expected, maxulp=4)

    def test_blocks(self):
        encoder = BlockEncoder(
            {"a": slice(0, 4), "b": slice(4, 8)},
            encoder=CountSketchEncoder(2, n_rows=1),
            random_state=42,
        ).fit_dimension(8)
        assert [block.encoder.seed_ for block in encoder.blocks_] == [
            2420219470961024291,
            15253677109946544329,
        ]
        assert encoder.operator_.toarray().tolist() == [
            [0, 1, 0, 1, 0, 0, 0, 0],
            [1, 0, -1, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 1, 0],
            [0, 0, 0, 0, 1, -1, 0, 1],
        ]


FINGERPRINT = """
import hashlib
import numpy as np
from sparse_secagg import *
X = np.cos(np.arange(5 * 40_000.0)).reshape(5, -1)
digest = hashlib.sha256()
for make in (CountSketchEncoder, HadamardEncoder):
    encoder = make(compression=40, random_state=9).fit(X)
    digest.update(encoder.transform(X).tobytes())
    digest.update(encoder.transform(X[0]).tobytes())
digest.update(GaussianEncoder(50, random_state=9).fit(X).operator_.toarray().tobytes())
print(digest.hexdigest())
"""


def test_other_processes_and_thread_counts_agree():
    import os

    digests = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NUMBA_NUM_THREADS": threads},
        ).stdout
        for threads in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_seeds_from_generators_are_reproducible():
    for make in (np.random.RandomState, np.random.default_rng):
        assert resolve_seed(make(3)) == resolve_seed(make(3)) != resolve_seed(make(4))
    assert resolve_seed(np.int64(5)) == 5
    with pytest.raises(ValueError, match="True is not a seed"):
        resolve_seed(True)


def test_labels_and_numbers_separate_streams():
    keys = {
        stream_key(0, "a", 1),
        stream_key(0, "a", 2),
        stream_key(0, "b", 1),
        stream_key(1, "a", 1),
    }
    assert len(keys) == 4
    assert set(random_signs(stream_key(0, "a"), 100)) == {-1.0, 1.0}


@pytest.mark.parametrize(("size", "count"), [(1, 1), (8, 8), (50, 3), (5000, 700), (5000, 4999)])
def test_smallest_words_are_found_piece_by_piece(size, count, monkeypatch):
    key = stream_key(3, "any")
    expected = np.sort(np.argsort(words(key, 0, size))[:count])
    monkeypatch.setattr("sparse_secagg.public_randomness._PIECE", 64)
    np.testing.assert_array_equal(smallest_words(key, size, count), expected)
    signs = random_signs(key, size, np.int8)
    np.testing.assert_array_equal(signs, 1 - 2 * (words(key, 0, size) & np.uint64(1)).astype(int))
