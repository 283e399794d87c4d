"""What the server sees is the sum and nothing else, shown on the bytes it receives.

Three looks at the masked vectors, after the server has taken off the self masks it reconstructs:
all masks enumerated for three clients in Z_5; chi-square and collision tests of a million values;
a classifier that is to tell two worlds with equal sums apart. Broken masks must fail them: one
scalar mask for all coordinates, a truncated seed, and keys that a round takes from the last.
"""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import CategoricalNB

from sparse_secagg.secagg import Dropouts, client, masks, server
from sparse_secagg.secagg.client import ClientSecrets, ClientSession, self_mask_key
from sparse_secagg.secagg.keys import derive_key
from sparse_secagg.secagg.masked import run_round
from sparse_secagg.secagg.masks import KeyStream, add_modulo, mask
from sparse_secagg.secagg.messages import MaskedInput
from sparse_secagg.secagg.server import ServerSession
from sparse_secagg.secagg.setup import RoundDocument, RoundSetup, Session
from tests.statistics import FALSE_ALARM

NOBODY = Dropouts()


def play(rows, modulus, session, secrets=None, dropouts=NOBODY):
    """Run one round and return setup, server and every message the server received."""
    n, length = rows.shape
    document = RoundDocument(
        session.new_round(), n, length, modulus, 2, n // 2 + 1, security="semi_honest"
    )
    received = {}

    def record(stage, i, data):
        received[stage, i] = data
        return data

    clients = {
        i: ClientSession(document, i, secrets=None if secrets is None else secrets[i])
        for i in range(n)
    }
    host = ServerSession(document, session)
    run_round(host, clients, rows, dropouts, channel=record)
    return document.setup(), host, received


def masked_vectors(setup, received):
    """Return the masked vectors of all that sent one, from the bytes."""
    return {
        i: MaskedInput.from_bytes(data, setup, i).values
        for (stage, i), data in received.items()
        if stage == "mask"
    }


class TestExhaustively:
    """M = 5, n = 3, and every value of the 3 self masks and 3 pair masks: 5^6 of them.

    One coordinate for each combination, so that one round of the real protocol runs through all.
    """

    COMBINATIONS = np.array(list(itertools.product(range(5), repeat=6)), dtype=np.uint8)
    COLUMNS = (b"self 0", b"self 1", b"self 2", b"pair 01", b"pair 02", b"pair 12")

    @pytest.fixture(autouse=True)
    def enumerated_masks(self, monkeypatch):
        test = self

        class Enumerated:
            def __init__(self, key):
                self.values, self.position = test.COMBINATIONS[:, test.COLUMNS.index(key)], 0

            def fill(self, out):
                part = self.values[self.position : self.position + len(out)]
                out[: len(part)], out[len(part) :] = part, 0
                self.position += len(part)

        monkeypatch.setattr(masks, "KeyStream", Enumerated)
        for module in (client, server):
            monkeypatch.setattr(module, "self_mask_key", lambda setup, i, seed: b"self %d" % i)
            monkeypatch.setattr(
                module,
                "pair_mask_key",
                lambda s, own, p, i, j, agreed=None: b"pair %d%d" % (min(i, j), max(i, j)),
            )

    def views(self, x, dropouts, revealed):
        """Return how often the server sees each (masked values, revealed masks), and the sum."""
        rows = np.repeat(np.array(x, dtype=np.uint64)[:, None], len(self.COMBINATIONS), axis=1)
        setup, host, received = play(rows, 5, Session(), dropouts=dropouts)
        vectors = masked_vectors(setup, received)
        seen = [*vectors.values(), *self.COMBINATIONS[:, revealed].T]
        place = np.ravel_multi_index([v.astype(int) for v in seen], [5] * len(seen))
        total = host.total()
        assert (total == total[0]).all()
        return np.bincount(place, minlength=5 ** len(seen)), int(total[0])

    def worlds_by_sum(self, dropouts, revealed):
        by_sum = defaultdict(list)
        for x in itertools.product(range(5), repeat=3):
            view, total = self.views(x, dropouts, revealed)
            assert total == sum(x[i] for i in range(3) if i not in dropouts.mask) % 5
            by_sum[total].append(view)
        assert {len(worlds) for worlds in by_sum.values()} == {25}
        return by_sum

    @pytest.mark.parametrize(
        ("dropouts", "revealed"),
        [(NOBODY, [0, 1, 2]), (Dropouts(mask=(2,)), [0, 1, 4, 5])],
        ids=["all stay", "one drops and its masks are revealed"],
    )
    def test_the_view_depends_on_the_sum_alone(self, dropouts, revealed):
        by_sum = self.worlds_by_sum(dropouts, revealed)
        for worlds in by_sum.values():
            assert all(np.array_equal(view, worlds[0]) for view in worlds)
        for a, b in itertools.combinations(by_sum, 2):
            assert not np.any((by_sum[a][0] > 0) & (by_sum[b][0] > 0))

    def test_a_pair_mask_revealed_beside_a_self_mask_would_tell(self):
        """The control: with both kinds of secrets of client 2, its vector is in the view."""
        by_sum = self.worlds_by_sum(NOBODY, [0, 1, 2, 4, 5])
        assert any((view != worlds[0]).any() for worlds in by_sum.values() for view in worlds)


# -- statistics of many rounds -----------------------------------------------------------------


class ScalarMask(KeyStream):
    """One draw for all coordinates."""

    def fill(self, out):
        super().fill(out)
        out[:] = out[0]


class TruncatedSeed(KeyStream):
    """A key of eight bits."""

    def __init__(self, key):
        super().__init__(key[:1] + bytes(31))


def break_scalar(monkeypatch):
    monkeypatch.setattr(masks, "KeyStream", ScalarMask)


def break_seed(monkeypatch):
    monkeypatch.setattr(masks, "KeyStream", TruncatedSeed)


def break_rounds(monkeypatch):
    """Clients keep their keys, the derivation forgets the round, and the session looks away."""
    monkeypatch.setattr(
        RoundSetup,
        "derive",
        lambda self, secret, purpose, i, j, size=32: derive_key(
            secret, purpose, bytes(32), i, j, size
        ),
    )
    monkeypatch.setattr(Session, "claim_keys", lambda self, keys: True)
    kept = {}
    init = ClientSecrets.__init__

    def keep(self, mask_secret=b"", cipher_secret=b"", self_seed=b"", used=False):
        if mask_secret:
            mask_secret = kept.setdefault(mask_secret[-1], mask_secret)
        init(self, mask_secret, cipher_secret, self_seed, used)

    monkeypatch.setattr(ClientSecrets, "__init__", keep)


def server_views(inputs, modulus, seed):
    """Return what pair masks alone protect: (rounds, n, m) vectors less their self masks.

    The secrets are drawn from ``seed``, so that the tests repeat; the last byte of a secret is the
    client, by which the broken protocol above recognises whose key it keeps.
    """
    rng = np.random.default_rng(seed)
    session = Session()
    session.id = rng.bytes(16)
    views = np.empty(inputs.shape, dtype=np.uint64)
    for r, rows in enumerate(inputs):
        secrets = [
            ClientSecrets(*[rng.bytes(31) + bytes([i]) for _ in range(3)]) for i in range(len(rows))
        ]
        setup, host, received = play(rows, modulus, session, secrets)
        for i, vector in masked_vectors(setup, received).items():
            self_mask = mask(
                self_mask_key(setup, i, host._reconstruct(i)), setup.length, setup.modulus
            )
            views[r, i] = add_modulo(vector, self_mask, modulus, sign=-1)
        assert np.array_equal(host.total(), views[r].sum(axis=0) % modulus)
    return views


def uniformity(values, modulus):
    counts = np.bincount(values.ravel().astype(int), minlength=modulus)
    expected = values.size / modulus
    return stats.chi2.sf(np.sum((counts - expected) ** 2) / expected, modulus - 1)


def collisions(prefixes, modulus):
    """p-value of pairs of equal rows, under rows of uniform residues."""
    n, length = prefixes.shape
    _, counts = np.unique(prefixes, axis=0, return_counts=True)
    pairs = int((counts * (counts - 1) // 2).sum())
    return stats.poisson.sf(pairs - 1, n * (n - 1) / 2 / float(modulus) ** length)


def battery(views, modulus):
    """Return the p-values of a server that looks for structure in one client's vectors."""
    first = views[:, 0].astype(np.int64)
    return {
        "values": uniformity(first, modulus),
        "between coordinates": uniformity((first[:, 1:] - first[:, :-1]) % modulus, modulus),
        "between rounds": uniformity((first[1:] - first[:-1]) % modulus, modulus),
        "repetitions": collisions(first[:, :64], modulus),
    }


def caught(views, modulus):
    return {name for name, p in battery(views, modulus).items() if p < FALSE_ALARM / 4}


ROUNDS = 100


@pytest.mark.parametrize("modulus", [4, 5, 256])
@pytest.mark.parametrize("value", ["zero", "largest"])
def test_a_million_masked_values_look_uniform(modulus, value):
    fill = {"zero": 0, "largest": modulus - 1}[value]
    inputs = np.full((ROUNDS, 2, 10_000), fill, dtype=np.uint64)
    views = server_views(inputs, modulus, seed=modulus)
    assert views[:, 0].size >= 10**6
    assert caught(views, modulus) == set()


@pytest.mark.parametrize("modulus", [4, 5, 256])
@pytest.mark.parametrize(
    ("broken", "seen_in"),
    [
        (break_scalar, "between coordinates"),
        (break_seed, "repetitions"),
        (break_rounds, "between rounds"),
    ],
)
def test_broken_masks_are_caught(monkeypatch, modulus, broken, seen_in):
    broken(monkeypatch)
    inputs = np.zeros((ROUNDS, 2, 250), dtype=np.uint64)
    assert seen_in in caught(server_views(inputs, modulus, seed=1), modulus)


# -- two worlds --------------------------------------------------------------------------------

WINDOW = 4
CLASSIFIER_MODULUS = 16


def two_worlds(n_samples, windows, seed):
    """Return samples of the server's view in two worlds whose sums are equal, and the worlds.

    In world 0 client 0 holds the pattern (0, 5, 0, 5, …) and client 1 zeros, in world 1 the other
    way round; in the next round the pattern is shifted. A sample is what the server sees of four
    coordinates of three clients in two rounds, with all differences it may care to form.
    """
    rng = np.random.default_rng(seed)
    features, labels = [], []
    for k in range(n_samples // windows):
        for world in (0, 1):
            inputs = np.zeros((2, 3, windows * WINDOW), dtype=np.uint64)
            inputs[0, world, 1::2] = 5
            inputs[1, world, 0::2] = 5
            inputs[:, 2] = rng.integers(0, CLASSIFIER_MODULUS, windows * WINDOW)
            views = server_views(inputs, CLASSIFIER_MODULUS, seed=[seed, k, world])
            views = views.astype(np.int64).reshape(2, 3, windows, WINDOW)
            parts = [views, np.diff(views, axis=0), np.diff(views, axis=1), np.diff(views, axis=3)]
            samples = [np.moveaxis(p, 2, 0).reshape(windows, -1) for p in parts]
            features.append(np.concatenate(samples, axis=1) % CLASSIFIER_MODULUS)
            labels.append(np.full(windows, world))
    return np.concatenate(features), np.concatenate(labels)


def auc(model, n_train, n_test, windows):
    model.fit(*two_worlds(n_train, windows, seed=1))
    X, y = two_worlds(n_test, windows, seed=2)
    return roc_auc_score(y, model.predict_proba(X)[:, 1])


def naive_bayes():
    return CategoricalNB(min_categories=CLASSIFIER_MODULUS)


def trees():
    return HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=0)


def test_a_classifier_cannot_tell_worlds_with_equal_sums_apart():
    """40 000 test samples a class: the AUC has standard deviation 0.002, so 0.01 is 5 of them."""
    assert abs(auc(naive_bayes(), n_train=40_000, n_test=40_000, windows=1000) - 0.5) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("model", [naive_bayes, trees])
def test_a_classifier_with_more_data_cannot_either(model):
    assert abs(auc(model(), n_train=200_000, n_test=200_000, windows=1000) - 0.5) <= 0.005


@pytest.mark.parametrize("broken", [break_scalar, break_rounds])
def test_the_classifier_sees_through_broken_masks(monkeypatch, broken):
    broken(monkeypatch)
    assert auc(naive_bayes(), n_train=400, n_test=400, windows=20) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("broken", [break_scalar, break_rounds])
def test_trees_see_through_broken_masks_too(monkeypatch, broken):
    broken(monkeypatch)
    assert auc(trees(), n_train=4000, n_test=4000, windows=20) > 0.9


def test_the_bytes_are_all_there_is():
    """Another server that is given the same bytes reaches the same sum: no other channel exists."""
    rows = np.random.default_rng(0).integers(0, 1000, (4, 6), dtype=np.uint64)
    setup, host, received = play(rows, 1000, Session(), dropouts=Dropouts(mask=(1,)))
    other = ServerSession(setup.document, Session())
    for stage in ("advertise", "share", "mask", "unmask"):
        for (at, i), data in received.items():
            if at == stage:
                other.receive(data, i)
        other.close_stage()
    assert np.array_equal(other.total(), host.total())
    assert np.array_equal(host.total(), rows[[0, 2, 3]].sum(axis=0) % 1000)
