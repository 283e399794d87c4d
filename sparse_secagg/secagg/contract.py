"""What a round asks of secure aggregation: begin, add the messages, finish.

``begin`` fixes the cohort and what its messages mean; ``add`` takes the messages of the next
clients, in order; ``finish`` opens the sum, or raises and reveals nothing. How many clients are
certain to be in the sum is known from the beginning, so that privacy can be charged before any
message is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparse_secagg.parameterised import Parameterised
from sparse_secagg.secagg.result import AggregationResult

__all__ = ["Aggregation", "SecureAggregation"]


class Aggregation(ABC):
    """One sum in the making.

    Attributes
    ----------
    n_certain : int
        Clients that are in the sum for certain, if there is one.
    n_possible : int or None
        Clients that can be in it at most, where that is known beforehand.
    included : ndarray of bool or None
        Clients whose messages count, where sums of blocks of them (:meth:`add_sum`) will do in
        their place. None where the protocol needs every message.

    See Also
    --------
    SecureAggregation.begin : Makes one.
    AggregationResult : What it ends in.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> under_way = IdealSecAgg().begin(n_clients=3, length=2, modulus=16)
    >>> under_way.add(np.array([[1, 2], [3, 4]]))
    >>> under_way.add(np.array([[5, 15]]))
    >>> under_way.finish().total.tolist()
    [9, 5]
    """

    n_certain: int
    n_possible: int | None = None
    included: NDArray[np.bool_] | None = None

    @abstractmethod
    def add(self, messages: Any) -> None:
        """Take the messages of the next clients, an array of shape (k, length)."""

    def add_sum(self, total: NDArray[np.uint64], n_clients: int) -> None:
        """Take the sum mod M of the included messages among the next ``n_clients`` clients."""
        raise NotImplementedError(f"{type(self).__name__} needs the messages themselves")

    @abstractmethod
    def finish(self) -> AggregationResult:
        """Open the sum; raise :class:`BelowThresholdError` if too few clients are left."""


class SecureAggregation(Parameterised):
    """A way to add messages modulo M that shows the sum only. Subclasses say how.

    Attributes
    ----------
    name : str
        Under which rounds and plans know it.

    See Also
    --------
    sparse_secagg.IdealSecAgg, sparse_secagg.MaskedSecAgg : Those that are built in.
    make_secagg : One of them by its name.

    Examples
    --------
    >>> from sparse_secagg import MaskedSecAgg
    >>> from sparse_secagg.secagg import SecureAggregation
    >>> masked = MaskedSecAgg()
    >>> isinstance(masked, SecureAggregation), masked.name
    (True, 'masked')
    >>> masked.protocol_bytes(1000) > masked.protocol_bytes(100)
    True
    """

    name: ClassVar[str]

    def begin(
        self,
        n_clients: int,
        length: int,
        *,
        modulus: int,
        dropouts: Any = None,
        context: bytes = b"",
    ) -> Aggregation:
        """Begin the sum of ``n_clients`` messages of ``length`` integers in [0, M).

        Parameters
        ----------
        n_clients, length : int
            Clients in the cohort and coordinates of a message.
        modulus : int
            M.
        dropouts : optional
            Clients that leave: a list, a rate, or a mapping from stages to lists.
        context : bytes
            What the messages mean. Sums of different meaning never come out.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement begin")

    def guaranteed_survivors(self, n_clients: int) -> int | None:
        """Return the clients without whom there is no sum; None where any number will do."""
        return None

    def protocol_bytes(self, n_clients: int) -> int:
        """Return the bytes that a client sends in a round nobody leaves, beside its payload."""
        return 0
