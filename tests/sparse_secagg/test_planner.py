"""The planner: predicted against measured error, against brute force, and what it refuses."""

import json
import math

import numpy as np
import pytest

from sparse_secagg import CountSketchEncoder, DiscreteGaussian, InfeasibleError, plan
from sparse_secagg.mechanisms import SimulationRandomness, get


def measured_error(p, mechanism, repeats):
    """Run the round with clients that all hold one vector of norm c; linear decoder."""
    rng = np.random.default_rng(p.d + p.n_clients)
    errors = []
    for r in range(repeats):
        x = rng.normal(size=p.d)
        x *= p.clip_norm / np.linalg.norm(x)
        encoder = CountSketchEncoder(n_components=p.n_components, n_rows=p.n_rows, random_state=r)
        sketch = encoder.fit(x[None]).transform(x[None])[0]
        assert len(sketch) == p.n_components
        mechanism.parameters_ = p.parameters
        messages = mechanism.encode(
            np.tile(sketch, (p.n_clients, 1)), SimulationRandomness(1000 + r)
        )
        total = messages.sum(axis=0, dtype=np.uint64) & np.uint64(p.modulus - 1)
        decoded = encoder.inverse_transform(mechanism.decode(total, p.n_clients)[None])[0]
        errors.append(((decoded - x) ** 2).sum())
    return np.mean(errors)


PLANS = [
    {"d": d, "n_clients": n, "epsilon": epsilon, "clip_norm": clip, **sizes}
    for d, n, epsilon, clip, sizes in [
        (2000, 20, 1.0, 1.0, {"compression": 4}),
        (2000, 20, 10.0, 1.0, {"compression": 4, "n_bits": 14}),
        (2000, 100, 1.0, 3.0, {"compression": 3}),
        (2000, 100, 8.0, 0.1, {"compression": 2, "n_bits": 16}),
        (3000, 50, 0.5, 1.0, {"compression": 5, "n_bits": 18}),
        (3000, 50, 4.0, 1.0, {"compression": 1, "n_bits": 20}),
        (4000, 10, 2.0, 1.0, {"compression": 8}),
        (4000, 10, 20.0, 1.0, {"compression": 8}),
        (4000, 30, 3.0, 10.0, {"n_bits": 12}),
        (4000, 30, 3.0, 1.0, {"compression": 6, "mechanism": "skellam"}),
        (5000, 40, 5.0, 1.0, {"compression": 10, "rotation": "hadamard"}),
        (5000, 40, 5.0, 1.0, {"compression": 10, "beta": 0.0}),
        (5000, 60, 1.0, 1.0, {"compression": 5, "adjacency": "replace_one"}),
        (5000, 60, 1.0, 1.0, {"compression": 5, "min_survivors": 30}),
        (6000, 80, 6.0, 1.0, {"compression": 4, "rounds": 10}),
        (6000, 80, 2.0, 1.0, {"compression": 4, "n_rows": 8}),
        (8000, 20, 1.0, 1.0, {"compression": 10, "noise_multiplier": 0.5}),
        (8000, 20, 1.0, 1.0, {"compression": 10, "noise_multiplier": 3.0}),
        (10000, 25, 8.0, 1.0, {"compression": 20}),
        (2500, 200, 4.0, 1.0, {}),
    ]
]


@pytest.mark.parametrize("request_", PLANS, ids=str)
def test_predicted_error_is_the_measured_one(request_):
    p = plan(**request_)
    names = ("rotation", "adjacency", "beta", "min_survivors")
    mechanism = get(
        request_.get("mechanism", "ddg"), **{k: request_[k] for k in names if k in request_}
    )
    assert measured_error(p, mechanism, repeats=6) == pytest.approx(p.predicted_mse, rel=0.15)


def brute_force(d, n, epsilon, budget):
    """Fewest m·b within the error budget, over every admissible m and b."""
    best = math.inf
    mechanism = DiscreteGaussian(epsilon=epsilon, clip_norm=1.1)
    for b in range(4, 24):
        mechanism.set_params(n_bits=b)
        for m in range(15, d + 1, 15):
            if m * b >= best:
                break
            if (d - 1) / m > budget:
                continue
            try:
                mechanism.calibrate(n, m)
            except InfeasibleError:
                break  # longer sketches need more bits still
            if (d - 1) / m + d * mechanism.noise_std(n) ** 2 <= budget:
                best = m * b
                break
    return best


@pytest.mark.parametrize(("d", "n", "epsilon"), [(1500, 30, 1.0), (1500, 100, 4.0), (900, 10, 8.0)])
def test_bits_are_within_five_percent_of_brute_force(d, n, epsilon):
    p = plan(d=d, n_clients=n, epsilon=epsilon)
    longest = 15 * (d // 15)
    fine = DiscreteGaussian(epsilon=epsilon, clip_norm=1.1, n_bits=30)
    fine.calibrate(n, longest)
    budget = 2 * ((d - 1) / longest + d * fine.noise_std(n) ** 2)
    assert p.predicted_mse <= budget * 1.0001
    best = brute_force(d, n, epsilon, budget)
    assert p.n_components * p.n_bits <= 1.05 * best


def test_the_documented_request():
    p = plan(
        d=1_000_000,
        n_clients=1000,
        epsilon=1.0,
        delta=1e-6,
        clip_norm=1.0,
        n_bits=16,
        compression=10,
    )
    assert (p.n_components, p.n_rows, p.n_bits, p.modulus) == (99990, 15, 16, 2**16)
    assert p.predicted_mse == (p.d - 1) / p.n_components + p.d * p.noise_std**2
    assert p.bits_per_parameter == p.bits_per_client / p.d
    assert p.epsilon_server <= 1.0
    assert p.epsilon_release == p.epsilon_server
    assert p.sigma == pytest.approx(p.gamma * math.sqrt(p.parameters.variance))
    assert p.lower_bound_bits.general == 1.0
    n2e2 = (p.n_clients * p.zcdp_epsilon) ** 2
    assert p.lower_bound_bits.unbiased_order == pytest.approx(n2e2)
    text = p.explain()
    for word in ("More bits", "Twice the sketch", "Lower bounds", "99,990"):
        assert word in text
    assert json.loads(p.to_json())["n_components"] == 99990


def test_lower_bound_for_small_errors():
    p = plan(d=100, n_clients=10_000, epsilon=20.0, compression=1)
    expected = 50 * math.log2(1 / p.predicted_mse)
    assert p.lower_bound_bits.general == pytest.approx(max(1.0, expected))
    assert p.lower_bound_bits.unbiased_order == 100


def test_more_bits_than_chosen_do_not_help_and_fewer_hurt():
    p = plan(d=100_000, n_clients=200, compression=10)
    more = plan(d=100_000, n_clients=200, compression=10, n_bits=p.n_bits + 4)
    fewer = plan(d=100_000, n_clients=200, compression=10, n_bits=p.n_bits - 1)
    assert more.predicted_mse > 0.95 * p.predicted_mse
    assert fewer.predicted_mse > 1.05 * more.predicted_mse


@pytest.mark.parametrize(
    "request_",
    [
        {"d": 10_000, "n_clients": 1000, "epsilon": 0.1, "n_bits": 8, "compression": 10},
        {"d": 10_000, "n_clients": 1000, "epsilon": 0.1, "n_bits": 6},
        {"d": 1_000_000, "n_clients": 10_000, "epsilon": 0.01, "n_bits": 10, "compression": 2},
        {"d": 50, "n_clients": 5, "epsilon": 5.0, "n_bits": 1, "compression": 1},
        {"d": 5000, "n_clients": 50, "noise_multiplier": 0.01, "n_bits": 5, "compression": 3},
        {"d": 5000, "n_clients": 50, "epsilon": 1.0, "n_bits": 7},
        {"d": 5000, "n_clients": 50, "epsilon": 1.0, "n_bits": 4, "sparsity": 10},
        {"d": 5000, "n_clients": 50, "n_bits": 4, "compression": 5, "mechanism": "skellam"},
    ],
    ids=str,
)
def test_infeasible_requests_name_the_smallest_value_which_works(request_):
    with pytest.raises(InfeasibleError, match=r"smallest .*that can") as caught:
        plan(**request_)
    assert caught.value.argument == "n_bits"
    smallest = caught.value.smallest
    assert str(smallest) in str(caught.value)
    assert plan(**{**request_, "n_bits": smallest}).n_bits == smallest
    with pytest.raises(InfeasibleError):
        plan(**{**request_, "n_bits": smallest - 1})


def test_sparsity_shortens_the_sketch_and_predicts_sparse_errors():
    p = plan(d=10_000, n_clients=1000, epsilon=1.0, sparsity=20)
    assert p.n_components < 600
    assert p.sparse_mse.least_squares < p.sparse_mse.lasso < p.predicted_mse
    assert "20 nonzero" in p.explain()


def test_sampling_helps_the_release_only():
    common = {"d": 10_000, "n_clients": 100, "rounds": 100, "population": 10_000, "compression": 10}
    server = plan(epsilon=5.0, **common)
    release = plan(epsilon=5.0, observer="release", **common)
    assert server.epsilon_server <= 5.0
    assert server.epsilon_release < server.epsilon_server
    assert release.epsilon_release <= 5.0 < release.epsilon_server
    assert release.predicted_mse < server.predicted_mse


def test_without_noise_there_is_a_plan_and_no_privacy():
    p = plan(d=1000, n_clients=10, noise_multiplier=0.0, compression=4)
    assert p.epsilon_server == math.inf
    assert p.noise_mse < 0.06 * p.compression_mse


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "d=0"),
        ({"d": 10.5}, "d=10.5"),
        ({"n_clients": 0}, "n_clients=0"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"clip_norm": -1.0}, "clip_norm=-1"),
        ({"sparsity": 2000}, "sparsity=2000"),
        ({"population": 5}, "population=5"),
        ({"observer": "nobody"}, "observer='nobody'"),
        ({"observer": "release"}, "needs population"),
        ({"mechanism": "central"}, "mechanism='central'"),
        ({"error_slack": 0.0}, "error_slack=0"),
        ({"compression": 0.5}, "compression=0.5"),
    ],
)
def test_bad_requests_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"d": 1000, "n_clients": 10, **change})
