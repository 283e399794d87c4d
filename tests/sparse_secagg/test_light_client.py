"""A client without scikit-learn, SciPy and numba makes the bytes that any other client makes."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from sparse_secagg import (
    BlockEncoder,
    ClientPolicy,
    CountSketchEncoder,
    HadamardEncoder,
    IdentityEncoder,
    MaskedSecAgg,
    RoundConfig,
    RoundSpec,
    client_encode,
    kernels,
)
from sparse_secagg.encoders import registry
from sparse_secagg.mechanisms.randomness import SimulationRandomness
from sparse_secagg.round.client import ClientRound
from sparse_secagg.round.parts import Round
from sparse_secagg.sketches.described import layers_of

POLICY = {"max_epsilon": 1e6, "max_delta": 0.1, "max_clients": None}
LAYERS = BlockEncoder(
    layers={"rows": slice(0, 600), "rest": slice(600, 900), "bias": slice(900, 1001)},
    encoder={
        "rows": CountSketchEncoder(compression=10, n_rows=4),
        "rest": HadamardEncoder(compression=3),
        "bias": IdentityEncoder(),
    },
    clip_shares={"rows": 0.8, "rest": 0.5, "bias": 0.3},
)
ENCODERS = {
    "count_sketch": CountSketchEncoder(compression=7),
    "hadamard": HadamardEncoder(n_components=130),
    "identity": IdentityEncoder(),
    "layers": LAYERS,
    "one for all layers": BlockEncoder(layers=LAYERS.layers, clip_shares="equal"),
    "layers in layers": BlockEncoder(encoder=BlockEncoder(encoder=HadamardEncoder())),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def config_of(encoder, mechanism="ddg", n_bits=20, rotation="dft", d=1001, n=200):
    spec = RoundSpec(
        epsilon=2.0, encoder=encoder, mechanism=mechanism, n_bits=n_bits, rotation=rotation
    )
    return spec.config(d, n, random_state=3)


def message(config, x, seed=5):
    return client_encode(config, x, policy=ClientPolicy(**POLICY), rng=SimulationRandomness(seed))


@pytest.mark.parametrize("rotation", ["dft", "hadamard"])
@pytest.mark.parametrize("mechanism", ["ddg", "skellam"])
@pytest.mark.parametrize("name", ENCODERS)
def test_numpy_makes_the_same_bytes_as_compiled_kernels(name, mechanism, rotation, rng):
    for n_bits in (16, 26):  # noise from a table, and by rejection
        config = config_of(ENCODERS[name], mechanism, n_bits, rotation)
        for dtype in (np.float32, np.float64):
            x = (0.1 * rng.normal(size=config.dim)).astype(dtype)
            compiled = message(config, x)
            with kernels.using("numpy"):
                assert message(config, x) == compiled


def test_a_difference_would_be_seen(rng):
    config = config_of(ENCODERS["count_sketch"])
    x = 0.1 * rng.normal(size=config.dim)
    assert message(config, x) != message(config, x, seed=6)
    x[0] += 1.0
    assert message(config, x) != message(config, np.zeros_like(x))


@pytest.mark.parametrize("name", ENCODERS)
def test_a_client_sketches_as_the_encoder_does(name, rng):
    config = config_of(ENCODERS[name])
    X = rng.normal(size=(3, config.dim))
    light, full = ClientRound(config), Round(config)
    assert not hasattr(light, "encoder")
    assert np.array_equal(light.sketch(X)[0], full.sketch(X)[0])
    assert light.epsilon == full.epsilon


def test_layers_keep_their_order_on_the_way_to_the_client(rng):
    config = config_of(LAYERS)  # "bias" is the last of the vector and the first of the alphabet
    received = RoundConfig.from_json(config.to_json())
    x = rng.normal(size=(1, config.dim))
    for kind in (Round, ClientRound):
        assert np.array_equal(kind(received).sketch(x)[0], Round(config).sketch(x)[0])


@pytest.mark.parametrize(
    "description",
    [
        {"name": "count_sketch", "compression": 0.5},
        {"name": "count_sketch", "n_rows": 0},
        {"name": "count_sketch", "n_rows": "15"},
        {"name": "count_sketch", "n_components": 2000},
        {"name": "count_sketch", "n_components": 10, "compression": 10},
        {"name": "hadamard", "n_rows": 3},
        {"name": "hadamard", "n_components": True},
        {"name": "identity", "compression": 2},
        {"name": "blocks", "layers": {"a": [0, 10]}},
        {"name": "blocks", "layers": {"a": [10, 100]}},
        {"name": "blocks", "layers": {"a": [0, 100, 2]}},
        {"name": "blocks", "layers": {"a": "xy"}},
        {"name": "blocks", "clip_shares": "huge"},
        {"name": "blocks", "clip_shares": {"all": 1.5}},
        {"name": "blocks", "encoders": {"other": {"name": "identity"}}},
        {"name": "blocks", "encoder": {"name": "unheard of"}},
        {"name": "unheard of"},
        {},
    ],
)
def test_what_an_encoder_refuses_a_client_refuses(description):
    with pytest.raises(ValueError):  # noqa: PT011  the two have words of their own
        layers_of(description, 100, 0)
    with pytest.raises((ValueError, TypeError)):
        registry.from_dict(dict(description)).fit_dimension(100)


def test_sessions_of_light_clients_give_the_same_sum(rng):
    messages = rng.integers(0, 1 << 18, size=(6, 500), dtype=np.uint64)
    with kernels.using("numpy"):
        masked = MaskedSecAgg(modulus=1 << 18).aggregate(messages, dropouts={"mask": [2]})
    kept = np.delete(messages, 2, axis=0)
    assert np.array_equal(masked.total, kept.sum(axis=0) % (1 << 18))


BARE = """
import sys
for name in ("numba", "llvmlite", "scipy", "sklearn", "joblib", "threadpoolctl"):
    sys.modules[name] = None  # as if not installed
import hashlib, json, numpy as np
from sparse_secagg import ClientPolicy, client_encode
from sparse_secagg.mechanisms.randomness import SimulationRandomness
policy = json.loads(sys.argv[1])
for line in sys.stdin:
    x = np.linspace(-0.1, 0.1, 1001, dtype=np.float32)
    made = client_encode(line, x, policy=ClientPolicy(**policy), rng=SimulationRandomness(9))
    print(hashlib.sha256(made).hexdigest())
"""


def test_a_machine_without_them_makes_the_same_bytes():
    configs = [config_of(encoder) for encoder in ENCODERS.values()]
    x = np.linspace(-0.1, 0.1, 1001, dtype=np.float32)
    expected = [hashlib.sha256(message(config, x, 9)).hexdigest() for config in configs]
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(POLICY)],
        input="\n".join(config.to_json() for config in configs),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected


MASKED = """
import sys
for name in ("numba", "llvmlite", "scipy", "sklearn", "joblib", "threadpoolctl"):
    sys.modules[name] = None
import numpy as np
from sparse_secagg import MaskedSecAgg
messages = np.arange(40, dtype=np.uint64).reshape(4, 10)
print(MaskedSecAgg(modulus=64).aggregate(messages, dropouts={"mask": [1]}).total.tolist())
"""


def test_sessions_run_on_a_machine_without_them():
    done = subprocess.run(
        [sys.executable, "-c", MASKED], capture_output=True, text=True, check=True
    )
    rows = np.delete(np.arange(40).reshape(4, 10), 1, axis=0)
    assert json.loads(done.stdout) == (rows.sum(axis=0) % 64).tolist()


def test_decoding_without_numba_says_what_is_missing():
    code = (
        "import sys\n"
        "sys.modules['numba'] = None\n"
        "import numpy as np, solvers\n"
        "solvers.get('amp').fit(np.eye(4), np.ones(4), noise_std=0.1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs numba" in done.stderr
