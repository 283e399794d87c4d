"""What a round of secure aggregation returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class AggregationResult:
    """The sum, who is in it, and what it cost.

    Parameters
    ----------
    total : ndarray of uint64, shape (m,)
        Sum of the survivors' messages modulo M.
    survivors : ndarray of int, ascending
        Rows of the messages that are in the sum.
    payload_up, protocol_up, payload_down, protocol_down : ndarray of int, shape (n,)
        Bytes that each client sent and received: packed vectors, and everything else.
    cohort : ndarray, shape (n,)
        The clients' names, in the order of the rows; by default the rows themselves.
    excluded : dict
        Clients (rows) that were left out for an invalid message, and why.
    complaints : tuple of (dealer, recipient)
        Shares that did not open at their recipient, or that it revealed otherwise than the dealer
        announced. One of the two is at fault; both stay in the sum.
    not_private : bool
        True if the keys were simulated: whoever saw the messages could unmask them.

    See Also
    --------
    Aggregation.finish : Returns it.
    survivor_weight : What to divide a weighted sum by.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> messages = np.array([[1, 2], [3, 4], [5, 6]])
    >>> result = IdealSecAgg(modulus=16).aggregate(messages, dropouts=[1])
    >>> result.total.tolist(), result.survivors.tolist()
    ([6, 8], [0, 2])
    >>> result.noise_shares(colluders=[0])
    1
    """

    total: NDArray[np.uint64] = field(repr=False)
    survivors: NDArray[np.int64]
    payload_up: NDArray[np.int64] = field(repr=False)
    protocol_up: NDArray[np.int64] = field(repr=False)
    payload_down: NDArray[np.int64] = field(repr=False)
    protocol_down: NDArray[np.int64] = field(repr=False)
    cohort: NDArray[Any] = field(repr=False)
    excluded: dict[int, str] = field(default_factory=dict)
    complaints: tuple[tuple[int, int], ...] = ()
    not_private: bool = False

    @property
    def bytes_up(self) -> NDArray[np.int64]:
        """Bytes each client sent, payload and protocol together."""
        return self.payload_up + self.protocol_up

    @property
    def bytes_down(self) -> NDArray[np.int64]:
        """Bytes each client received, payload and protocol together."""
        return self.payload_down + self.protocol_down

    @property
    def n_survivors(self) -> int:
        """How many messages are in the sum."""
        return len(self.survivors)

    @property
    def surviving_cohort(self) -> NDArray[Any]:
        """The names of the survivors."""
        return self.cohort[self.survivors]

    def noise_shares(self, colluders: Iterable[int] = ()) -> int:
        """Return how many shares of noise protect the sum: survivors that do not collude.

        Parameters
        ----------
        colluders : iterable of int
            Rows of the clients that may tell the server their own noise.
        """
        colluders = np.asarray(list(colluders), dtype=np.int64)
        return int(np.setdiff1d(self.survivors, colluders).size)
