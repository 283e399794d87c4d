"""What the strategy and the mod say to each other inside Flower's messages."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

__all__ = ["RECORD", "body_of", "record"]

#: The record of a message that belongs to secure aggregation, and of a node's state.
RECORD = "sparse_secagg"


def record(**values: str | bytes | float) -> RecordDict:
    """Return the content of a message of ours."""
    return RecordDict({RECORD: ConfigRecord(dict(values))})


def body_of(message: Message) -> bytes | None:
    """Return the bytes that a node answered with; None for an error or for anything else."""
    if message.has_error() or RECORD not in message.content.config_records:
        return None
    body = message.content.config_records[RECORD].get("message")
    return body if isinstance(body, bytes) else None
