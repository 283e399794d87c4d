"""A round between parties that share nothing but bytes."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from sparse_secagg import (
    BlockEncoder,
    CentralGaussian,
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
from sparse_secagg.accounting import DEFAULT_ORDERS, INTEGER_ORDERS, gaussian_rdp, rdp_to_dp
from sparse_secagg.encoders import registry
from sparse_secagg.mechanisms import SimulationRandomness
from sparse_secagg.round.config import digest_of
from sparse_secagg.rounds import unpack_message
from sparse_secagg.secagg import BelowThresholdError

D, N = 300, 40


def make_config(encoder=None, mechanism=None, n_clients=N, **parameters):
    return RoundConfig.create(
        dim=D,
        n_clients=n_clients,
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


def anything():
    """The policy of a client that takes part in every round that is what it says."""
    return ClientPolicy(max_epsilon=math.inf, max_delta=1.0)


def encode(config, x, rng=None):
    return client_encode(config, x, policy=anything(), rng=rng)


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
            ({"version": 1}, "version 1.*update"),
            ({"surprise": 1}, "surprise"),
            ({"mechanism": None}, "not valid|not the parameters|unexpected"),
        ],
    )
    def test_outdated_or_malformed_configs_are_refused(self, config, change, message):
        document = {**json.loads(config.to_json()), **change}
        del document["digest"]
        document["digest"] = digest_of(document)
        with pytest.raises(RefusedRoundError, match=message):
            RoundConfig.from_json(json.dumps(document))

    def test_somebody_in_the_smallest_sum_is_honest(self):
        mechanism = DiscreteGaussian(epsilon=2.0, n_bits=20, min_survivors=10, colluders=9)
        document = json.loads(make_config(mechanism=mechanism).to_json())
        for colluders in (9, 10, 11):
            document["mechanism"]["colluders"] = colluders
            document.pop("digest", None)
            document["digest"] = digest_of(document)
            if colluders < 10:
                RoundConfig.from_json(json.dumps(document))
                continue
            with pytest.raises(RefusedRoundError, match="colluders"):
                RoundConfig.from_json(json.dumps(document))

    def test_not_json(self):
        with pytest.raises(RefusedRoundError, match="not JSON"):
            RoundConfig.from_json(b"\x00\x01")

    def test_an_unknown_encoder_is_refused(self):
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
        messages = [encode(config, x, rng) for x, rng in zip(X, streams)]
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
        size = len(encode(config, X[0]))
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
        policy = anything()
        client_encode(config, X[0], policy=policy)
        with pytest.raises(RefusedRoundError, match="answered before"):
            client_encode(config, X[0], policy=policy)

    def test_the_look_and_the_note_are_one_step(self, config):
        """A second thread that comes between them finds the round answered."""
        policy = anything()

        class Slow(set):
            def add(self, item):
                time.sleep(0.1)
                super().add(item)

        policy.seen_rounds = Slow()
        with ThreadPoolExecutor(2) as pool:
            results = [pool.submit(policy.check, config) for _ in range(2)]
        assert {type(result.exception()) for result in results} == {type(None), RefusedRoundError}

    @pytest.mark.parametrize(
        "mechanism",
        [CentralGaussian(epsilon=2.0), DiscreteGaussian(noise_multiplier=0.0, n_bits=20)],
        ids=["central", "no noise"],
    )
    def test_messages_without_noise_take_the_clients_word(self, X, mechanism):
        config = make_config(mechanism=mechanism)
        with pytest.raises(RefusedRoundError, match="without noise"):
            client_encode(config, X[0], policy=anything())
        trusting = ClientPolicy(math.inf, 1.0, allow_trusted_server=True)
        assert client_encode(config, X[0], policy=trusting)

    def test_nothing_is_sent_without_a_policy(self, config, X):
        with pytest.raises(ValueError, match="policy=None.*ClientPolicy"):
            client_encode(config, X[0])

    def test_wrong_length_costs_nothing(self, config, X):
        policy = anything()
        with pytest.raises(ValueError, match=r"shape \(299,\).*\(300,\)"):
            client_encode(config, X[0, 1:], policy=policy)
        assert not policy.seen_rounds

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_nan_contributes_exactly_the_zero_vector(self, config, X, bad):
        broken = X[0].copy()
        broken[7] = bad
        messages = [encode(config, x, SimulationRandomness(1)) for x in (broken, np.zeros(D))]
        assert messages[0] == messages[1]


class TestPolicy:
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"max_epsilon": 1.0},
            {"max_delta": 1e-5},
        ],
    )
    def test_the_limits_are_the_clients_to_set(self, parameters):
        with pytest.raises(TypeError, match="max_"):
            ClientPolicy(**parameters)

    @pytest.mark.parametrize("bad", [math.nan, -1.0, 0, "1", None, True])
    @pytest.mark.parametrize("name", ["max_epsilon", "max_delta", "max_local_epsilon"])
    def test_limits_that_limit_nothing_are_refused(self, name, bad):
        with pytest.raises(ValueError, match=name):
            ClientPolicy(**{"max_epsilon": 1.0, "max_delta": 1e-5, name: bad})

    def test_other_parameters_are_checked(self):
        for bad in (0, -1, 2.0, math.nan):
            with pytest.raises(ValueError, match="max_clients"):
                ClientPolicy(1.0, 1e-5, max_clients=bad)
        with pytest.raises(ValueError, match="adjacency"):
            ClientPolicy(1.0, 1e-5, adjacency="none")
        with pytest.raises(ValueError, match="max_delta"):
            ClientPolicy(1.0, 2.0)

    def test_limits_are_kept_to_the_last_digit(self, config):
        for change in ({"delta": 1.001e-3}, {}):
            limits = {"max_epsilon": 3.0 if change else 1.999, "max_delta": 1e-3}
            with pytest.raises(RefusedRoundError, match=r"delta=0.001001 exceeds|costs epsilon"):
                ClientPolicy(**limits).check(altered(config, **change))
        ClientPolicy(max_epsilon=config.epsilon, max_delta=config.delta).check(config)

    def test_noise_outside_of_the_theorem_is_refused(self, config):
        """Below a standard deviation of ½ on the grid no curve is proved, so no ε is one."""
        weak = altered(config, variance=Fraction(1, 5), epsilon=math.inf)
        with pytest.raises(RefusedRoundError, match="below 0.25"):
            anything().check(weak)

    def test_a_cohort_that_is_claimed_too_large_is_refused(self):
        """A million claimed clients share the noise of a million: each adds next to nothing."""
        config = make_config(n_clients=10**6, mechanism=DiscreteGaussian(epsilon=1.0, n_bits=30))
        policy = ClientPolicy(max_epsilon=2.0, max_delta=1e-3)
        with pytest.raises(RefusedRoundError, match="claims 1000000 clients.*max_clients=10000"):
            policy.check(config)
        ClientPolicy(2.0, 1e-3, max_clients=None).check(config)
        ClientPolicy(2.0, 1e-3, max_clients=10**6).check(config)

    @pytest.mark.parametrize(
        ("wanted", "offered", "accepted"),
        [
            ("zero_out", "zero_out", True),
            ("zero_out", "replace_one", True),
            ("replace_one", "replace_one", True),
            ("replace_one", "zero_out", False),
        ],
    )
    def test_the_client_chooses_the_adjacency(self, wanted, offered, accepted):
        mechanism = DiscreteGaussian(epsilon=2.0, n_bits=22, adjacency=offered)
        policy = ClientPolicy(3.0, 1e-3, adjacency=wanted)
        if accepted:
            policy.check(make_config(mechanism=mechanism))
        else:
            with pytest.raises(RefusedRoundError, match="weaker"):
                policy.check(make_config(mechanism=mechanism))

    @pytest.mark.parametrize("mechanism", [DiscreteGaussian, Skellam])
    def test_local_epsilon_is_that_of_one_share_of_noise(self, mechanism):
        """Noise of 1 where the round has 40: about the Gaussian's ε at 1/√40 of its multiplier."""
        config = make_config(mechanism=mechanism(epsilon=2.0, n_bits=24))
        p = config.mechanism
        z = math.sqrt(float(p.variance)) / p.norm_bound
        orders = INTEGER_ORDERS if mechanism is Skellam else DEFAULT_ORDERS
        gaussian = rdp_to_dp(orders, gaussian_rdp(orders, z), config.delta)
        assert config.local_epsilon == pytest.approx(gaussian, rel=0.02)
        assert config.local_epsilon > 8 * config.epsilon
        ClientPolicy(3.0, 1e-3, max_local_epsilon=1.01 * config.local_epsilon).check(config)
        with pytest.raises(RefusedRoundError, match="own message"):
            ClientPolicy(3.0, 1e-3, max_local_epsilon=0.99 * config.local_epsilon).check(config)

    def test_local_epsilon_without_noise_is_infinite(self):
        for mechanism in (CentralGaussian(), DiscreteGaussian(noise_multiplier=0.0, n_bits=20)):
            assert make_config(mechanism=mechanism).local_epsilon == math.inf


def forge(document, path, value):
    """Return the JSON with one entry changed and a digest that fits."""
    document = json.loads(json.dumps(document))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    document.pop("digest")
    return json.dumps({**document, "digest": digest_of(document)})


def paths(document, prefix=()):
    """Return the places of all entries of nested dictionaries, the dictionaries among them."""
    found = []
    for key, value in document.items():
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += paths(value, (*prefix, key))
    return [path for path in found if path != ("digest",)]


NUMBERS = [math.nan, math.inf, -math.inf, -1, 0, 1, 2, 3, -0.5, 0.5, 1.5, 1e-300, 1e300, 5e-324]
NUMBERS += [1e9, 1e15, 10**9, 10**15, 10**18, 2**63, 2**64, 10**30, 10**400]
STRINGS = ["", "nan", "inf", "-1", "1", "1e400", "x" * 1000, "ddg", "skellam", "central", "none"]
STRINGS += ["dft", "hadamard", "zero_out", "replace_one", "blocks", "identity", "gaussian"]
OTHERS = [None, True, False, [], [1], [1, 0], [0, 1], [-1, 1], [1, 2, 3], ["1", 2], [0.5, 1]]
OTHERS += [[10**15, 1], [10**40, 1], [1, 10**18], [10**18, 10**18 - 1], [math.nan, 1], [[1], [2]]]
OTHERS += [{}, {"name": "identity"}, {"name": "gaussian"}, {"name": []}, {"a": [0, 10]}]


def changes_of(value):
    """Return the values to try in place of one."""
    near = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        near = [value + 1, value - 1, 2 * value, value / 2, -value, value * (1 + 1e-6), str(value)]
    if isinstance(value, list):
        near = [[2 * value[0], value[1]], [value[0], 2 * value[1]], [float(v) for v in value]]
    return [*NUMBERS, *STRINGS, *OTHERS, *near]


def entry(document, path):
    for key in path:
        document = document[key]
    return document


@contextlib.contextmanager
def time_limit(seconds):
    def stop(*_):
        raise TimeoutError(f"took longer than {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


CONFIGS = {
    "ddg, count sketch": (CountSketchEncoder(compression=5), DiscreteGaussian),
    "skellam, hadamard": (HadamardEncoder(compression=5), Skellam),
    "ddg, gaussian": (GaussianEncoder(n_components=60), DiscreteGaussian),
    "central": (IdentityEncoder(), CentralGaussian),
    "ddg, blocks": (
        BlockEncoder(
            {"a": slice(0, 200), "b": slice(200, D)},
            encoder={"a": HadamardEncoder(), "b": IdentityEncoder()},
            clip_shares={"a": 0.6, "b": 0.8},
        ),
        DiscreteGaussian,
    ),
}


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs alarms")
class TestEveryChangeOfAConfiguration:
    @pytest.mark.parametrize("trusting", [False, True], ids=["careful", "trusting"])
    @pytest.mark.parametrize("kind", CONFIGS)
    def test_is_a_round_or_is_refused(self, kind, trusting, X):
        """Nothing else is raised, nothing hangs, and what is sent is what the server expects."""
        encoder, mechanism = CONFIGS[kind]
        config = make_config(encoder, mechanism(epsilon=2.0, n_bits=20))
        document = json.loads(config.to_json())
        # kernels compile outside the clock
        client_encode(config, X[0], policy=ClientPolicy(3.0, 1e-3, allow_trusted_server=True))
        sent = refused = 0
        for path in paths(document):
            for value in changes_of(entry(document, path)):
                text = forge(document, path, value)
                policy = ClientPolicy(3.0, 1e-3, allow_trusted_server=True)
                if trusting:
                    policy = ClientPolicy(
                        math.inf, 1.0, allow_trusted_server=True, max_clients=None
                    )
                try:
                    with time_limit(10):
                        message = client_encode(text, X[0], policy=policy)
                except RefusedRoundError:
                    refused += 1
                    continue
                except Exception as error:
                    raise AssertionError(f"{path} = {str(value)[:50]}") from error
                sent += 1
                unpack_message(RoundConfig.from_json(text), message)
        assert refused > 10 * sent > 0

    @pytest.mark.parametrize("name", ["epsilon", "delta", "clip_norm", "dim", "encoder_seed"])
    @pytest.mark.parametrize("value", ["nan", math.nan])
    def test_nan_is_refused(self, config, X, name, value):
        text = forge(json.loads(config.to_json()), (name,), value)
        with pytest.raises(RefusedRoundError, match=f"{name}|not valid"):
            encode(text, X[0])

    @pytest.mark.parametrize("version", [True, 2.0, "2", 1, 3])
    def test_version_is_the_number_it_is(self, config, X, version):
        text = forge(json.loads(config.to_json()), ("version",), version)
        with pytest.raises(RefusedRoundError, match="version"):
            encode(text, X[0])

    @pytest.mark.parametrize(
        ("path", "value"),
        [(("epsilon",), "2.5000"), (("epsilon",), 2.5), (("mechanism", "variance"), [10**9, 2])],
    )
    def test_one_configuration_has_one_text(self, config, X, path, value):
        """Otherwise clients that agree on the round would not agree on its digest."""
        text = forge(json.loads(config.to_json()), path, value)
        with pytest.raises(RefusedRoundError, match="not written as"):
            encode(text, X[0])

    def test_noise_that_would_take_forever_is_refused_at_once(self, X):
        config = make_config(mechanism=Skellam(epsilon=2.0, n_bits=20))
        for variance in (10**15, 10**30):
            text = forge(json.loads(config.to_json()), ("mechanism", "variance"), [variance, 1])
            with time_limit(5), pytest.raises(RefusedRoundError, match="too long"):
                encode(text, X[0])

    def test_deeply_nested_json_is_refused(self):
        with pytest.raises(RefusedRoundError, match="not JSON"):
            RoundConfig.from_json("[" * 100_000)

    @pytest.mark.parametrize("depth", [100, 300, 500, 700, 900])
    @pytest.mark.parametrize("name", ["encoder", "version", "epsilon", "round_id"])
    def test_json_that_is_nested_less_deeply_too(self, config, name, depth):
        """Deep enough for whatever walks over it, not for the parser."""
        document = json.loads(config.to_json()) | {name: "@"}
        plain = {key: value for key, value in document.items() if key != "digest"}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        text = text.replace('"@"', '{"a":' * depth + "0" + "}" * depth)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        with contextlib.suppress(RefusedRoundError):
            RoundConfig.from_json(f'{text[:-1]},"digest":"{digest}"}}')

    @pytest.mark.parametrize("variance", [["1e30000000"], ["1", "1"], "11", [1, True], [[1], 1]])
    def test_numbers_are_not_read_from_texts(self, config, variance):
        """Nobody works out 1e30000000 to the last digit because a server wrote it."""
        text = forge(json.loads(config.to_json()), ("mechanism", "variance"), variance)
        with time_limit(10), pytest.raises(RefusedRoundError, match="variance"):
            RoundConfig.from_json(text)


class TestAggregate:
    def test_malformed_messages_are_named_or_left_out(self, config, X):
        good = [encode(config, x) for x in X[:4]]
        other = encode(make_config(), X[0])
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
from sparse_secagg import ClientPolicy, client_encode
from sparse_secagg.mechanisms import SimulationRandomness

seed, first, last, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config = open(f"{folder}/config.json").read()
for i in range(first, last):
    rng = SimulationRandomness(seed)
    rng.spawn(i)  # the streams of the clients before
    x = np.load(f"{folder}/X.npy")[i]
    policy = ClientPolicy(max_epsilon=2.0, max_delta=1e-5)
    message = client_encode(config, x, policy=policy, rng=rng)
    open(f"{folder}/{i}.message", "wb").write(message)
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


def test_below_min_survivors_nothing_is_decoded(X):
    """ε 2 would become 11 with one survivor: aggregate and server_decode refuse instead."""
    config = make_config(mechanism=DiscreteGaussian(epsilon=2.0, n_bits=20, min_survivors=30))
    messages = [encode(config, x) for x in X]
    total, survivors = aggregate(config, messages[:30])
    decoded = server_decode(config, total, survivors)
    assert decoded.epsilon == pytest.approx(2.0, abs=1e-5)
    assert (decoded.n_survivors, decoded.observer) == (30, "the server")
    with pytest.raises(BelowThresholdError, match="29 valid messages"):
        aggregate(config, messages[:29])
    with pytest.raises(BelowThresholdError, match="29 clients survived"):
        server_decode(config, total, 29)


def test_a_message_counts_once(config, X):
    """Its noise is there once, however often it is sent or named."""
    message = encode(config, X[0])
    with pytest.raises(ValueError, match="repetition"):
        aggregate(config, [message, message])
    total, survivors = aggregate(config, [message, message], on_invalid="exclude")
    assert survivors == [0]
    with pytest.raises(ValueError, match="twice"):
        server_decode(config, total, [0, 0])
    with pytest.raises(ValueError, match="n_survivors=1000000"):
        server_decode(config, total, 10**6)


def test_every_decode_tells_its_realised_epsilon(config, X):
    messages = [encode(config, x) for x in X]
    total, survivors = aggregate(config, messages)
    decoded = server_decode(config, total, survivors)
    assert decoded.epsilon == pytest.approx(config.epsilon)
    np.testing.assert_array_equal(np.asarray(decoded), decoded.mean)
    total, _ = aggregate(config, messages[:1])
    with pytest.warns(PrivacyWarning, match="1 of 40 clients survived"):
        alone = server_decode(config, total, 1)
    assert alone.epsilon > 11


def test_a_killed_client_is_just_missing(config, X):
    """Kill a client process in the middle of the round: the rest decodes, at a higher ε."""
    script = (
        "import time, sys; sys.stdout.buffer.write(b'SSA1'); sys.stdout.flush(); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    partial = process.stdout.read(4)
    process.kill()
    process.wait()
    messages = [encode(config, x) for x in X[1:]]
    total, survivors = aggregate(config, [partial, *messages], on_invalid="exclude")
    assert survivors == list(range(1, N))
    mechanism = DiscreteGaussian(delta=config.delta)
    mechanism.parameters_ = config.mechanism
    with pytest.warns(PrivacyWarning, match="39 of 40"):
        decoded = server_decode(config, total, survivors)
    assert decoded.epsilon == mechanism.epsilon_spent(len(survivors)) > config.epsilon
    assert np.isfinite(decoded).all()


@pytest.mark.parametrize("n_clients", [0, 1 << 32, 2.0, True])
def test_a_number_of_clients_that_no_round_can_have_is_refused(config, n_clients):
    with pytest.raises(ValueError, match="n_clients"):
        RoundConfig.from_json(altered(config, n_clients=n_clients).to_json())


def test_a_round_of_one_client_can_be_described():
    config = make_config(n_clients=1)
    assert RoundConfig.from_json(config.to_json()).mechanism.n_clients == 1
