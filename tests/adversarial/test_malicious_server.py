"""A server that lies in any message, against clients that sign and confirm.

Each attack is played twice: against clients as they are, who refuse or give nothing away; and, as a
control, against clients with one check removed, where it succeeds. Success means that the server
computes the victim's vector, or that the lie is answered where it is only a step of an attack.
"""

import contextlib
import dataclasses
import hmac
import threading
import time

import numpy as np
import pytest

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg import BelowThresholdError, ClientSession, ServerFaultError, shamir
from sparse_secagg.secagg import client as client_module
from sparse_secagg.secagg.client import mask_sign, pair_mask_key, self_mask_key
from sparse_secagg.secagg.identities import Identity, Roster
from sparse_secagg.secagg.keys import X25519, Jointly, seal, unseal
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.messages import (
    CONFIRMATION_BYTES,
    MASK_KEY,
    SELF_MASK,
    ForwardedShares,
    MaskedInput,
    SurvivorList,
)
from sparse_secagg.secagg.quorums import has_quorums
from sparse_secagg.secagg.setup import RoundDocument, RoundSetup
from tests.adversarial.lying import (
    LENGTH,
    LyingServer,
    default_document,
    forged_keys,
    identities,
)

N = 12


def document_of(n=N, neighbors=None, **changes):
    return default_document(n, neighbors, "malicious", **changes)


def without(monkeypatch, *checks):
    """Remove checks from every client."""
    for check in checks:
        monkeypatch.setattr(ClientSession, check, lambda self, *args: None)


def test_an_honest_server_gets_the_sum():
    for server in (LyingServer(document_of()).play(), LyingServer(document_of(24, 14)).play()):
        everybody = list(server.clients)
        assert np.array_equal(server.unmasked_sum(everybody), server.truth(everybody))


# -- the server between a client and the others -----------------------------------------------


#: What stands in for the identities of all, where nobody's counts.
EVERYBODY = X25519(b"everybody's" + bytes(21))


def without_identities(monkeypatch):
    """Let keys of pairs take this round's cipher keys alone."""
    monkeypatch.setattr(Identity, "agreement", EVERYBODY)
    monkeypatch.setattr(
        client_module, "agreement_keys", lambda keys: [EVERYBODY.public] * len(keys)
    )


def unread(server, setup, clients):
    """Let clients seem to have shared what opens for nobody."""
    for j in clients:
        dealt = next(iter(server.dealt.values()))
        server.setups[j] = setup
        server.dealt[j] = dataclasses.replace(dealt, present=np.zeros_like(dealt.present))


def vector_by_forged_keys(server):
    """Stand between client 0 and all others; return its vector."""
    server.advertise()
    rows, secrets = forged_keys(server, 0)
    server.share(0, rows)
    setup, members = server.setups[0], server.members(0)
    known = client_module.agreement_keys([server.roster.members[0].key])[0]
    shares, ciphertexts, masks = {}, [], MaskSum(LENGTH, setup.modulus)
    for j in members[1:]:
        mask_pair, cipher_pair = secrets[j]
        agreed = Jointly(cipher_pair, EVERYBODY).agree(server.advertised[0][32:64] + known)
        keys = setup.derive(agreed, "share", 0, j, 128)
        ciphertexts.append(seal(keys[64:96], bytes(2 * shamir.SHARE_BYTES)))
        opened = unseal(keys[:32], server.ciphertext(0, j))
        if opened is not None:
            shares[j] = opened[: shamir.SHARE_BYTES]
        key = pair_mask_key(setup, mask_pair, server.advertised[0][:32], 0, j)
        masks.add(key, sign=mask_sign(0, j))
    present = np.arange(N) > 0
    message = ForwardedShares(
        setup.view, 0, present, np.frombuffer(b"".join(ciphertexts), np.uint8)
    )
    server.clients[0].receive(message.to_bytes())
    data = server.unsigned(server.clients[0].mask(server.rows[0]))
    values = MaskedInput.from_bytes(data, setup, 0).values
    if len(shares) < setup.share_threshold:
        raise BelowThresholdError(f"the server reads {len(shares)} of the shares for others")
    ranks = np.arange(1, setup.share_threshold + 1)
    rows = np.array([np.frombuffer(shares[int(j)], np.uint8) for j in ranks])
    masks.add(self_mask_key(setup, 0, shamir.combine(ranks + 1, rows)))
    return add_modulo(values, masks.value(), setup.modulus, sign=-1)


class TestKeys:
    def test_keys_of_the_servers_making(self):
        """No share of theirs opens, and none that client 0 sealed for them can be read."""
        with pytest.raises(BelowThresholdError, match="client 0 .*shares that open"):
            vector_by_forged_keys(LyingServer(document_of()))

    def test_what_is_sealed_takes_an_identity_to_read(self, monkeypatch):
        without(monkeypatch, "_check_enough", "_check_signatures")
        with pytest.raises(BelowThresholdError, match="reads 0 of"):
            vector_by_forged_keys(LyingServer(document_of()))

    def test_control_without_identities_in_the_keys_of_pairs(self, monkeypatch):
        without_identities(monkeypatch)
        server = LyingServer(document_of())
        assert np.array_equal(vector_by_forged_keys(server), server.rows[0])

    def few_by_forged_keys(self):
        """Four of 24 stay away; the server plays them, with keys of its making, on every list.

        Their shares open for nobody. A corrupt dealer's might not either, so that alone costs it no
        place; but their masks are the server's, and what shows is the sum of the others.
        """
        away, rest = range(4), range(4, 24)
        document = document_of(24, 14, threshold=22)
        server = LyingServer(document).advertise()
        for attempt in range(2, 256):  # until enough others sit around everybody
            pairs = {j: X25519(bytes([attempt, j]) * 16) for j in away}
            for j in away:
                cipher = X25519(bytes([attempt, j, 1, 1]) * 8).public
                server.advertised[j] = pairs[j].public + cipher + bytes(32)
            setup = document.setup(server.tree().root)
            if setup.graph.n_near(np.arange(24) >= 4).min() >= setup.share_threshold:
                break
        for i in rest:
            server.share(i)
        unread(server, setup, away)
        for step in (server.forward, server.tell, server.confirm):
            for i in rest:
                step(i, range(24)) if step == server.tell else step(i)
        total, masks = server.unmasked_sum(rest), MaskSum(LENGTH, setup.modulus)
        for v in rest:
            for j in server.told[v] & set(away):
                key = pair_mask_key(setup, pairs[j], server.advertised[v][:32], j, v)
                masks.add(key, sign=mask_sign(v, j))
        return server, add_modulo(total, masks.value(), setup.modulus, sign=-1)

    def test_keys_of_the_servers_making_for_clients_that_stay_away(self):
        with pytest.raises(ServerFaultError, match="did not sign"):
            self.few_by_forged_keys()

    def test_control_without_signatures(self, monkeypatch):
        """Fewer than the threshold of 22 show."""
        without(monkeypatch, "_check_signatures")
        server, total = self.few_by_forged_keys()
        assert np.array_equal(total, server.truth(range(4, 24)))

    @pytest.mark.parametrize("whose", ["another round's", "another client's"])
    def test_keys_signed_for_another_round_or_by_another(self, whose):
        """Signatures are over the document and the client: none can be moved."""
        server = LyingServer(document_of()).advertise()
        if whose == "another round's":
            other, j = LyingServer(document_of(context=b"an earlier round")).advertise(), 3
        else:
            other, j = server, 4
        server.advertised[3], server.signatures[3] = other.advertised[j], other.signatures[j]
        if j == 4:
            server.advertised.pop(4)
        for i in server.advertised.keys() - {3}:
            server.share(i)
        unread(server, server.setups[0], [3])
        with pytest.raises(ServerFaultError, match="client 3 of the roster did not sign"):
            server.forward(0)

    def test_a_signed_key_whose_share_does_not_open_costs_nobody_its_place(self):
        """The client was restarted in between; what its neighbours signed is still there."""
        server, people = LyingServer(document_of()).play("share"), identities(N)[0]
        state = server.clients[0].save()
        client = ClientSession.load(state, identity=people[0], roster=server.roster)
        server.clients[0] = client
        unread(server, server.setups[0], [3])
        server.forward(0)
        assert client._complaints == (3,)

    def test_a_graph_of_the_servers_choice(self, monkeypatch):
        """The root binds the keys; the graph follows from it. Any other root is another graph."""
        server = LyingServer(document_of(24, 14)).advertise()
        with pytest.raises(ServerFaultError, match="client 0 .*not those that everybody is sent"):
            server.share(0, root=b"r" * 32)
        without(monkeypatch, "_check_root")
        server = LyingServer(document_of(24, 14)).advertise()
        server.share(0, root=b"r" * 32)
        assert (
            server.setups[0].graph.digest != server.document.setup(server.tree().root).graph.digest
        )

    def test_absences_are_bound_too(self):
        """To hide one neighbour from client 0 only, in a tree that has it."""
        server = LyingServer(document_of()).advertise()
        rows = {j: row for j, row in server.advertised.items() if j != 5}
        with pytest.raises(ServerFaultError, match="not those that everybody is sent"):
            server.share(0, rows, root=server.tree().root)

    def test_two_roots_never_cancel(self):
        """Client 0 is told that 5 is absent, by a root of its own: its shares open for nobody."""
        server = LyingServer(document_of()).advertise()
        server.share(0, {j: row for j, row in server.advertised.items() if j != 5})
        for i in range(1, N):
            server.share(i)
        with pytest.raises(BelowThresholdError, match="client 0 .*shares that open"):
            server.forward(0, shared=set(range(N)) - {5})

    @pytest.mark.parametrize("name", ["mask_key", "cipher_key"])
    def test_a_key_of_low_order_of_a_corrupt_client(self, name):
        """Client 3 colludes: it signs a key of low order, so that its masks are public."""
        server = LyingServer(document_of())
        honest = server.clients[3]._advertisement
        server.clients[3]._advertisement = lambda: dataclasses.replace(
            honest(), **{name: bytes(32)}
        )

        def play():
            server.play("share")
            server.forward(0)

        with pytest.raises(ServerFaultError, match="client 0"):
            play()
        assert 0 not in server.masked


class TestIdentities:
    def test_a_stranger_is_not_on_the_roster(self):
        people, roster = identities(N)
        with pytest.raises(RefusedRoundError, match="not on the roster"):
            ClientSession(document_of(), identity=Identity.new(), roster=roster)
        with pytest.raises(RefusedRoundError, match="not on the roster"):
            ClientSession(document_of(), 3, identity=people[2], roster=roster)

    def test_invented_clients(self):
        """The server's roster has a friend more than the one that the client knows."""
        people, roster = identities(N)
        longer = roster.add("friend", Identity.new().public)
        document = document_of(N + 1, roster=longer.digest)
        with pytest.raises(ServerFaultError, match="roster is not the one"):
            ClientSession(document, identity=people[0], roster=roster)
        with pytest.raises(ServerFaultError, match="roster is not the one"):
            ClientSession(
                document_of(N + 1, roster=roster.digest), identity=people[0], roster=roster
            )

    def test_control_without_the_check_of_the_roster(self, monkeypatch):
        without(monkeypatch, "_check_parameters")
        people, roster = identities(N)
        longer = roster.add("friend", Identity.new().public)
        document = document_of(N + 1, roster=longer.digest)
        assert ClientSession(document, identity=people[0], roster=roster).start()

    def test_without_an_identity_nobody_takes_part(self):
        with pytest.raises(RefusedRoundError, match="identity and a roster"):
            ClientSession(document_of(), 0)

    def test_rotated_and_revoked_keys(self):
        people, roster = identities(3)
        fresh = Identity.new()
        newer = roster.rotate("client 1", fresh.public)
        assert newer.version == roster.version + 1
        assert newer.index(people[1].public) is None
        assert newer.index(fresh.public) == 1
        with pytest.raises(ValueError, match="revoked"):
            newer.add("again", people[1].public)
        assert len(newer.revoke("client 0")) == 2
        assert newer.digest != roster.digest
        assert Roster.from_json(newer.to_json()) == newer


# -- lists --------------------------------------------------------------------------------------


class TestLists:
    def nobody_shared(self):
        """Client 0 is told that nobody shared; all others open its self mask in good faith."""
        server = LyingServer(document_of()).play("share")
        server.forward(0, shared=())
        for i in range(1, N):
            server.forward(i)
        for step in (server.tell, server.confirm):
            for i in range(1, N):
                step(i, None) if step == server.confirm else step(i, range(N))
        return server, server.unmasked_sum([0])

    def test_nobody_shared(self):
        with pytest.raises(BelowThresholdError, match="client 0 .*shares that open"):
            self.nobody_shared()

    def test_control_without_counting_who_shared(self, monkeypatch):
        without(monkeypatch, "_check_enough")
        server, vector = self.nobody_shared()
        assert np.array_equal(vector, server.rows[0])

    def half_shared(self, share_threshold, **options):
        """Client 0 masks towards t − 1 others, who are then declared dropped, to all alike."""
        t = share_threshold
        document = document_of(threshold=t, share_threshold=t)
        server = LyingServer(document, **options).play("share")
        server.forward(0, shared=range(1, t))
        rest = set(range(N)) - set(range(1, t))
        for i in range(1, N):
            server.forward(i)
        for i in rest - {0}:
            server.tell(i, rest)
        for i in rest - {0}:
            server.confirm(i)
        return server, server.unmasked_sum([0], keys_of=range(1, t))

    @pytest.mark.parametrize("share_threshold", range(7, N))
    def test_half_shared_and_then_dropped(self, share_threshold):
        with pytest.raises(BelowThresholdError):
            self.half_shared(share_threshold)

    def test_control_with_half_of_the_shares(self):
        with pytest.raises(ServerFaultError, match="share_threshold=6 .*so low"):
            self.half_shared(6)
        server, vector = self.half_shared(6, simulation=True)
        assert np.array_equal(vector, server.rows[0])

    def split_lists(self):
        """Every client hears of as many drop-outs as it believes, at a threshold that allows it."""
        server = LyingServer(document_of(threshold=7, share_threshold=7))
        return server, server.isolate([0], present=7)

    def test_split_lists(self):
        with pytest.raises(RefusedRoundError, match="confirmed the list"):
            self.split_lists()

    def test_control_without_confirmations(self, monkeypatch):
        without(monkeypatch, "_check_confirmed")
        server, vector = self.split_lists()
        assert np.array_equal(vector, server.rows[0])

    def test_confirmations_cannot_be_forged_moved_or_replayed(self):
        server = LyingServer(document_of()).play("tell")
        real = {j: sent[0] for j, sent in server.tags.items() if 0 in sent}
        for tags in (
            {j: bytes(16) for j in real},
            {j: real[max(1, (j + 1) % N)] for j in real},
            {j: server.tags[0][j] for j in real},  # its own, sent back
            {j: real[j] for j in list(real)[:6]},
        ):
            with pytest.raises(RefusedRoundError, match="confirmed the list"):
                LyingServer.confirm(replay(server), 0, tags)

    def lie(self, what):
        server = LyingServer(document_of(24, 14) if what == "around" else document_of())
        if what == "not shared":
            server.play("share")
            for i in server.clients:
                server.forward(i, shared=range(11) if i == 0 else None)
            return server.tell(0, range(N))
        server.play("forward")
        if what == "without itself":
            return server.tell(0, range(1, N))
        if what == "few":
            return server.tell(0, range(7))
        # "around": four neighbours of the client opposite are gone, none of client 0's
        order = server.setups[0].graph.order.tolist()
        opposite = order.index(0) + 12
        gone = {order[(opposite + step) % 24] for step in (-2, -1, 1, 2)}
        return server.tell(0, set(range(24)) - gone)

    @pytest.mark.parametrize(
        ("what", "check"),
        [
            ("not shared", "_check_list"),
            ("without itself", "_check_list"),
            ("few", "_check_list"),
            ("around", "_check_everybody"),
        ],
    )
    def test_lists_that_no_honest_server_sends(self, what, check, monkeypatch):
        with pytest.raises(RefusedRoundError, match="client 0"):
            self.lie(what)
        without(monkeypatch, check, *(["_check_everybody"] if what == "few" else []))
        self.lie(what)

    def test_both_kinds_of_shares(self):
        """Half are told that client 0 survived, half that it dropped: neither half is confirmed."""
        server = LyingServer(document_of()).play("forward")
        everybody = set(range(N))
        for i in range(1, N):
            server.tell(i, everybody if i % 2 else everybody - {0})
        for i in range(1, N):
            with pytest.raises(RefusedRoundError, match="confirmed the list"):
                server.confirm(i)
        for kind in (SELF_MASK, MASK_KEY):
            with pytest.raises(BelowThresholdError):
                server.secret(0, kind)


class TestColluders:
    """Two lists, each confirmed by half of the honest clients and by all corrupt ones."""

    CORRUPT = (10, 11)

    def tag(self, server, c, i):
        """Return corrupt client c's confirmation of whatever client i was told."""
        key = server.clients[c]._to(server.members(c).index(i))[32:]
        return hmac.digest(key, server.clients[i]._list_digest(), "sha256")[:CONFIRMATION_BYTES]

    def both_secrets(self, share_threshold):
        t = share_threshold
        server = LyingServer(document_of(threshold=t, share_threshold=t)).play("forward")
        everybody, halves = set(range(N)), (range(5), range(5, 10))
        for half, told in zip(halves, (everybody, everybody - {0})):
            for i in half:
                server.tell(i, told)
            for i in half:
                tags = {j: server.tags[j][i] for j in half if j != i}
                server.confirm(i, tags | {c: self.tag(server, c, i) for c in self.CORRUPT})
        for c in self.CORRUPT:
            shares = server.clients[c]._shares[0]
            for kind, share in (
                (SELF_MASK, shares[: len(shares) // 2]),
                (MASK_KEY, shares[len(shares) // 2 :]),
            ):
                server.shares[0, kind][c] = np.frombuffer(share, np.uint8)
        setup = server.setups[0]
        masks = MaskSum(LENGTH, setup.modulus)
        masks.add(self_mask_key(setup, 0, server.secret(0, SELF_MASK)))
        own = setup.key_pair(server.secret(0, MASK_KEY))
        for j in range(1, N):
            key = pair_mask_key(setup, own, server.advertised[j][:32], 0, j)
            masks.add(key, sign=mask_sign(0, j))
        return server, add_modulo(server.masked[0], masks.value(), setup.modulus, sign=-1)

    def test_control_a_quorum_that_counts_on_everybody(self):
        """7 of 12 is a quorum among honest clients. With two corrupt ones it is two quorums."""
        assert has_quorums(N, 7, N)
        assert not has_quorums(N, 7, N, corrupt=2)
        server, vector = self.both_secrets(7)
        assert np.array_equal(vector, server.rows[0])

    def test_a_quorum_that_counts_on_two_to_lie(self):
        assert has_quorums(N, 8, N, corrupt=2)
        with pytest.raises(RefusedRoundError, match="confirmed the list"):
            self.both_secrets(8)


def replay(server):
    """Return the server, client 0 being taken back to where it awaits confirmations."""
    server.clients[0]._stage = "unmask"
    return server


class TestDocuments:
    @pytest.mark.parametrize(
        "change",
        [
            {"masks": "seeded"},
            {"share_threshold": 6},
            {"share_threshold": 1},
            {"threshold": 1},
            {"n_clients": 10**6},
            {"graph_seed": 1},
        ],
        ids=str,
    )
    def test_what_a_client_refuses_before_it_makes_a_key(self, change):
        people, roster = identities(N)

        def join():
            document = dataclasses.replace(document_of(), **change)
            ClientSession(document, identity=people[0], roster=roster)

        with pytest.raises(RefusedRoundError):
            join()

    def test_control_seeded_masks_give_the_vector_away(self):
        """Secrets are public keys over nine: what clients refuse such rounds for."""
        document = document_of(masks="seeded")
        with pytest.raises(ServerFaultError, match="hide nothing"):
            LyingServer(document)
        server = LyingServer(document, simulation=True).play()
        setup, order = server.setups[0], 2**255 - 19
        public = int.from_bytes(server.advertised[0][:32], "little")
        own = setup.key_pair((public * pow(9, -1, order) % order).to_bytes(32, "little"))
        masks = MaskSum(LENGTH, setup.modulus)
        masks.add(self_mask_key(setup, 0, server.secret(0, SELF_MASK)))
        for j in range(1, N):
            key = pair_mask_key(setup, own, server.advertised[j][:32], 0, j)
            masks.add(key, sign=mask_sign(0, j))
        vector = add_modulo(server.masked[0], masks.value(), setup.modulus, sign=-1)
        assert np.array_equal(vector, server.rows[0])

    def test_split_configurations(self):
        other = dataclasses.replace(document_of(), context=b"another")
        server = LyingServer(document_of(), views={3: other}).play("share")
        with pytest.raises(ServerFaultError, match="client 3 .*did not sign"):
            server.forward(0)

    def test_messages_are_answered_once_and_in_their_turn(self):
        server = LyingServer(document_of()).play("tell")
        with pytest.raises(RefusedRoundError):
            server.tell(0)
        with pytest.raises(RefusedRoundError):
            server.confirm(0)


class TestControls:
    """Every other check: the lie is refused, and without the check it is answered or succeeds."""

    def corrupt_keys(self, change):
        """Client 3 colludes and signs whatever keys the server likes."""
        server = LyingServer(document_of())
        honest = server.clients[3]._advertisement
        server.clients[3]._advertisement = lambda: dataclasses.replace(honest(), **change(server))
        server.advertise()
        server.share(0)

    def test_one_key_for_two_clients(self, monkeypatch):
        def change(server):
            return {"mask_key": server.clients[4]._mask_pair.public}

        with pytest.raises(ServerFaultError, match="one key for two"):
            self.corrupt_keys(change)
        without(monkeypatch, "_check_fresh")
        self.corrupt_keys(change)

    def test_a_key_of_low_order(self, monkeypatch):
        """Whoever agrees on it agrees on zero, which everybody knows."""
        with pytest.raises(ServerFaultError, match="client 0"):
            self.corrupt_keys(lambda server: {"mask_key": bytes(32)})
        agree = X25519.agree

        def careless(self, public):
            return bytes(32) if public == bytes(32) else agree(self, public)

        monkeypatch.setattr(X25519, "agree", careless)
        self.corrupt_keys(lambda server: {"mask_key": bytes(32)})

    def made_up_member(self):
        """Client 5 advertised nothing, and yet client 0 is sent a share of its."""
        server = LyingServer(document_of()).advertise()
        server.advertised.pop(5)
        for i in set(range(N)) - {5}:
            server.share(i)
        server.setups[5], server.dealt[5] = server.setups[4], server.dealt[4]
        server.forward(0)

    def test_shares_of_a_client_without_keys(self, monkeypatch):
        with pytest.raises(ServerFaultError, match="without keys"):
            self.made_up_member()
        without(monkeypatch, "_check_known")
        with pytest.raises(KeyError):  # not a refusal: the one exception is promised
            self.made_up_member()

    def test_a_vector_longer_than_the_round(self, monkeypatch):
        """A mask of one entry over a vector of six would hide none of the differences."""
        server = LyingServer(document_of(length=1)).play("share")
        server.rows = np.arange(N * LENGTH, dtype=np.uint64).reshape(N, LENGTH) ** 2
        with pytest.raises(RefusedRoundError, match="length=1"):
            server.forward(0)
        without(monkeypatch, "_check_vector")
        with pytest.raises(ValueError, match="one shape"):  # not a refusal
            server.forward(1)

    def test_a_list_of_another_round(self, monkeypatch):
        other = LyingServer(document_of(context=b"another")).play("forward").setups[0].view
        server = LyingServer(document_of()).play("forward")
        message = SurvivorList(other, 0, np.ones(N, dtype=bool)).to_bytes()
        with pytest.raises(ServerFaultError, match="another session or round"):
            server.clients[0].receive(message)
        monkeypatch.setattr(SurvivorList, "expected_view", classmethod(lambda *_: other))
        server.clients[1].receive(SurvivorList(other, 1, np.ones(N, dtype=bool)).to_bytes())

    def two_lists(self, again):
        """After the shares for one list are given, ask for those of another."""
        server = LyingServer(document_of()).play()
        for i in range(1, N):
            again(server.clients[i])
        for step in (lambda i: server.tell(i, range(1, N)), server.confirm):
            for i in range(1, N):
                step(i)
        setup = server.setups[0]
        masks = MaskSum(LENGTH, setup.modulus)
        masks.add(self_mask_key(setup, 0, server.secret(0, SELF_MASK)))
        own = setup.key_pair(server.secret(0, MASK_KEY))
        for j in range(1, N):
            key = pair_mask_key(setup, own, server.advertised[j][:32], 0, j)
            masks.add(key, sign=mask_sign(0, j))
        return server, add_modulo(server.masked[0], masks.value(), setup.modulus, sign=-1)

    def test_a_second_list_after_the_shares(self):
        """Without the order of messages, a second list gives the other kind of shares."""
        with pytest.raises(RefusedRoundError, match="has finished"):
            self.two_lists(lambda client: None)
        server, vector = self.two_lists(lambda client: setattr(client, "_stage", "confirm"))
        assert np.array_equal(vector, server.rows[0])

    def test_eight_threads_with_two_lists_get_one_answer(self):
        """Looking at the stage takes its time here, so that all threads look before one leaves."""
        server = LyingServer(document_of()).play("forward")

        class Slow(ClientSession):
            @property
            def _stage(self):
                found = vars(self)["_stage"]
                time.sleep(0.01)
                return found

            @_stage.setter
            def _stage(self, stage):
                vars(self)["_stage"] = stage

        client, view = server.clients[0], server.setups[0].view
        client.__class__ = Slow
        answers, start = [], threading.Barrier(8)

        def ask(thread):
            flags = np.ones(N, dtype=bool)
            flags[11] = thread % 2
            start.wait()
            with contextlib.suppress(RefusedRoundError):
                answers.append(client.receive(SurvivorList(view, 0, flags).to_bytes()))

        threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 1

    def split(self):
        other = dataclasses.replace(document_of(), context=b"less noise")
        server = LyingServer(document_of(), views={3: other}).play()
        return server, server.unmasked_sum(range(N))

    def test_split_configurations_without_the_digest_in_the_keys(self, monkeypatch):
        with pytest.raises(ServerFaultError, match="did not sign"):
            self.split()
        monkeypatch.setattr(RoundDocument, "digest", bytes(32))
        monkeypatch.setattr(RoundSetup, "digest", bytes(32))
        server, total = self.split()
        assert np.array_equal(total, server.truth(range(N)))
