"""How many neighbours, and how many shares: the sizes at which a lying server finds no way.

Let a neighbourhood have h members, its client included, c of them corrupt, and let t be the share
threshold. One list of survivors can be confirmed, and one of a client's two secrets revealed, where

    2t > h + c        on the complete graph, h = n,
    3t > 2(h + c) + 3 on the circle, for every honest client's neighbourhood

(docs/secagg.md has the argument); and a round ends well where at most h − t members of every
neighbourhood drop out. Corrupt clients and drop-outs do not choose where they sit, so c and the
drop-outs of a neighbourhood are hypergeometric. A server that tries 2^g sets of keys for a graph it
likes multiplies the probability of failure by at most 2^g (Bell et al., 2020, for the bounds).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparse_secagg.exceptions import InfeasibleError
from sparse_secagg.secagg.shamir import MAX_SHARES

#: log2 of the graphs that a server is granted to try, at about a hash each, within one round.
GRINDING_BITS = 40
#: log2 of the acceptable probability that the graph leaves some honest client unprotected.
LOG2_FAILURE = -40.0
#: Largest regular graph that is looked for.
MAX_NEIGHBORS = 8192
#: Even numbers of neighbours below the one found that are tried as well.
_LUCK = 16


def has_quorums(members: int, share_threshold: int, n_clients: int, corrupt: int = 0) -> bool:
    """Return whether ``share_threshold`` withstands ``corrupt`` members of a neighbourhood."""
    if members == n_clients:
        return 2 * share_threshold > members + corrupt
    return 3 * share_threshold > 2 * (members + corrupt) + 3


def n_of_fraction(fraction: float, n_clients: int) -> int:
    """Return how many clients a fraction of them is, rounded up."""
    return math.ceil(fraction * n_clients - 1e-9)


def least_quorum(members: int, n_clients: int, corrupt: int = 0) -> int:
    """Return the smallest share threshold that withstands ``corrupt`` members, at most them all."""
    if members == n_clients:
        return min(members, (members + corrupt) // 2 + 1)
    return min(members, (2 * (members + corrupt) + 3) // 3 + 1)


@dataclass(frozen=True)
class GraphParameters:
    """A graph and its share threshold, with what can go wrong.

    Attributes
    ----------
    n_clients : int
        n.
    neighbors : int or None
        k; None: the complete graph.
    share_threshold : int
        t.
    corrupt, dropout : float
        The fractions of all clients that are provided for.
    log2_failure : float
        log2 of the probability that some honest client's neighbourhood has too many corrupt
        members, after the server has tried its graphs. −∞ on the complete graph.
    log2_abort : float
        log2 of the probability that drop-outs leave too few in some neighbourhood.
    """

    n_clients: int
    neighbors: int | None
    share_threshold: int
    corrupt: float
    dropout: float
    log2_failure: float
    log2_abort: float

    @property
    def n_members(self) -> int:
        """The size of a neighbourhood."""
        return self.n_clients if self.neighbors is None else self.neighbors + 1

    def explain(self) -> str:
        """Return a sentence about it."""
        who = "everybody" if self.neighbors is None else f"{self.neighbors} others"
        chance = "no" if math.isinf(self.log2_failure) else f"2^{self.log2_failure:.0f}"
        return (
            f"Against a server that lies each client shares its secrets with {who}, any "
            f"{self.share_threshold} of {self.n_members} shares give them; with "
            f"{self.corrupt:.0%} corrupt there is {chance} probability that somebody is not "
            "protected."
        )


def graph_parameters(
    n_clients: int,
    corrupt: float = 0.05,
    dropout: float = 0.05,
    *,
    log2_failure: float = LOG2_FAILURE,
    log2_abort: float = -20.0,
    grinding_bits: float = GRINDING_BITS,
) -> GraphParameters:
    """Return the smallest graph that withstands corrupt clients and drop-outs.

    Parameters
    ----------
    n_clients : int
        Size of the cohort.
    corrupt, dropout : float
        Fractions of it that may collude with a lying server, and that may drop out at random.
    log2_failure, log2_abort : float
        log2 of the acceptable probabilities: of a neighbourhood with too many corrupt members, and
        of a round that ends without a result.
    grinding_bits : float
        log2 of the graphs that the server may try.

    Examples
    --------
    >>> from sparse_secagg.secagg.quorums import graph_parameters
    >>> graph_parameters(100).neighbors
    28
    >>> p = graph_parameters(10_000)
    >>> p.neighbors < 400, p.log2_failure <= -40
    (True, True)
    """
    for name, value in (("corrupt", corrupt), ("dropout", dropout)):
        if not (0 <= value < 1):
            raise ValueError(f"{name}={value} must be a fraction from 0 to below 1.")
    if n_clients < 2:
        raise ValueError(f"n_clients={n_clients} must be at least 2.")

    def sufficient(k: int) -> GraphParameters | None:
        found = _regular(n_clients, k, corrupt, dropout, log2_failure, grinding_bits)
        return found if found is not None and found.log2_abort <= log2_abort else None

    low, high = 2, min(n_clients - 2, MAX_NEIGHBORS)
    found = None
    while low <= high:
        k = max(2, (low + high) // 4 * 2)
        if (candidate := sufficient(k)) is not None:
            found, high = candidate, k - 2
        else:
            low = k + 2
    # a little below the first k from which on all suffice, some do by the luck of whole numbers
    if found is not None:
        start = found.n_members - 1
        smaller = map(sufficient, range(max(2, start - 2 * _LUCK), start, 2))
        found = next(filter(None, smaller), found)
    if found is None and n_clients > MAX_SHARES:
        raise InfeasibleError(
            f"corrupt={corrupt} and dropout={dropout} leave no regular graph of {n_clients} "
            f"clients with at most {MAX_NEIGHBORS} neighbours; provide for fewer of either.",
            "corrupt",
            0.0,
        )
    return found or complete_parameters(n_clients, corrupt, dropout)


def regular_failure(
    n_clients: int,
    neighbors: int,
    share_threshold: int,
    corrupt: float,
    grinding_bits: float = GRINDING_BITS,
) -> float:
    """Return log2 of the probability that the circle fails some honest client."""
    h, bad = neighbors + 1, n_of_fraction(corrupt, n_clients)
    # corrupt members that are withstood: the most c with 3t > 2(h + c) + 3
    most = (3 * share_threshold - 2 * h - 4) // 2
    if most < 0:
        return 0.0
    tail = log2_tail(n_clients - 1, bad, neighbors, most)
    return min(0.0, grinding_bits + math.log2(n_clients) + tail)


def _regular(
    n: int, k: int, corrupt: float, dropout: float, log2_failure: float, grinding_bits: float
) -> GraphParameters | None:
    """Return the circle with the smallest share threshold that is safe: it aborts least."""
    h, gone = k + 1, n_of_fraction(dropout, n)
    for t in range(2 * h // 3 + 1, min(h, MAX_SHARES) + 1):
        failure = regular_failure(n, k, t, corrupt, grinding_bits)
        if failure <= log2_failure:
            abort = min(0.0, math.log2(n) + log2_tail(n, gone, h, h - t))
            return GraphParameters(n, k, t, corrupt, dropout, failure, abort)
    return None


def complete_parameters(n: int, corrupt: float, dropout: float) -> GraphParameters:
    """Return the complete graph, on which nothing is left to chance."""
    bad, gone = n_of_fraction(corrupt, n), n_of_fraction(dropout, n)
    t = max(math.ceil(2 * n / 3), (n + bad) // 2 + 1)
    if t > n - gone:
        t = (n + bad) // 2 + 1
    abort = 0.0 if t > n - gone else -math.inf
    return GraphParameters(n, None, min(t, n), corrupt, dropout, -math.inf, abort)


def log2_tail(population: int, marked: int, draws: int, most: int) -> float:
    """Return log2 P[more than ``most`` of ``draws`` are marked], drawn without replacement.

    Rounded up: the largest term times a geometric bound of the series above it.
    """
    first, last = most + 1, min(marked, draws)
    if first > last:
        return -math.inf
    if first <= draws - (population - marked):
        return 0.0
    log_term = (
        _log_binomial(marked, first)
        + _log_binomial(population - marked, draws - first)
        - _log_binomial(population, draws)
    )
    ratio = (marked - first) * (draws - first) / (
        (first + 1) * (population - marked - draws + first + 1)
    )  # fmt: skip
    if ratio >= 1:
        return 0.0
    return min(0.0, (log_term - math.log1p(-ratio)) / math.log(2))


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
