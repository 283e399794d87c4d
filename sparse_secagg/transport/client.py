"""The client of a round over TLS, which can be killed at any time and goes on from its file.

Between two messages all it has is on disk, readable by its owner only: the session's state and the
answer last made. An answer is sent after it is saved, so a client that starts again sends the same
bytes, never other ones; and the agent's log lets each state continue once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparse_secagg.exceptions import RefusedRoundError
from sparse_secagg.private_files import replacing
from sparse_secagg.secagg.client import ClientSession, Gatekeeper
from sparse_secagg.secagg.errors import ServerFaultError
from sparse_secagg.secagg.identities import Identity, Roster
from sparse_secagg.secagg.messages import max_incoming_bytes
from sparse_secagg.secagg.setup import MAX_DOCUMENT_BYTES, RoundDocument
from sparse_secagg.transport.frames import (
    DOCUMENT,
    DONE,
    MAX_REASON,
    MESSAGE,
    NEXT,
    PLACE,
    read_frame,
    write_frame,
)
from sparse_secagg.validation import check_positive


def join_round(
    address: tuple[str, int],
    vector: Any,
    *,
    identity: Identity,
    roster: Roster,
    agent: Gatekeeper,
    state: str | os.PathLike[str],
    context: ssl.SSLContext,
    seconds: float = 600.0,
    stages: int | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> bool:
    """Take part in the round of a server; return whether it has ended well for this client.

    Parameters
    ----------
    address : (host, port)
        The server.
    vector : array-like of shape (d,)
        The client's vector, which its agent encodes and charges.
    identity : Identity
        The client's signing key.
    roster : Roster
        Who takes part.
    agent : ClientAgent
        The client's limits and lifetime budget.
    state : path
        Where the client keeps what it needs to go on, while the round lasts. If the file is there
        and is about this round, the client goes on from it.
    context : SSLContext
        From :func:`client_context`.
    seconds : float
        How long to wait for an answer of the server.
    stages : int, optional
        Answer at most so many messages now; the next call goes on. None: to the end.
    on_stage : callable, optional
        Called with a stage's name after its answer is saved and before it is sent.

    Returns
    -------
    bool
        True at the end of the round; False if ``stages`` ended before it.

    Raises
    ------
    ValueError
        If ``seconds`` is not above 0.
    RefusedRoundError
        For whatever an honest server does not send, for silence, and for a round that has gone on
        without this client.

    See Also
    --------
    serve_round : The other side, with both sides in an example.
    sparse_secagg.ClientSession : The same without a network.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sparse_secagg import AgentPolicy, Budget, ClientAgent, Identity, Roster
    >>> from sparse_secagg import RefusedRoundError
    >>> from sparse_secagg.transport import client_context, join_round
    >>> identity = Identity.new()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     budget = Budget(Path(folder, "budget.sqlite"), epsilon=8.0, delta=1e-5)
    ...     agent = ClientAgent(AgentPolicy(max_epsilon=1.0, max_delta=1e-5), budget)
    ...     try:
    ...         join_round(
    ...             ("127.0.0.1", 1), [0.0, 0.0], identity=identity, agent=agent,
    ...             roster=Roster("study").add("me", identity.public),
    ...             state=Path(folder, "state"), context=client_context(),
    ...         )
    ...     except RefusedRoundError:
    ...         print("nobody listens there, and nothing was sent")
    nobody listens there, and nothing was sent
    """
    peer = _Peer(address, context, check_positive("seconds", seconds))
    document = RoundDocument.from_json(peer.ask(DOCUMENT, b"", MAX_DOCUMENT_BYTES))
    keys: dict[str, Any] = {"identity": identity, "roster": roster, "agent": agent}
    saved = _Saved.load(state)
    left = len(document.stages) if stages is None else stages
    if saved is None or saved.document != document.digest.hex():
        session = ClientSession(document, **keys)
        saved = _Saved.of(session.start(), session, 1)
        left -= _answer(peer, saved, state, "advertise", on_stage)
    else:
        peer.send(saved.outbox)
    while left > 0 and saved.stage < len(document.stages):
        stage = document.stages[saved.stage]
        place = PLACE.pack(saved.index, saved.stage)
        incoming = peer.ask(NEXT, place, max_incoming_bytes(document))
        session = ClientSession.load(base64.b64decode(saved.session), **keys)
        answer = session.receive(incoming)
        if answer is None:
            answer = session.mask(vector)
        saved = _Saved.of(answer, session, saved.stage + 1)
        left -= _answer(peer, saved, state, stage, on_stage)
    if saved.stage < len(document.stages):
        return False
    os.unlink(state)
    return True


def _answer(
    peer: _Peer,
    saved: _Saved,
    path: str | os.PathLike[str],
    stage: str,
    on_stage: Callable[[str], None] | None,
) -> int:
    """Save an answer, then send it; return that it is one."""
    saved.write(path)
    if on_stage is not None:
        on_stage(stage)
    peer.send(saved.outbox)
    return 1


@dataclass(frozen=True)
class _Saved:
    """What is on disk between two messages."""

    document: str
    index: int
    stage: int
    answer: str
    session: str

    @classmethod
    def of(cls, answer: bytes, session: ClientSession, stage: int) -> _Saved:
        return cls(
            session.document.digest.hex(),
            session.index,
            stage,
            base64.b64encode(answer).decode(),
            base64.b64encode(session.save()).decode(),
        )

    @property
    def outbox(self) -> bytes:
        return base64.b64decode(self.answer)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole and synced, or leave the one that is there."""
        with replacing(Path(path)) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> _Saved | None:
        """Return what is in the file; None if there is none."""
        if not os.path.exists(path):
            return None
        try:
            return cls(**json.loads(Path(path).read_text()))
        except (ValueError, TypeError):
            raise ValueError(f"{str(path)!r} is no state of a client; remove it.") from None


class _Peer:
    """The server, as a client sees it: requests and answers."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, seconds: float) -> None:
        self._address, self._context, self._seconds = address, context, seconds

    def ask(self, kind: bytes, body: bytes, limit: int) -> bytes:
        """Return the server's answer; raise :class:`RefusedRoundError` if there is none."""
        try:
            status, answer = asyncio.run(self._ask(kind, body, max(limit, MAX_REASON)))
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            host, port = self._address
            if isinstance(error, ConnectionRefusedError):
                raise ServerFaultError(
                    f"nobody listens at {host}:{port}; is the round being served there?"
                ) from None
            raise ServerFaultError(
                f"the server at {host}:{port} did not answer as agreed: {error!r}."
            ) from None
        if status != DONE:
            reason = answer[:MAX_REASON].decode(errors="replace")
            raise RefusedRoundError(f"the server ended the round for this client: {reason!r}")
        return answer

    def send(self, message: bytes) -> None:
        """Send a message of the client."""
        self.ask(MESSAGE, message, 0)

    async def _ask(self, kind: bytes, body: bytes, limit: int) -> tuple[bytes, bytes]:
        host, port = self._address
        async with asyncio.timeout(self._seconds):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=self._context, server_hostname=host
            )
            try:
                await write_frame(writer, kind, body)
                return await read_frame(reader, limit)
            finally:
                writer.close()
