"""Frames: a length, then so many bytes. One connection carries one request and its answer.

    request = DOCUMENT                         the round's document
            | NEXT ‖ client ‖ stage            what the client is sent before its message of a stage
            | MESSAGE ‖ bytes                  a client's message
    answer  = DONE ‖ bytes | OVER ‖ reason

Lengths are checked before a byte of the body is read. Nothing here is secret from whoever asks:
messages to clients are public or sealed, and messages of clients are signed.
"""

from __future__ import annotations

import asyncio
import struct

DOCUMENT, NEXT, MESSAGE = b"D", b"N", b"M"
DONE, OVER = b"+", b"-"
#: Client and stage of a NEXT.
PLACE = struct.Struct("<IB")
#: Longest reason in an OVER that is sent.
MAX_REASON = 1000

_LENGTH = struct.Struct("<Q")


async def read_frame(reader: asyncio.StreamReader, limit: int) -> tuple[bytes, bytes]:
    """Return kind and body of a frame; raise ValueError if it is longer than ``limit``."""
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if not 1 <= size <= limit + 1:
        raise ValueError(f"a frame of {size} bytes, where at most {limit + 1} are expected")
    return await reader.readexactly(1), await reader.readexactly(size - 1)


async def write_frame(writer: asyncio.StreamWriter, kind: bytes, body: bytes) -> None:
    """Send a frame."""
    writer.write(_LENGTH.pack(1 + len(body)) + kind)
    writer.write(body)
    await writer.drain()
