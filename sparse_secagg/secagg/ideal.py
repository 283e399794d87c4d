"""The ideal functionality: a trusted party adds the messages modulo M and forgets them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sparse_secagg.public_randomness import resolve_seed
from sparse_secagg.secagg.dropouts import resolve_dropouts
from sparse_secagg.secagg.errors import BelowThresholdError
from sparse_secagg.secagg.modular import check_messages, modular_sum
from sparse_secagg.secagg.result import AggregationResult
from sparse_secagg.secagg.setup import resolve_threshold
from sparse_secagg.secagg.wire import bit_width, check_modulus, packed_size


class IdealSecAgg(BaseEstimator):
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

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg import IdealSecAgg
    >>> IdealSecAgg(modulus=5).aggregate(np.array([[4, 1], [3, 1]])).total.tolist()
    [2, 2]
    """

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
        n, length = rows.shape
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
        nothing = np.zeros(n, dtype=np.int64)
        return AggregationResult(
            total=modular_sum(rows, modulus, included),
            survivors=np.flatnonzero(included),
            payload_up=np.where(included, packed_size(length, bit_width(modulus)), 0),
            protocol_up=nothing,
            payload_down=nothing,
            protocol_down=nothing,
            cohort=check_cohort(cohort, n),
            excluded=faults,
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
