"""Identities, rosters, hash trees, and the sizes of graphs that withstand a lying server."""

import copy
import itertools
import json
import math
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from sparse_secagg import MaskedSecAgg
from sparse_secagg.secagg.graph import complete_graph, regular_graph
from sparse_secagg.secagg.identities import (
    Identity,
    Member,
    Roster,
    agreement_keys,
    is_signed,
)
from sparse_secagg.secagg.merkle import ABSENT, HashTree, is_proved, leaf
from sparse_secagg.secagg.quorums import (
    GRINDING_BITS,
    graph_parameters,
    has_quorums,
    least_quorum,
    log2_tail,
)


class TestIdentities:
    def test_a_file_keeps_the_key_for_its_owner_only(self, tmp_path):
        path, ann = tmp_path / "ann.json", Identity.new()
        ann.save(path)
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert Identity.load(path).public == ann.public
        with pytest.raises(FileExistsError):
            Identity.new().save(path)

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "x"}', "null"])
    def test_what_is_no_identity(self, tmp_path, text):
        (tmp_path / "x").write_text(text)
        with pytest.raises(ValueError, match="holds no identity"):
            Identity.load(tmp_path / "x")

    def test_signatures_are_those_of_one_key_and_one_message(self):
        ann, bob = Identity.new(), Identity.new()
        signature = ann.sign(b"message")
        assert is_signed(ann.public, signature, b"message")
        assert not is_signed(bob.public, signature, b"message")
        assert not is_signed(ann.public, signature, b"massage")
        assert not is_signed(ann.public, bytes(64), b"message")
        assert not is_signed(bytes(32), bytes(64), b"message")
        assert not is_signed(b"short", signature, b"message")

    @pytest.mark.parametrize("n", [0, 1, 5])
    def test_two_identities_agree(self, n):
        """The keys that others work out of a roster are those of the owners' secrets."""
        ann, others = Identity.new(), [Identity.new() for _ in range(n)]
        keys = agreement_keys([who.public for who in others])
        assert keys == [who.agreement.public for who in others]
        for who, key in zip(others, keys):
            assert ann.agreement.agree(key) == who.agreement.agree(ann.agreement.public)

    def test_a_key_from_the_standard(self):
        """RFC 8032, 7.1, test 1, on the other curve as libsodium's tests have it."""
        seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
        who = Identity(seed)
        expected = "d85e07ec22b0ad881537c2f44d662d1a143cf830c57aca4305d85c7a90f6b62e"
        assert agreement_keys([who.public]) == [who.agreement.public]
        assert who.agreement.public.hex() == expected

    def test_keys_that_nobody_can_agree_with(self):
        """y = 1 has no place on the other curve: it spoils no other key of its batch."""
        ann = Identity.new()
        neutral = (1).to_bytes(32, "little")
        assert agreement_keys([ann.public, neutral, ann.public])[::2] == [ann.agreement.public] * 2

    @pytest.mark.parametrize("key", [bytes(32), (2**255 - 20).to_bytes(32, "little")])
    def test_keys_of_low_order_are_not_enrolled(self, key):
        ann = Identity.new()
        roster = Roster("team").add("ann", ann.public)
        for how in (lambda: roster.add("eve", key), lambda: roster.rotate("ann", key)):
            with pytest.raises(ValueError, match="of low order"):
                how()

    def test_an_identity_is_shown_and_copied_nowhere(self):
        ann = Identity(b"s" * 32)
        assert (b"s" * 32).hex() not in repr(ann)
        for how in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="secret"):
                how(ann)


class TestRosters:
    def roster(self):
        return Roster("g", tuple(Member(name, name.encode() * 32) for name in "abc"))

    def test_files(self, tmp_path):
        roster = self.roster().rotate("b", b"d" * 32)
        roster.save(tmp_path / "r.json")
        again = Roster.load(tmp_path / "r.json")
        assert again == roster
        assert again.digest == roster.digest

    def test_every_field_is_in_the_digest(self):
        roster = self.roster()
        others = [
            Roster("h", roster.members),
            Roster("g", roster.members, 2),
            Roster("g", roster.members[::-1]),
            Roster("g", roster.members[:2]),
            Roster("g", roster.members, 1, frozenset([b"x" * 32])),
        ]
        assert len({r.digest for r in (roster, *others)}) == 6

    @pytest.mark.parametrize(
        ("make", "match"),
        [
            (lambda r: r.add("d", b"a" * 32), "one key"),
            (lambda r: r.add("a", b"d" * 32), "one name"),
            (lambda r: r.add("", b"d" * 32), "characters"),
            (lambda r: r.add("d", b"short"), "32 bytes"),
            (lambda r: r.revoke("nobody"), "nobody"),
            (lambda r: r.revoke("a").add("z", b"a" * 32), "revoked"),
            (lambda r: Roster("g", r.members, 0), "version"),
            (lambda r: Roster.from_json("{}"), "no roster"),
            (lambda r: Roster.from_json(json.dumps([1])), "no roster"),
        ],
    )
    def test_what_is_refused(self, make, match):
        with pytest.raises(ValueError, match=match):
            make(self.roster())


class TestHashTrees:
    @settings(max_examples=60)
    @given(data=st.data(), n=st.integers(1, 40))
    def test_a_proof_shows_the_leaves_it_is_for_and_no_others(self, data, n):
        leaves = [ABSENT if i % 5 == 3 else leaf(i, bytes([i])) for i in range(n)]
        tree = HashTree(leaves)
        chosen = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
        known, proof = {i: leaves[i] for i in chosen}, tree.proof(chosen)
        assert is_proved(tree.root, n, known, proof)
        i = min(chosen)
        for other in (leaf(i, b"other"), ABSENT if known[i] != ABSENT else leaf(i, b"")):
            assert not is_proved(tree.root, n, {**known, i: other}, proof)
        assert not is_proved(tree.root, n, known, proof + bytes(32))
        assert not is_proved(bytes(32), n, known, proof) or tree.root == bytes(32)


class TestGraphsAlive:
    @pytest.mark.parametrize(("n", "k"), [(9, 4), (10, 5), (12, 8), (30, 7), (8, 7)])
    def test_how_many_are_near_is_what_counting_says(self, n, k):
        rng = np.random.default_rng(n)
        for graph in (regular_graph(n, k, rng), complete_graph(n)):
            for _ in range(20):
                alive = rng.random(n) < 0.7
                assert graph.n_near(alive).tolist() == alive[graph.members].sum(axis=1).tolist()


class TestQuorums:
    @pytest.mark.parametrize(
        ("n", "marked", "draws"), [(99, 5, 28), (999, 100, 120), (9999, 500, 60)]
    )
    def test_tails_are_those_of_scipy_rounded_up(self, n, marked, draws):
        for most in range(draws):
            exact = hypergeom.logsf(most, n, marked, draws) / math.log(2)
            ours = log2_tail(n, marked, draws, most)
            assert ours >= exact - 1e-6
            if -200 < exact < -3:
                assert ours <= exact + 1.5

    @pytest.mark.parametrize("members", range(3, 40))
    def test_the_least_quorum_is_one_and_the_one_below_is_none(self, members):
        for corrupt, n in itertools.product(range(3), (members, 100)):
            t = least_quorum(members, n, corrupt)
            assert t == members or has_quorums(members, t, n, corrupt)
            assert not has_quorums(members, t - 1, n, corrupt)

    @pytest.mark.parametrize("n", [10**2, 10**3, 10**4, 10**5, 10**6])
    def test_parameters_keep_what_they_promise(self, n):
        p = graph_parameters(n, corrupt=0.05, dropout=0.05)
        h, bad = p.n_members, math.floor(0.05 * n)
        most = max(c for c in range(h) if has_quorums(h, p.share_threshold, n, c))
        tail = hypergeom.logsf(most, n - 1, bad, p.neighbors) / math.log(2)
        assert math.log2(n) + GRINDING_BITS + tail <= -40
        lost = hypergeom.logsf(h - p.share_threshold, n, bad, h) / math.log(2)
        assert math.log2(n) + lost <= -20

    @pytest.mark.parametrize("corrupt", [0.01, 0.05, 0.1])
    def test_fewer_neighbours_would_not_do(self, corrupt):
        """No smaller k at any share threshold, though what suffices is not quite monotone in k."""
        from sparse_secagg.secagg.quorums import regular_failure

        p = graph_parameters(1000, corrupt)
        for k in range(2, p.neighbors, 2):
            for t in range(2 * k // 3, k + 2):
                safe = regular_failure(1000, k, t, corrupt) <= -40
                ends = math.log2(1000) + log2_tail(1000, 50, k + 1, k + 1 - t) <= -20
                assert not (safe and ends)

    def test_more_corruption_takes_more_neighbours(self):
        k = [graph_parameters(10_000, corrupt=c).neighbors for c in (0.0, 0.02, 0.05, 0.1)]
        assert k == sorted(k)
        assert k[0] < k[-1]

    @pytest.mark.parametrize("bad", [{"corrupt": 1.0}, {"dropout": -0.1}, {"corrupt": math.nan}])
    def test_fractions_are_checked(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            graph_parameters(100, **bad)

    def test_a_round_with_them(self):
        """Signed, confirmed, on the circle, with as many drop-outs as are provided for."""
        p = graph_parameters(60, corrupt=0.05, dropout=0.05)
        rows = np.random.default_rng(0).integers(0, 100, (60, 5), dtype=np.uint64)
        secagg = MaskedSecAgg(
            0.6,
            p.neighbors,
            modulus=10_007,
            share_threshold=p.share_threshold,
            security="malicious",
        )
        result = secagg.aggregate(rows, {"mask": [3], "confirm": [7], "unmask": [11]})
        assert result.survivors.tolist() == [i for i in range(60) if i != 3]
        assert np.array_equal(result.total, rows[result.survivors].sum(axis=0) % 10_007)


@pytest.mark.parametrize("neighbors", [None, 10])
def test_the_malicious_protocol_gives_the_exact_sum_and_counts_its_bytes(neighbors):
    rows = np.random.default_rng(0).integers(0, 2**20, (14, 9), dtype=np.uint64)
    secagg = MaskedSecAgg(0.6, neighbors, modulus=2**20, security="malicious")
    result = secagg.aggregate(rows, {"advertise": [0], "unmask": [13]})
    assert np.array_equal(result.total, rows[1:].sum(axis=0) % 2**20)
    assert secagg.protocol_bytes(14) == secagg.aggregate(rows).protocol_up[0]
    plain = MaskedSecAgg(0.6, neighbors, modulus=2**20)
    assert plain.protocol_bytes(14) == plain.aggregate(rows).protocol_up[0]
