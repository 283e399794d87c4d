"""The server of a round over TLS: it answers requests, and ends stages when all came or time is up.

All that is decided is decided by :class:`~sparse_secagg.ServerSession`; this file moves bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.secagg.errors import BelowThresholdError, InvalidMessageError
from sparse_secagg.secagg.messages import max_message_bytes
from sparse_secagg.secagg.server import ServerSession
from sparse_secagg.transport.frames import (
    DOCUMENT,
    DONE,
    MAX_REASON,
    MESSAGE,
    NEXT,
    OVER,
    PLACE,
    read_frame,
    write_frame,
)
from sparse_secagg.validation import check_positive

#: Seconds that the server stays after the end, for clients that still ask.
_LINGER = 1.0
#: Connections at a time for each client of the round, and for all others together.
_PER_CLIENT, _OTHERS = 4, 64


def serve_round(
    session: ServerSession,
    context: ssl.SSLContext,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    seconds: float = 60.0,
    on_ready: Callable[[int], None] | None = None,
    on_stage: Callable[[str, int], None] | None = None,
) -> NDArray[np.uint64]:
    """Run one round and return the sum of its survivors' messages.

    Parameters
    ----------
    session : ServerSession
        The round.
    context : SSLContext
        From :func:`server_context`.
    host : str
        Address to listen on.
    port : int
        Port to listen on; 0 takes a free one.
    seconds : float
        How long each stage waits for clients that do not answer.
    on_ready : callable, optional
        Called with the port once clients can connect.
    on_stage : callable, optional
        Called after each stage with its name and the number of clients left.

    Returns
    -------
    ndarray of uint64
        The sum modulo M, which :func:`~sparse_secagg.server_decode` turns into the mean.

    Raises
    ------
    ValueError
        If ``seconds`` is not above 0.
    BelowThresholdError
        Too few clients are left. Nothing is revealed.

    See Also
    --------
    join_round : The other side.
    sparse_secagg.announce_round : Makes the document of a round.

    Examples
    --------
    A server and five clients in one process, each client in a thread of its own:

    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from pathlib import Path
    >>> from sparse_secagg import (
    ...     AgentPolicy, Budget, ClientAgent, Identity, RoundSpec, Roster, ServerSession,
    ...     announce_round, transport,
    ... )
    >>> people, roster = [Identity.new() for _ in range(5)], Roster("five")
    >>> for i, person in enumerate(people):
    ...     roster = roster.add(f"client {i}", person.public)
    >>> document = announce_round(RoundSpec(epsilon=1.0, encoder="identity", n_bits=24), 3, roster)
    >>> def take_part(i, port, folder):
    ...     budget = Budget(folder / f"{i}.budget", epsilon=8.0, delta=1e-5)
    ...     return transport.join_round(
    ...         ("127.0.0.1", port), [0.1, 0.2, 0.3], identity=people[i], roster=roster,
    ...         agent=ClientAgent(AgentPolicy(max_epsilon=1.01, max_delta=1e-5), budget),
    ...         state=folder / f"{i}.round",
    ...         context=transport.client_context(folder / "server.pem"),
    ...     )
    >>> with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor() as threads:
    ...     folder, ended = Path(place), []
    ...     files = folder / "server.pem", folder / "server.key"
    ...     transport.make_certificate(*files)
    ...     def ready(port):
    ...         ended.extend(threads.submit(take_part, i, port, folder) for i in range(5))
    ...     session = ServerSession(document, roster=roster)
    ...     context = transport.server_context(*files)
    ...     total = transport.serve_round(session, context, on_ready=ready)
    ...     all(client.result() for client in ended), len(session.survivors)
    (True, 5)
    """
    check_positive("seconds", seconds)
    return asyncio.run(_Server(session, seconds, on_stage).run(context, host, port, on_ready))


class _Server:
    def __init__(
        self,
        session: ServerSession,
        seconds: float,
        on_stage: Callable[[str, int], None] | None,
    ) -> None:
        document = session.document
        self._session, self._seconds, self._on_stage = session, seconds, on_stage
        self._announcement = document.to_json().encode()
        self._limit = max_message_bytes(document)
        self._most = _PER_CLIENT * document.n_clients + _OTHERS
        self._requests: set[asyncio.Task[None] | None] = set()
        self._taken: set[bytes] = set()
        self._over = ""
        self._changed = asyncio.Condition()

    async def run(
        self, context: ssl.SSLContext, host: str, port: int, on_ready: Callable[[int], None] | None
    ) -> NDArray[np.uint64]:
        server = await asyncio.start_server(self._serve, host, port, ssl=context)
        async with server:
            if on_ready is not None:
                on_ready(server.sockets[0].getsockname()[1])
            try:
                return await self._play()
            except (BelowThresholdError, InvalidMessageError) as error:
                self._over = str(error)
                raise
            finally:
                self._over = self._over or "the round is over."
                await self._tell()
                await asyncio.sleep(_LINGER)
                for request in self._requests:
                    if request is not None:
                        request.cancel()

    async def _play(self) -> NDArray[np.uint64]:
        for stage in self._session.document.stages:
            await self._wait(lambda: not len(self._session.waiting_for), self._seconds)
            self._session.close_stage()
            if self._on_stage is not None:
                self._on_stage(stage, int(self._session.alive.sum()))
            await self._tell()
        return self._session.total()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, happened: Callable[[], bool], seconds: float) -> None:
        """Wait until something has happened, or time is up."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(happened)
        except TimeoutError:
            pass

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; whatever is wrong with it ends the connection, nothing else."""
        request = asyncio.current_task()
        self._requests.add(request)
        try:
            if len(self._requests) <= self._most:
                async with asyncio.timeout(self._seconds):
                    kind, body = await read_frame(reader, self._limit)
                status, answer = await self._answer(kind, body)
                async with asyncio.timeout(self._seconds):
                    await write_frame(writer, status, answer)
        except (OSError, EOFError, TimeoutError, ValueError):
            pass
        except asyncio.CancelledError:  # the round is over, and this connection with it
            pass
        finally:
            self._requests.discard(request)
            writer.close()

    async def _answer(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if kind == DOCUMENT and not body:
            return DONE, self._announcement
        if kind == NEXT and len(body) == PLACE.size:
            return await self._next(*PLACE.unpack(body))
        if kind == MESSAGE:
            return await self._take(body)
        raise ValueError("no such request")

    async def _next(self, client: int, stage: int) -> tuple[bytes, bytes]:
        """Return what a client is sent before a stage, once that stage has come."""
        stages, session = self._session.document.stages, self._session
        if not (0 <= client < session.document.n_clients and 1 <= stage < len(stages)):
            raise ValueError("no such place")

        def come() -> bool:
            now = stages.index(session.stage) if session.stage in stages else len(stages)
            return bool(self._over) or now >= stage or not session.alive[client]

        await self._wait(come, stage * self._seconds + _LINGER)
        if not self._over and session.stage == stages[stage] and session.alive[client]:
            return DONE, session.message_for(client)
        return _over(self._over or "the round has gone on without this client.")

    async def _take(self, data: bytes) -> tuple[bytes, bytes]:
        """Take a message; one that was taken before is a client's that did not hear of it."""
        digest = hashlib.sha256(data).digest()
        if digest in self._taken:
            return DONE, b""
        if self._over:
            return _over(self._over)
        try:
            self._session.receive(data)
        except InvalidMessageError as error:
            return _over(str(error))
        self._taken.add(digest)
        await self._tell()
        return DONE, b""


def _over(reason: str) -> tuple[bytes, bytes]:
    return OVER, reason.encode()[:MAX_REASON]
