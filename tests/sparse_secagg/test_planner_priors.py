"""Plans for message passing that knows more of the mean than its sparsity: carried out."""

import warnings

import numpy as np
import pytest
import scipy.stats

import solvers
from solvers.priors import Groups, Previous, Scores
from sparse_secagg import PrivacyWarning, SparseSecAgg, plan
from sparse_secagg.planning.laws import mean_law

D, N = 6000, 200
ROWS = Groups(shapes=[(300, 20)])


def power_law(rng, d):
    return rng.permutation(1.0 / np.arange(1, d + 1)) * rng.choice([-1.0, 1.0], d)


def sparse(rng, d, s):
    x = np.zeros(d)
    x[rng.choice(d, s, replace=False)] = rng.standard_normal(s)
    return x


def earlier_round(rng, x):
    return Previous(x + 0.02 * rng.standard_normal(len(x)), 0.02)


#: Request, how a mean is drawn, and the prior that its decoder is given.
PLANS = {
    "power law": ({"prior": power_law, "compression": 5}, power_law, None),
    "power law, count sketch": (
        {"prior": power_law, "compression": 10, "encoder": "count_sketch", "n_rows": 8},
        power_law,
        None,
    ),
    "Laplace": (
        {"prior": scipy.stats.laplace(), "compression": 4},
        lambda rng, d: rng.laplace(size=d),
        None,
    ),
    "a vector": (
        {"prior": power_law(np.random.default_rng(5), D), "compression": 8},
        lambda rng, d: power_law(np.random.default_rng(5), d),
        None,
    ),
    "rows": (
        {"prior": ROWS, "sparsity": 200, "compression": 10},
        lambda rng, d: ROWS.draw(rng, d, 200),
        ROWS,
    ),
    "an earlier round": (
        {"prior": Previous(np.zeros(D), 0.02), "sparsity": 300, "compression": 5},
        lambda rng, d: sparse(rng, d, 300),
        earlier_round,
    ),
}


def measured_error(p, draw, prior, draws):
    errors = []
    for seed in range(draws):
        rng = np.random.default_rng([7, seed])
        x = draw(rng, p.d)
        x *= p.clip_norm / np.linalg.norm(x)
        known = prior(rng, x) if callable(prior) else prior
        estimator = SparseSecAgg.from_plan(p, prior=known, random_state=seed, simulation_seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            estimator.fit(np.broadcast_to(x, (p.n_clients, p.d)))
        errors.append(np.sum((estimator.mean_ - x) ** 2))
    return np.median(errors)  # the sum of identical clients wraps in one round of twenty


@pytest.mark.parametrize("name", PLANS)
def test_plans_with_a_prior_err_as_predicted(name):
    request, draw, prior = PLANS[name]
    p = plan(D, N, epsilon=4.0, decoder="amp", **request)
    assert measured_error(p, draw, prior, draws=8) == pytest.approx(p.predicted_mse, rel=0.12)


@pytest.mark.parametrize("ensemble", ["independent", "hadamard"])
@pytest.mark.parametrize("noise", [0.003, 0.02])
def test_the_curve_is_state_evolution(ensemble, noise):
    # interpolated in τ and averaged before the recursion, where state_evolution averages after
    x = power_law(np.random.default_rng(0), 4000)
    x /= np.linalg.norm(x)
    law = mean_law(x, 4000, None)
    row_dim = 4096.0 if ensemble == "hadamard" else np.inf
    found = law.error(norm=1.0, noise_variance=noise**2, m=800, row_dim=row_dim)
    limit = solvers.state_evolution(x, noise, 800, ensemble=ensemble)
    assert found == pytest.approx(limit.error, rel=0.04)


def test_the_clip_scales_the_error():
    small, large = (
        plan(D, N, epsilon=4.0, decoder="amp", prior=power_law, compression=5, clip_norm=c)
        for c in (1.0, 3.0)
    )
    assert large.predicted_mse == pytest.approx(9 * small.predicted_mse, rel=1e-6)


def test_a_better_prior_is_predicted_to_err_less():
    request = {"epsilon": 4.0, "decoder": "amp", "sparsity": 200, "compression": 10}
    plain = plan(D, N, **request)
    assert plan(D, N, prior=ROWS, **request).predicted_mse < 0.6 * plain.predicted_mse
    sure, unsure = (
        plan(D, N, prior=Previous(np.zeros(D), std_err), **request).predicted_mse
        for std_err in (0.01, 0.05)
    )
    assert sure < unsure < 1.02 * plain.predicted_mse


def test_scores_promise_nothing_before_they_meet_a_mean():
    request = {"epsilon": 4.0, "decoder": "amp", "sparsity": 100, "compression": 10}
    scores = Scores(np.arange(D))
    told, plain = plan(D, N, prior=scores, **request), plan(D, N, **request)
    assert told.predicted_mse == plain.predicted_mse
    assert SparseSecAgg.from_plan(told).prior is scores


def test_the_planner_chooses_between_linear_and_message_passing_by_the_law():
    assert plan(20_000, 50, epsilon=4.0, prior=power_law, compression=10).decoder == "amp"
    assert plan(D, N, epsilon=4.0, prior=power_law).to_json()


def test_the_plan_of_a_round_with_a_prior_is_that_of_its_request():
    p = plan(D, N, epsilon=4.0, decoder="amp", prior=ROWS, sparsity=200, compression=10)
    X = np.broadcast_to(ROWS.draw(np.random.default_rng(0), D, 200), (N, D))
    estimator = SparseSecAgg.from_plan(p, random_state=0, simulation_seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        estimator.fit(X)
    assert estimator.plan_.predicted_mse == pytest.approx(p.predicted_mse, rel=0.02)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"prior": np.zeros(D)}, "zero or not finite"),
        ({"prior": np.ones(D - 1)}, "d=6000"),
        ({"prior": ROWS}, "needs sparsity"),
    ],
)
def test_priors_that_cannot_be_planned_are_named(request_, message):
    with pytest.raises(ValueError, match=message):
        plan(D, N, decoder="amp", **request_)
