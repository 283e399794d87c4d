"""Plans carried out: errors as predicted, and what a tight clip of the sketches gains."""

import warnings

import numpy as np
import pytest
from scipy import stats

from sparse_secagg import PrivacyWarning, SparseSecAgg, plan
from sparse_secagg.encoders import registry
from sparse_secagg.planning.clips import clipping_error, length_spread
from sparse_secagg.rounds import sketch_clip_norm


def make_mean(p, rng):
    """A mean as long as the clip; with the plan's sparsity, if it has one."""
    x = rng.standard_normal(p.d)
    if p.sparsity is not None:
        x[rng.permutation(p.d)[p.sparsity :]] = 0
    return x * (p.clip_norm / np.linalg.norm(x))


def fit(p, mean, seed, **parameters):
    """A round whose clients all hold ``mean``."""
    estimator = SparseSecAgg.from_plan(
        p, random_state=seed, simulation_seed=seed, diagnostics=True, **parameters
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        estimator.fit(np.broadcast_to(mean, (p.n_clients, p.d)))
    return estimator


def measured_error(p, draws):
    """Mean over rounds in which no coordinate wraps around: one in 15,000 does, an outlier."""
    rng = np.random.default_rng(p.d + p.n_clients)
    errors = []
    seed = 0
    while len(errors) < draws:
        mean = make_mean(p, rng)
        fitted = fit(p, mean, seed)
        seed += 1
        assert seed < 3 * draws
        if fitted.diagnostics_.n_wrapped == 0 or p.decoder == "linear":
            errors.append(np.sum((fitted.mean_ - mean) ** 2))
    return np.mean(errors)


LINEAR = [
    (2000, 20, {"epsilon": 1.0, "compression": 4}),
    (2000, 100, {"epsilon": 1.0, "clip_norm": 3.0}),
    (2000, 100, {"epsilon": 8.0, "clip_norm": 0.1, "compression": 2, "n_bits": 16}),
    (3000, 50, {"epsilon": 4.0, "compression": 1, "n_bits": 20}),
    (4000, 30, {"epsilon": 3.0, "clip_norm": 10.0, "encoder": "count_sketch"}),
    (1000, 40, {"epsilon": 3.0, "encoder": "gaussian", "compression": 4}),
    (1000, 40, {"epsilon": 3.0, "encoder": "gaussian", "sketch_clip": "spectral"}),
    (4000, 30, {"epsilon": 3.0, "compression": 6, "mechanism": "skellam"}),
    (5000, 40, {"epsilon": 5.0, "compression": 10, "rotation": "hadamard"}),
    (5000, 60, {"epsilon": 1.0, "compression": 5, "adjacency": "replace_one", "beta": 0.0}),
    (5000, 60, {"epsilon": 1.0, "min_survivors": 30, "sketch_clip": "jl"}),
    (6000, 80, {"epsilon": 6.0, "encoder": "count_sketch", "n_rows": 8, "rounds": 10}),
    (600, 300, {"epsilon": 4.0, "colluders": 50}),
    (2500, 200, {"noise_multiplier": 0.5, "target_error": 2.0}),
]
SPARSE = [
    (10_000, 200, {"epsilon": 4.0, "sparsity": 150}),
    (6000, 200, {"epsilon": 8.0, "sparsity": 120, "clip_norm": 5.0}),
    (8000, 150, {"epsilon": 6.0, "sparsity": 150, "compression": 5, "encoder": "count_sketch"}),
    (8000, 250, {"epsilon": 6.0, "sparsity": 120, "decoder": "lasso"}),
    (6000, 250, {"epsilon": 6.0, "sparsity": 120, "decoder": "lasso", "encoder": "count_sketch"}),
    (4000, 200, {"epsilon": 4.0, "sparsity": 150, "encoder": "identity"}),
]


@pytest.mark.parametrize(("d", "n", "request_"), LINEAR[::3] + SPARSE[::2], ids=str)
def test_some_plans_err_as_predicted(d, n, request_):
    p = plan(d, n, **request_)
    assert measured_error(p, draws=8) == pytest.approx(p.predicted_mse, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n", "request_"), LINEAR + SPARSE, ids=str)
def test_twenty_plans_err_as_predicted(d, n, request_):
    p = plan(d, n, **request_)
    assert measured_error(p, draws=12) == pytest.approx(p.predicted_mse, rel=0.15)


# -- the clip of the sketches ----------------------------------------------------------------------

D, M, N = 3000, 1000, 60
ENCODERS = ["count_sketch", "hadamard", pytest.param("gaussian", marks=pytest.mark.slow)]


def same_few_items(rng):
    """All clients hold one vector of few entries: what clipping shortens, it shortens for all."""
    x = np.zeros(D)
    x[rng.choice(D, 20, replace=False)] = 20**-0.5
    return np.tile(x, (N, 1))


def popular_items(rng):
    """Each client holds thirty items, some of which are popular."""
    popularity = 1.0 / np.arange(1, D + 1)
    X = np.zeros((N, D))
    for row in X:
        row[rng.choice(D, 30, replace=False, p=popularity / popularity.sum())] = 30**-0.5
    return X


def dense_around_a_mean(rng):
    X = rng.standard_normal(D) + 2.0 * rng.standard_normal((N, D))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def power_law(rng):
    X = np.arange(1, D + 1) ** -1.0 * rng.choice([-1.0, 1.0], D) + 0.005 * rng.standard_normal(
        (N, D)
    )
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def squared_errors(X, encoder, clip, draws, **parameters):
    """Errors of the linear and of a sparse decoder, and the noise."""
    errors = []
    for seed in range(draws):
        estimator = SparseSecAgg(
            encoder,
            compression=D / M,
            epsilon=4.0,
            n_bits=20,
            decoder="amp",
            sketch_clip=clip,
            random_state=seed,
            simulation_seed=seed,
            **parameters,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            estimator.fit(X)
        means = estimator.decode("linear"), estimator.mean_
        errors.append([np.sum((mean - X.mean(axis=0)) ** 2) for mean in means])
    return np.array(errors), estimator.noise_std_


@pytest.mark.parametrize("data", [same_few_items, popular_items, dense_around_a_mean, power_law])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_tight_clip_means_less_noise_and_no_larger_error(encoder, data):
    draws = 6
    X = data(np.random.default_rng(0))
    tight, tight_std = squared_errors(X, encoder, "tight", draws)
    jl, jl_std = squared_errors(X, encoder, "jl", draws)
    assert tight_std**2 <= 0.85 * jl_std**2
    difference = tight - jl
    chance = stats.t.isf(1e-6, draws - 1) * difference.std(axis=0, ddof=1) / draws**0.5
    allowed = np.sum(X.mean(axis=0) ** 2) / M
    assert (difference.mean(axis=0) <= allowed + chance).all()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_worst_case_of_a_tight_clip_is_a_quarter_of_one_coordinate(encoder):
    """Without noise, clients that all hold one vector lose E(1 − λ)² = 1/(4m) of ‖μ‖², or less."""
    m, draws = 1000, 150
    x = np.random.default_rng(0).standard_normal((1, 2000))
    x /= np.linalg.norm(x)
    losses = []
    for seed in range(draws):
        made = {"n_components": m, "random_state": seed}
        S = registry.get(encoder, **made).fit(x)
        length = np.linalg.norm(S.transform(x))
        losses.append(max(0.0, 1 - sketch_clip_norm(S, 1.0, "tight") / length) ** 2)
    spread = length_spread(m, 2048 if encoder == "hadamard" else np.inf)
    assert clipping_error(1.0, spread) <= 1 / (4 * m)
    # the losses are heavy-tailed: half of them are zero, the others like squares of normals
    chance = 4.9 * np.sqrt(1.25) * spread**2 / draws**0.5
    assert np.mean(losses) == pytest.approx(clipping_error(1.0, spread), abs=chance)
