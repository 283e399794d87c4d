"""Denoisers: against closed forms, quadrature and Monte Carlo."""

import numpy as np
import pytest
from scipy import integrate, stats

from solvers.amp import _kernels as kernels
from solvers.amp import denoisers, low_rank, scalar
from solvers.amp.priors import Scores
from solvers.amp.scalar import nodes_and_counts, scales_of
from solvers.denoisers import Auto, Blocks, LowRank, Shrink, Soft, Sparse

TAU = 0.7
SHAPES = [(60, 40), (40,), (30, 50)]


def sparse_vector(d=20_000, rate=0.05, scale=3.0, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(d) < rate, scale * rng.standard_normal(d), 0.0)


def low_rank_vector(seed=0):
    rng = np.random.default_rng(seed)
    first = 3 * np.outer(rng.standard_normal(60), rng.standard_normal(40))
    return np.concatenate([first.ravel(), rng.standard_normal(40), np.zeros(1500)])


def noisy(x, tau=TAU, seed=1):
    return x + tau * np.random.default_rng(seed).standard_normal(len(x))


def error(estimate, x):
    return np.sum((estimate - x) ** 2)


# --- the contract


CASES = {
    "soft": (Soft(), sparse_vector()),
    "soft_fixed": (Soft(1.5), sparse_vector()),
    "shrink": (Shrink(), sparse_vector(rate=1.0, scale=0.5)),
    "sparse": (Sparse(), sparse_vector()),
    "sparse_on_dense": (Sparse(), sparse_vector(rate=1.0, scale=0.5)),
    "sparse_positive": (Sparse(positive=True), np.abs(sparse_vector())),
    # a signal so weak that the odds of its presence are about even
    "sparse_weak": (Sparse(), sparse_vector(d=2000, rate=0.003, scale=1.5, seed=3)),
    "low_rank": (LowRank(SHAPES), low_rank_vector()),
    "auto": (Auto(SHAPES), low_rank_vector()),
    "blocks": (
        Blocks({"a": slice(0, 5000), "b": slice(6000, 9000)}, {"a": Soft(), "b": Shrink()}),
        sparse_vector(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_divergence_is_the_sum_of_derivatives(name):
    denoiser, x = CASES[name]
    p = noisy(x)
    divergence = denoiser.denoise(p, TAU).divergence
    rng = np.random.default_rng(2)
    step, found = 1e-3 * TAU, []
    for _ in range(30):
        probe = rng.choice([-1.0, 1.0], len(p))
        up = denoiser.denoise(p + step * probe, TAU).estimate
        down = denoiser.denoise(p - step * probe, TAU).estimate
        found.append(probe @ (up - down) / (2 * step))
    tolerance = 5.5 * stats.sem(found) + 0.01 * divergence
    assert abs(np.mean(found) - divergence) <= tolerance


@pytest.mark.parametrize("name", CASES)
def test_denoising_lowers_the_error_and_stein_estimates_it(name):
    denoiser, x = CASES[name]
    p = noisy(x)
    found = denoiser.denoise(p, TAU)
    assert error(found.estimate, x) < 0.8 * error(p, x)
    # the standard deviation of Stein's estimate is of order τ²√(2d)
    assert abs(denoisers.risk(p, TAU, found) - error(found.estimate, x)) < 6 * TAU**2 * np.sqrt(
        2 * len(x)
    )


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_float32_and_agrees(name):
    denoiser, x = CASES[name]
    p = noisy(x)
    single = denoiser.denoise(p.astype(np.float32), TAU)
    double = denoiser.denoise(p, TAU)
    assert single.estimate.dtype == np.float32
    np.testing.assert_allclose(single.estimate, double.estimate, atol=2e-3)
    assert single.divergence == pytest.approx(double.divergence, rel=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_scaling_data_and_noise_scales_the_estimate(name):
    denoiser, x = CASES[name]
    p = noisy(x)
    one, large = denoiser.denoise(p, TAU), denoiser.denoise(1e3 * p, 1e3 * TAU)
    np.testing.assert_allclose(large.estimate, 1e3 * one.estimate, atol=1e-4)
    assert large.divergence == pytest.approx(one.divergence, rel=1e-4)


# --- soft, shrink


def test_soft_threshold_of_least_risk_is_found():
    x = sparse_vector()
    p = noisy(x)
    chosen = error(Soft().denoise(p, TAU).estimate, x)
    best = min(error(Soft(t).denoise(p, TAU).estimate, x) for t in np.arange(0, 5, 0.05))
    assert chosen <= 1.02 * best


def test_shrinkage_is_the_best_multiple():
    x = sparse_vector(rate=1.0, scale=0.5)
    p = noisy(x)
    assert error(Shrink().denoise(p, TAU).estimate, x) <= 1.01 * error(p * (p @ x) / (p @ p), x)


# --- sparse


def bernoulli_gaussian_mean(u, rate, scale):
    """E(x | x + τg = u) by quadrature over x."""

    def weight(x):
        return rate * stats.norm.pdf(x, scale=scale) * stats.norm.pdf(u - x, scale=TAU)

    def integral(f):
        limits = (min(0, u) - 8 * TAU, max(0, u) + 8 * TAU)
        return integrate.quad(f, *limits, points=sorted([0.0, u]), limit=200)[0]

    zero = (1 - rate) * stats.norm.pdf(u, scale=TAU)
    return integral(lambda x: x * weight(x)) / (zero + integral(weight))


def test_the_learnt_posterior_mean_is_that_of_the_true_prior():
    x = sparse_vector(d=200_000)
    p = noisy(x)
    p[:5] = [-4.0, -1.0, 0.5, 2.0, 6.0]
    found = Sparse().denoise(p, TAU).estimate[:5]
    expected = [bernoulli_gaussian_mean(u, 0.05, 3.0) for u in p[:5]]
    np.testing.assert_allclose(found, expected, atol=0.06)


@pytest.mark.parametrize(("rate", "scale"), [(0.002, 5.0), (0.05, 3.0), (0.3, 1.0), (1.0, 0.3)])
def test_learning_the_prior_costs_little(rate, scale):
    x = sparse_vector(d=50_000, rate=rate, scale=scale)
    p = noisy(x)
    total = np.hypot(scale, TAU)
    signal = rate * stats.norm.pdf(p, scale=total)
    zero = (1 - rate) * stats.norm.pdf(p, scale=TAU)
    oracle = p * (scale / total) ** 2 * signal / (signal + zero)
    assert error(Sparse().denoise(p, TAU).estimate, x) <= 1.03 * error(oracle, x)


def test_the_weights_maximise_the_likelihood():
    rng = np.random.default_rng(0)
    log_densities = -0.5 * rng.uniform(0, 10, (300, 8))
    number = rng.uniform(0, 5, 300)
    w = scalar._learn_weights(number, log_densities)
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1)
    densities = np.exp(log_densities)
    # no direction into the simplex raises a concave function at its maximum
    gradient = densities.T @ (number / number.sum() / (densities @ w))
    assert gradient.max() <= 1 + 1e-8


def test_pure_noise_is_denoised_to_nearly_nothing():
    """The rate of false signals of norm τ and above is that of the odds against them."""
    squares = np.array(
        [
            np.sum(Sparse().denoise(noisy(np.zeros(1000), seed=seed), TAU).estimate ** 2)
            for seed in range(200)
        ]
    )
    assert np.mean(squares) <= 0.7 * TAU**2
    assert np.sum(squares > TAU**2) <= 20


def test_a_weak_signal_is_weighed_and_not_thrown_away():
    """Evidence of e³ for a signal: half of the estimate is better than none of it."""
    rng = np.random.default_rng(0)
    x = np.zeros(2000)
    x[:30] = 1.5 * TAU
    shrunk = [
        Sparse(positive=True).denoise(x + TAU * rng.standard_normal(2000), TAU) for _ in range(40)
    ]
    assert np.mean([error(found.estimate, x) for found in shrunk]) <= 0.97 * np.sum(x**2)


def test_positive_beats_signed_on_histograms_and_is_never_negative():
    x = np.abs(sparse_vector(rate=0.2, scale=1.5))
    p = noisy(x)
    positive = Sparse(positive=True).denoise(p, TAU).estimate
    assert positive.min() >= 0
    assert error(positive, x) < 0.9 * error(Sparse().denoise(p, TAU).estimate, x)


def test_entries_far_beyond_the_table_are_kept():
    p = noisy(np.zeros(1000))
    p[0] = 1e12
    found = Sparse().denoise(p, TAU)
    assert found.estimate[0] == pytest.approx(1e12, rel=1e-3)
    assert np.isfinite(found.estimate).all()


# --- low rank


def test_low_rank_against_a_full_decomposition():
    p = noisy(low_rank_vector())
    found = LowRank(SHAPES).denoise(p, TAU).estimate[:2400].reshape(60, 40)
    U, s, Vt = np.linalg.svd(p[:2400].reshape(60, 40), full_matrices=False)
    v, beta = s / (TAU * np.sqrt(60)), 40 / 60
    kept = v > 1 + np.sqrt(beta)
    shrunk = np.where(kept, np.sqrt(np.maximum((v**2 - beta - 1) ** 2 - 4 * beta, 0)) / v, 0)
    np.testing.assert_allclose(found, (U * (TAU * np.sqrt(60) * shrunk)) @ Vt, atol=1e-9)


def test_wide_and_tall_layers_are_treated_alike():
    p = noisy(low_rank_vector())[:2400]
    tall = LowRank([(60, 40)]).denoise(p, TAU)
    wide = LowRank([(40, 60)]).denoise(p.reshape(60, 40).T.ravel(), TAU)
    np.testing.assert_allclose(
        wide.estimate.reshape(40, 60).T, tall.estimate.reshape(60, 40), atol=1e-9
    )
    assert wide.divergence == pytest.approx(tall.divergence)


def test_the_randomised_decomposition_agrees(monkeypatch):
    p = noisy(low_rank_vector())
    exact = LowRank(SHAPES).denoise(p, TAU)
    monkeypatch.setattr(low_rank, "_EXACT_SVD_UP_TO", 0)
    randomised = LowRank(SHAPES, max_rank=10).denoise(p, TAU)
    np.testing.assert_allclose(randomised.estimate, exact.estimate, atol=0.01 * TAU)
    assert randomised.divergence == pytest.approx(exact.divergence, rel=0.2)
    again = LowRank(SHAPES, max_rank=10).denoise(p, TAU)
    assert again.divergence == randomised.divergence


# --- combinations


def test_auto_chooses_by_layer():
    p = noisy(low_rank_vector())
    p[2440:2460] += 30.0
    choices = Auto(SHAPES).choices(p, TAU)
    assert choices["layer_0"] == "low_rank"
    assert choices["layer_2"] == "sparse"


def test_blocks_denoise_their_own_slices():
    p = noisy(sparse_vector())
    found = Blocks({"head": slice(0, 100)}, {"head": Shrink()}, otherwise=Soft(2.0)).denoise(p, TAU)
    np.testing.assert_array_equal(found.estimate[:100], Shrink().denoise(p[:100], TAU).estimate)
    np.testing.assert_array_equal(found.estimate[100:], Soft(2.0).denoise(p[100:], TAU).estimate)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: denoisers.get("sprase"), "denoiser='sprase' is unknown"),
        (lambda: denoisers.get("low_rank"), "needs shapes"),
        (lambda: denoisers.get(3), "has no method denoise"),
        (lambda: Blocks({"a": slice(0, 3)}, {"b": Soft()}), "same names"),
        (lambda: LowRank([(5, 5)]).denoise(np.zeros(24), 1.0), "hold 25 entries"),
        (
            lambda: Blocks(
                {"a": slice(0, 3), "b": slice(2, 5)}, {"a": Soft(), "b": Soft()}
            ).denoise(np.zeros(9), 1.0),
            "overlaps",
        ),
    ],
)
def test_errors_say_what_to_change(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_weights_are_learnt_where_rounding_makes_the_hessian_singular():
    """Scales that the data cannot tell apart, and a mixture that is tiny where they matter."""
    ratio = np.full((10, 3), 1e7)
    target = scalar._newton_target(np.full(3, 1 / 3), ratio, np.full(10, 0.1), np.full(3, 1e7))
    assert np.isfinite(target).all()
    assert (target >= 0).all()


def test_a_rough_fit_of_the_weights_agrees_with_the_exact_one():
    rng = np.random.default_rng(3)
    for spread in (0.0, 0.01, 0.3, 1.0):
        x = np.where(rng.random(20_000) < spread, rng.standard_cauchy(20_000), 0.0)
        grid, counts = nodes_and_counts(x + rng.standard_normal(20_000), 1.0)
        scales = scales_of(grid, counts, positive=False)
        weights, evidence = scales.fit(counts)
        start = np.full(len(weights), 1.0 / len(weights))
        rough, nearly = scales.fit_roughly(counts, 0.5 / 20_000, start)
        assert abs(rough.sum() - 1) < 1e-9
        assert (rough >= 0).all()
        assert evidence - 0.5 <= nearly <= evidence + 1e-3


@pytest.mark.parametrize("positive", [False, True])
def test_fewer_nodes_hold_the_same_entries_and_start_the_exact_fit(positive):
    rng = np.random.default_rng(5)
    x = np.where(rng.random(20_000) < 0.1, np.abs(rng.standard_cauchy(20_000)), 0.0)
    grid, counts = nodes_and_counts(x + rng.standard_normal(20_000), 1.0)
    fewer = kernels.coarsened(counts, grid, 4)
    np.testing.assert_allclose(fewer.sum(axis=1), counts.sum(axis=1))
    np.testing.assert_allclose(fewer @ grid[::4], counts @ grid)
    scales = scales_of(grid, counts, positive)
    weights, evidence = scales.every(4).fit(fewer)
    np.testing.assert_array_equal(scales.every(4).means[:3], scales.means[:12:4])
    assert abs(evidence - scales.fit(counts)[1]) < 1e-2 * evidence
    cold, warm = scales.learn(counts), scales.learn(counts, weights)
    assert abs(cold.evidence - warm.evidence) < 1e-4
    np.testing.assert_allclose(cold.means[:1000], warm.means[:1000], atol=1e-2)


def test_groups_of_scores_double_in_size():
    scores = np.random.default_rng(6).permutation(1000.0 * np.arange(1000))
    group = Scores(scores).refine(Sparse()).group
    assert list(np.bincount(group)) == [16, 32, 64, 128, 256, 504]
    assert (np.diff(group[np.argsort(-scores)]) >= 0).all()


def test_groups_of_scores_do_not_part_equal_scores():
    rng = np.random.default_rng(4)
    for n_values in (1, 2, 7, 40, 10**6):
        scores = rng.integers(0, n_values, 1500).astype(float)
        denoiser = Scores(scores).refine(Sparse())
        for value in np.unique(scores)[:50]:
            assert len(np.unique(denoiser.group[scores == value])) == 1
        order = np.argsort(-scores, kind="stable")
        assert (np.diff(denoiser.group[order]) >= 0).all()
        assert set(np.unique(denoiser.group)) == set(range(denoiser.group.max() + 1))
    sizes = np.bincount(Scores(np.arange(1000.0)).refine(Sparse()).group)
    assert sizes.tolist() == [16, 32, 64, 128, 256, 504]
