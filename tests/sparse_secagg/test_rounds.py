"""A round between parties that share nothing but bytes."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from sparse_secagg import (
    BlockEncoder,
    ClientPolicy,
    CountSketchEncoder,
    DiscreteGaussian,
    GaussianEncoder,
    HadamardEncoder,
    IdentityEncoder,
    PrivacyWarning,
    RefusedRoundError,
    RoundConfig,
    Skellam,
    SparseSecAgg,
    aggregate,
    client_encode,
    server_decode,
)
from sparse_secagg.encoders import registry
from sparse_secagg.mechanisms import SimulationRandomness

D, N = 300, 40


def make_config(encoder=None, mechanism=None, **parameters):
    return RoundConfig.create(
        dim=D,
        n_clients=N,
        encoder=encoder or CountSketchEncoder(compression=5),
        mechanism=mechanism or DiscreteGaussian(epsilon=2.0, n_bits=20),
        random_state=0,
        **parameters,
    )


@pytest.fixture(scope="module")
def config():
    return make_config()


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((N, D)) / 30


def altered(config, **changes):
    """A config with other parameters and a digest that fits: forged, not corrupted."""
    inner = {k: v for k, v in changes.items() if k in vars(config.mechanism) and k != "dim"}
    outer = {k: v for k, v in changes.items() if k not in inner}
    mechanism = dataclasses.replace(config.mechanism, **inner)
    return dataclasses.replace(config, mechanism=mechanism, **outer)


class TestConfig:
    @pytest.mark.parametrize(
        "encoder",
        [
            CountSketchEncoder(n_components=60, n_rows=4),
            GaussianEncoder(compression=5),
            HadamardEncoder(compression=5),
            IdentityEncoder(),
            BlockEncoder({"a": slice(0, 200), "b": slice(200, D)}),
            BlockEncoder(
                {"a": slice(0, 200), "b": slice(200, D)},
                encoder={"a": HadamardEncoder(), "b": IdentityEncoder()},
                clip_shares={"a": 0.6, "b": 0.8},
            ),
        ],
        ids=lambda e: type(e).__name__,
    )
    @pytest.mark.parametrize("mechanism", [DiscreteGaussian(n_bits=20), Skellam(n_bits=20)])
    def test_json_round_trips_without_loss_in_a_few_hundred_bytes(self, encoder, mechanism):
        config = make_config(encoder, mechanism)
        text = config.to_json()
        assert RoundConfig.from_json(text) == config
        assert RoundConfig.from_json(text).digest == config.digest
        assert len(text) < 1000

    def test_round_ids_are_fresh(self):
        assert make_config().round_id != make_config().round_id

    def test_any_corruption_is_noticed(self, config):
        text = config.to_json()
        for position in range(0, len(text), 7):
            broken = text[:position] + chr(ord(text[position]) ^ 1) + text[position + 1 :]
            try:
                # the 17th digit of a number may say nothing
                assert RoundConfig.from_json(broken) == config
                assert text[position].isdigit()
            except RefusedRoundError:
                pass

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 2}, "version 2.*update"),
            ({"surprise": 1}, "surprise"),
            ({"mechanism": None}, "not valid|not the parameters|unexpected"),
        ],
    )
    def test_outdated_or_malformed_configs_are_refused(self, config, change, message):
        from sparse_secagg.rounds import _digest

        document = {**json.loads(config.to_json()), **change}
        del document["digest"]
        document["digest"] = _digest(document)
        with pytest.raises(RefusedRoundError, match=message):
            RoundConfig.from_json(json.dumps(document))

    def test_not_json(self):
        with pytest.raises(RefusedRoundError, match="not JSON"):
            RoundConfig.from_json(b"\x00\x01")

    def test_encoders_without_description_are_refused(self):
        class Mine(HadamardEncoder):
            pass

        with pytest.raises(ValueError, match="Mine has no public description"):
            make_config(Mine())
        with pytest.raises(ValueError, match="did you mean 'count_sketch'"):
            registry.get("count_sketc")

    def test_spectral_clip_covers_the_worst_vector(self):
        config = make_config(GaussianEncoder(compression=5), sketch_clip="spectral")
        S = GaussianEncoder(compression=5, random_state=config.encoder_seed).fit_dimension(D)
        assert config.mechanism.clip_norm >= np.linalg.norm(S.operator_.toarray(), 2)
        with pytest.raises(ValueError, match="CountSketchEncoder does not offer"):
            make_config(sketch_clip="spectral")
        with pytest.raises(ValueError, match="'jl', 'spectral' or a positive number"):
            make_config(sketch_clip="jll")

    @pytest.mark.parametrize(
        ("encoder", "kind", "factor"),
        [
            (CountSketchEncoder(n_components=60, n_rows=6), "jl", 1.1),
            (CountSketchEncoder(n_components=60, n_rows=6), 1.25, 1.25),
            (CountSketchEncoder(n_components=60, n_rows=6), "tight", 1.0741342),
            (HadamardEncoder(n_components=300), "tight", 1.0009758),
            (IdentityEncoder(), "tight", 1.0),
            (IdentityEncoder(), "jl", 1.0),
        ],
        ids=str,
    )
    def test_sketches_are_clipped_at_a_multiple_of_the_clip(self, encoder, kind, factor):
        """The tight factors minimise w²·E(g − t)₊² + 0.01·(1 + tw)², found on a grid of t."""
        config = make_config(encoder, sketch_clip=kind, clip_norm=3.0)
        assert config.mechanism.clip_norm == pytest.approx(3.0 * factor, rel=1e-6)


class TestClient:
    def test_mean_is_recovered_within_the_noise(self, config, X):
        streams = SimulationRandomness(8).spawn(N)
        messages = [client_encode(config, x, rng=rng) for x, rng in zip(X, streams)]
        total, survivors = aggregate(config, messages)
        assert survivors == list(range(N))
        estimate = server_decode(config, total, survivors)
        S = CountSketchEncoder(compression=5, random_state=config.encoder_seed).fit(X)
        expected = S.inverse_transform(S.transform(X).mean(axis=0))
        mechanism = DiscreteGaussian()
        mechanism.parameters_ = config.mechanism
        std = mechanism.noise_std(N)
        assert np.sum((estimate - expected) ** 2) < 2 * D * std**2

    def test_message_is_packed_at_b_bits(self, config, X):
        size = len(client_encode(config, X[0]))
        assert size == 12 + math.ceil(config.mechanism.bits_per_client / 8)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"variance": Fraction(1)}, "claims epsilon"),
            ({"variance": Fraction(1), "epsilon": 1e9}, "above this client's limit"),
            ({"min_survivors": N + 1}, "min_survivors"),
            ({"gamma": -1.0}, "gamma"),
            ({"gamma": 1e-9}, "norm_bound is below"),
            ({"squared_bound": 10**12}, "squared_bound exceeds"),
            ({"epsilon": 1.0}, "claims epsilon=1"),
            ({"delta": 0.1}, "delta=0.1 exceeds"),
            ({"dim": 200}, "length 200"),
            ({"mechanism": "gauss"}, "'gauss' is not known"),
            ({"padded_dim": 128}, "padded_dim|norm_bound"),
        ],
    )
    def test_unsafe_or_contradictory_configs_are_refused(self, config, X, changes, message):
        policy = ClientPolicy(max_epsilon=3.0, max_delta=1e-3, dim=D)
        if "mechanism" in changes:
            bad = altered(config)
            object.__setattr__(bad.mechanism, "mechanism", changes["mechanism"])
        else:
            bad = altered(config, **changes)
        x = np.zeros(bad.dim)
        with pytest.raises(RefusedRoundError, match=message):
            client_encode(bad.to_json(), x, policy=policy)
        assert not policy.seen_rounds

    def test_a_round_is_answered_once(self, config, X):
        policy = ClientPolicy()
        client_encode(config, X[0], policy=policy)
        with pytest.raises(RefusedRoundError, match="answered before"):
            client_encode(config, X[0], policy=policy)

    def test_a_trusted_server_can_be_refused(self, X):
        from sparse_secagg import CentralGaussian

        central = make_config(mechanism=CentralGaussian(epsilon=2.0))
        with pytest.raises(RefusedRoundError, match="without noise"):
            client_encode(central, X[0], policy=ClientPolicy(allow_trusted_server=False))

    def test_wrong_length_costs_nothing(self, config, X):
        policy = ClientPolicy()
        with pytest.raises(ValueError, match=r"shape \(299,\).*\(300,\)"):
            client_encode(config, X[0, 1:], policy=policy)
        assert not policy.seen_rounds

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nan_contributes_exactly_the_zero_vector(self, config, X, bad):
        broken = X[0].copy()
        broken[7] = bad
        messages = [
            client_encode(config, x, rng=SimulationRandomness(1)) for x in (broken, np.zeros(D))
        ]
        assert messages[0] == messages[1]


class TestAggregate:
    def test_malformed_messages_are_named_or_left_out(self, config, X):
        good = [client_encode(config, x) for x in X[:4]]
        other = client_encode(make_config(), X[0])
        bad = {1: good[1][:-1], 2: other, 3: b"XXXX" + good[3][4:]}
        messages = [bad.get(i, message) for i, message in enumerate(good)]
        with pytest.raises(ValueError, match="message 1: has .* bytes"):
            aggregate(config, messages)
        with pytest.raises(ValueError, match="message 1: belongs to another round"):
            aggregate(config, [good[0], other])
        total, survivors = aggregate(config, messages, on_invalid="exclude")
        assert survivors == [0]
        np.testing.assert_array_equal(total, aggregate(config, good[:1])[0])


CLIENT = """
import sys
import numpy as np
from sparse_secagg import client_encode
from sparse_secagg.mechanisms import SimulationRandomness

seed, first, last, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config = open(f"{folder}/config.json").read()
for i in range(first, last):
    rng = SimulationRandomness(seed)
    rng.spawn(i)  # the streams of the clients before
    x = np.load(f"{folder}/X.npy")[i]
    open(f"{folder}/{i}.message", "wb").write(client_encode(config, x, rng=rng))
"""

SERVER = """
import sys
import numpy as np
from pathlib import Path
from sparse_secagg import RoundConfig, aggregate, server_decode

folder = Path(sys.argv[1])
config = RoundConfig.from_json((folder / "config.json").read_text())
messages = [(folder / f"{i}.message").read_bytes() for i in range(int(sys.argv[2]))]
total, survivors = aggregate(config, messages)
np.save(folder / "mean.npy", server_decode(config, total, survivors, decoder="ridge"))
"""


@pytest.mark.parametrize(
    ("encoder", "mechanism"),
    [("count_sketch", "ddg"), ("hadamard", "skellam"), ("identity", "ddg")],
)
def test_separate_processes_equal_fit_bit_for_bit(encoder, mechanism, X, tmp_path):
    with pytest.warns(PrivacyWarning, match="not private"):
        fitted = SparseSecAgg(
            encoder, mechanism=mechanism, n_bits=20, decoder="ridge", random_state=3,
            simulation_seed=5,
        ).fit(X)  # fmt: skip
    (tmp_path / "config.json").write_text(fitted.config_.to_json())
    np.save(tmp_path / "X.npy", X)
    env = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    for first, last in ((0, N // 2), (N // 2, N)):
        arguments = ["5", str(first), str(last), str(tmp_path)]
        subprocess.run([sys.executable, "-c", CLIENT, *arguments], check=True, env=env)
    subprocess.run([sys.executable, "-c", SERVER, str(tmp_path), str(N)], check=True, env=env)
    np.testing.assert_array_equal(np.load(tmp_path / "mean.npy"), fitted.mean_)


def test_a_killed_client_is_just_missing(config, X):
    """Kill a client process in the middle of the round: the rest decodes, at a higher ε."""
    script = (
        "import time, sys; sys.stdout.buffer.write(b'SSA1'); sys.stdout.flush(); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    partial = process.stdout.read(4)
    process.kill()
    process.wait()
    messages = [client_encode(config, x) for x in X[1:]]
    total, survivors = aggregate(config, [partial, *messages], on_invalid="exclude")
    assert survivors == list(range(1, N))
    mechanism = DiscreteGaussian(delta=config.delta)
    mechanism.parameters_ = config.mechanism
    assert mechanism.epsilon_spent(len(survivors)) > config.epsilon
    assert np.isfinite(server_decode(config, total, survivors)).all()
