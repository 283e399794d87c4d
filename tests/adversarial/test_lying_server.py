"""A server that is only supposed to look, and lies in its lists: to one client, to some, to all.

These are rounds without signatures and confirmed lists (``security="semi_honest"``): what clients
check in them, and how far that carries. ``test_malicious_server.py`` has the rounds that are made
for servers that lie.
"""

import dataclasses

import numpy as np
import pytest

from sparse_secagg import MaskedSecAgg, SparseSecAgg
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg import (
    BelowThresholdError,
    ClientSession,
    Dropouts,
    ReuseError,
    ServerFaultError,
    ServerSession,
)
from sparse_secagg.secagg.client import pair_mask_key
from sparse_secagg.secagg.keys import X25519
from sparse_secagg.secagg.masked import run_round
from sparse_secagg.secagg.masks import mask
from sparse_secagg.secagg.messages import MASK_KEY, SELF_MASK
from tests.adversarial.lying import (
    LENGTH,
    LyingServer,
    default_document,
    forged_keys,
    is_possible,
)

GRAPHS = {"complete": None, "regular": 8}
N = 12


def default_server(graph="complete", **options):
    return LyingServer(default_document(N if graph == "complete" else 30, GRAPHS[graph]), **options)


@pytest.mark.parametrize("graph", GRAPHS)
class TestLiesToOneClient:
    def test_nobody_shared(self, graph):
        """Client 0 is told that it is alone; everybody else helps to take off its self mask."""
        server = default_server(graph).play("share")
        with pytest.raises(BelowThresholdError, match="client 0"):
            server.forward(0, shared=())
        assert 0 not in server.masked

    def test_fewer_shared_than_give_a_secret(self, graph):
        server = default_server(graph).play("share")
        others = [j for j in server.members(0) if j != 0]
        with pytest.raises(BelowThresholdError, match="client 0"):
            server.forward(0, shared=others[: server.document.share_threshold - 2])

    def test_no_amount_of_lies_isolates_one_client(self, graph):
        """From just enough that shared, these then dropped, to all."""
        document = default_server(graph).document
        for present in range(document.share_threshold, document.n_members + 1):
            with pytest.raises(BelowThresholdError):
                LyingServer(document).isolate([0], present)

    def test_the_attack_would_succeed_at_half_of_the_neighbourhood(self, graph):
        """The control: a share threshold just above one half, and the vector is there."""
        document = default_server(graph).document
        half = document.n_members // 2 + 1
        document = dataclasses.replace(document, share_threshold=half, threshold=half)
        with pytest.raises(ServerFaultError, match=f"share_threshold={half} .*unmask"):
            LyingServer(document)
        server = LyingServer(document, simulation=True)
        assert np.array_equal(server.isolate([0], present=half), server.rows[0])


class TestLists:
    @pytest.mark.parametrize("graph", GRAPHS)
    def test_both_kinds_of_shares_by_two_lists(self, graph):
        """Half of the neighbours are told that client 0 survived, the others that it dropped."""
        server = default_server(graph).play("forward")
        everybody = set(server.clients)
        for place, i in enumerate(j for j in server.members(0) if j != 0):
            server.tell(i, everybody - {0} if place % 2 else everybody)
        with pytest.raises(BelowThresholdError):
            server.secret(0, SELF_MASK)
        with pytest.raises(BelowThresholdError):
            server.secret(0, MASK_KEY)

    def test_survivors_that_did_not_share(self):
        """Client 0 was told that 11 did not share; the list names it as a survivor."""
        server = default_server().play("share")
        server.forward(0, shared=range(11))
        with pytest.raises(ServerFaultError, match="client 0 .*did not share"):
            server.tell(0, survivors=range(12))

    def test_dropped_clients_that_did_not_share_get_no_share_of_theirs_opened(self):
        server = default_server().play("share")
        server.forward(0, shared=range(11))
        server.tell(0, survivors=range(11))
        assert (11, MASK_KEY) not in server.shares

    def test_the_client_itself_is_left_out(self):
        server = default_server().play("forward")
        with pytest.raises(ServerFaultError, match="client 0 .*not named"):
            server.tell(0, survivors=range(1, 12))

    def test_too_few_survivors(self):
        server = default_server().play("forward")
        with pytest.raises(BelowThresholdError, match="client 0"):
            server.tell(0, survivors=range(server.document.share_threshold - 1))

    def test_survivors_whose_shares_do_not_open_do_not_count(self):
        """Forged ciphertexts make members of the list, not members that a client knows."""
        server = default_server().play("share")
        self.forge_shares(server, range(server.document.share_threshold - 1, N))
        with pytest.raises(BelowThresholdError, match="client 0"):
            server.forward(0)

    def test_nor_do_they_when_it_comes_to_unmasking(self):
        """Just enough open; one of these is then said to have dropped, and all others survived."""
        server = default_server().play("share")
        self.forge_shares(server, range(server.document.share_threshold, N))
        server.forward(0)
        with pytest.raises(BelowThresholdError, match="client 0 .*survived"):
            server.tell(0, set(range(N)) - {1})

    @staticmethod
    def forge_shares(server, dealers):
        for dealer in dealers:
            message = server.dealt[dealer]
            forged = dataclasses.replace(message, ciphertexts=message.ciphertexts ^ 1)
            server.dealt[dealer] = forged

    def test_on_the_complete_graph_the_threshold_counts_too(self):
        """Eight shares would give a secret, but the round promised eleven survivors."""
        server = LyingServer(default_document(N, threshold=11)).play("share")
        with pytest.raises(BelowThresholdError, match="fewer than 11"):
            server.forward(0, shared=range(10))

    def test_a_refused_list_cannot_be_sent_again(self):
        server = default_server().play("forward")
        with pytest.raises(ServerFaultError):
            server.tell(0, survivors=range(1, 12))
        with pytest.raises(ReuseError, match="client 0"):
            server.tell(0)

    @pytest.mark.parametrize("stage", ["share", "forward", "tell"])
    def test_whoever_refused_once_has_left_the_round(self, stage):
        """After bytes that are no message, the honest messages come too late."""
        server = default_server().advertise()
        for step in ("share", "forward", "tell"):
            if step == stage:
                with pytest.raises(ServerFaultError):
                    server.clients[0].receive(b"")
                with pytest.raises(ReuseError, match="client 0 has finished"):
                    getattr(server, step)(0)
                return
            for i in server.clients:
                getattr(server, step)(i)

    def test_every_list_is_checked(self):
        """Exhaustive: all 2^5 lists to a client of five, one of whom did not share."""
        for code in range(2**5):
            server = LyingServer(default_document(5)).play("share")
            server.forward(0, shared=(1, 2, 3))
            survivors = [j for j in range(5) if code >> j & 1]
            enough = len(survivors) >= server.document.share_threshold
            if 0 in survivors and 4 not in survivors and enough:
                server.tell(0, survivors)
            else:
                with pytest.raises(RefusedRoundError):
                    server.tell(0, survivors)


class TestDocuments:
    """What a client refuses before it makes a key."""

    @pytest.mark.parametrize("share_threshold", [-1, 0, 1, 2, 6, 7, 13])
    def test_share_thresholds_at_which_lies_would_do(self, share_threshold):
        with pytest.raises(RefusedRoundError, match=f"share_threshold={share_threshold}"):
            ClientSession(default_document(N, share_threshold=share_threshold), 0)

    @pytest.mark.parametrize("threshold", [-1, 0, 1, 13])
    def test_a_threshold_of_one(self, threshold):
        with pytest.raises(RefusedRoundError, match=f"threshold={threshold}"):
            ClientSession(default_document(N, threshold=threshold), 0)

    def test_seeded_masks(self):
        with pytest.raises(ServerFaultError, match="seeded"):
            ClientSession(default_document(N, masks="seeded"), 0)

    @pytest.mark.parametrize("n", [3, 4, 5, 8, 12, 24])
    def test_what_is_refused_is_what_can_be_attacked(self, n):
        """On the complete graph the client's count and the best lies agree on every threshold."""
        for t in range(2, n + 1):
            setup = default_document(n, threshold=2, share_threshold=t).setup()
            possible = any(is_possible(setup, [0], present) for present in range(t, n + 1))
            # 2t ≤ n: two halves give both secrets, and no neighbour's key is needed.
            assert setup.exposes >= (possible or 2 * t <= n)
            assert setup.exposes <= possible or t == 2

    def test_a_simulation_is_declared_by_the_client_and_says_so(self):
        document = default_document(N, masks="seeded", share_threshold=2)
        ClientSession(document, 0, simulation=True)
        rows = np.zeros((N, LENGTH), dtype=int)
        assert MaskedSecAgg(masks="seeded", modulus=4).aggregate(rows).not_private


class TestKeys:
    @pytest.mark.parametrize("half", [0, 32], ids=["mask key", "cipher key"])
    @pytest.mark.parametrize("whose", ["another's", "its own", "the other kind"])
    def test_a_key_that_is_not_fresh(self, half, whose):
        server = default_server().advertise()
        source = {
            "another's": server.advertised[3][half : half + 32],
            "its own": server.advertised[0][half : half + 32],
            "the other kind": server.advertised[3][32 - half : 64 - half],
        }[whose]
        row = server.advertised[2]
        rows = {**server.advertised, 2: row[:half] + source + row[half + 32 :]}
        with pytest.raises(ServerFaultError, match="client 0 .*key"):
            server.share(0, rows)

    @pytest.mark.parametrize("half", [0, 32])
    def test_a_key_of_low_order(self, half):
        """It is refused when it is first used: the masked vector does not leave."""
        server = default_server().advertise()
        row = server.advertised[2]
        rows = {**server.advertised, 2: row[:half] + bytes(32) + row[half + 32 :]}

        def play():
            server.share(0, rows)
            for i in range(1, N):
                server.share(i)
            server.forward(0)

        with pytest.raises(ServerFaultError, match="client 0"):
            play()
        assert 0 not in server.masked

    def test_keys_of_the_server_are_what_this_security_does_not_notice(self):
        """Unsigned keys may be anybody's: the reason why a lying server takes signatures."""
        server = default_server().advertise()
        server.share(0, forged_keys(server, 0)[0])
        assert 0 in server.dealt


class TestViews:
    """Clients that were told different things about the round never cancel each other's masks."""

    CHANGES = ({"context": b"another"}, {"context": b""}, {"threshold": 9}, {"share_threshold": 9})

    @pytest.mark.parametrize("change", CHANGES, ids=str)
    def test_masks_of_one_pair_do_not_cancel(self, change):
        document = default_document(N, length=10_000)
        setup, other = document.setup(), dataclasses.replace(document, **change).setup()
        a, b = X25519(b"a" * 32), X25519(b"b" * 32)
        keys = [
            pair_mask_key(setup, a, b.public, 0, 3),
            pair_mask_key(setup, b, a.public, 3, 0),
            pair_mask_key(other, b, a.public, 3, 0),
        ]
        masks = [mask(key, 10_000, 2**32) for key in keys]
        assert np.array_equal(masks[0], masks[1])
        # Two equal values of 10 000 happen by chance once in 2·10⁵ keys.
        assert np.count_nonzero(masks[0] == masks[2]) <= 2

    def split(self, *others):
        """Play to the masked vectors with some clients told of another configuration."""
        document = default_document(N)
        views = {i: dataclasses.replace(document, context=b"another") for i in others}
        server = LyingServer(document, views=views).play("share")
        refused = set()
        for i in server.clients:
            try:
                server.forward(i)
            except BelowThresholdError:
                refused.add(i)
        return server, refused

    def test_whoever_is_told_of_another_configuration_sends_no_vector(self):
        """The shares of the others do not open for it: it is alone in its round, and notices."""
        server, refused = self.split(3)
        assert refused == {3}
        for i in set(server.clients) - {3}:
            server.tell(i)
        with pytest.raises(BelowThresholdError, match="0 shares of 3"):
            server.unmasked_sum(sorted(server.masked), keys_of=(3,))

    def test_of_two_halves_neither_sends_a_vector(self):
        _, refused = self.split(*range(6))
        assert refused == set(range(N))

    def test_an_honest_server_names_who_has_another_view(self):
        document = default_document(N)
        other = dataclasses.replace(document, context=b"another")
        rows = np.zeros((N, LENGTH), np.uint64)
        clients = {i: ClientSession(other if i == 3 else document, i) for i in range(N)}
        excluded = run_round(ServerSession(document), clients, rows, Dropouts(), "exclude")
        assert list(excluded) == [3]
        assert "another view" in excluded[3]

    def test_the_context_is_in_the_keys_of_a_round(self, monkeypatch):
        seen = []

        def spy(document, session, roster):
            seen.append(document)
            return ServerSession(document, session, roster=roster)

        monkeypatch.setattr("sparse_secagg.secagg.masked.ServerSession", spy)
        secagg = MaskedSecAgg(modulus=4)
        rows = np.zeros((4, 1), dtype=int)
        secagg.aggregate(rows)
        secagg.aggregate(rows, context=b"configuration")
        assert [document.context for document in seen] == [b"", b"configuration"]

    def test_the_estimator_binds_its_configuration(self):
        """Every parameter of the round is in the keys of its masks."""
        seen = []

        class Spy(MaskedSecAgg):
            def _run(self, *args):
                seen.append(args[-1])
                return super()._run(*args)

        X = np.random.default_rng(0).standard_normal((5, 20))
        fitted = SparseSecAgg("identity", secagg=Spy(masks="seeded"), n_bits=24).fit(X)
        assert seen == [fitted.config_.to_json().encode()]


class TestSetsOfClients:
    """How small a set of clients can be whose sum a lying server is able to show."""

    @staticmethod
    def smallest(setup, sizes):
        order = range(setup.graph.n_clients) if setup.graph.order is None else setup.graph.order
        for size in sizes:
            victims = [int(i) for i in order[:size]]
            for present in range(setup.share_threshold, setup.graph.n_members + 1):
                if is_possible(setup, victims, present):
                    return victims, present
        return None

    def test_on_the_complete_graph_it_is_not_few(self):
        """24 clients, the default 16 shares: ten, by the flow, and the bytes agree."""
        document = default_document(24)
        victims, present = self.smallest(document.setup(), range(1, 16))
        assert len(victims) >= 24 / 3
        server = LyingServer(document)
        assert np.array_equal(server.isolate(victims, present), server.truth(victims))

    def test_on_the_circle_no_arc_can_be_cut_out(self):
        setup = default_document(60, 16).setup()
        assert self.smallest(setup, (1, 2, 4, 8, 16, 24, 32)) is None

    def test_on_the_circle_at_half_every_arc_can(self):
        """The control."""
        setup = default_document(60, 16, share_threshold=9).setup()
        assert self.smallest(setup, (1,)) is not None


@pytest.mark.parametrize("change", [{"length": 1}, {"length": LENGTH - 1}, {"modulus": LENGTH - 1}])
def test_the_vector_is_never_longer_than_its_mask(change):
    """A round of length 1 would repeat one mask over the whole vector: differences would show."""
    server = LyingServer(default_document(N, **change)).play("share")
    server.rows = np.tile(np.arange(LENGTH, dtype=np.uint64), (N, 1))
    with pytest.raises(RefusedRoundError, match="refuses the round: length"):
        server.forward(0)


@pytest.mark.parametrize("bad", [np.ones(LENGTH), -np.ones(LENGTH, int), np.ones((1, LENGTH), int)])
def test_a_vector_that_is_none_is_refused(bad):
    server = default_server().play("share")
    server.rows = [bad] * N
    with pytest.raises(RefusedRoundError, match="refuses the round: length"):
        server.forward(0)
