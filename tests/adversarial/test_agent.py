"""A client's agent: what it refuses, what it charges, and that no restart makes it forget."""

import contextlib
import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time

import numpy as np
import pytest

from sparse_secagg import (
    AgentPolicy,
    Budget,
    CentralGaussian,
    ClientAgent,
    ClientSession,
    CountSketchEncoder,
    DiscreteGaussian,
    IdentityEncoder,
    RoundConfig,
    RoundDocument,
    ServerSession,
    Skellam,
)
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.round.policy import ClientPolicy
from sparse_secagg.secagg import setup
from sparse_secagg.secagg.parties import answer
from sparse_secagg.secagg.setup import Session
from tests.adversarial.lying import identities

N, DIM = 6, 40
POLICY = AgentPolicy(max_epsilon=1.5, max_delta=1e-5)


def make_config(mechanism=None, n=N, encoder=None, **options):
    mechanism = (
        DiscreteGaussian(epsilon=1.0, n_bits=20, colluders=1) if mechanism is None else mechanism
    )
    encoder = IdentityEncoder() if encoder is None else encoder
    mechanism = mechanism.set_params(min_survivors=max(2, math.ceil(2 * n / 3)))
    return RoundConfig.create(
        dim=DIM, n_clients=n, encoder=encoder, mechanism=mechanism, random_state=0, **options
    )


def make_document(config, n=N, **changes):
    t = max(2, math.ceil(2 * n / 3))
    p = config.mechanism
    fields = {
        "round_id": Session().new_round(),
        "n_clients": n,
        "length": p.padded_dim,
        "modulus": p.modulus,
        "threshold": t,
        "share_threshold": t,
        "roster": identities(n)[1].digest,
        "context": config.to_json().encode(),
    }
    return RoundDocument(**{**fields, **changes})


def signed(config):
    """Return a configuration with its digest, which a server can make of anything."""
    plain = {name: value for name, value in config.items() if name != "digest"}
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**plain, "digest": hashlib.sha256(canonical).hexdigest()[:32]}).encode()


def strange_value(old, rng):
    """Return a value in place of another: near it, far from it, or of another kind."""
    if isinstance(old, int | float) and rng.random() < 0.7:
        factors = [0, -1, 2, 10, 1000, 10**6]
        return rng.choice([old * rng.choice(factors), old / rng.choice(factors[2:]), old + 1])
    if isinstance(old, list) and rng.random() < 0.7:
        return [int(value) * 10 ** rng.choice([0, 0, 1, 4]) for value in old]
    return rng.choice(
        [None, True, 0, 1, -1, 2**64, 1e300, 5e-324, math.nan, math.inf, "", "x", [], {}, "dft",
         "hadamard", "none", "skellam", "ddg", "central", "replace_one", "zero_out"]
    )  # fmt: skip


@pytest.fixture
def budget(tmp_path):
    return Budget(tmp_path / "budget.sqlite", epsilon=4.0, delta=1e-5)


def join(document, agent, i=0, n=N):
    people, roster = identities(n)
    return ClientSession(document, identity=people[i], roster=roster, agent=agent)


class TestPolicy:
    def test_a_round_it_agrees_to(self, budget):
        join(make_document(make_config()), ClientAgent(POLICY, budget))
        assert budget.rounds == 0

    @pytest.mark.parametrize(
        ("mechanism", "match"),
        [
            (CentralGaussian(epsilon=0.5, n_bits=20), "mechanism='central'"),
            (DiscreteGaussian(epsilon=3.0, n_bits=20), "costs epsilon"),
            (DiscreteGaussian(epsilon=1.0, delta=1e-3, n_bits=20), "delta"),
            (DiscreteGaussian(noise_multiplier=0.0, n_bits=20), "noise"),
        ],
    )
    def test_noise_that_is_too_little_or_none(self, budget, mechanism, match):
        with pytest.raises(RefusedRoundError, match=match):
            join(make_document(make_config(mechanism)), ClientAgent(POLICY, budget))

    @pytest.mark.parametrize(
        ("mechanism", "wider"),
        [
            (DiscreteGaussian(epsilon=3.0, n_bits=20), {"max_epsilon": 10.0}),
            (DiscreteGaussian(epsilon=1.0, delta=1e-3, n_bits=20), {"max_delta": 1e-3}),
        ],
    )
    def test_without_the_limit_the_same_round_is_joined(self, tmp_path, mechanism, wider):
        """It is the limit that refused, nothing else."""
        rich = Budget(tmp_path / "rich.sqlite", epsilon=100.0, delta=wider.get("max_delta", 1e-5))
        policy = dataclasses.replace(POLICY, **wider)
        join(make_document(make_config(mechanism)), ClientAgent(policy, rich))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("n_clients", True), ("length", -1), ("length", 1 << 60), ("modulus", 1),
            ("modulus", 1 << 70), ("threshold", 4.0), ("neighbors", "4"), ("graph_seed", -1),
            ("masks", "none"), ("security", "none"), ("roster", b"short"),
            ("context", b"0" * (setup.MAX_DOCUMENT_BYTES + 1)),
        ],
    )  # fmt: skip
    def test_each_field_of_a_document_has_a_check_of_its_own(self, monkeypatch, field, value):
        """Refused for this field; with this one check removed, no longer for it."""
        known = make_document(make_config())
        with pytest.raises(RefusedRoundError, match=field):
            dataclasses.replace(known, **{field: value})
        monkeypatch.setitem(setup._FIELDS, field, lambda value: True)
        later = ""
        try:
            dataclasses.replace(known, **{field: value})
        except RefusedRoundError as error:  # by a check of several fields together
            later = str(error)
        except TypeError:  # what the check keeps out
            pass
        assert not later or "threshold" in later or "graph" in later

    def test_the_client_assumes_colluders_whatever_the_round_says(self, budget):
        """ε is 1 without colluders; a third of the cohort makes it more, and most are too many."""
        document = make_document(make_config(DiscreteGaussian(epsilon=1.0, n_bits=20)))
        for fraction, match in ((0.3, "2 colluders"), (0.9, "nobody would be left")):
            policy = AgentPolicy(1.0 + 1e-6, 1e-5, colluders=fraction)
            with pytest.raises(RefusedRoundError, match=match):
                join(document, ClientAgent(policy, budget))
        join(document, ClientAgent(AgentPolicy(1.0 + 1e-6, 1e-5, colluders=0.0), budget))

    def test_the_threshold_counts_not_the_claim(self, budget):
        """Noise is sized for all six, the protocol guarantees four: ε is that of four."""
        config = make_config(DiscreteGaussian(epsilon=1.0, n_bits=20))
        config = RoundConfig.create(
            dim=DIM,
            n_clients=N,
            encoder=IdentityEncoder(),
            mechanism=DiscreteGaussian(epsilon=1.0, n_bits=20),
        )
        policy = AgentPolicy(1.1, 1e-5, colluders=0.0)
        with pytest.raises(RefusedRoundError, match="with 4 survivors"):
            join(make_document(config), ClientAgent(policy, budget))

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ({"modulus": 2**16}, "modulus"),
            ({"length": 3}, "length"),
            ({"threshold": 2, "share_threshold": 4}, "min_survivors"),
            ({"context": b""}, "JSON"),
            ({"context": b"{}"}, "version"),
            ({"security": "semi_honest", "roster": b""}, "security"),
            ({"masks": "seeded"}, "seeded"),
        ],
    )
    def test_documents_that_do_not_fit(self, budget, change, match):
        document = make_document(make_config(), **change)
        agent = ClientAgent(POLICY, budget)
        refuse = (
            agent.admit if document.security == "semi_honest" else lambda *_: join(document, agent)
        )
        with pytest.raises(RefusedRoundError, match=match):
            refuse(document, None)

    @pytest.mark.parametrize(
        ("limits", "match"),
        [
            ({"max_clients": 5}, "6 clients"),
            ({"adjacency": "replace_one"}, "adjacency"),
            ({"dim": 41}, "length 40"),
            ({"max_dim": 39}, "length 40"),
            ({"max_local_epsilon": 1.0}, "own message"),
            ({"mechanisms": ("skellam",)}, "mechanism='ddg'"),
            ({"encoders": ("hadamard",)}, "encoder='identity'"),
        ],
    )
    def test_limits(self, budget, limits, match):
        with pytest.raises(RefusedRoundError, match=match):
            join(
                make_document(make_config()),
                ClientAgent(dataclasses.replace(POLICY, **limits), budget),
            )

    @pytest.mark.parametrize(
        ("neighbors", "share_threshold", "match"),
        [(None, 21, "share_threshold=21 of 40"), (None, 22, None), (20, 16, "neighbors=20")],
    )
    def test_share_thresholds_that_its_own_colluders_get_around(
        self, budget, neighbors, share_threshold, match
    ):
        """5 % of 40 clients are two; they can confirm two lists to 19 each where t is 21."""
        config = make_config(DiscreteGaussian(epsilon=1.0, n_bits=20, colluders=2), n=40)
        document = make_document(config, 40, neighbors=neighbors, share_threshold=share_threshold)
        expected = (
            pytest.raises(RefusedRoundError, match=match) if match else contextlib.nullcontext()
        )
        with expected:
            join(document, ClientAgent(POLICY, budget), n=40)

    def test_a_million_claimed_clients(self, budget):
        config = make_config(DiscreteGaussian(epsilon=1.0, n_bits=30), n=10**6)
        document = make_document(
            config, 10, n_clients=10**6, neighbors=100, share_threshold=90, threshold=700_000
        )
        with pytest.raises(RefusedRoundError, match="1000000 clients"):
            ClientAgent(POLICY, budget).admit(document, None)

    @pytest.mark.parametrize(
        "bad",
        [
            {"max_epsilon": 0},
            {"max_epsilon": math.nan},
            {"max_delta": 2},
            {"colluders": 1.0},
            {"colluders": math.nan},
        ],
    )
    def test_limits_are_checked(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            AgentPolicy(**{"max_epsilon": 1.0, "max_delta": 1e-5, **bad})

    def test_every_change_of_a_single_field_is_agreed_to_or_refused(self, budget):
        """All fields of configuration and document, by values of every kind."""
        agent = ClientAgent(POLICY, budget)
        values = [None, True, 0, -1, 1, 2**70, 1e300, -0.5, 1e-300, "nan", "inf", "", [], {}]
        values += [["1e30000000"], [1, "2"], [[[]]], "\ud800", "\0"]
        encoder = CountSketchEncoder(n_components=20, n_rows=5)
        config = json.loads(make_config(encoder=encoder).to_json())
        refused = 0
        for where in ("top", "mechanism", "encoder"):
            for name in list(config if where == "top" else config[where]):
                for value in values:
                    changed = json.loads(json.dumps(config))
                    (changed if where == "top" else changed[where])[name] = value
                    refused += self.is_refused(agent, changed)
        document = json.loads(make_document(make_config()).to_json())
        for name in document:
            for value in values:
                try:
                    join(json.dumps({**document, name: value}), agent)
                except RefusedRoundError:
                    refused += 1
        assert refused > 300

    @staticmethod
    def is_refused(agent, config):
        document = make_document(make_config(), context=signed(config))
        try:
            agent.admit(document, None)
        except RefusedRoundError:
            return True
        return False

    @pytest.mark.parametrize("amount", [150, pytest.param(20_000, marks=pytest.mark.slow)])
    def test_what_it_agrees_to_it_answers_and_with_enough_noise(self, tmp_path, amount):
        """Several fields changed at once, to values that fit each other more often than not."""
        rng = random.Random(amount)
        agent = ClientAgent(POLICY, Budget(tmp_path / "rich.sqlite", epsilon=1e9, delta=1e-5))
        encoders = IdentityEncoder(), CountSketchEncoder(n_components=20, n_rows=5)
        mechanisms = [
            kind(epsilon=1.0, n_bits=bits, colluders=1)
            for kind in (DiscreteGaussian, Skellam)
            for bits in (20, 40)
        ]
        known = [
            json.loads(make_config(m, encoder=e).to_json()) for m in mechanisms for e in encoders
        ]
        orders, answered, config_of_document = np.array([2.0, 8.0, 32.0]), 0, make_config()
        for number in range(amount):
            config = json.loads(json.dumps(rng.choice(known))) | {"round_id": f"{number}"}
            p = config["mechanism"]
            places = [config, p, p, config["encoder"]]
            for _ in range(rng.choice([1, 1, 2, 3])):
                where = rng.choice(places)
                name = rng.choice([*where])
                where[name] = strange_value(where[name], rng)
            if (
                rng.random() < 0.5
                and isinstance(p["norm_bound"], float)
                and p["norm_bound"] < 1e100
            ):
                p["squared_bound"] = int(p["norm_bound"] ** 2)
            try:
                sizes = {"length": p["padded_dim"], "modulus": 1 << min(p["n_bits"], 99)}
                document = make_document(config_of_document, context=signed(config), **sizes)
            except (RefusedRoundError, TypeError, ValueError):
                continue  # sizes that make no document: nobody can send them
            try:
                agent.admit(document, None)
                message = agent.release(document, np.full(DIM, 10.0 ** rng.randint(-300, 300)))
            except RefusedRoundError:
                continue
            answered += 1
            assert message.shape == (document.length,)
            noise = p["variance"][0] / p["variance"][1] * (4 - max(1, p["colluders"]))
            least = orders * p["squared_bound"] / (2 * noise)
            factor = 4 if p["adjacency"] == "replace_one" else 1
            assert (agent.privacy(document).rdp(orders) >= factor * least * (1 - 1e-6)).all()
        assert 0 < answered < amount

    def test_a_raw_vector_by_central_noise(self, tmp_path, monkeypatch):
        """Refused by mechanism, noise, ε and budget, each by itself; without all four it leaves."""
        budget = Budget(tmp_path / "rich.sqlite", epsilon=1e9, delta=1e-5)
        document = make_document(make_config(CentralGaussian(epsilon=0.5, n_bits=20)))
        anything = AgentPolicy(1e9, 1e-5, mechanisms=("central",))
        for policy, match in ((POLICY, "mechanism='central'"), (anything, "without noise")):
            with pytest.raises(RefusedRoundError, match=match):
                ClientAgent(policy, budget).admit(document, None)
        monkeypatch.setattr(ClientPolicy, "_check_limits", lambda *args: None)
        unlimited = dataclasses.replace(anything, max_epsilon=math.inf)
        for policy, match in ((anything, "costs epsilon=inf"), (unlimited, "in its life")):
            with pytest.raises(RefusedRoundError, match=match):
                ClientAgent(policy, budget).admit(document, None)
        monkeypatch.setattr(Budget, "charge", lambda *args: None)
        x = np.random.default_rng(0).uniform(0.0, 0.1, DIM)
        message = ClientAgent(unlimited, budget).release(document, x)
        grid = RoundConfig.from_json(document.context).mechanism.gamma
        assert message * grid == pytest.approx(x, abs=2 * grid)


class TestBudget:
    def test_rounds_add_up_and_end(self, budget):
        """ε of all rounds by their curves; the round after the last is refused, by name or anew."""
        agent = ClientAgent(POLICY, budget)
        x = np.zeros(DIM)
        privacy = agent.privacy(make_document(make_config()))
        answered = budget.rounds_left(privacy)
        for r in range(answered):
            agent.release(make_document(make_config(round_id=f"round {r}")), x)
            assert budget.spent == pytest.approx(privacy.epsilon(rounds=r + 1))
        with pytest.raises(RefusedRoundError, match="in its life"):
            agent.release(make_document(make_config(round_id="one more")), x)
        assert budget.rounds == answered >= 2
        assert budget.spent <= 4.0 < privacy.epsilon(rounds=answered + 1)
        assert budget.rounds_left(privacy) == 0
        for name in ("another server's", "round 0"):
            with pytest.raises(RefusedRoundError):
                join(make_document(make_config(round_id=name)), agent)

    def test_a_round_is_answered_once_and_replays_under_new_names_are_charged(self, budget):
        agent = ClientAgent(POLICY, budget)
        config = make_config(round_id="a")
        agent.release(make_document(config), np.zeros(DIM))
        with pytest.raises(RefusedRoundError, match="answered before"):
            agent.release(make_document(config), np.zeros(DIM))
        spent = budget.spent
        agent.release(make_document(dataclasses.replace(config, round_id="b")), np.zeros(DIM))
        assert budget.rounds == 2
        assert budget.spent > spent

    def test_a_wrong_vector_costs_nothing(self, budget):
        with pytest.raises(RefusedRoundError, match="shape"):
            ClientAgent(POLICY, budget).release(make_document(make_config()), np.zeros(DIM + 1))
        assert budget.rounds == 0

    def test_it_is_remembered_over_restarts_and_readable_by_its_owner_only(self, budget):
        ClientAgent(POLICY, budget).release(make_document(make_config()), np.zeros(DIM))
        again = Budget(budget.path)
        assert (again.epsilon, again.rounds, again.spent) == (4.0, 1, budget.spent)
        assert os.stat(budget.path).st_mode & 0o777 == 0o600
        with pytest.raises(ValueError, match="set once"):
            Budget(budget.path, epsilon=100.0)

    def test_what_is_no_budget(self, tmp_path):
        with pytest.raises(ValueError, match="pass epsilon and delta"):
            Budget(tmp_path / "none")
        (tmp_path / "text").write_text("not a database at all, but long enough to be looked at" * 9)
        for what in ("text", ""):  # a file, a folder
            with pytest.raises(ValueError, match="not a budget"):
                Budget(tmp_path / what)

    def test_without_its_file_nothing_leaves(self, budget):
        agent = ClientAgent(POLICY, budget)
        budget.path.unlink()
        with pytest.raises(RefusedRoundError, match="gone"):
            agent.release(make_document(make_config()), np.zeros(DIM))

    def test_a_damaged_file_is_refused_and_never_a_discount(self, budget):
        """Bytes of the file change: it is as it was, or a refusal, by no other exception."""
        agent = ClientAgent(POLICY, budget)
        agent.release(make_document(make_config(round_id="a")), np.zeros(DIM))
        data, spent, rng = budget.path.read_bytes(), budget.spent, random.Random(0)
        refused, document = 0, make_document(make_config(round_id="b"))
        for _ in range(60):
            damaged = bytearray(data)
            for _ in range(rng.choice([1, 3, 30])):
                damaged[rng.randrange(len(data))] = rng.randrange(256)
            budget.path.write_bytes(damaged[: rng.choice([len(data), len(data), 9000])])
            try:
                agent.admit(document, identities(N)[1])
                agent.claim(b"0" * 16)
                agent.release(document, np.zeros(DIM))
            except RefusedRoundError:
                refused += 1
        assert 10 < refused < 50
        for change in ("curve = zeroblob(8)", "curve = 'text'", "total_variation = -1.0"):
            budget.path.write_bytes(data)
            with contextlib.closing(sqlite3.connect(budget.path)) as connection, connection:
                connection.execute(f"UPDATE charges SET {change}")
            with pytest.raises(RefusedRoundError, match="a charge that is none"):
                agent.release(document, np.zeros(DIM))
            with pytest.raises(ValueError, match="a charge that is none"):
                _ = budget.spent
        budget.path.write_bytes(data)
        assert budget.spent == spent

    def test_names_that_no_file_can_hold(self, budget):
        config = json.loads(make_config().to_json()) | {"round_id": "\ud800"}
        with pytest.raises(RefusedRoundError, match="round_id"):
            RoundConfig.from_json(signed(config))
        with pytest.raises(RefusedRoundError, match="budget"):
            budget.meet("\ud800", 1, bytes(32))

    def test_rosters_do_not_go_back(self, budget):
        agent, (people, roster) = ClientAgent(POLICY, budget), identities(N)
        document = make_document(make_config())
        newer = roster.rotate("client 5", people[0].public[::-1])
        agent.admit(document, newer)
        with pytest.raises(RefusedRoundError, match="version 1.*knows version 2"):
            agent.admit(document, roster)
        forked = roster.rotate("client 5", people[1].public[::-1])
        with pytest.raises(RefusedRoundError, match="different"):
            agent.admit(document, forked)

    @staticmethod
    def release(path, documents, answered):
        agent = ClientAgent(POLICY, Budget(path))
        for document in documents:
            try:
                agent.release(document, np.zeros(DIM))
            except RefusedRoundError:
                continue
            answered.append(document.context)

    def release_in_threads(self, path, documents, n_threads=8):
        """Return the rounds that are answered by threads with an agent each, all at once."""
        answered = []
        threads = [
            threading.Thread(target=self.release, args=(path, documents, answered))
            for _ in range(n_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answered

    def test_eight_threads_answer_a_round_once(self, budget):
        documents = [make_document(make_config(round_id="one"))] * 2
        assert len(self.release_in_threads(budget.path, documents)) == budget.rounds == 1

    def test_four_processes_of_eight_threads_share_one_lifetime(self, tmp_path):
        """The same five rounds for all 32: each is answered once, while there is something left."""
        budget = Budget(tmp_path / "small.sqlite", epsilon=1.8, delta=1e-5)
        documents = [make_document(make_config(round_id=f"{r}")) for r in range(5)]
        affordable = budget.rounds_left(ClientAgent(POLICY, budget).privacy(documents[0]))
        logs = [tmp_path / f"{p}" for p in range(4)]

        def work(p):
            answered = self.release_in_threads(budget.path, documents)
            logs[p].write_text("\n".join(json.loads(text)["round_id"] for text in answered))

        run_all(
            [multiprocessing.get_context("fork").Process(target=work, args=(p,)) for p in range(4)]
        )
        answered = [name for log in logs for name in log.read_text().split()]
        assert len(set(answered)) == len(answered) == budget.rounds == affordable
        assert 2 <= affordable < 5
        assert budget.spent <= 1.8

    @pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
    def test_killed_anywhere_it_has_charged_at_least_what_it_sent(self, tmp_path, kills):
        """A child answers round after round and is killed; what it sent is a line, synced."""
        budget = Budget(tmp_path / "budget.sqlite", epsilon=1e6, delta=1e-5)
        config = make_config()
        warm = ClientAgent(POLICY, Budget(tmp_path / "warm.sqlite", epsilon=1e6, delta=1e-5))
        for r in range(2):  # the first loads what children then share, the second is timed
            begun = time.monotonic()
            named = dataclasses.replace(config, round_id=f"warm {r}")
            warm.release(make_document(named), np.zeros(DIM))
        longest = 5 * (time.monotonic() - begun)
        random.seed(0)
        for kill in range(kills):
            log = tmp_path / f"sent{kill}"

            def work(kill=kill, log=log):
                agent, r = ClientAgent(dataclasses.replace(POLICY), Budget(budget.path)), 0
                while True:
                    named = dataclasses.replace(config, round_id=f"{kill}.{r}")
                    agent.release(make_document(named), np.zeros(DIM))
                    with open(log, "a") as file:
                        file.write(f"{kill}.{r}\n")
                        file.flush()
                        os.fsync(file.fileno())
                    r += 1

            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            time.sleep(random.uniform(0.0, longest))
            os.kill(child.pid, signal.SIGKILL)
            child.join()
        sent = [line for log in tmp_path.glob("sent*") for line in log.read_text().split()]
        assert sent
        # At most one charge of each child has no line: that of the answer it was making.
        assert len(sent) <= budget.rounds <= len(sent) + kills


def run_all(processes):
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


class TestSavedStates:
    def play(self, budgets, between):
        """A whole round; ``between`` may replace a client's session between two stages."""
        people, roster = identities(N)
        config = make_config(Skellam(epsilon=1.0, n_bits=20, colluders=1))
        document = make_document(config)
        agents = [ClientAgent(POLICY, budget) for budget in budgets]
        server = ServerSession(document.to_json(), roster=roster)
        clients = {i: join(document.to_json(), agents[i], i) for i in range(N)}
        x = np.random.default_rng(0).standard_normal((N, DIM))
        for stage in document.stages:
            for i in range(N):
                incoming = b"" if stage == "advertise" else server.message_for(i)
                clients[i] = between(clients[i], people[i], roster, agents[i])
                server.receive(answer(clients[i], incoming, x[i]))
            server = ServerSession.load(server.save(), roster=roster)
            server.close_stage()
        return server.total(), config

    @pytest.fixture
    def budgets(self, tmp_path):
        return [Budget(tmp_path / f"{i}.sqlite", epsilon=4.0, delta=1e-5) for i in range(N)]

    def test_a_round_of_parties_that_restart_between_all_messages(self, budgets):
        def between(client, identity, roster, agent):
            return ClientSession.load(client.save(), identity=identity, roster=roster, agent=agent)

        total, config = self.play(budgets, between)
        assert total.shape == (config.mechanism.padded_dim,)
        assert [budget.rounds for budget in budgets] == [1] * N

    def test_a_state_continues_once(self, budgets):
        """Two copies of one state: the second is refused, at every stage."""

        def between(client, identity, roster, agent):
            state = client.save()
            with pytest.raises(RefusedRoundError, match="finished|in stage 'done'"):
                client.receive(b"") if client.stage != "advertise" else client.start()
            first = ClientSession.load(state, identity=identity, roster=roster, agent=agent)
            with pytest.raises(RefusedRoundError, match="continued before"):
                ClientSession.load(state, identity=identity, roster=roster, agent=agent)
            return first

        self.play(budgets, between)

    def test_what_is_no_state(self, budget):
        people, roster = identities(N)
        agent = ClientAgent(POLICY, budget)
        state = join(make_document(make_config()), agent).save()
        for bad in (b"", b"{}", b"[]", state[:-1], state.replace(b"client 1", b"client 9")):
            with pytest.raises(ValueError, match="."):
                ClientSession.load(bad, identity=people[0], roster=roster, agent=agent)
        with pytest.raises(ValueError, match="saved state of a server"):
            ServerSession.load(b"nonsense", roster=roster)
