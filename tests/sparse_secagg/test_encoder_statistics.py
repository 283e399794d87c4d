"""Distribution of the encoders over their seeds, at a false-alarm rate of 1e-6 a test."""

import numpy as np
import pytest

from sparse_secagg import (
    BlockEncoder,
    CountSketchEncoder,
    GaussianEncoder,
    HadamardEncoder,
)
from sparse_secagg.encoders.count_sketch import CountSketchOperator
from sparse_secagg.public_randomness import stream_key, words
from tests.statistics import FALSE_ALARM, assert_counts, assert_mean

D = 300
SEEDS = range(400)
LAYERS = {"a": slice(0, 150), "b": slice(150, D)}
MAKE = {
    "count_sketch": lambda seed: CountSketchEncoder(60, n_rows=5, random_state=seed),
    "count_sketch_one_row": lambda seed: CountSketchEncoder(60, n_rows=1, random_state=seed),
    "gaussian": lambda seed: GaussianEncoder(60, random_state=seed),
    "hadamard": lambda seed: HadamardEncoder(60, random_state=seed),
    "blocks": lambda seed: BlockEncoder(LAYERS, random_state=seed),
}
VECTORS = {
    "constant": np.full(D, D**-0.5),
    "one_hot": np.eye(D)[17],
    "normal": np.random.default_rng(0).standard_normal(D) / D**0.5,
    "blocky": np.repeat([1.0, 0.0, -1.0], D // 3) / (2 * D / 3) ** 0.5,
}


@pytest.fixture(scope="module", params=MAKE)
def sketched(request):
    """(an encoder, {vector: (S x, SᵀS x) for every seed})."""
    results = {name: [] for name in VECTORS}
    for seed in SEEDS:
        encoder = MAKE[request.param](seed).fit_dimension(D)
        Y = encoder.transform(np.array(list(VECTORS.values())))
        for name, y, x in zip(VECTORS, Y, encoder.inverse_transform(Y)):
            results[name].append((y, x))
    return encoder, results


@pytest.mark.parametrize("vector", VECTORS)
class TestMoments:
    def test_norms_are_kept_on_average(self, sketched, vector):
        squares = [y @ y for y, _ in sketched[1][vector]]
        truth = VECTORS[vector] @ VECTORS[vector]
        if np.ptp(squares) < 1e-12:  # a one-hot vector, where columns have norm one
            np.testing.assert_allclose(squares, truth)
        else:
            assert_mean(squares, truth)

    def test_unsketch_is_unbiased_along_every_direction(self, sketched, vector):
        x = VECTORS[vector]
        estimates = np.array([estimate for _, estimate in sketched[1][vector]])
        directions = np.vstack(
            [x, np.ones(D), np.eye(D)[:3], np.random.default_rng(1).standard_normal((5, D))]
        )
        for direction in directions:
            projections = estimates @ direction
            if np.ptp(projections) > 1e-12:
                assert_mean(projections, x @ direction, tests=len(directions))

    def test_unsketch_error_is_as_the_theory_says(self, sketched, vector):
        encoder, results = sketched
        x = VECTORS[vector]
        errors = [np.sum((estimate - x) ** 2) for _, estimate in results[vector]]
        assert_mean(errors, expected_error(encoder, x))


def expected_error(encoder, x):
    """E‖SᵀSx − x‖², layer by layer for blocks."""
    if isinstance(encoder, BlockEncoder):
        return sum(expected_error(b.encoder, x[b.features]) for b in encoder.blocks_)
    return encoder.unsketch_error() * (x @ x)


def test_shared_seed_for_sign_and_bucket_would_be_caught():
    """Negative control: when the sign is a function of the bucket, a constant decodes far off."""
    biased = []
    for seed in SEEDS:
        S = CountSketchOperator(D, 5, 12, seed)
        buckets, _ = S.hashes(np.arange(D))
        signs = 1.0 - 2.0 * (buckets % 2)
        x = np.full(D, D**-0.5)
        tables = np.array([np.bincount(b, s * x, 12) for b, s in zip(buckets, signs)])
        estimate = np.mean(signs * np.take_along_axis(tables, buckets, axis=1), axis=0)
        biased.append(estimate @ x)
    with pytest.raises(AssertionError):
        assert_mean(biased, 1.0)
    assert np.mean(biased) > 10


class TestHashes:
    """Buckets and signs of one large sketch: uniform, and independent of everything else."""

    d, t, w = 200_000, 4, 50

    @pytest.fixture
    def hashes(self):
        return CountSketchOperator(self.d, self.t, self.w, seed=7).hashes(np.arange(self.d))

    def test_buckets_and_signs_are_jointly_uniform_in_every_row(self, hashes):
        for buckets, signs in zip(*hashes):
            cells = np.bincount(2 * buckets + (signs > 0), minlength=2 * self.w)
            assert_counts(cells, np.full(2 * self.w, self.d / (2 * self.w)))

    def test_rows_are_independent_of_each_other(self, hashes):
        buckets, signs = hashes
        for i in range(self.t):
            for j in range(i):
                cells = np.bincount(self.w * buckets[i] + buckets[j], minlength=self.w**2)
                assert_counts(cells, np.full(self.w**2, self.d / self.w**2))
                assert abs(signs[i] @ signs[j]) < 5.2 * np.sqrt(self.d)

    def test_neighbouring_indices_are_independent(self, hashes):
        buckets, signs = hashes
        for lag in (1, 2, 64, 256):
            cells = np.bincount(self.w * buckets[0, lag:] + buckets[0, :-lag], minlength=self.w**2)
            assert_counts(cells, np.full(self.w**2, (self.d - lag) / self.w**2))
            assert abs(signs[0, lag:] @ signs[0, :-lag]) < 5.2 * np.sqrt(self.d)

    def test_seeds_are_independent(self):
        first, second = (
            CountSketchOperator(self.d, 1, self.w, seed).hashes(np.arange(self.d))
            for seed in (0, 1)
        )
        cells = np.bincount((self.w * first[0] + second[0]).ravel(), minlength=self.w**2)
        assert_counts(cells, np.full(self.w**2, self.d / self.w**2))

    def test_every_bit_of_a_stream_is_fair(self):
        bits = np.unpackbits(words(stream_key(0, "test"), 0, 2**17).view(np.uint8))
        per_position = bits.reshape(-1, 64).sum(axis=0, dtype=np.int64)
        critical = 6.5  # two-sided normal quantile of 1e-6 over 64 positions
        assert np.abs(per_position - 2**16).max() < critical * np.sqrt(2**17) / 2


class TestNormals:
    def test_entries_are_standard_normal(self):
        from scipy import stats

        S = GaussianEncoder(200, random_state=5).fit_dimension(2000).operator_.toarray()
        z = np.sort(S.ravel() * np.sqrt(200))
        assert stats.kstest(z, "norm").pvalue >= FALSE_ALARM
        assert_mean(z**2, 1.0)
        assert_mean(z**4, 3.0)
        assert_mean(np.abs(z) > 3, 2 * stats.norm.sf(3))

    def test_rows_columns_and_pairs_are_uncorrelated(self):
        S = GaussianEncoder(200, random_state=5).fit_dimension(2000).operator_.toarray() * 200**0.5
        for product in (S[0::2] * S[1::2], S[:, 1:] * S[:, :-1], S[0::2] ** 2 * S[1::2] ** 2 - 1):
            assert_mean(product.ravel(), 0.0)


def test_hadamard_keeps_every_row_equally_often():
    counts = np.zeros(64)
    for seed in range(3000):
        counts[HadamardEncoder(16, random_state=seed).fit_dimension(60).operator_.rows] += 1
    # without replacement the counts vary less than a multinomial's, so the test is conservative
    assert_counts(counts, np.full(64, counts.mean()))
