"""A server that may lie in every message to every client, and what it can compute from the answers.

It sees and sends bytes only. Clients hold uniform residues, so an attack that failed is noise, and
one that succeeded equals what it is after in every coordinate.
"""

import dataclasses
from collections import defaultdict

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from sparse_secagg import MaskedSecAgg
from sparse_secagg.secagg import BelowThresholdError, ClientSession, shamir
from sparse_secagg.secagg.client import mask_sign, pair_mask_key, self_mask_key
from sparse_secagg.secagg.identities import SIGNATURE_BYTES, Identity, Member, Roster
from sparse_secagg.secagg.keys import X25519
from sparse_secagg.secagg.masks import MaskSum, add_modulo
from sparse_secagg.secagg.merkle import ABSENT, HashTree, leaf
from sparse_secagg.secagg.messages import (
    ADVERTISED_BYTES,
    CONFIRMATION_BYTES,
    HEADER_BYTES,
    MASK_KEY,
    SELF_MASK,
    Confirmation,
    Confirmations,
    ForwardedShares,
    MaskedInput,
    PeerKeys,
    ShareKeys,
    SurvivorList,
    UnmaskShares,
)

LENGTH, MODULUS = 6, 2**32


def identities(n):
    """Return n identities and the roster of them, the same in every run."""
    people = [Identity(bytes([i % 256, i // 256]) * 16) for i in range(n)]
    members = tuple(Member(f"client {i}", who.public) for i, who in enumerate(people))
    return people, Roster("test", members)


def default_document(n, neighbors=None, security="semi_honest", **changes):
    """Return the document that MaskedSecAgg makes by default, with some fields changed."""
    roster = identities(n)[1] if security == "malicious" else None
    secagg = MaskedSecAgg(neighbors=neighbors, security=security)
    rng = np.random.default_rng(0)
    document = secagg._document(n, LENGTH, MODULUS, rng, None, b"configuration", roster)
    return dataclasses.replace(document, **changes)


class LyingServer:
    """Plays the server against honest clients; what it tells each of them is up to the attack."""

    def __init__(self, document, views=None, simulation=False, secrets=None):
        self.document, n = document, document.n_clients
        rng = np.random.default_rng(1)
        self.rows = rng.integers(0, MODULUS, (n, document.length), np.uint64)
        #: The round as each client was told of it.
        self.documents = {i: document for i in range(n)} | (views or {})
        self.lying = document.lying_server
        people, self.roster = identities(n) if self.lying else ([None] * n, None)
        self.clients = {
            i: ClientSession(
                view,
                i,
                identity=people[i],
                roster=self.roster,
                simulation=simulation,
                secrets=None if secrets is None else secrets[i],
            )
            for i, view in self.documents.items()
        }
        self.setups = {i: d.setup() for i, d in self.documents.items()} if not self.lying else {}
        self.advertised, self.signatures = {}, {}
        self.dealt, self.masked, self.tags, self.told = {}, {}, {}, {}
        self.shares = defaultdict(dict)

    # -- the messages, honest by default ----------------------------------------------------------

    def advertise(self):
        for i, client in self.clients.items():
            data = client.start()[HEADER_BYTES:]
            self.advertised[i], self.signatures[i] = data[:ADVERTISED_BYTES], data[-64:]
        return self

    def tree(self, advertised=None):
        advertised = self.advertised if advertised is None else advertised
        n = self.document.n_clients
        return HashTree([leaf(i, advertised[i]) if i in advertised else ABSENT for i in range(n)])

    def share(self, i, advertised=None, root=None):
        """Send client i the keys of its neighbours: the true ones, or those of ``advertised``."""
        rows = self.advertised if advertised is None else advertised
        document, proof = self.documents[i], b""
        if self.lying:
            tree = self.tree(rows)
            root = tree.root if root is None else root
            self.setups[i] = document.setup(root)
        members = self.members(i)
        if self.lying:
            proof = tree.proof(members)
        present = np.array([j != i and j in rows for j in members])
        data = b"".join(
            rows[j] + (self.signatures[j] if self.lying else b"")
            for j, here in zip(members, present)
            if here
        )
        message = PeerKeys(
            self.setups[i].view, i, present, np.frombuffer(data, np.uint8), root or b"", proof
        )
        self.dealt[i] = self.ask(i, ShareKeys, message)

    def forward(self, i, shared=None):
        """Ask client i for its masked vector, telling it who shared; by default the truth."""
        members = self.members(i)
        shared = [j for j in members if j != i and j in (self.dealt if shared is None else shared)]
        data = np.frombuffer(b"".join(self.ciphertext(j, i) for j in shared), np.uint8)
        present = np.array([j in shared for j in members])
        self.told[i] = {*shared, i}
        message = ForwardedShares(self.setups[i].view, i, present, data)
        assert self.clients[i].receive(message.to_bytes()) is None
        data = self.unsigned(self.clients[i].mask(self.rows[i]))
        self.masked[i] = MaskedInput.from_bytes(data, self.setups[i], i).values

    def tell(self, i, survivors=None):
        """Send client i a list of survivors; it confirms it, or opens its shares at once."""
        survivors = self.masked if survivors is None else survivors
        flags = np.zeros(self.document.n_clients, dtype=bool)
        flags[list(survivors)] = True
        message = SurvivorList(self.setups[i].view, i, flags)
        if not self.lying:
            return self.take(i, self.ask(i, UnmaskShares, message))
        answer = self.ask(i, Confirmation, message)
        to = [j for j, here in zip(self.members(i), answer.present) if here]
        self.tags[i] = {j: tag.tobytes() for j, tag in zip(to, answer.tags)}
        return None

    def confirm(self, i, tags=None):
        """Send client i the confirmations of its neighbours, and take its shares."""
        if tags is None:
            tags = {j: sent[i] for j, sent in self.tags.items() if i in sent}
        members = self.members(i)
        present = np.array([j in tags for j in members])
        data = b"".join(tags[j] for j in members if j in tags)
        assert len(data) == present.sum() * CONFIRMATION_BYTES
        message = Confirmations(self.setups[i].view, i, present, np.frombuffer(data, np.uint8))
        self.take(i, self.ask(i, UnmaskShares, message))

    def play(self, until="confirm"):
        """Play honestly, up to and with a step."""
        steps = ["share", "forward", "tell", "confirm"]
        self.advertise()
        for step in steps[: steps.index(until) + 1]:
            for i in self.clients:
                getattr(self, step)(i)
        return self

    # -- what it learns ---------------------------------------------------------------------------

    def members(self, i):
        return self.setups[i].graph.members[i].tolist()

    def unsigned(self, data):
        return data[:-SIGNATURE_BYTES] if self.lying else data

    def ask(self, i, kind, message):
        answer = self.unsigned(self.clients[i].receive(message.to_bytes()))
        return kind.from_bytes(answer, self.setups[i], i)

    def ciphertext(self, dealer, recipient):
        present = [j for j, p in zip(self.members(dealer), self.dealt[dealer].present) if p]
        if recipient not in present:
            return bytes(self.dealt[dealer].ciphertexts.shape[1])
        return self.dealt[dealer].ciphertexts[present.index(recipient)].tobytes()

    def take(self, i, answer):
        given = [(j, flag) for j, flag in zip(self.members(i), answer.given.tolist()) if flag]
        for (j, kind), share in zip(given, answer.shares):
            self.shares[j, kind][self.members(j).index(i)] = share

    def secret(self, dealer, kind):
        shares, t = self.shares[dealer, kind], self.document.share_threshold
        if len(shares) < t:
            raise BelowThresholdError(f"{len(shares)} shares of {dealer}, {t} needed")
        ranks = np.array(sorted(shares)[:t])
        return shamir.combine(ranks + 1, np.array([shares[rank] for rank in ranks.tolist()]))

    def unmasked_sum(self, victims, keys_of=()):
        """Return Σ over the victims, their self masks and the masks with ``keys_of`` taken off."""
        masks = MaskSum(self.document.length, self.document.modulus)
        secrets = {a: self.secret(a, MASK_KEY) for a in keys_of}
        for v in victims:
            setup = self.setups[v]
            masks.add(self_mask_key(setup, v, self.secret(v, SELF_MASK)))
            for a in self.told[v] & set(keys_of):
                own = setup.key_pair(secrets[a])
                key = pair_mask_key(setup, own, self.advertised[v][:32], a, v)
                masks.add(key, sign=mask_sign(v, a))
        total = sum(self.masked[v].astype(object) for v in victims) % self.document.modulus
        return add_modulo(total.astype(np.uint64), masks.value(), self.document.modulus, sign=-1)

    def truth(self, victims):
        return self.rows[list(victims)].sum(axis=0) % np.uint64(self.document.modulus)

    # -- isolation: cut a set of victims off from the rest, by lists that need not agree ----------

    def isolate(self, victims, present):
        """Make the sum of ``victims`` show, each having been told of ``present`` members.

        The victims mask towards a set A of outsiders, whose mask keys the server then collects:
        every client is told of as many of them being dropped as it may believe. Returns the sum,
        or raises for lack of shares.
        """
        self.play("share")
        towards, plan = plan_of_lies(self.setups[victims[0]], victims, present)
        for i in self.clients:
            self.forward(i, ({*victims} | towards) if i in victims else None)
        # Beyond a victim's neighbourhood it cannot tell who shared; within it the list must fit.
        everybody = set(self.clients)
        for i in self.clients:
            unknown = set(self.members(i)) - self.told[i]
            self.tell(i, everybody - plan[i] - unknown)
        for i in self.clients if self.lying else ():
            self.confirm(i)
        return self.unmasked_sum(victims, keys_of=sorted(towards))


def is_possible(setup, victims, present):
    """Return whether the lies get the server every mask key it needs."""
    towards, plan = plan_of_lies(setup, victims, present)
    got = [sum(a in dropped for dropped in plan.values()) for a in towards]
    return bool(towards) and min(got) >= setup.share_threshold


def plan_of_lies(setup, victims, present):
    """Return the outsiders A whom the victims are told of, and whom each client is told dropped.

    Who tells what is a maximum flow: each member of A needs ``share_threshold`` shares of its mask
    key, from its neighbours, each of whom believes in so many drop-outs that ``share_threshold``
    survivors remain, and never in its own.
    """
    t, members = setup.share_threshold, setup.graph.members.tolist()
    place = np.arange(len(members)) if setup.graph.order is None else np.argsort(setup.graph.order)
    victims, towards = set(victims), set()
    outside = set().union(*(members[v] for v in victims)) - victims
    for a in sorted(outside, key=lambda a: min(abs(place[a] - place[v]) for v in victims)):
        if any(a in members[v] and len({*members[v]} & (victims | towards)) < present
               for v in victims):  # fmt: skip
            towards.add(a)
    dropped = sorted(towards)
    n, k = len(members), len(dropped)
    edges = {(0, 1 + x): t for x in range(k)}
    edges |= {(1 + x, 1 + k + c): 1 for x, a in enumerate(dropped) for c in members[a] if c != a}
    for c in range(n):
        told = len({*members[c]} & (victims | towards)) if c in victims else len(members[c])
        edges[1 + k + c, 1 + k + n] = max(0, told - t)
    rows, columns = zip(*edges)
    graph = csr_array((list(edges.values()), (rows, columns)), shape=(k + n + 2,) * 2, dtype="i4")
    flow = maximum_flow(graph, 0, k + n + 1).flow.toarray()
    plan = {c: {a for x, a in enumerate(dropped) if flow[1 + x, 1 + k + c] > 0} for c in range(n)}
    return towards, plan


def forged_keys(server, victim):
    """Return keys of the server's making in place of all others, and their secrets."""
    secrets = {
        j: (X25519(bytes([j, 1]) * 16), X25519(bytes([j, 2]) * 16))
        for j in server.clients
        if j != victim
    }
    rows = {j: mask.public + cipher.public + bytes(32) for j, (mask, cipher) in secrets.items()}
    return {**rows, victim: server.advertised[victim]}, secrets
