"""Side information helps message passing where it says something, and costs nothing where not."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import solvers
from solvers import priors

D, M, NOISE = 4000, 500, 0.05


def problem(seed, x=None):
    rng = np.random.default_rng(seed)
    if x is None:
        x = np.zeros(D)
        x[:60] = np.abs(rng.standard_normal(60))
    A = rng.standard_normal((M, D)) / np.sqrt(M)
    return A, A @ x + NOISE * rng.standard_normal(M), x


def error(prior, seed, x=None, **options):
    A, y, x = problem(seed, x)
    solver = solvers.get("amp", prior=prior, **options).fit(A, y, noise_std=NOISE)
    return np.sum((solver.coef_ - x) ** 2) / np.sum(x**2)


def mean_error(prior, draws=6, x=None, **options):
    return np.mean([error(prior, seed, x, **options) for seed in range(draws)])


@pytest.mark.parametrize("denoiser", ["sparse", "positive"])
def test_good_scores_lower_the_error(denoiser):
    told = mean_error(priors.Scores(-np.arange(D)), denoiser=denoiser)
    assert told < 0.7 * mean_error(None, denoiser=denoiser)


def test_scores_that_say_nothing_cost_next_to_nothing():
    shuffled = np.random.default_rng(9).permutation(D)
    assert mean_error(priors.Scores(shuffled)) < 1.05 * mean_error(None)


def test_rows_that_are_active_together_are_found_together():
    rng = np.random.default_rng(3)
    rows = np.zeros((D // 20, 20))
    rows[rng.choice(D // 20, 10, replace=False)] = rng.standard_normal((10, 20))
    labels = np.repeat(np.arange(D // 20), 20)
    grouped = mean_error(priors.Groups(labels=labels), x=rows.ravel())
    assert grouped < 0.5 * mean_error(None, x=rows.ravel())


def test_an_earlier_round_helps():
    A, y, x = problem(100)
    first = solvers.get("amp", debias=True).fit(A, y, noise_std=NOISE)
    prior = priors.Previous(first.coef_, first.std_err_)
    assert error(prior, 101, x) < 0.8 * error(None, 101, x)


def test_a_prior_of_ones_own_is_any_object_that_refines():
    class Unchanged:
        def refine(self, denoiser):
            return denoiser

    assert error(Unchanged(), 0) == error(None, 0)
    with pytest.raises(ValueError, match="refine"):
        error(object(), 0)


def test_priors_clone_and_pickle():
    solver = solvers.get("amp", prior=priors.Scores(np.arange(D)))
    again = pickle.loads(pickle.dumps(clone(solver)))
    A, y, _ = problem(0)
    expected = solver.fit(A, y, noise_std=NOISE).coef_
    np.testing.assert_array_equal(again.fit(A, y, noise_std=NOISE).coef_, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: priors.Scores(np.full(D, np.nan)),
        lambda: priors.Scores(np.zeros((2, 2))),
        lambda: error(priors.Scores(np.zeros(7)), 0),
        lambda: error(priors.Scores(np.zeros(D)), 0, denoiser="soft"),
    ],
)
def test_mistakes_are_explained(make):
    with pytest.raises(ValueError, match=r"scores|entries|combined"):
        make()


def test_two_rounds_decoded_together_beat_each_alone():
    """The same mean in two sketches of m = 250: near the error of one of 500."""
    rng = np.random.default_rng(1)
    x = np.zeros(D)
    x[:40] = rng.standard_normal(40)

    def measured(m, noise):
        A = rng.standard_normal((m, D))
        A /= np.linalg.norm(A, axis=0)
        return A, A @ x + noise * rng.standard_normal(m), noise

    def square(coef):
        return np.sum((coef - x) ** 2)

    def alone(A, y, noise):
        return square(solvers.get("amp").fit(A, y, noise_std=noise).coef_)

    rounds = [measured(M // 2, np.sqrt(2) * NOISE) for _ in range(2)]
    together = square(solvers.decode_jointly(rounds).coef)
    assert together < 0.7 * min(alone(*one) for one in rounds)
    assert together < 2 * alone(*measured(M, NOISE))
