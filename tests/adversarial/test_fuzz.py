"""Whatever bytes a party is sent, it answers as agreed or refuses by its one exception.

Mutations: bits flipped, bytes replaced, cut, repeated or added, fields overwritten by extreme
values, parts of other messages. Nothing is timed: a watchdog ends a test that hangs.
"""

import contextlib
import faulthandler
import json
import random
import tracemalloc

import numpy as np
import pytest

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg import (
    BelowThresholdError,
    ClientSession,
    InvalidMessageError,
    RoundDocument,
    ServerSession,
)
from sparse_secagg.secagg.identities import Roster
from sparse_secagg.secagg.messages import max_message_bytes
from sparse_secagg.secagg.parties import answer
from tests.adversarial.lying import LENGTH, LyingServer, default_document, identities

N = 6
STAGES = ("share", "mask", "confirm", "unmask")
CASES = [(security, k) for security in ("malicious", "semi_honest") for k in (None, 4)]
AMOUNTS = [400, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def watchdog():
    """End the whole run, with a traceback, if a test hangs."""
    faulthandler.dump_traceback_later(3600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def mutate(data, others, rng):
    """Return other bytes than ``data``, most often close to them."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        place, kind = rng.randrange(len(data) + 1), rng.randrange(7)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place : place + 4] = rng.choice([b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff"])
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            data[place:place] = rng.randbytes(rng.choice([1, 32, 1000]))
        elif kind == 4:
            other = rng.choice(others)
            data[place:] = other[place:]
        elif kind == 5:
            del data[place : place + rng.choice([1, 32, 96])]
        else:
            data[place : place + 32] = rng.randbytes(32)
    return bytes(data)


def parties(security, k):
    people, roster = identities(N) if security == "malicious" else ([None] * N, None)
    document = default_document(N, k, security, share_threshold=5, threshold=4)
    server = ServerSession(document, roster=roster)
    clients = [
        ClientSession(document, i, identity=people[i], roster=roster, simulation=True)
        for i in range(N)
    ]
    return document, server, clients


def play_until(server, clients, stop):
    """Play honestly; return what client 0 is sent, and what everybody would answer, at a stage."""
    rows = np.zeros((N, LENGTH), np.uint64)
    for stage in server.document.stages:
        incoming = [b"" if stage == "advertise" else server.message_for(i) for i in range(N)]
        if stage == stop:
            return incoming
        for i, client in enumerate(clients):
            server.receive(answer(client, incoming[i], rows[i]), i)
        server.close_stage()
    raise AssertionError(stop)


def snapshot(party):
    return {k: v.copy() if hasattr(v, "copy") else v for k, v in vars(party).items()}


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize(("security", "k"), CASES)
@pytest.mark.parametrize("stage", STAGES)
def test_messages_to_a_client(security, k, stage, amount):
    if stage == "confirm" and security == "semi_honest":
        pytest.skip("no such stage")
    rng = random.Random(f"{security}{k}{stage}")
    _, server, clients = parties(security, k)
    sent = play_until(server, clients, stage)
    client, before = clients[0], snapshot(clients[0])
    assert client.receive(sent[0]) is not None or client.wants_vector
    answered = 0
    for _ in range(amount):
        vars(client).clear()
        vars(client).update({k: v.copy() if hasattr(v, "copy") else v for k, v in before.items()})
        try:
            data = client.receive(mutate(sent[0], sent, rng))
            if data is None:
                client.mask(np.zeros(LENGTH, np.uint64))
            answered += 1
        except RefusedRoundError:
            assert client.finished
    assert answered < amount


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize(("security", "k"), CASES)
@pytest.mark.parametrize("stage", ["advertise", *STAGES])
def test_messages_to_the_server(security, k, stage, amount):
    if stage == "confirm" and security == "semi_honest":
        pytest.skip("no such stage")
    rng = random.Random(f"{security}{k}{stage}server")
    _, server, clients = parties(security, k)
    incoming = play_until(server, clients, stage)
    rows = np.zeros((N, LENGTH), np.uint64)
    sent = [answer(client, incoming[i], rows[i]) for i, client in enumerate(clients)]
    refused = 0
    for _ in range(amount):
        server._came[:] = False
        server._session._keys.clear()
        try:
            server.receive(mutate(sent[0], sent, rng), rng.choice([None, 0]))
        except InvalidMessageError:
            refused += 1
    assert refused > 0
    server._came[:] = False
    server._session._keys.clear()
    for i, data in enumerate(sent):
        server.receive(data, i)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_documents_and_rosters(amount):
    rng = random.Random(0)
    people, roster = identities(N)
    texts = [
        default_document(N, None, "malicious").to_json().encode(),
        default_document(N, 4, "malicious", share_threshold=5).to_json().encode(),
    ]
    values = [
        None,
        True,
        -1,
        0,
        1,
        2**64,
        2**200,
        1e999,
        0.5,
        "",
        "x",
        "00",
        [],
        {},
        [[]],
        "\ud800",
    ]
    for _ in range(amount):
        text = rng.choice(texts)
        if rng.random() < 0.5:
            document = json.loads(text)
            document[rng.choice(list(document))] = rng.choice(values)
            text = json.dumps(document).encode()
        else:
            text = mutate(text, texts, rng)
        with contextlib.suppress(RefusedRoundError):
            ClientSession(text, identity=people[0], roster=roster)
        with contextlib.suppress(ValueError):
            Roster.from_json(mutate(roster.to_json().encode(), texts, rng))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b"\xff" * 100,
        b" " * (2 << 20),
        '{"a":' * 20_000,
        "",
        b"9" * 10_000,
        b"null",
    ],
    ids=["deep", "binary", "long", "deep objects", "empty", "a huge number", "null"],
)
def test_texts_that_are_no_document(text):
    with pytest.raises(RefusedRoundError):
        RoundDocument.from_json(text)


def peak_of(action):
    tracemalloc.start()
    try:
        action()
    except (RefusedRoundError, InvalidMessageError):
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("stage", STAGES)
def test_no_message_makes_a_client_allocate_more_than_a_multiple_of_its_own(stage):
    """Lengths are checked before anything is parsed: a gigabyte that is sent is not copied."""
    document, server, clients = parties("malicious", None)
    sent = play_until(server, clients, stage)[0]
    largest = max_message_bytes(document) + 8 * LENGTH
    huge = sent + bytes(50_000_000)
    rng = random.Random(0)
    before = snapshot(clients[0])
    for data in (huge, sent, *(mutate(sent, [sent], rng) for _ in range(50))):
        vars(clients[0]).update(before)
        peak = peak_of(lambda data=data: clients[0].receive(data))
        assert peak < 20 * largest + 200_000


def test_a_document_cannot_make_a_client_allocate_what_it_claims():
    """2^40 entries, 2^24 clients: sizes are only numbers until the client's own vector is there."""
    people, roster = identities(N)
    document = default_document(N, None, "malicious", length=1 << 40)
    crowd = default_document(N, None, "malicious", n_clients=1 << 16, share_threshold=50_000)
    for claim in (document, crowd):
        peak = peak_of(lambda claim=claim: ClientSession(claim, identity=people[0], roster=roster))
        assert peak < 1_000_000
    clients = [ClientSession(document, identity=people[i], roster=roster) for i in range(N)]
    server = LyingServer(default_document(N, None, "malicious"))
    server.documents = dict.fromkeys(range(N), document)
    server.clients = dict(enumerate(clients))
    server.document = document
    server.play("share")
    assert peak_of(lambda: server.forward(0)) < 1_000_000


@pytest.mark.parametrize("security", ["malicious", "semi_honest"])
def test_states_that_were_changed(security):
    """A damaged state is a ValueError, never a session that goes on with other secrets by luck."""
    rng = random.Random(1)
    people, roster = identities(N) if security == "malicious" else ([None] * N, None)
    _, server, clients = parties(security, None)
    play_until(server, clients, "unmask")
    state, host = clients[0].save(), server.save()
    for _ in range(200):
        with contextlib.suppress(ValueError):
            ClientSession.load(mutate(state, [state], rng), identity=people[0], roster=roster)
        with contextlib.suppress(ValueError, BelowThresholdError):
            ServerSession.load(mutate(host, [host], rng), roster=roster)
