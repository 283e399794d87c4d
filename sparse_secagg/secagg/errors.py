"""What can go wrong in secure aggregation. No exception carries a partial sum or a secret."""

from __future__ import annotations

from typing import Any

from sparse_secagg.exceptions import RefusedRoundError


class BelowThresholdError(RuntimeError):
    """Too few clients are left: the round ends, and nothing of it is revealed.

    See Also
    --------
    TooFewClientsError : The same, as a client says it.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> from sparse_secagg.secagg import BelowThresholdError
    >>> try:
    ...     IdealSecAgg(modulus=16, threshold=3).aggregate(np.ones((3, 2), int), dropouts=[0])
    ... except BelowThresholdError:
    ...     print("no sum")
    no sum
    """


class TooFewClientsError(BelowThresholdError, RefusedRoundError):
    """A client is told of too few others to hide among, and refuses to go on.

    See Also
    --------
    BelowThresholdError : The same, as the server says it.
    sparse_secagg.RefusedRoundError : Every refusal of a client.

    Examples
    --------
    >>> from sparse_secagg import RefusedRoundError
    >>> from sparse_secagg.secagg import TooFewClientsError
    >>> issubclass(TooFewClientsError, RefusedRoundError)
    True
    """


class InvalidMessageError(ValueError):
    """A client sent something that the protocol does not allow.

    Parameters
    ----------
    client : int
        The client at fault: its row in the cohort.
    reason : str
        What was wrong.
    remedy : str
        What to do about it.

    Attributes
    ----------
    client : int
        The client at fault: its row in the cohort.
    reason : str
        What was wrong.
    remedy : str
        What to do about it.

    See Also
    --------
    sparse_secagg.IdealSecAgg, sparse_secagg.MaskedSecAgg : ``on_invalid`` decides what they do.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> from sparse_secagg.secagg import InvalidMessageError
    >>> try:
    ...     IdealSecAgg(modulus=16).aggregate(np.array([[1, 2], [3, 99]]))
    ... except InvalidMessageError as error:
    ...     print(error.client)
    1
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
    """A round id, a seed, a saved state or a one-time object was about to be used twice.

    See Also
    --------
    sparse_secagg.ClientSession : Continues each saved state once.

    Examples
    --------
    >>> from sparse_secagg import RefusedRoundError
    >>> from sparse_secagg.secagg import ReuseError
    >>> issubclass(ReuseError, RefusedRoundError)
    True
    """


class ServerFaultError(RefusedRoundError):
    """The server sent a client something that an honest one does not send: the round ends.

    See Also
    --------
    sparse_secagg.ClientSession : Raises it.

    Examples
    --------
    >>> from sparse_secagg import RefusedRoundError
    >>> from sparse_secagg.secagg import ServerFaultError
    >>> issubclass(ServerFaultError, RefusedRoundError)
    True
    """
