import numpy as np
import pytest

from experiments.sweeps.means import MEANS, synthetic_clients


def clients(kind, **changes):
    values = dict(dim=120, n_clients=13, sparsity=7, norm=0.3, spread=0.7, seed=4)
    return synthetic_clients(kind, **{**values, **changes})


@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("n_clients", [1, 2, 13, 40])
def test_the_clients_have_exactly_the_mean_that_is_claimed(kind, n_clients):
    made = clients(kind, n_clients=n_clients)
    rows = made[0:n_clients]
    assert rows.shape == made.shape == (n_clients, 120)
    np.testing.assert_allclose(rows.mean(axis=0), made.mean, atol=1e-8)
    assert np.linalg.norm(made.mean) == pytest.approx(0.3)
    assert sum(int(np.prod(shape)) for shape in made.shapes) == 120


@pytest.mark.parametrize("kind", MEANS)
def test_rows_do_not_depend_on_the_block_they_are_asked_in(kind):
    made = clients(kind)
    np.testing.assert_array_equal(made[0:13][5:9], made[5:9])


def test_deviations_have_the_asked_size_and_clients_stay_below_a_clip_of_one():
    made = clients("sparse", dim=4000, n_clients=20)
    norms = np.linalg.norm(made[0:20] - made.mean, axis=1)
    np.testing.assert_allclose(norms, 0.7, rtol=0.06)
    assert np.linalg.norm(made[0:20], axis=1).max() < 1


def test_kinds_are_what_they_say():
    assert np.count_nonzero(clients("sparse").mean) == 7
    assert len(np.unique(np.abs(clients("flat").mean))) == 2  # zero and one size
    (shape,) = clients("low_rank").shapes
    assert np.linalg.matrix_rank(clients("low_rank").mean.reshape(shape)) == 5
    sizes = np.sort(np.abs(clients("power_law").mean))[::-1]
    np.testing.assert_allclose(sizes[0] / sizes[:10], np.arange(1, 11))
    assert len(clients("layered").shapes) == 4


def test_the_mean_depends_on_the_seed_and_not_on_the_cohort():
    assert not np.allclose(clients("dense").mean, clients("dense", seed=5).mean)
    first, second = clients("dense"), clients("dense", n_clients=14)
    np.testing.assert_allclose(first.mean, second.mean, rtol=1e-12)


@pytest.mark.parametrize(("dim", "shape"), [(400, (20, 20)), (600, (24, 25)), (13, (1, 13))])
def test_a_low_rank_mean_is_a_matrix_as_near_to_a_square_as_can_be(dim, shape):
    assert clients("low_rank", dim=dim).shapes == (shape,)
