"""Layers that are sketched one by one: each has a noise of its own, and the error bars know it."""

import numpy as np
import pytest

import solvers
from solvers.amp.layers import restricted, shapes_within
from solvers.denoisers import Auto, Blocks, LowRank, Shrink, Sparse
from sparse_secagg import BlockEncoder, CountSketchEncoder, HadamardEncoder, IdentityEncoder

LAYERS = {"sparse": slice(0, 4000), "dense": slice(4000, 5000), "bias": slice(5000, 5050)}
NOISE = 2e-3
ENCODERS = {
    "count": CountSketchEncoder(compression=10, n_rows=15),
    "hadamard": HadamardEncoder(compression=10),
}


def sketch(kind, seed, noise=NOISE):
    """Return x, A and y: a faint sparse layer, a loud dense one and one that is not sketched."""
    rng = np.random.default_rng(seed)
    x = np.zeros(5050)
    x[rng.choice(4000, 40, replace=False)] = 0.02 * rng.standard_normal(40)
    x[4000:5000] = 0.02 * rng.laplace(size=1000)
    x[5000:] = 0.01 * rng.standard_normal(50)
    encoder = {
        "sparse": ENCODERS[kind],
        "dense": HadamardEncoder(compression=4),
        "bias": IdentityEncoder(),
    }
    A = BlockEncoder(LAYERS, encoder=encoder, random_state=seed).fit_dimension(5050).operator_
    return x, A, A.matvec(x) + noise * rng.standard_normal(A.shape[0])


def debiased(name):
    return solvers.get(name, **({} if name == "linear" else {"debias": True}))


@pytest.mark.parametrize("name", ["amp", "working_set", "linear"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_intervals_cover_in_each_layer(kind, name):
    draws = 8
    inside = {layer: [] for layer in LAYERS}
    for seed in range(draws):
        x, A, y = sketch(kind, seed)
        solver = debiased(name).fit(A, y, noise_std=NOISE)
        covered = np.abs(solver.coef_ - x) <= 1.96 * solver.std_err_
        for layer, where in LAYERS.items():
            inside[layer].append(covered[where].mean())
    for layer, where in LAYERS.items():
        n = draws * (where.stop - where.start)
        assert abs(np.mean(inside[layer]) - 0.95) <= 0.01 + 5 * np.sqrt(0.05 * 0.95 / n), layer


def test_each_layer_is_decoded_as_if_it_were_alone():
    _, A, y = sketch("hadamard", 0)
    for name in ("amp", "linear"):
        whole = debiased(name).fit(A, y, noise_std=NOISE)
        for block in A.diagonal_blocks:
            alone = debiased(name).fit(block.operator, y[block.components], noise_std=NOISE)
            np.testing.assert_allclose(whole.coef_[block.features], alone.coef_, atol=1e-12)
            np.testing.assert_allclose(whole.std_err_[block.features], alone.std_err_)
    assert solvers.get("amp").fit(A, y, noise_std=NOISE).trusted_


def test_what_message_passing_says_of_itself_is_about_all_layers():
    x, A, y = sketch("hadamard", 1)
    solver = solvers.get("amp").fit(A, y, noise_std=NOISE)
    error = np.sum((solver.coef_ - x) ** 2)
    assert solver.predicted_error_ == pytest.approx(error, rel=0.3)
    unbiased = solvers.get("amp", debias=True).fit(A, y, noise_std=NOISE)
    assert unbiased.effective_noise_ == pytest.approx(
        np.sqrt(np.mean(np.square(unbiased.std_err_)))
    )
    np.testing.assert_allclose(unbiased.decode(np.stack([y, y]))[1], unbiased.coef_, atol=1e-12)


def test_priors_and_denoisers_follow_the_layers():
    x, A, y = sketch("hadamard", 2)
    scores = solvers.priors.Scores(np.abs(x))
    rows = solvers.priors.Groups(shapes=[(80, 50), (1000,)])
    B = sketch("hadamard", 20)[1]
    z = B.matvec(x) + NOISE * np.random.default_rng(9).standard_normal(B.shape[0])
    first = solvers.get("amp", debias=True).fit(B, z, noise_std=NOISE)
    again = solvers.priors.Previous(first.coef_, first.std_err_)
    plain = solvers.get("amp").fit(A, y, noise_std=NOISE).coef_
    for prior in (scores, rows, again):
        told = solvers.get("amp", prior=prior).fit(A, y, noise_std=NOISE).coef_
        assert np.isfinite(told).all()
        assert not np.array_equal(told, plain)
    told = solvers.get("amp", prior=scores).fit(A, y, noise_std=NOISE).coef_
    sparse = LAYERS["sparse"]
    assert np.sum((told - x)[sparse] ** 2) < 0.8 * np.sum((plain - x)[sparse] ** 2)
    chosen = solvers.get("amp", denoiser="auto", shapes=[(80, 50), (1000,), (50,)])
    assert len(chosen.fit(A, y, noise_std=NOISE).choice_) == 3


def test_a_denoiser_on_a_part_of_the_vector():
    rng = np.random.default_rng(0)
    p = rng.standard_normal(300)
    shapes = ((10, 10), (100,), (20, 5))
    where = slice(100, 300)
    blocks = Blocks({"a": slice(0, 150), "b": slice(200, 300)}, {"a": Shrink(), "b": Sparse()})
    for denoiser in (LowRank(shapes), Auto(shapes)):
        part = restricted(denoiser, where, 300).denoise(p[where], 1.0)
        np.testing.assert_array_equal(part.estimate, denoiser.denoise(p, 1.0).estimate[where])
    part = restricted(blocks, where, 300)
    assert part.slices == {"a": slice(0, 50), "b": slice(100, 200)}
    assert restricted(Sparse(), where, 300) == Sparse()
    with pytest.raises(ValueError, match="reaches beyond the block"):
        shapes_within(shapes, slice(50, 300), 300)


def test_rounds_of_the_same_layers_are_decoded_together():
    x, A, y = sketch("hadamard", 3)
    _, B, _ = sketch("hadamard", 4)
    z = B.matvec(x) + NOISE * np.random.default_rng(9).standard_normal(B.shape[0])
    joint = solvers.decode_jointly([(A, y, NOISE), (B, z, NOISE)])
    alone = [solvers.get("amp").fit(*each, noise_std=NOISE).coef_ for each in ((A, y), (B, z))]
    assert np.sum((joint.coef - x) ** 2) < 0.9 * min(np.sum((one - x) ** 2) for one in alone)
    whole = HadamardEncoder(compression=10, random_state=0).fit_dimension(5050).operator_
    with pytest.raises(ValueError, match="different layers"):
        solvers.decode_jointly([(A, y, NOISE), (whole, whole.matvec(x), NOISE)])


def test_the_automatic_choice_adds_up_the_risks_of_the_layers():
    x, A, y = sketch("hadamard", 5)
    auto = solvers.get("auto").fit(A, y, noise_std=NOISE)
    linear = np.sum((A.rmatvec(y) - x) ** 2)
    assert auto.choice_.risks["linear"] == pytest.approx(linear, rel=0.1)
    assert np.sum((auto.coef_ - x) ** 2) < 0.5 * linear
