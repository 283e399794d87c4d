"""The masked protocol: dropouts and thresholds, misbehaviour, reuse, bytes, what reprs reveal."""

import copy
import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from sparse_secagg import DiscreteGaussian, IdealSecAgg, MaskedSecAgg
from sparse_secagg.secagg import (
    BelowThresholdError,
    Dropouts,
    InvalidMessageError,
    ReuseError,
    ServerFaultError,
    survivor_weight,
    unit_weights,
)
from sparse_secagg.secagg.client import ClientSecrets, ClientSession
from sparse_secagg.secagg.keys import X25519, AgreedOnce, RoundId, derive_key, new_secret
from sparse_secagg.secagg.masked import run_round
from sparse_secagg.secagg.messages import (
    KINDS,
    TAGS_BYTES,
    AdvertiseKeys,
    MaskedInput,
    SurvivorList,
)
from sparse_secagg.secagg.parties import answer
from sparse_secagg.secagg.server import ServerSession
from sparse_secagg.secagg.setup import RoundDocument, Session

N, LENGTH, MODULUS, THRESHOLD = 8, 5, 1000, 6
NOBODY = Dropouts()
STAGES = ("advertise", "share", "mask", "unmask")
HEADER = 32


def make_round(
    session=None, neighbors=None, threshold=THRESHOLD, modulus=MODULUS, simulation=False
):
    """Return a round's setup, its server and its clients, and random messages."""
    session = Session() if session is None else session
    document = RoundDocument(
        session.new_round(),
        N,
        LENGTH,
        modulus,
        threshold,
        threshold,
        neighbors,
        None if neighbors is None else 0,
        security="semi_honest",
    )
    rows = np.random.default_rng(0).integers(0, modulus, (N, LENGTH), dtype=np.uint64)
    clients = {i: ClientSession(document, i, simulation=simulation) for i in range(N)}
    return document.setup(), ServerSession(document, session), clients, rows


def run_until(server, clients, rows, stop):
    """Play honestly until the stage ``stop`` has begun."""
    for stage in STAGES[: STAGES.index(stop)]:
        for i, client in clients.items():
            incoming = b"" if stage == "advertise" else server.message_for(i)
            server.receive(answer(client, incoming, rows[i]), i)
        server.close_stage()


def flip(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class TestDropouts:
    @pytest.mark.parametrize("masks", ["x25519", "seeded"])
    @pytest.mark.parametrize("stage", STAGES)
    @pytest.mark.parametrize("left", [THRESHOLD - 1, THRESHOLD, THRESHOLD + 1])
    def test_abort_below_the_threshold_and_exact_from_it_on(self, stage, left, masks):
        rows = np.random.default_rng(1).integers(0, MODULUS, (N, LENGTH), dtype=np.uint64)
        gone = list(range(0, 2 * (N - left), 2)) if left > N // 2 else list(range(N - left))
        secagg = MaskedSecAgg(THRESHOLD, masks=masks, modulus=MODULUS, share_threshold=THRESHOLD)
        if left < THRESHOLD:
            with pytest.raises(BelowThresholdError, match=f"{stage!r}.*threshold of 6"):
                secagg.aggregate(rows, {stage: gone})
            return
        result = secagg.aggregate(rows, {stage: gone})
        kept = np.arange(N) if stage == "unmask" else np.setdiff1d(np.arange(N), gone)
        assert result.survivors.tolist() == kept.tolist()
        assert result.total.tolist() == (rows[kept].sum(axis=0) % MODULUS).tolist()

    def test_at_all_stages_at_once(self):
        rows = np.random.default_rng(2).integers(0, MODULUS, (N + 4, LENGTH), dtype=np.uint64)
        dropouts = {"advertise": [0, 5], "share": [1, 6], "mask": [2, 7], "unmask": [3]}
        secagg = MaskedSecAgg(5, masks="seeded", modulus=MODULUS, share_threshold=5)
        result = secagg.aggregate(rows, dropouts)
        assert result.survivors.tolist() == [3, 4, 8, 9, 10, 11]
        ideal = IdealSecAgg(modulus=MODULUS, threshold=5).aggregate(rows, dropouts)
        assert result.total.tolist() == ideal.total.tolist()

    def test_a_partial_sum_is_never_there(self):
        """The server that aborts has no total to give, at any time."""
        _, server, clients, rows = make_round()
        with pytest.raises(RuntimeError, match="no sum yet"):
            server.total()
        with pytest.raises(BelowThresholdError):
            run_round(server, clients, rows, Dropouts(unmask=(0, 1, 2, 3)))
        with pytest.raises(RuntimeError, match="no sum yet"):
            server.total()

    def test_regular_graph(self):
        rows = np.random.default_rng(3).integers(0, 2**16, (60, 10), dtype=np.uint64)
        secagg = MaskedSecAgg(30, neighbors=20, masks="seeded", modulus=2**16, random_state=0)
        for rate in (0.0, 0.02, 0.04):
            result = secagg.aggregate(rows, rate)
            assert np.array_equal(result.total, rows[result.survivors].sum(axis=0) % 2**16)
        with pytest.raises(BelowThresholdError, match="share_threshold=17"):
            secagg.aggregate(rows, {"unmask": range(30)})
        with pytest.raises(BelowThresholdError, match="fewer than 17"):
            secagg.aggregate(rows, {"share": range(30)})
        secagg.set_params(share_threshold=11)
        result = secagg.aggregate(rows, 0.2)
        assert np.array_equal(result.total, rows[result.survivors].sum(axis=0) % 2**16)

    @pytest.mark.parametrize(
        ("n", "neighbors", "threshold", "expected"),
        [(9, None, None, 6), (9, None, 2, 6), (9, None, 8, 8), (100, 9, 2, 8), (100, 50, 99, 41)],
    )
    def test_share_threshold_by_default(self, n, neighbors, threshold, expected):
        """Two thirds and at least the threshold; four fifths of a neighbourhood that is smaller."""
        secagg = MaskedSecAgg(threshold, neighbors)
        document = secagg._document(n, LENGTH, MODULUS, np.random.default_rng(0), None)
        assert document.share_threshold == expected

    def test_survivors_that_fall_apart_end_the_round(self):
        """On a ring, two dropped clients leave two arcs, and each arc's sum would show."""
        setup, server, clients, rows = make_round(neighbors=2, threshold=2, simulation=True)
        a = 0
        b = next(i for i in range(8) if i not in setup.graph.members[a])
        with pytest.raises(BelowThresholdError, match="fallen apart"):
            run_round(server, clients, rows, Dropouts(mask=(a, b)))

    def test_forms_of_the_argument(self):
        rows = np.ones((N, 1), dtype=int)
        secagg = MaskedSecAgg(2, masks="seeded", modulus=MODULUS)
        mask = np.zeros(N, dtype=bool)
        mask[[1, 3]] = True
        forms = [[1, 3], (3, 1, 1), {1, 3}, np.array([1, 3]), mask, {"mask": [1, 3]}]
        for form in [*forms, Dropouts(mask=(1, 3))]:
            assert secagg.aggregate(rows, form).survivors.tolist() == [0, 2, 4, 5, 6, 7]
        for nobody in (None, [], {}, 0.0, np.zeros(N, dtype=bool)):
            assert secagg.aggregate(rows, nobody).n_survivors == N

    @pytest.mark.parametrize(
        "dropouts", [[N], [-1], {"later": [0]}, 3, 1.5, "mask", [0.5], float("nan"), [[0]]]
    )
    def test_other_forms_are_refused(self, dropouts):
        with pytest.raises(ValueError, match="dropouts"):
            MaskedSecAgg(2, modulus=MODULUS).aggregate(np.ones((N, 1), int), dropouts)

    def test_a_rate_drops_that_share_of_clients_evenly_over_the_stages(self):
        drawn = Dropouts.draw(0.2, 10_000, np.random.default_rng(0))
        counts = [len(drawn.before(stage)) for stage in STAGES]
        assert all(abs(count - 500) < 5 * np.sqrt(500) for count in counts)


class TestPrivacyCharged:
    def epsilon(self, dropouts, colluders=()):
        rows = np.zeros((20, 2), dtype=int)
        secagg = MaskedSecAgg(4, masks="seeded", modulus=4, share_threshold=4)
        result = secagg.aggregate(rows, dropouts)

        mechanism = DiscreteGaussian(noise_multiplier=2.0, n_bits=24)
        mechanism.calibrate(20, 256)
        betrayed = result.n_survivors - result.noise_shares(colluders)
        return mechanism.privacy(result.n_survivors, colluders=betrayed).epsilon("colluders")

    def test_grows_with_every_dropout_and_every_colluder(self):
        by_dropouts = [self.epsilon(list(range(k))) for k in (0, 1, 2, 5, 10, 16)]
        assert np.all(np.diff(by_dropouts) > 0)
        by_colluders = [self.epsilon(None, range(k)) for k in (0, 1, 2, 5, 10, 16)]
        assert by_colluders == pytest.approx(by_dropouts)
        assert self.epsilon(None, range(20)) == np.inf

    def test_noise_that_arrived_counts_though_its_client_left_later(self):
        assert self.epsilon({"unmask": [0, 1]}) == self.epsilon(None)
        assert self.epsilon({"advertise": [0], "share": [1]}) == self.epsilon([0, 1])

    def test_dropped_colluders_are_not_subtracted_twice(self):
        assert self.epsilon([0, 1], colluders=[1, 2]) == self.epsilon([0, 1, 2])


class TestMisbehaviour:
    def attacked(self, attack, on_invalid, dropouts=NOBODY):
        _, server, clients, rows = make_round()
        excluded = run_round(server, clients, rows, dropouts, on_invalid, channel=attack)
        return server, excluded, rows

    @pytest.mark.parametrize("stage", STAGES)
    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: b"",
            lambda data: data[:-1],
            lambda data: data + b"\0",
            lambda data: flip(data, 0),
            lambda data: flip(data, 8 * 20),
            lambda data: flip(data, 8 * 28),
        ],
        ids=["empty", "short", "long", "kind", "round", "sender"],
    )
    def test_a_malformed_message_names_its_sender_and_the_round_goes_on(self, stage, damage):
        def attack(at, client, data):
            return damage(data) if (at, client) == (stage, 3) else data

        with pytest.raises(InvalidMessageError, match=f"client 3 .*{stage}") as caught:
            self.attacked(attack, "raise")
        assert caught.value.client == 3
        server, excluded, rows = self.attacked(attack, "exclude")
        assert list(excluded) == [3]
        kept = range(N) if stage == "unmask" else [i for i in range(N) if i != 3]
        assert server.survivors.tolist() == list(kept)
        assert np.array_equal(server.total(), rows[list(kept)].sum(axis=0) % MODULUS)

    def test_every_flipped_bit_of_a_header_or_flag_is_refused(self):
        """Exhaustive over one client's last message as far as the shares."""
        _, server, clients, rows = make_round()

        def attack(stage, client, data):
            if (stage, client) == ("unmask", 2):
                for bit in range(8 * (HEADER + N)):
                    with pytest.raises(InvalidMessageError, match="client 2 "):
                        server.receive(flip(data, bit), 2)
            return data

        run_round(server, clients, rows, Dropouts(mask=(5,)), channel=attack)
        assert np.array_equal(server.total(), np.delete(rows, 5, axis=0).sum(axis=0) % MODULUS)

    def test_every_flipped_bit_of_a_revealed_share_is_noticed(self):
        """Every bit of the eight shares of one message: the dealer's tag tells each of them."""
        _, server, clients, rows = make_round()
        run_until(server, clients, rows, "unmask")
        data = clients[2].receive(server.message_for(2))
        for bit in range(8 * (HEADER + N), 8 * len(data)):
            server._came[2] = False
            server.complaints.clear()
            server.receive(flip(data, bit), 2)
            dealer = (bit // 8 - HEADER - N) // 34
            assert server.complaints == [(dealer, 2)]

    @pytest.mark.parametrize("on_invalid", ["raise", "exclude"])
    def test_a_false_share_is_left_out_and_the_sum_is_right(self, on_invalid):
        def attack(stage, client, data):
            return flip(data, 8 * len(data) - 5) if (stage, client) == ("unmask", 2) else data

        server, excluded, rows = self.attacked(attack, on_invalid, Dropouts(mask=(5,)))
        assert excluded == {}
        assert server.complaints == [(7, 2)]
        assert np.array_equal(server.total(), np.delete(rows, 5, axis=0).sum(axis=0) % MODULUS)

    def test_false_shares_that_leave_fewer_than_the_threshold_end_the_round(self):
        def attack(stage, client, data):
            return flip(data, 8 * len(data) - 5) if stage == "unmask" and client < 3 else data

        server, _, _ = self.attacked(attack, "exclude")
        with pytest.raises(BelowThresholdError, match="5 shares of client 7"):
            server.total()

    def test_a_dealer_cannot_have_others_thrown_out_by_announcing_false_tags(self):
        """Client 6 announces tags of other shares than it dealt: nobody's message is lost by it."""

        def attack(stage, client, data):
            if (stage, client) != ("share", 6):
                return data
            return data[: -TAGS_BYTES * 2] + bytes(TAGS_BYTES * 2)

        server, excluded, rows = self.attacked(attack, "raise")
        assert excluded == {}
        assert {dealer for dealer, _ in server.complaints} == {6}
        assert np.array_equal(server.total(), rows.sum(axis=0) % MODULUS)

    @pytest.mark.parametrize("on_invalid", ["raise", "exclude"])
    def test_a_share_that_does_not_open_is_noted_and_the_round_goes_on(self, on_invalid):
        header = HEADER + N

        def attack(stage, client, data):
            return flip(data, 8 * header + 3) if (stage, client) == ("share", 6) else data

        server, _, rows = self.attacked(attack, on_invalid, Dropouts(mask=(6,)))
        assert server.complaints == [(6, 0)]
        assert np.array_equal(server.total(), np.delete(rows, 6, axis=0).sum(axis=0) % MODULUS)

    @pytest.mark.parametrize("on_invalid", ["raise", "exclude"])
    def test_one_complaint_does_not_end_the_round_nor_cost_the_dealer_its_place(self, on_invalid):
        """Client 4 complains of everybody, and everybody was honest."""
        setup, server, clients, rows = make_round()

        def attack(stage, client, data):
            if (stage, client) != ("mask", 4):
                return data
            honest = MaskedInput.from_bytes(data, setup, 4)
            liars = tuple(i for i in range(N) if i != 4)
            return dataclasses.replace(honest, complaints=liars).to_bytes()

        assert run_round(server, clients, rows, NOBODY, on_invalid, channel=attack) == {}
        assert len(server.complaints) == N - 1
        assert server.survivors.tolist() == list(range(N))
        assert np.array_equal(server.total(), rows.sum(axis=0) % MODULUS)

    @pytest.mark.parametrize(("kind", "dropouts"), [(0, Dropouts()), (1, Dropouts(mask=(6,)))])
    def test_shares_of_another_secret_than_announced_are_noticed(self, kind, dropouts):
        """The dealer deals consistently, with right tags, but not what it committed itself to."""
        _, server, clients, rows = make_round()
        honest = clients[6].receive

        def receive(incoming):
            if clients[6].stage == "share":
                name = ("self_seed", "mask_secret")[kind]
                setattr(clients[6]._secrets, name, b"\1" * 32)
            return honest(incoming)

        clients[6].receive = receive
        run_round(server, clients, rows, dropouts)
        with pytest.raises(InvalidMessageError, match="client 6 .*announced"):
            server.total()

    def test_masked_values_out_of_range_name_their_sender(self):
        def attack(stage, client, data):
            if (stage, client) != ("mask", 4):
                return data
            return data[:-7] + b"\xff" * 6 + b"\x03"

        with pytest.raises(InvalidMessageError, match=r"client 4 .*outside \[0, 1000\)"):
            self.attacked(attack, "raise")

    @pytest.mark.parametrize("place", [0, 32])
    def test_keys_of_low_order_are_refused(self, place):
        def attack(stage, client, data):
            if (stage, client) != ("advertise", 1):
                return data
            return data[: HEADER + place] + bytes(32) + data[HEADER + place + 32 :]

        with pytest.raises(InvalidMessageError, match="client 1 .*no key"):
            self.attacked(attack, "raise")

    def test_a_second_message_in_one_stage_is_refused(self):
        _, server, clients, _rows = make_round()
        data = clients[0].start()
        server.receive(data, 0)
        with pytest.raises(InvalidMessageError, match="client 0 sent two"):
            server.receive(data, 0)

    def test_a_latecomer_is_refused(self):
        _, server, clients, _rows = make_round()
        late = clients[0].start()
        for i in range(1, N):
            server.receive(clients[i].start(), i)
        server.close_stage()
        with pytest.raises(InvalidMessageError, match="client 0 is not part"):
            server.receive(late, 0)

    def test_a_complaint_about_a_stranger_is_refused(self):
        setup, server, clients, rows = make_round()

        def attack(stage, client, data):
            if (stage, client) != ("mask", 4):
                return data
            return MaskedInput(setup.view, 4, rows[4], MODULUS, (99,)).to_bytes()

        with pytest.raises(InvalidMessageError, match="client 4 .*not its neighbours"):
            run_round(server, clients, rows, Dropouts(), channel=attack)


class TestServerThatAsksTooMuch:
    def at_the_last_stage(self):
        setup, server, clients, rows = make_round()
        run_until(server, clients, rows, "unmask")
        return setup, clients, {i: server.message_for(i) for i in clients}

    def test_a_client_answers_once(self):
        setup, clients, lists = self.at_the_last_stage()
        clients[0].receive(lists[0])
        other = np.arange(N) != 3
        with pytest.raises(ReuseError, match="finished"):
            clients[0].receive(SurvivorList(setup.view, 0, other).to_bytes())

    def test_a_client_does_not_give_its_own_mask_key(self):
        setup, clients, _ = self.at_the_last_stage()
        with pytest.raises(ServerFaultError, match="client 0 .*not named as a survivor"):
            clients[0].receive(SurvivorList(setup.view, 0, np.arange(N) > 0).to_bytes())

    def test_a_client_does_not_unmask_a_sum_of_few(self):
        setup, clients, _ = self.at_the_last_stage()
        few = np.arange(N) < THRESHOLD - 1
        with pytest.raises(BelowThresholdError, match="5 clients survived"):
            clients[0].receive(SurvivorList(setup.view, 0, few).to_bytes())

    def test_one_key_for_two_neighbours_is_refused(self):
        _, server, clients, _ = make_round()
        for i, client in clients.items():
            server.receive(client.start(), i)
        server.close_stage()
        data = bytearray(server.message_for(0))
        first, row = HEADER + N, 96
        data[first + row : first + row + 32] = data[first : first + 32]
        with pytest.raises(ServerFaultError, match="one key for two"):
            clients[0].receive(bytes(data))

    def test_messages_of_another_round_are_refused(self):
        setup, clients, _ = self.at_the_last_stage()
        document = setup.document
        later = dataclasses.replace(document, round_id=RoundId(document.round_id.session, 1))
        other = SurvivorList(later.setup().view, 0, np.ones(N, dtype=bool))
        with pytest.raises(ServerFaultError, match="another session or round"):
            clients[0].receive(other.to_bytes())

    @pytest.mark.parametrize("stage", STAGES[1:])
    def test_no_message_at_all_is_refused(self, stage):
        _, server, clients, rows = make_round()
        run_until(server, clients, rows, stage)
        with pytest.raises(ServerFaultError, match="0 bytes"):
            clients[0].receive(b"")


class TestReuse:
    def test_a_round_id_serves_once(self):
        secagg = MaskedSecAgg(2, modulus=4)
        rows = np.ones((3, 1), dtype=int)
        secagg.aggregate(rows, round_id=7)
        with pytest.raises(ReuseError, match="round_id=7"):
            secagg.aggregate(rows, round_id=7)
        secagg.aggregate(rows)
        with pytest.raises(ReuseError, match="round_id=8"):
            secagg.aggregate(rows, round_id=8)
        assert clone(secagg).aggregate(rows, round_id=7).n_survivors == 3

    def test_an_aborted_round_is_a_used_round(self):
        secagg = MaskedSecAgg(3, modulus=4)
        rows = np.ones((3, 1), dtype=int)
        with pytest.raises(BelowThresholdError):
            secagg.aggregate(rows, [0], round_id=1)
        with pytest.raises(ReuseError):
            secagg.aggregate(rows, round_id=1)

    def test_a_wrong_argument_uses_up_no_round(self):
        secagg = MaskedSecAgg(2, modulus=4)
        rows = np.ones((3, 1), dtype=int)
        with pytest.raises(ValueError, match="dropouts"):
            secagg.aggregate(rows, [5], round_id=1)
        assert secagg.aggregate(rows, round_id=1).n_survivors == 3

    def test_a_pickled_session_remembers(self):
        secagg = MaskedSecAgg(2, modulus=4)
        rows = np.ones((3, 1), dtype=int)
        secagg.aggregate(rows, round_id=7)
        with pytest.raises(ReuseError):
            pickle.loads(pickle.dumps(secagg)).aggregate(rows, round_id=7)

    def test_secrets_serve_once(self):
        setup, _, _, _rows = make_round()
        secrets = ClientSecrets()
        ClientSession(setup.document, 0, secrets=secrets)
        with pytest.raises(ReuseError, match="draw new ones"):
            ClientSession(setup.document, 0, secrets=secrets)

    @pytest.mark.parametrize("again", ["mask_secret", "cipher_secret", "self_seed"])
    @pytest.mark.parametrize("same_round", [True, False])
    def test_the_server_recognises_a_key_or_seed(self, again, same_round):
        session = Session()
        setup, server, _, _ = make_round(session)
        first = ClientSecrets()
        server.receive(ClientSession(setup.document, 0, secrets=first).start(), 0)
        if not same_round:
            setup, server, _, _ = make_round(session)
        second = ClientSecrets(**{again: getattr(first, again)})
        with pytest.raises(InvalidMessageError, match="client 1 .*used before"):
            server.receive(ClientSession(setup.document, 1, secrets=second).start(), 1)

    def test_masks_of_two_rounds_differ(self):
        """One client's masked zeros, in two rounds of one session: independent residues."""
        session, seen = Session(), []
        for _ in range(2):
            _, server, clients, rows = make_round(session, modulus=2**60)
            run_round(
                server,
                clients,
                rows,
                Dropouts(),
                channel=lambda s, c, d: seen.append(d) or d if (s, c) == ("mask", 0) else d,
            )
        assert seen[0][HEADER:] != seen[1][HEADER:]


class TestBytes:
    @pytest.mark.parametrize("neighbors", [None, 10])
    def test_are_what_the_formats_say(self, neighbors):
        n, m, bits = 30, 100, 11
        k = n - 1 if neighbors is None else neighbors
        rows = np.zeros((n, m), dtype=int)
        result = MaskedSecAgg(15, neighbors, modulus=2**bits).aggregate(rows)
        header, flags, survivors = HEADER, k + 1, -(-n // 8)
        keys, ciphertext, share, tag = 32, 2 * 34 + 16, 34, 16
        up = 4 * header + 3 * keys + flags + k * ciphertext + 2 * (k + 1) * tag
        up += 4 + flags + (k + 1) * share
        down = 3 * header + 2 * flags + survivors + 3 * k * keys + k * ciphertext
        assert set(result.payload_up) == {-(-m * bits // 8)}
        assert set(result.protocol_up) == {up}
        assert set(result.protocol_down) == {down}
        assert set(result.payload_down) == {0}
        assert np.array_equal(result.bytes_up, result.payload_up + result.protocol_up)

    def test_of_the_dropped_end_where_they_left(self):
        rows = np.zeros((N, 100), dtype=int)
        stages = {stage: [i] for i, stage in enumerate(STAGES)}
        secagg = MaskedSecAgg(2, masks="seeded", modulus=4, share_threshold=2)
        result = secagg.aggregate(rows, stages)
        assert result.bytes_up[0] == 0
        assert result.bytes_up[1] == HEADER + 96
        assert np.all(np.diff(result.bytes_up[:5]) > 0)
        assert result.payload_up.tolist() == [0, 0, 0, 25, 25, 25, 25, 25]


class TestRoles:
    def test_parameters_clone_and_repr(self):
        secagg = MaskedSecAgg(threshold=3, neighbors=4, masks="seeded", modulus=2**16)
        assert clone(secagg).get_params() == secagg.get_params()
        assert secagg.set_params(modulus=5).modulus == 5
        assert "neighbors=4" in repr(secagg)

    @pytest.mark.parametrize(
        ("parameters", "match"),
        [
            ({"masks": "aes"}, "masks='aes'"),
            ({"neighbors": 1}, "neighbors=1"),
            ({"threshold": 9}, "threshold=9"),
            ({"share_threshold": 9}, "share_threshold=9"),
            ({"share_threshold": 5}, "share_threshold=5 .*lies about who dropped"),
            ({"share_threshold": 1, "masks": "seeded"}, "share_threshold=1 is not between 2"),
            ({"on_invalid": "ignore"}, "on_invalid='ignore'"),
        ],
    )
    def test_parameters_are_checked(self, parameters, match):
        with pytest.raises(ValueError, match=match):
            MaskedSecAgg(modulus=4).set_params(**parameters).aggregate(np.ones((8, 1), int))

    def test_one_client_is_no_cohort(self):
        with pytest.raises(ValueError, match="fewer than 2"):
            MaskedSecAgg(modulus=4).aggregate(np.ones((1, 1), int))

    def test_only_seeded_masks_say_that_they_are_not_private(self):
        rows = np.ones((3, 1), int)
        assert MaskedSecAgg(masks="seeded", modulus=4).aggregate(rows).not_private
        assert not MaskedSecAgg(modulus=4).aggregate(rows).not_private

    def test_secrets_are_in_no_representation_and_no_pickle(self):
        setup, server, clients, rows = make_round()
        sent = []
        client = clients[0]
        secrets = client._secrets
        hidden = [secrets.mask_secret, secrets.cipher_secret, secrets.self_seed]
        holders = [client, secrets, server, setup, vars(client)["_mask_pair"]]
        run_round(server, clients, rows, Dropouts(), channel=lambda s, c, d: sent.append(d) or d)
        text = " ".join(map(repr, holders))
        for secret in hidden:
            assert repr(secret)[2:-1] not in text
            assert secret.hex() not in text
        for holder, how in itertools.product(
            (client, secrets), (pickle.dumps, copy.copy, copy.deepcopy)
        ):
            with pytest.raises(TypeError, match="secrets"):
                how(holder)
        mask_secret, cipher_secret = hidden[:2]
        assert all(mask_secret not in data and cipher_secret not in data for data in sent)

    def test_representations_of_messages_show_no_share_and_no_vector(self):
        setup, server, clients, rows = make_round()
        shown = {}

        def read(stage, client, data):
            kind = next(kind for kind in KINDS if kind.kind == data[3])
            shown[stage] = repr(kind.from_bytes(data, setup, client))
            return data

        run_round(server, clients, rows, Dropouts(), channel=read)
        assert "MaskedInput" in shown["mask"]
        assert "values" not in shown["mask"]
        assert "UnmaskShares" in shown["unmask"]
        assert "shares=" not in shown["unmask"]

    def test_errors_survive_pickling(self):
        error = pickle.loads(pickle.dumps(InvalidMessageError(3, "lied")))
        assert (error.client, error.reason) == (3, "lied")

    def test_messages_round_trip(self):
        setup, _, clients, _ = make_round()
        data = clients[2].start()
        assert AdvertiseKeys.from_bytes(data, setup, 2).to_bytes() == data
        with pytest.raises(ValueError, match="claims to be client 2"):
            AdvertiseKeys.from_bytes(data, setup, 3)


class TestCohortsAndWeights:
    def test_cohorts_may_change_from_round_to_round(self):
        rng = np.random.default_rng(0)
        population = {name: rng.integers(0, 100, 4) for name in "abcdefgh"}
        secagg = MaskedSecAgg(0.5, modulus=1000)
        for cohort in (["a", "b", "c", "d"], ["c", "h", "e"], list("hgfedcba")):
            rows = np.stack([population[name] for name in cohort])
            result = secagg.aggregate(rows, [1], cohort=cohort)
            names = [cohort[0], *cohort[2:]]
            assert result.surviving_cohort.tolist() == names
            assert np.array_equal(result.total, sum(population[name] for name in names))

    def test_a_client_is_in_a_cohort_once(self):
        with pytest.raises(ValueError, match="cohort"):
            MaskedSecAgg(2, modulus=4).aggregate(np.ones((3, 1), int), cohort=["a", "b", "a"])

    def test_weighted_mean_of_the_survivors(self):
        rng = np.random.default_rng(0)
        weights, X = rng.integers(1, 50, 10), rng.integers(0, 10, (10, 3))
        w = unit_weights(weights)
        assert w.max() == 1
        messages = np.rint(w[:, None] * X * 49).astype(int)
        scaled = messages / 49
        result = IdealSecAgg(modulus=2**20).aggregate(messages, [0, 4])
        mean = result.total / 49 / survivor_weight(w, result)
        kept = result.survivors
        assert mean == pytest.approx(scaled[kept].sum(axis=0) / w[kept].sum())
        assert mean == pytest.approx(np.average(X[kept], axis=0, weights=weights[kept]), abs=0.05)

    @pytest.mark.parametrize("weights", [[0, 0], [1, -1], [1, np.nan], [[1, 2]]])
    def test_weights_are_checked(self, weights):
        with pytest.raises(ValueError, match="weights"):
            unit_weights(weights)

    def test_weights_of_survivors_are_checked(self):
        result = IdealSecAgg(modulus=4).aggregate(np.ones((2, 1), int), [0])
        with pytest.raises(ValueError, match="shape"):
            survivor_weight([1, 2, 3], result)
        with pytest.raises(ValueError, match="zero"):
            survivor_weight([1, 0], result)


class TestSimulatedParties:
    """What a process that plays all clients may do faster must not change the round."""

    @pytest.fixture
    def agreements(self, monkeypatch):
        """Count key agreements."""
        count = []
        honest = X25519.agree

        def counting(self, public):
            count.append(public)
            return honest(self, public)

        monkeypatch.setattr(X25519, "agree", counting)
        return count

    @pytest.mark.parametrize("neighbors", [None, 4])
    def test_pairs_agree_once_on_what_they_would_agree_on_twice(self, agreements, neighbors):
        pairs = N * ((N - 1) if neighbors is None else neighbors) // 2
        rows = np.random.default_rng(1).integers(0, MODULUS, (N, LENGTH), dtype=np.uint64)
        for agree_once, expected in [(True, 2 * pairs), (False, 4 * pairs)]:
            agreements.clear()
            secagg = MaskedSecAgg(THRESHOLD, neighbors, modulus=MODULUS, agree_once=agree_once)
            total = secagg.aggregate(rows).total
            np.testing.assert_array_equal(total, rows.sum(axis=0) % MODULUS)
            assert len(agreements) == expected + 2 * N  # the server tries every key

    def test_ends_that_were_told_different_things_do_not_share_a_key(self):
        a, b, other = (X25519(new_secret()) for _ in range(3))
        agreed = AgreedOnce()
        key = agreed.key(a, b.public, "pair mask", b"digest", 0, 1, 32)
        assert agreed.key(b, other.public, "pair mask", b"digest", 0, 1, 32) != key
        assert agreed.key(b, a.public, "share", b"digest", 0, 1, 32) != key
        assert agreed.key(b, a.public, "pair mask", b"another", 0, 1, 32) != key
        expected = derive_key(b.agree(a.public), "pair mask", b"digest", 0, 1, 32)
        assert agreed.key(b, a.public, "pair mask", b"digest", 0, 1, 32) == key == expected

    def test_parties_of_their_own_agree_each(self, agreements):
        _, server, clients, rows = make_round()
        run_until(server, clients, rows, "mask")
        assert len(agreements) == 2 * N + 2 * N * (N - 1)

    @pytest.mark.parametrize("neighbors", [None, 4])
    def test_workers_play_the_same_round(self, neighbors):
        rows = np.random.default_rng(1).integers(0, MODULUS, (N, LENGTH), dtype=np.uint64)
        dropouts = Dropouts(mask=(2,), unmask=(0,))
        here, there = (
            MaskedSecAgg(5, neighbors, modulus=MODULUS, share_threshold=None if neighbors is None
                         else 3, masks="seeded", random_state=0, n_jobs=n_jobs
                         ).aggregate(rows, dropouts)
            for n_jobs in (None, 2)
        )  # fmt: skip
        np.testing.assert_array_equal(here.total, rows[here.survivors].sum(axis=0) % MODULUS)
        np.testing.assert_array_equal(here.total, there.total)
        np.testing.assert_array_equal(here.survivors, there.survivors)
        np.testing.assert_array_equal(here.protocol_up, there.protocol_up)
        np.testing.assert_array_equal(here.protocol_down, there.protocol_down)

    def test_identities_stay_in_their_process(self):
        secagg = MaskedSecAgg(6, modulus=MODULUS, security="malicious", n_jobs=2)
        with pytest.raises(ValueError, match="n_jobs=2"):
            secagg.aggregate(np.zeros((N, LENGTH), np.uint64))
