"""Who leaves when: given client by client, or drawn with a rate."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparse_secagg.secagg.setup import STAGES


@dataclass(frozen=True)
class Dropouts:
    """Clients (rows of the cohort) that leave before sending the message of each stage.

    Whoever leaves before "mask" is not in the sum; whoever leaves before "confirm" (a stage of
    rounds whose server may lie) or "unmask" is, but cannot help to unmask it.

    Parameters
    ----------
    advertise, share, mask, unmask, confirm : tuple of int
        Rows of the clients that leave before each stage.

    See Also
    --------
    sparse_secagg.MaskedSecAgg.aggregate : Takes one as ``dropouts``.

    Examples
    --------
    >>> import numpy as np
    >>> from sparse_secagg.secagg import Dropouts
    >>> sorted(Dropouts(mask=(3, 5)).before("mask"))
    [3, 5]
    >>> drawn = Dropouts.draw(0.1, n_clients=1000, rng=np.random.default_rng(0))
    >>> 0 < len(drawn.before("unmask")) < 100
    True
    """

    advertise: tuple[int, ...] = ()
    share: tuple[int, ...] = ()
    mask: tuple[int, ...] = ()
    unmask: tuple[int, ...] = ()
    confirm: tuple[int, ...] = ()

    @classmethod
    def draw(cls, rate: float, n_clients: int, rng: np.random.Generator) -> Dropouts:
        """Let each client leave with probability ``rate``, before a stage drawn at random."""
        if not 0 <= rate <= 1:
            raise ValueError(f"dropouts={rate} must be a probability, from 0 to 1.")
        leaves = rng.random(n_clients) < rate
        stage = rng.integers(0, 4, n_clients)  # "advertise" to "unmask", which every round has
        rows = [tuple(np.flatnonzero(leaves & (stage == s)).tolist()) for s in range(4)]
        return cls(*rows)

    def before(self, stage: str) -> frozenset[int]:
        """Return the clients that leave before the message of ``stage``."""
        return frozenset(getattr(self, stage))


def resolve_dropouts(dropouts: Any, n_clients: int, rng: np.random.Generator) -> Dropouts:
    """Return the :class:`Dropouts` that an argument stands for.

    None: nobody. A float: a rate. A mapping from stage to clients, or a ``Dropouts``. A sequence of
    clients, or a boolean array (n,): they leave after sharing their keys, before the masked vector.
    """
    if dropouts is None:
        return Dropouts()
    if isinstance(dropouts, numbers.Real) and not isinstance(dropouts, numbers.Integral):
        return Dropouts.draw(float(dropouts), n_clients, rng)
    if isinstance(dropouts, Dropouts):
        given = {stage: getattr(dropouts, stage) for stage in STAGES}
    elif isinstance(dropouts, Mapping):
        given = dict(dropouts)
    elif isinstance(dropouts, numbers.Integral | str | bytes):
        raise ValueError(
            f"dropouts={dropouts!r} must be a rate such as 0.1, a list of clients, or a mapping "
            f"from the stages {STAGES} to lists of clients."
        )
    else:
        given = {"mask": dropouts}
    unknown = set(given) - set(STAGES)
    if unknown:
        raise ValueError(
            f"dropouts has the stages {sorted(map(str, unknown))}; there are {STAGES}."
        )
    return Dropouts(**{stage: _rows(stage, rows, n_clients) for stage, rows in given.items()})


def _rows(stage: str, rows: Any, n_clients: int) -> tuple[int, ...]:
    rows = np.asarray(list(rows) if isinstance(rows, set | frozenset) else rows)
    if rows.dtype == bool and rows.shape == (n_clients,):
        rows = np.flatnonzero(rows)
    if rows.size == 0:
        return ()
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= n_clients:
        raise ValueError(
            f"dropouts before stage {stage!r} must be clients from 0 to {n_clients - 1}; "
            f"got {rows.tolist()}."
        )
    return tuple(sorted(set(rows.tolist())))
