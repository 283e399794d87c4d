"""Random lies: rounds in which the server tells every client something else, in any message.

Nobody's vector may be determined by what the server gets. What it gets is a system of linear
equations y_i = x_i + masks; the masks that it can compute (from t shares of a secret, or because a
colluding client knows them) are taken out, and whatever combination of the equations has no mask
left is what it learns. That may be nothing, or one sum of all honest clients on a list of at least
``threshold``; never less. Colluders are as many as the share threshold is made for.
"""

import dataclasses
import hmac

import numpy as np
import pytest

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg.client import ClientSecrets, ClientSession
from sparse_secagg.secagg.keys import X25519, RoundId
from sparse_secagg.secagg.messages import (
    CIPHERTEXT_BYTES,
    CONFIRMATION_BYTES,
    MASK_KEY,
    SELF_MASK,
)
from sparse_secagg.secagg.quorums import has_quorums
from tests.adversarial.lying import LyingServer, default_document

#: n, k, share threshold, colluders: each just within the quorums.
ROUNDS = [(4, None, 3, 0), (7, None, 5, 2), (12, None, 8, 3), (12, 8, 8, 0), (12, 10, 10, 1)]


class RandomServer(LyingServer):
    """Lies at random; honest often enough for rounds to get far."""

    def __init__(self, case, seed, vectors=None, simulation=False):
        n, k, t, colluders = case
        self.rng = np.random.default_rng(seed)
        document = default_document(
            n, k, "malicious", threshold=t, share_threshold=t, round_id=RoundId(b"", seed)
        )
        other = dataclasses.replace(document, context=b"another view")
        views = {i: other for i in range(n) if self.often(0.02)}
        secrets = [ClientSecrets(*(self.rng.bytes(32) for _ in range(3))) for _ in range(n)]
        super().__init__(document, views, simulation, secrets)
        if vectors is not None:
            self.rows = vectors
        self.corrupt = {int(i) for i in self.rng.permutation(n)[:colluders]}
        self.rate = self.rng.choice([0.0, 0.02, 0.1, 0.3])
        self.refusals, self.steps = [], []
        #: Clients whose keys the server made, by the root that has them.
        self.forged = {}

    def often(self, rate):
        return bool(self.rng.random() < rate)

    def some(self, everybody, rate):
        return {j for j in everybody if not self.often(rate)}

    def attempt(self, i, step, *args, **kwargs):
        """Send client i something; whatever it does not like, it refuses by that one exception."""
        try:
            getattr(self, step)(i, *args, **kwargs)
        except RefusedRoundError as error:
            self.refusals.append((i, step, type(error).__name__))
            return
        self.steps.append((i, step))

    def lie(self):
        self.advertise()
        views = [self.absent() for _ in range(2)]
        for i in self.clients:
            self.attempt(i, "share", views[self.often(self.rate)])
        for i in list(self.dealt):
            forged = self.forged[self.setups[i].root]
            shared = self.some(self.dealt.keys() | forged, self.rate)
            self.attempt(i, "forward", shared=shared | ({i} if self.often(0.9) else set()))
        lists = self.lists()
        for i in list(self.masked):
            mine = lists[0] if not self.often(self.rate) else lists[self.rng.integers(3)]
            self.attempt(i, "tell", mine)
        for i in list(self.tags):
            self.attempt(i, "confirm", self.lying_tags(i))
        self.collude()

    def absent(self):
        """Return what clients advertised, less some of them, and of some what they did not."""
        gone = set(self.clients) - self.some(self.clients, self.rate / 2)
        rows = {j: row for j, row in self.advertised.items() if j not in gone}
        forged = set(rows) - self.some(rows, self.rate / 4)
        rows |= {j: X25519(self.rng.bytes(32)).public + self.rng.bytes(64) for j in forged}
        self.forged[self.tree(rows).root] = forged
        return rows

    def ciphertext(self, dealer, recipient):
        """Return what a dealer sealed; of one that is the server's, what opens for nobody."""
        if dealer in self.forged[self.setups[recipient].root]:
            return bytes(CIPHERTEXT_BYTES)
        return super().ciphertext(dealer, recipient)

    def lists(self):
        """Three lists: the truth less some; without those that a victim masked towards; any."""
        truth = self.some(self.masked, self.rate / 3)
        victim = next(iter(self.masked), 0)
        towards = self.some(self.told.get(victim, ()), 0.5) - {victim}
        return [truth, set(self.masked) - towards, self.some(self.clients, self.rate)]

    def lying_tags(self, i):
        tags = {j: sent[i] for j, sent in self.tags.items() if i in sent}
        tags |= {c: self.colluding_tag(c, i) for c in self.colluding_neighbours(i)}
        if self.often(self.rate) and tags:
            j = next(iter(tags))
            tags[j] = bytes(16) if self.often(0.5) else next(reversed(tags.values()))
        return tags

    def colluding_neighbours(self, i):
        """Return the corrupt neighbours of client i that are in its round."""
        return [
            c
            for c in (self.corrupt - {i}) & set(self.members(i)) & set(self.dealt)
            if self.setups[c].digest == self.setups[i].digest
            and self.members(c).index(i) in self.clients[c]._pair_keys
        ]

    def colluding_tag(self, c, i):
        """Return corrupt client c's confirmation of whatever list client i was told."""
        key = self.clients[c]._to(self.members(c).index(i))[32:]
        return hmac.digest(key, self.clients[i]._list_digest(), "sha256")[:CONFIRMATION_BYTES]

    def collude(self):
        """Take every share that a corrupt client holds, of both kinds."""
        for c in self.corrupt & set(self.setups):
            for rank, pair in self.clients[c]._shares.items():
                j, half = self.members(c)[rank], len(pair) // 2
                for kind, share in ((SELF_MASK, pair[:half]), (MASK_KEY, pair[half:])):
                    if j in self.setups and self.setups[j].digest == self.setups[c].digest:
                        place = self.members(j).index(c)
                        self.shares[j, kind][place] = np.frombuffer(share, np.uint8)

    # -- what the server can compute -------------------------------------------------------------

    def knows(self, i, kind):
        return i in self.corrupt or len(self.shares[i, kind]) >= self.document.share_threshold

    def equations(self):
        """Return the honest clients that sent vectors, and their unknown masks as a matrix."""
        honest = sorted(set(self.masked) - self.corrupt)
        columns, entries = {}, []
        for row, i in enumerate(honest):
            if not self.knows(i, SELF_MASK):
                entries.append((row, columns.setdefault((i,), len(columns)), 1))
            for j in self.told[i] - {i}:
                if self.knows(i, MASK_KEY) or self.knows(j, MASK_KEY):
                    continue
                if j in self.forged[self.setups[i].root]:
                    continue
                name = (min(i, j), max(i, j), self.setups[i].digest)
                entries.append((row, columns.setdefault(name, len(columns)), 1 if i < j else -1))
        matrix = np.zeros((len(honest), len(columns)))
        for row, column, sign in entries:
            matrix[row, column] = sign
        return honest, matrix


def learnt(server):
    """Return the sums that the server can compute, as combinations of honest clients' vectors."""
    honest, matrix = server.equations()
    if not honest:
        return []
    left, values, _ = np.linalg.svd(matrix)
    rank = int((values > 1e-9).sum())
    return list(left[:, rank:].T)


def is_safe(server):
    """Return whether the server learnt nothing, or one sum of enough clients."""
    sums = learnt(server)
    if not sums:
        return True
    weights = np.abs(sums[0])
    members = weights > 1e-9
    return (
        len(sums) == 1
        and np.allclose(weights[members], weights[members][0])
        and members.sum() >= server.document.threshold - len(server.corrupt)
    )


def play(case, seed, **options):
    server = RandomServer(case, seed, **options)
    server.lie()
    return server


@pytest.mark.parametrize("case", ROUNDS, ids=str)
class TestRandomLies:
    def check(self, case, seeds):
        n, k, t, colluders = case
        assert has_quorums(n if k is None else k + 1, t, n, colluders)
        played = [play(case, seed) for seed in seeds]
        assert all(is_safe(server) for server in played)
        # The test is about something: rounds end in sums, and in refusals.
        sums = sum(bool(learnt(server)) for server in played)
        refused = sum(bool(server.refusals) for server in played)
        assert min(sums, refused) > len(played) / 20

    def test_a_hundred(self, case):
        self.check(case, range(100))

    @pytest.mark.slow
    def test_two_thousand(self, case):
        self.check(case, range(100, 2100))

    def test_answers_do_not_depend_on_vectors(self, case):
        """Two worlds with equal sums: the same refusals, the same steps, the same kind of sums."""
        rng = np.random.default_rng(5)
        for seed in range(5):
            vectors = rng.integers(0, 2**32, (case[0], 6), dtype=np.uint64)
            shifted = vectors.copy()
            shifted[0] += 1
            shifted[1] -= 1
            worlds = [play(case, seed, vectors=v % np.uint64(2**32)) for v in (vectors, shifted)]
            assert worlds[0].refusals == worlds[1].refusals
            assert worlds[0].steps == worlds[1].steps
            assert len(learnt(worlds[0])) == len(learnt(worlds[1]))


def test_lies_succeed_on_clients_that_do_not_check(monkeypatch):
    """The control: without counts, signatures and confirmed lists, lies determine partial sums."""
    for check in ("enough", "signatures", "confirmed", "list", "everybody"):
        monkeypatch.setattr(ClientSession, f"_check_{check}", lambda self, *args: None)
    case = (7, None, 4, 2)
    assert not all(is_safe(play(case, seed, simulation=True)) for seed in range(150, 450))
