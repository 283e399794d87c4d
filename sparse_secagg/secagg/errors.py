"""What can go wrong in secure aggregation. No exception carries a partial sum or a secret."""

from __future__ import annotations

from typing import Any

from sparse_secagg.exceptions import RefusedRoundError


class BelowThresholdError(RuntimeError):
    """Too few clients are left: the round ends, and nothing of it is revealed."""


class TooFewClientsError(BelowThresholdError, RefusedRoundError):
    """A client is told of too few others to hide among, and refuses to go on."""


class InvalidMessageError(ValueError):
    """A client sent something that the protocol does not allow.

    Attributes
    ----------
    client : int
        The client at fault: its row in the cohort.
    reason : str
        What was wrong.
    remedy : str
        What to do about it.
    """

    def __init__(
        self,
        client: int,
        reason: str,
        remedy: str = "Drop it, or pass on_invalid='exclude' to go on without it.",
    ) -> None:
        super().__init__(f"client {client} {reason}. {remedy}")
        self.client = client
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.client, self.reason, self.remedy)


class ReuseError(RefusedRoundError):
    """A round id, a seed, a saved state or a one-time object was about to be used twice."""


class ServerFaultError(RefusedRoundError):
    """The server sent a client something that an honest one does not send: the round ends."""
