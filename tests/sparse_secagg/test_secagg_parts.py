"""The parts of the masked protocol: masks, secret sharing, graphs, keys."""

import contextlib
import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sparse_secagg.secagg import shamir
from sparse_secagg.secagg.graph import complete_graph, regular_graph
from sparse_secagg.secagg.keys import X25519, RoundId, Seeded, seal, unseal
from sparse_secagg.secagg.masks import MaskSum, mask
from sparse_secagg.secagg.setup import RoundDocument, resolve_threshold
from tests.statistics import assert_counts


def slow_mask(key, length, modulus):
    """The mask by its definition: the first words of the key stream whose low bits are below M."""
    bits = (modulus - 1).bit_length()
    size = next(s for s in (1, 2, 4, 8) if bits <= 8 * s)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    values = []
    while len(values) < length:
        word = int.from_bytes(encryptor.update(bytes(size)), "little") % 2**bits
        if word < modulus:
            values.append(word)
    return values


class TestMasks:
    @pytest.mark.parametrize(
        "modulus", [2, 3, 4, 5, 129, 256, 257, 2**16, 2**16 + 1, 2**31 - 1, 2**32, 2**63, 2**62 + 1]
    )
    def test_is_what_its_definition_says(self, modulus):
        key = bytes(range(32))
        for length in (0, 1, 1000):
            assert mask(key, length, modulus).tolist() == slow_mask(key, length, modulus)

    @pytest.mark.parametrize("modulus", [2**32, 2**31 + 1, 2**16, 2**15 + 1])
    def test_does_not_depend_on_the_chunks_it_is_made_in(self, modulus):
        key = bytes(32)
        length = 2**17 + 3
        assert mask(key, length, modulus)[-50:].tolist() == slow_mask(key, length, modulus)[-50:]

    @pytest.mark.parametrize("modulus", [2, 3, 5, 6, 256, 255, 129])
    def test_is_uniform_on_all_residues(self, modulus):
        values = mask(b"k" * 32, 200_000, modulus)
        counts = np.bincount(values.astype(int), minlength=modulus)
        assert len(counts) == modulus
        assert_counts(counts, np.full(modulus, len(values) / modulus))

    @settings(deadline=None, max_examples=50)
    @given(modulus=st.integers(2, 2**63), keys=st.lists(st.binary(min_size=32, max_size=32)))
    def test_sums_and_cancels(self, modulus, keys):
        total = MaskSum(5, modulus)
        for key in keys:
            total.add(key)
        expected = [
            sum(c) % modulus for c in zip([0] * 5, *[slow_mask(k, 5, modulus) for k in keys])
        ]
        assert total.value().tolist() == expected
        for key in keys:
            total.add(key, sign=-1)
        assert total.value().tolist() == [0] * 5

    @pytest.mark.parametrize("modulus", [2**63 - 25, 2**62 + 1, 2**61 + 1, 2**60 + 1])
    def test_is_reduced_before_it_overflows(self, modulus):
        keys = [bytes([k]) * 32 for k in range(40)]
        total = MaskSum(8, modulus)
        for key in keys:
            total.add(key)
        columns = zip(*[slow_mask(key, 8, modulus) for key in keys])
        assert total.value().tolist() == [sum(column) % modulus for column in columns]

    @pytest.mark.parametrize("modulus", [3, 2**15 + 1, 2**16 - 1, 2**16 + 1, 2**48 + 1, 2**63 - 1])
    def test_leaves_room_for_as_many_masks_as_it_adds_between_reductions(self, modulus):
        total = MaskSum(1, modulus)
        assert (modulus - 1) + total._most * modulus <= np.iinfo(total._sum.dtype).max


class TestShamir:
    SECRETS = (bytes(range(32)), b"\xff" * 32)

    @pytest.mark.parametrize(("threshold", "n_shares"), [(1, 1), (2, 3), (3, 5), (5, 5)])
    def test_every_subset_of_t_shares_gives_the_secret(self, threshold, n_shares):
        shares = shamir.split(self.SECRETS, threshold, n_shares)
        for ranks in itertools.combinations(range(n_shares), threshold):
            points = np.array(ranks) + 1
            for k, secret in enumerate(self.SECRETS):
                assert shamir.combine(points, shares[list(ranks), k]) == secret

    def test_agrees_with_interpolation_over_the_rationals(self):
        rng = np.random.default_rng(0)
        shares = shamir.split(self.SECRETS[:1], 4, 30)
        ranks = rng.choice(30, 4, replace=False)
        values = shamir.unpack(shares[ranks, 0].tobytes(), 17, 64).reshape(4, 16)
        x = [int(r) + 1 for r in ranks]
        limb = Fraction(0)
        for j in range(4):
            others = [l for l in range(4) if l != j]
            weight = np.prod([Fraction(x[l], x[l] - x[j]) for l in others])
            limb += int(values[j, 0]) * weight
        residue = limb.numerator * pow(limb.denominator, -1, shamir.PRIME) % shamir.PRIME
        assert residue == int.from_bytes(self.SECRETS[0][:2], "little")

    def test_large(self):
        shares = shamir.split(self.SECRETS, 667, 1000)
        ranks = np.random.default_rng(1).choice(1000, 667, replace=False)
        assert shamir.combine(ranks + 1, shares[ranks, 1]) == self.SECRETS[1]
        # With one share less the limbs are random, and mostly in the field's range of a limb.
        with contextlib.suppress(ValueError):
            assert shamir.combine(ranks[:-1] + 1, shares[ranks[:-1], 1]) != self.SECRETS[1]

    def test_one_share_of_two_is_uniform_whatever_the_secret(self):
        """Below the threshold a share has the same distribution for every secret."""
        for secret in self.SECRETS:
            draws = [shamir.split([secret], 2, 2)[1, 0].tobytes() for _ in range(2000)]
            values = np.concatenate([shamir.unpack(d, 17, 16) for d in draws]).astype(int)
            counts = np.bincount(values * 64 // shamir.PRIME, minlength=64)
            assert_counts(counts, np.full(64, len(values) / 64))

    def test_refusals(self):
        with pytest.raises(ValueError, match="threshold=3"):
            shamir.split(self.SECRETS, 3, 2)
        with pytest.raises(ValueError, match="32 bytes"):
            shamir.split([b"short"], 1, 2)
        shares = shamir.split(self.SECRETS, 2, 3)
        with pytest.raises(ValueError, match="distinct"):
            shamir.combine(np.array([1, 1]), shares[:2, 0])
        with pytest.raises(ValueError, match="outside the field"):
            shamir.combine(np.array([1, 2]), np.full((2, 34), 255, dtype=np.uint8))


class TestGraph:
    @pytest.mark.parametrize(("n", "k"), [(5, 2), (10, 4), (10, 5), (50, 48), (8, 7), (201, 20)])
    def test_regular_symmetric_connected_and_ranked(self, n, k):
        graph = regular_graph(n, k, np.random.default_rng(n))
        adjacency = np.zeros((n, n), dtype=int)
        for i in range(n):
            assert len(set(graph.members[i])) == k + 1
            assert i in graph.members[i]
            assert graph.neighbourhood(i).tolist() == graph.members[i].tolist()
            adjacency[i, graph.members[i]] = 1
            for a, j in enumerate(graph.members[i]):
                assert graph.members[j, graph.rank[i, a]] == i
        assert np.array_equal(adjacency, adjacency.T)
        assert connected_components(csr_array(adjacency))[0] == 1

    def test_complete(self):
        graph = complete_graph(4)
        assert graph.members.tolist() == [[0, 1, 2, 3]] * 4
        assert [graph.rank[i, 2] for i in range(4)] == [0, 1, 2, 3]

    def test_connectivity_of_what_is_left_agrees_with_scipy(self):
        rng = np.random.default_rng(5)
        seen = set()
        for _ in range(60):
            graph = regular_graph(12, 2, rng)
            alive = rng.random(12) < 0.85
            adjacency = np.zeros((12, 12))
            adjacency[np.arange(12)[:, None], graph.members] = 1
            inner = csr_array(adjacency[np.ix_(alive, alive)])
            expected = connected_components(inner)[0] <= 1
            assert graph.is_connected(alive) == expected
            seen.add(expected)
        assert seen == {True, False}

    @pytest.mark.parametrize(("n", "k"), [(5, 1), (5, 5), (5, 3), (5, 2.5)])
    def test_impossible_graphs_are_refused(self, n, k):
        with pytest.raises(ValueError, match=f"neighbors={k}"):
            regular_graph(n, k, np.random.default_rng(0))


class TestKeys:
    @pytest.mark.parametrize("pair", [X25519, Seeded])
    def test_both_sides_agree_and_others_do_not(self, pair):
        a, b, c = (pair(bytes([i]) * 32) for i in (1, 2, 3))
        assert a.agree(b.public) == b.agree(a.public)
        assert a.agree(b.public) != a.agree(c.public)
        with pytest.raises(ValueError, match="."):
            a.agree(bytes(32))

    def test_x25519_is_rfc_7748(self):
        """The first iteration of the test vector of RFC 7748, section 5.2."""
        nine = bytes([9]) + bytes(31)
        expected = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
        assert X25519(nine).agree(nine).hex() == expected
        assert X25519(nine).public.hex() == expected

    def test_keys_differ_by_purpose_session_round_and_pair(self):
        document = RoundDocument(RoundId(b"a" * 16, 0), 4, 5, 100, 3, 3, security="semi_honest")
        keys = [
            dataclasses.replace(document, round_id=RoundId(session, number))
            .setup()
            .derive(b"s" * 32, purpose, i, j)
            for session in (b"a" * 16, b"b" * 16)
            for number in (0, 1)
            for purpose in ("share", "pair mask", "self mask")
            for i, j in ((0, 1), (0, 2), (1, 2))
        ]
        assert len(set(keys)) == len(keys)

    def test_keys_differ_by_everything_public_about_the_round(self):
        """Every field of the document; a field that the digest forgot would give a key twice."""
        document = RoundDocument(
            RoundId(b"a" * 16, 0), 10, 5, 100, 3, 3, 4, 7, security="semi_honest"
        )
        changes = {
            "round_id": RoundId(b"a" * 16, 1),
            "n_clients": 11,
            "length": 6,
            "modulus": 101,
            "threshold": 4,
            "share_threshold": 4,
            "neighbors": 5,
            "graph_seed": 8,
            "masks": "seeded",
            "roster": b"r" * 32,
            "context": b"configuration",
        }
        names = {item.name for item in dataclasses.fields(RoundDocument)}
        assert {*changes, "security"} == names
        others = [dataclasses.replace(document, **{k: v}) for k, v in changes.items()]
        others.append(dataclasses.replace(document, neighbors=None, graph_seed=None))
        others.append(dataclasses.replace(document, security="malicious", graph_seed=None))
        setups = [other.setup() for other in (document, *others)]
        setups.append(others[-1].setup(b"root of other keys" + bytes(14)))
        assert len({s.derive(b"s" * 32, "pair mask", 0, 1) for s in setups}) == len(setups)
        assert len({s.view for s in setups}) == len(setups)
        assert RoundDocument.from_json(document.to_json()).digest == document.digest

    def test_a_flipped_bit_does_not_open(self):
        sealed = seal(b"k" * 32, b"share")
        assert unseal(b"k" * 32, sealed) == b"share"
        for bit in range(8 * len(sealed)):
            changed = bytearray(sealed)
            changed[bit // 8] ^= 1 << bit % 8
            assert unseal(b"k" * 32, bytes(changed)) is None


@pytest.mark.parametrize(
    ("threshold", "n", "count"), [(None, 3, 2), (None, 100, 67), (0.5, 9, 5), (2, 9, 2), (9, 9, 9)]
)
def test_threshold_as_count_fraction_or_default(threshold, n, count):
    assert resolve_threshold(threshold, n) == count


@pytest.mark.parametrize("threshold", [0, 1, 10, 1.5, "all", True, float("nan")])
def test_other_thresholds_are_refused(threshold):
    with pytest.raises(ValueError, match="threshold="):
        resolve_threshold(threshold, 9)
