"""Decoders described by a text."""

import numpy as np
import pytest

import solvers
from sparse_secagg import PrivacyWarning, SparseSecAgg
from sparse_secagg.counting.domains import ListedItems
from sparse_secagg.decoder_texts import parse_decoder, read_scores, with_prior


class Zero(solvers.Solver):
    """A solver of one's own, which answers zero."""

    def _solve(self, A, y, noise_std, x0):
        return solvers.Solution(coef=0 * A.rmatvec(y))


@pytest.mark.parametrize(
    ("text", "kind"), [(f"{__name__}:Zero", Zero), ("lasso:debias", solvers.lasso.WorkingSet)]
)
def test_the_estimator_takes_the_same_texts(text, kind):
    X = np.random.default_rng(0).normal(0.0, 0.01, (20, 100))
    estimator = SparseSecAgg(decoder=text, epsilon=5.0, compression=2, simulation_seed=0)
    with pytest.warns(PrivacyWarning):
        estimator.fit(X)
    assert type(estimator.solver_) is kind
    assert estimator.mean_.any() == (kind is not Zero)
    assert estimator.decode(f"{__name__}:Zero").tolist() == [0.0] * 100


@pytest.mark.parametrize("name", solvers.names())
def test_a_name_is_the_solver_of_that_name(name):
    assert repr(parse_decoder(name)) == repr(solvers.get(name))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("lasso", solvers.get("working_set")),
        ("working_set:debias", solvers.get("working_set", debias=True)),
        ("lasso: debias, tol = 1e-8", solvers.get("working_set", debias=True, tol=1e-8)),
        ("fista:alpha=cv", solvers.get("fista", alpha="cv")),
        ("omp:n_nonzero=50", solvers.get("omp", n_nonzero=50)),
        ("amp:debias", solvers.get("amp", debias=True)),
        ("amp:soft,debias", solvers.get("amp", denoiser="soft", debias=True)),
        ("amp:positive", solvers.get("amp", denoiser="positive")),
        ("lasso:positive", solvers.get("working_set", positive=True)),
    ],
)
def test_options_are_constructor_parameters(spec, expected):
    assert type(parse_decoder(spec)) is type(expected)
    assert parse_decoder(spec).get_params() == expected.get_params()


def test_layer_shapes_reach_the_solvers_that_use_them():
    shapes = {"weight": (30, 20), "bias": (20,)}
    expected = ((30, 20), (20,))
    assert parse_decoder("amp:low_rank", shapes).shapes == expected
    assert parse_decoder("amp:auto,debias", list(shapes.values())).shapes == expected
    assert parse_decoder("auto", shapes).shapes == expected
    assert parse_decoder("amp", shapes).shapes is None
    assert parse_decoder("lasso", shapes).get_params() == solvers.get("working_set").get_params()


def test_low_rank_decodes_a_low_rank_layer():
    rng = np.random.default_rng(0)
    x = np.outer(rng.standard_normal(40), rng.standard_normal(30)).ravel() / 35
    A = rng.standard_normal((600, 1200)) / np.sqrt(600)
    y = A @ x + 0.001 * rng.standard_normal(600)
    errors = {
        spec: np.sum(
            (parse_decoder(spec, {"weight": (40, 30)}).fit(A, y, noise_std=0.001).coef_ - x) ** 2
        )
        for spec in ("amp", "amp:low_rank")
    }
    assert errors["amp:low_rank"] < 0.1 * errors["amp"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lass", "no solver 'lass'; did you mean"),
        ("linear:debias", "'linear' has no option 'debias'; it has none"),
        ("amp:low-rank", "has no option 'low-rank'; it has debias, positive, auto, low_rank"),
        ("amp:low_rank", "needs the shapes of the layers"),
        ("amp:soft,low_rank", "sets one parameter twice"),
        ("amp:shapes=3", "has no option 'shapes=3'"),
        ("amp:tol", "has no option 'tol'; it has .*tol=…"),
        ("", "no solver ''"),
    ],
)
def test_what_is_wrong_is_named(spec, message):
    with pytest.raises(ValueError, match=message):
        parse_decoder(spec)


def test_values_are_never_executed():
    assert parse_decoder("fista:alpha=__import__('os')").alpha == "__import__('os')"


def test_a_solver_is_returned_as_it_is():
    solver = solvers.get("ridge")
    assert parse_decoder(solver) is solver


def test_priors_by_name(tmp_path):
    rows = parse_decoder("amp:groups,debias", {"weight": (2, 3), "bias": (2,)})
    assert rows.debias
    assert rows.prior.group_of(8).tolist() == [0, 0, 0, 1, 1, 1, 2, 3]
    with pytest.raises(ValueError, match="shapes of the layers"):
        parse_decoder("amp:groups")
    path = tmp_path / "scores.txt"
    path.write_text("3\n1\n2\n")
    assert list(parse_decoder(f"amp:positive,scores={path}").prior.scores) == [3, 1, 2]
    with pytest.raises(ValueError, match="cannot be read"):
        parse_decoder("amp:scores=nowhere.txt")
    assert list(parse_decoder(f"auto:scores={path}").prior.scores) == [3, 1, 2]


def test_scores_by_item_are_put_on_the_columns_of_a_domain(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text('dog,3\n"a,b",5.5\nunicorn,9\n', encoding="utf-8-sig")
    assert read_scores(path) == (["dog", "a,b", "unicorn"], [3.0, 5.5, 9.0])
    found = parse_decoder(f"amp:scores={path}", domain=ListedItems(("a,b", "cat", "dog")))
    assert found.prior.scores.tolist() == [5.5, -1.0, 3.0]  # what has no score comes last
    with pytest.raises(ValueError, match="no items are counted here"):
        parse_decoder(f"amp:scores={path}")
    for text in ("dog\n", "a,1\n2\n", "a,b,1\n", ""):
        path.write_text(text)
        with pytest.raises(ValueError, match="item,score or a score in every line"):
            read_scores(path)


def test_a_prior_goes_to_the_decoders_that_take_one():
    found = with_prior(["linear", "amp", "amp:debias", "amp:groups", "auto"], "scores:f.csv")
    told = ("amp:scores=f.csv", "amp:debias,scores=f.csv", "amp:groups", "auto:scores=f.csv")
    assert found == ("linear", *told)
    assert with_prior(["linear"], None) == ("linear",)
    with pytest.raises(ValueError, match="none of linear, lasso takes a prior; amp and auto do"):
        with_prior(["linear", "lasso"], "scores:f.csv")
    for wrong in ("f.csv", "scores:", "groups:f.csv"):
        with pytest.raises(ValueError, match="must be scores:FILE"):
            with_prior(["amp"], wrong)
