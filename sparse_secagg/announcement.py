"""From a RoundSpec and a roster to the document of a round between parties.

The graph and its thresholds follow from the fractions of corrupt clients and of drop-outs that are
provided for (:mod:`~sparse_secagg.secagg.quorums`); noise is sized for the survivors that the
protocol guarantees, less the corrupt ones.
"""

from __future__ import annotations

from typing import Any

from sparse_secagg.round.spec import RoundSpec
from sparse_secagg.secagg.identities import Roster
from sparse_secagg.secagg.quorums import complete_parameters, graph_parameters, n_of_fraction
from sparse_secagg.secagg.setup import RoundDocument, Session, resolve_threshold

__all__ = ["announce_round"]

#: Up to so many clients everybody is everybody's neighbour: it costs little, and leaves nothing to
#: chance.
COMPLETE_UP_TO = 64


def announce_round(
    spec: RoundSpec,
    dim: int,
    roster: Roster,
    *,
    corrupt: float = 0.05,
    dropout: float = 0.05,
    random_state: Any = None,
    round_id: str | None = None,
) -> RoundDocument:
    """Return the document by which a server announces a round to everybody on a roster.

    Parameters
    ----------
    spec : RoundSpec
        The round. Its ``secagg`` is not used: sessions are the secure aggregation. ``colluders`` is
        raised to the corrupt clients provided for; ``min_survivors`` is two thirds where it is
        None.
    dim : int
        Length of the clients' vectors.
    roster : Roster
        Who takes part.
    corrupt, dropout : float
        Fractions of the clients that may collude with the server, and that may drop out. A client's
        agent assumes a fraction of its own and refuses a round that provides for fewer.
    random_state : int, RandomState, Generator or None
        Public randomness: sketch and rotation.
    round_id : str, optional
        A fresh one by default.

    Returns
    -------
    RoundDocument
        What the server sends to everybody: configuration, graph and thresholds.

    See Also
    --------
    ServerSession, ClientSession : Run the round.

    Examples
    --------
    >>> from sparse_secagg import Identity, Roster, RoundSpec, announce_round
    >>> roster = Roster("demo")
    >>> for i in range(20):
    ...     roster = roster.add(f"client {i}", Identity.new().public)
    >>> document = announce_round(RoundSpec(epsilon=1.0, encoder="identity"), 100, roster)
    >>> document.threshold, document.share_threshold, document.security
    (14, 14, 'malicious')
    """
    n = len(roster)
    choose = complete_parameters if n <= COMPLETE_UP_TO else graph_parameters
    graph = choose(n, corrupt, dropout)
    threshold = resolve_threshold(spec.min_survivors, n)
    colluders = max(spec.colluders, n_of_fraction(corrupt, n))
    sized = spec.replace(secagg="ideal", min_survivors=threshold, colluders=colluders)
    config = sized.config(dim, n, random_state=random_state, round_id=round_id)
    return RoundDocument(
        round_id=Session().new_round(),
        n_clients=n,
        length=config.mechanism.padded_dim,
        modulus=config.mechanism.modulus,
        threshold=threshold,
        share_threshold=graph.share_threshold,
        neighbors=graph.neighbors,
        roster=roster.digest,
        context=config.to_json().encode(),
    )
