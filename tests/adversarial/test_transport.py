"""Real processes over TLS: clients that are killed, slow, or replay; a server that talks nonsense.

Every message of every client is made by a process of its own, which goes on from the client's file.
Processes are forked from a warm one. A client that is killed is killed by SIGKILL, after its answer
is saved and before it is sent.
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
import struct
import threading
import time
import traceback

import numpy as np
import pytest

from sparse_secagg import (
    AgentPolicy,
    Budget,
    ClientAgent,
    RoundConfig,
    RoundSpec,
    ServerSession,
    announce_round,
)
from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.secagg import BelowThresholdError
from sparse_secagg.secagg.messages import HEADER_BYTES
from sparse_secagg.transport import (
    client_context,
    join_round,
    make_certificate,
    serve_round,
    server_context,
)
from sparse_secagg.transport.client import _Peer
from sparse_secagg.transport.frames import DONE, read_frame, write_frame
from tests.adversarial.lying import identities

STAGES = ("advertise", "share", "mask", "confirm", "unmask")
SPEC = RoundSpec(epsilon=1.0, encoder="identity", n_bits=24, decoder="linear")
POLICY = AgentPolicy(max_epsilon=1.01, max_delta=1e-5)


def fork(job):
    """Run ``job`` in a child process and return its id; an exception is exit code 1."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        code = 1
        try:
            code = job() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


class Recording(ClientAgent):
    """An agent that keeps what it released, for the test to add up."""

    def __init__(self, folder, i):
        super().__init__(POLICY, Budget(folder / f"{i}.sqlite", epsilon=8.0, delta=1e-5))
        self.log = folder / f"{i}.npy"

    def release(self, document, x):
        message = super().release(document, x)
        np.save(self.log, message)
        return message


class Round:
    """A server and n clients in processes of their own."""

    def __init__(self, folder, n, dim, seconds):
        self.folder, self.n, self.seconds = folder, n, seconds
        self.people, self.roster = identities(n)
        self.document = announce_round(SPEC, dim, self.roster, random_state=0)
        self.x = np.random.default_rng(0).standard_normal((n, dim)) / np.sqrt(dim)
        make_certificate(folder / "server.pem", folder / "server.key")
        self.port = None

    def serve(self):
        """The server's process: it writes the sum, or how many shares it has of each secret."""
        session = ServerSession(self.document, roster=self.roster)
        context = server_context(self.folder / "server.pem", self.folder / "server.key")

        logging.getLogger("asyncio").addHandler(logging.FileHandler(self.folder / "complaints"))

        def ready(port):
            (self.folder / "port.draft").write_text(str(port))
            os.replace(self.folder / "port.draft", self.folder / "port")

        try:
            total = serve_round(session, context, seconds=self.seconds, on_ready=ready)
        except BelowThresholdError:
            np.savez(self.folder / "failed.npz", shares=session._has_share.sum(axis=1))
            return 3
        np.savez(self.folder / "sum.npz", total=total, survivors=session.survivors)
        return 0

    def join(self, i, stages=None, on_stage=None):
        return join_round(
            ("127.0.0.1", self.port),
            self.x[i],
            identity=self.people[i],
            roster=self.roster,
            agent=Recording(self.folder, i),
            state=self.folder / f"{i}.round",
            context=client_context(self.folder / "server.pem"),
            seconds=20 * self.seconds,
            stages=stages,
            on_stage=on_stage,
        )

    def client(self, i, on_stage):
        """A client: one process for each stage, until one is killed or refuses."""

        def one_stage():
            try:
                return 0 if self.join(i, 1, on_stage) else 2
            except RefusedRoundError as error:
                print(f"client {i} refused: {error}", flush=True)
                return 4

        code = 2
        while code == 2:
            _, status = os.waitpid(fork(one_stage), 0)
            code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 9

    def run(self, on_stage):
        """Run all; return the exit codes of the server and of the clients."""
        host = fork(self.serve)
        while not (self.folder / "port").exists():
            time.sleep(0.01)
        self.port = int((self.folder / "port").read_text())
        clients = [
            fork(lambda i=i: self.client(i, lambda stage: on_stage(self, i, stage)))
            for i in range(self.n)
        ]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in clients]
        return os.waitstatus_to_exitcode(os.waitpid(host, 0)[1]), codes

    def check_sum(self):
        with np.load(self.folder / "sum.npz") as file:
            total, survivors = file["total"], file["survivors"].tolist()
        sent = sum(np.load(self.folder / f"{i}.npy").astype(object) for i in survivors)
        assert np.array_equal(total.astype(object), sent % self.document.modulus)
        return survivors

    def charged(self):
        return [Budget(self.folder / f"{i}.sqlite").rounds for i in range(self.n)]


def warm():
    """Load the kernels that clients and server use, before anybody is forked."""
    config = RoundConfig.from_json(announce_round(SPEC, 64, identities(5)[1]).context)
    assert config.dim == 64
    from sparse_secagg import MaskedSecAgg, mechanisms

    mechanism = mechanisms.get("ddg", epsilon=1.0, n_bits=24)
    mechanism.calibrate(n_clients=5, dim=64)
    messages = np.array([mechanism.encode(np.zeros(64)) for _ in range(5)])
    MaskedSecAgg(modulus=2**24, security="malicious").aggregate(messages)


def misbehave(when, killed, slow, replays):
    """Return what a client does after its answer of a stage is saved and before it is sent."""

    def on_stage(play, i, stage):
        if stage == when and i in killed:
            os.kill(os.getpid(), signal.SIGKILL)
        if stage == when and i == slow:
            time.sleep(play.seconds + 3)
        if i == replays:
            replay(play, i, stage)

    return on_stage


def replay(play, i, stage):
    """Send everything that was sent before again, and once in the name of another."""
    from sparse_secagg.transport.client import _Saved

    outbox = _Saved.load(play.folder / f"{i}.round").outbox
    (play.folder / f"replay.{i}.{stage}").write_bytes(outbox)
    peer = _Peer(
        ("127.0.0.1", play.port), client_context(play.folder / "server.pem"), 20 * play.seconds
    )
    for path in sorted(play.folder.glob(f"replay.{i}.*")):
        data = path.read_bytes()
        other = struct.pack("<I", (i + 1) % play.n)
        for message in (data, data[: HEADER_BYTES - 4] + other + data[HEADER_BYTES:], data):
            try:
                peer.send(message)
            except RefusedRoundError:
                assert message is not data or stage not in path.name


def check_round(folder, n, dim, seconds, when, killed):
    slow, replays = 1, 2
    play = Round(folder, n, dim, seconds)
    server, codes = play.run(misbehave(when, killed, slow, replays))
    lost = {*killed, slow}
    assert server == 0
    assert [i for i, code in enumerate(codes) if code == 9] == sorted(killed)
    assert {i for i, code in enumerate(codes) if code == 4} <= {slow}
    assert all(code == 0 for i, code in enumerate(codes) if i not in lost)
    survivors = play.check_sum()
    before_vectors = STAGES.index(when) <= STAGES.index("mask")
    assert survivors == [i for i in range(n) if not (before_vectors and i in lost)]
    made = STAGES.index(when) >= STAGES.index("mask")
    assert play.charged() == [int(made or i not in lost) for i in range(n)]
    left = {path.name for path in folder.glob("*.round")}
    assert left == {f"{i}.round" for i in lost if codes[i] != 0}


def check_below_threshold(folder, n, dim, seconds, when):
    play = Round(folder, n, dim, seconds)
    killed = range(n - play.document.threshold + 1)
    server, codes = play.run(misbehave(when, killed, None, None))
    assert server == 3
    assert not (folder / "sum.npz").exists()
    assert codes.count(9) == len(killed)
    with np.load(folder / "failed.npz") as file:
        assert file["shares"].max() < play.document.share_threshold


def test_a_round_with_a_client_killed_one_slow_and_one_that_replays(tmp_path):
    warm()
    check_round(tmp_path, n=8, dim=500, seconds=10.0, when="mask", killed=[5])


def test_below_the_threshold_nothing_is_revealed(tmp_path):
    warm()
    check_below_threshold(tmp_path, n=5, dim=100, seconds=8.0, when="unmask")


@pytest.mark.slow
@pytest.mark.parametrize("when", STAGES)
def test_twenty_clients_two_killed_at_each_stage(tmp_path, when):
    warm()
    check_round(tmp_path, n=20, dim=100_000, seconds=30.0, when=when, killed=[7, 13])


@pytest.mark.slow
@pytest.mark.parametrize("when", STAGES)
def test_twenty_clients_fall_below_the_threshold(tmp_path, when):
    warm()
    check_below_threshold(tmp_path, n=20, dim=100_000, seconds=30.0, when=when)


def test_a_client_that_is_killed_goes_on_from_its_file(tmp_path):
    """Killed after every answer, before it is sent: the next process sends the same bytes."""
    warm()

    def killed_once(play, i, stage):
        mark = play.folder / f"killed.{i}.{stage}"
        if i == 0 and not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    class Stubborn(Round):
        def client(self, i, on_stage):
            while (code := super().client(i, on_stage)) == 9:
                pass
            return code

    play = Stubborn(tmp_path, 5, 100, 60.0)
    assert play.run(killed_once) == (0, [0] * 5)
    assert play.check_sum() == list(range(5))
    assert len(list(tmp_path.glob("killed.0.*"))) == len(STAGES)


class Nonsense:
    """A server that answers each request by the next of its answers, then not at all."""

    def __init__(self, folder, answers):
        make_certificate(folder / "server.pem", folder / "server.key")
        self.context = server_context(folder / "server.pem", folder / "server.key")
        self.answers, self.ports, self.folder = list(answers), [], folder

    async def serve(self, reader, writer):
        try:
            await read_frame(reader, 1 << 20)
            answer = self.answers.pop(0) if self.answers else b""
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await write_frame(writer, *answer)
        finally:
            writer.close()

    async def main(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.context)
        async with server:
            self.ports.append(server.sockets[0].getsockname()[1])
            while not self.stopped:
                await asyncio.sleep(0.01)

    def __enter__(self):
        self.stopped = False
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()))
        self.thread.start()
        while not self.ports:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.stopped = True
        self.thread.join()


def nonsense():
    document = announce_round(SPEC, 20, identities(5)[1]).to_json().encode()
    yes = (DONE, b"")
    return {
        "silence": [],
        "half a frame": [struct.pack("<Q", 100) + b"+abc"],
        "a huge frame": [struct.pack("<Q", 1 << 62) + b"+"],
        "an empty frame": [struct.pack("<Q", 0)],
        "no document": [(DONE, b"{}")],
        "another answer": [(b"?", b"\xff" * 2000)],
        "no keys": [(DONE, document), yes, (DONE, b"nothing")],
        "a long message": [(DONE, document), yes, (DONE, bytes(100_000))],
        "the end": [(DONE, document), yes, (b"-", b"\x1b[31m over")],
    }


@pytest.mark.parametrize("what", nonsense())
def test_whatever_a_server_answers_a_client_refuses(tmp_path, what):
    with Nonsense(tmp_path, nonsense()[what]) as server:
        play = Round.__new__(Round)
        play.folder, play.seconds, play.port = tmp_path, 2.0, server.ports[0]
        play.people, play.roster = identities(5)
        play.x = np.zeros((5, 20))
        with pytest.raises(RefusedRoundError) as error:
            play.join(0)
    assert "\x1b" not in str(error.value)


def test_a_server_with_another_certificate_or_none_is_refused(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with Nonsense(tmp_path, []) as server:
        make_certificate(other / "server.pem", other / "server.key")
        context = client_context(other / "server.pem")
        with pytest.raises(RefusedRoundError, match="CERTIFICATE"):
            _Peer(("127.0.0.1", server.ports[0]), context, 5.0).ask(b"D", b"", 100)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        peer = _Peer(deaf.getsockname(), client_context(tmp_path / "server.pem"), 0.5)
        with pytest.raises(RefusedRoundError, match="did not answer"):
            peer.ask(b"D", b"", 100)
    with pytest.raises(RefusedRoundError, match="nobody listens at 127.0.0.1"):
        peer.ask(b"D", b"", 100)


def test_a_server_survives_strangers(tmp_path):
    """Requests that are none, and messages of nobody, change nothing in a round that follows."""
    warm()

    def strangers(play, i, stage):
        if i != 0:
            return
        context = client_context(play.folder / "server.pem")
        for body in (b"", b"\0" * 5, b"\xff" * 5, b"x" * 50):
            for kind in (b"D", b"N", b"M", b"?"):
                with pytest.raises(RefusedRoundError):
                    _Peer(("127.0.0.1", play.port), context, 5.0).ask(kind, b"!" + body, 10)
        with socket.create_connection(("127.0.0.1", play.port)) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain = ssl.create_default_context(cafile=str(play.folder / "server.pem"))
        with (
            socket.create_connection(("127.0.0.1", play.port)) as raw,
            plain.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
        ):
            wrapped.sendall(struct.pack("<Q", 1 << 40))

    play = Round(tmp_path, 5, 100, 60.0)
    assert play.run(strangers) == (0, [0] * 5)
    assert play.check_sum() == list(range(5))


def test_a_server_ends_in_peace_whoever_keeps_its_connections_open(tmp_path):
    """Connections that say nothing, or half of a request, until after the round."""
    warm()
    play = Round(tmp_path, 5, 100, 60.0)

    def hold():
        while not (tmp_path / "port").exists():
            time.sleep(0.01)
        address = "127.0.0.1", int((tmp_path / "port").read_text())
        context, held = client_context(tmp_path / "server.pem"), []
        for first in (b"", b"\1", struct.pack("<Q", 1000) + b"M half"):
            held.append(socket.create_connection(address))
            held.append(
                context.wrap_socket(socket.create_connection(address), server_hostname=address[0])
            )
            held[-1].sendall(first)
        (tmp_path / "held").write_text("")
        time.sleep(600)

    stranger = fork(hold)
    try:
        assert play.run(lambda *_: None) == (0, [0] * 5)
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)
    assert (tmp_path / "held").exists()
    assert (tmp_path / "complaints").read_text() == ""
    assert play.check_sum() == list(range(5))
