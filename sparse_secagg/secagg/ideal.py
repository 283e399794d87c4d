"""The ideal functionality: a trusted party adds the messages modulo M and forgets them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.secagg.contract import Aggregation, SecureAggregation
from sparse_secagg.secagg.dropouts import resolve_dropouts
from sparse_secagg.secagg.errors import BelowThresholdError
from sparse_secagg.secagg.modular import check_messages, modular_sum
from sparse_secagg.secagg.result import AggregationResult
from sparse_secagg.secagg.setup import resolve_threshold
from sparse_secagg.secagg.wire import bit_width, check_modulus, packed_size


class IdealSecAgg(SecureAggregation):
    """Σ messages mod M, exactly, with no cryptography: for sweeps, and the oracle in tests.

    Parameters
    ----------
    modulus : int
        M, from 2 to 2^63.
    threshold : int, float or None
        Clients that must stay to the end: a count, or a fraction of the cohort. None: 1.
    on_invalid : {"raise", "exclude"}
        What to do with a message of the wrong length or with values outside [0, M).
    random_state : None, int, RandomState or Generator
        For dropouts given as a rate.

    See Also
    --------
    MaskedSecAgg : The protocol itself.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> IdealSecAgg(modulus=5).aggregate(np.array([[4, 1], [3, 1]])).total.tolist()
    [2, 2]
    """

    name: ClassVar[str] = "ideal"

    def __init__(
        self,
        modulus: int | None = None,
        threshold: float | None = None,
        on_invalid: str = "raise",
        random_state: Any = None,
    ) -> None:
        self.modulus = modulus
        self.threshold = threshold
        self.on_invalid = on_invalid
        self.random_state = random_state

    def aggregate(
        self,
        messages: Any,
        dropouts: Any = None,
        *,
        cohort: ArrayLike | None = None,
        context: bytes = b"",
    ) -> AggregationResult:
        """Return the sum of the messages of the clients that did not drop out.

        Parameters
        ----------
        messages : array of int, shape (n, m), or n arrays of length m
            One row a client, values in [0, M).
        dropouts : None, float, sequence, mapping or Dropouts
            As in :meth:`MaskedSecAgg.aggregate`.
        cohort : array-like of shape (n,), optional
            Names of the clients.
        context : bytes
            As in :meth:`MaskedSecAgg.aggregate`. Here there are no keys that it could be part of.
        """
        modulus = check_modulus(self.modulus)
        rows, faults = check_messages(messages, modulus, self.on_invalid)
        sum_ = self._begin(len(rows), rows.shape[1], modulus, dropouts, faults)
        sum_.names = check_cohort(cohort, len(rows))
        sum_.add(rows)
        return sum_.finish()

    def begin(
        self,
        n_clients: int,
        length: int,
        *,
        modulus: int,
        dropouts: Any = None,
        context: bytes = b"",
    ) -> IdealAggregation:
        return self._begin(n_clients, length, check_modulus(modulus), dropouts, {})

    def guaranteed_survivors(self, n_clients: int) -> int | None:
        if self.threshold is None:
            return None
        return resolve_threshold(self.threshold, n_clients)

    def _begin(
        self, n: int, length: int, modulus: int, dropouts: Any, faults: dict[int, str]
    ) -> IdealAggregation:
        """Decide who stays; raise if these are too few."""
        threshold = 1 if self.threshold is None else resolve_threshold(self.threshold, n)
        rng = np.random.default_rng(resolve_seed(self.random_state))
        leaves = resolve_dropouts(dropouts, n, rng)
        included = np.ones(n, dtype=bool)
        included[[*leaves.advertise, *leaves.share, *leaves.mask, *faults]] = False
        to_the_end = included.copy()
        to_the_end[[*leaves.unmask, *leaves.confirm]] = False
        if to_the_end.sum() < threshold:
            raise BelowThresholdError(
                f"{to_the_end.sum()} clients stayed to the end, fewer than the threshold of "
                f"{threshold}: the round ends and reveals nothing."
            )
        return IdealAggregation(included, length, modulus, faults)


class IdealAggregation(Aggregation):
    """A running sum: each message is added as it comes, and forgotten."""

    def __init__(
        self, included: NDArray[np.bool_], length: int, modulus: int, faults: dict[int, str]
    ) -> None:
        self.included: NDArray[np.bool_] = included
        self._modulus, self._faults = modulus, faults
        self._total = np.zeros(length, dtype=np.uint64)
        self._added = 0
        self.n_certain = self.n_possible = int(included.sum())
        self.names: NDArray[Any] = np.arange(len(included))

    def add(self, messages: Any) -> None:
        here = slice(self._added, self._added + len(messages))
        if here.stop > len(self.included) or messages.shape[1] != len(self._total):
            raise ValueError(
                f"messages has shape {messages.shape}, where {len(self.included) - self._added} "
                f"messages of {len(self._total)} integers are left to come."
            )
        self.add_sum(modular_sum(messages, self._modulus, self.included[here]), len(messages))

    def add_sum(self, total: NDArray[np.uint64], n_clients: int) -> None:
        self._total = (self._total + total) % np.uint64(self._modulus)
        self._added += n_clients

    def finish(self) -> AggregationResult:
        n = len(self.included)
        if self._added != n:
            raise ValueError(f"{self._added} messages were added for a cohort of {n} clients.")
        nothing = np.zeros(n, dtype=np.int64)
        size = packed_size(len(self._total), bit_width(self._modulus))
        return AggregationResult(
            total=self._total,
            survivors=np.flatnonzero(self.included),
            payload_up=np.where(self.included, size, 0),
            protocol_up=nothing,
            payload_down=nothing,
            protocol_down=nothing,
            cohort=self.names,
            excluded=self._faults,
        )


def check_cohort(cohort: ArrayLike | None, n: int) -> Any:
    """Return the clients' names, distinct, one a row; the rows themselves for None."""
    if cohort is None:
        return np.arange(n)
    names = np.asarray(cohort)
    if names.shape != (n,) or len(np.unique(names)) != n:
        raise ValueError(
            f"cohort must name each of the {n} clients once; it has shape {names.shape} and "
            f"{len(np.unique(names))} different names."
        )
    return names
