"""Which columns the items of clients have: a public domain, as :class:`PrivateCounts` has them.

Which items *occur* is data: a column that exists because one person holds its item gives that item
away as soon as noise lifts it, however much noise there is.
"""

from __future__ import annotations

from experiments.datasets.base import ClientSets
from sparse_secagg.counting.domains import OPEN, Domain, HashedItems, ListedItems, make_domain

__all__ = ["Domain", "HashedItems", "ListedItems", "choose_domain"]

#: Cells where neither a domain is given nor a public list comes with the data.
DEFAULT_CELLS = 2**17


def choose_domain(domain: str | int | None, data: ClientSets) -> Domain:
    """Return the domain that an option stands for.

    Parameters
    ----------
    domain : str, int or None
        A file of items, one per line; a number of hash cells, as 131072 or "2**17"; None for the
        public list that comes with the data, or 2**17 cells where none does.
    data : ClientSets
        Asked for its public list.
    """
    if domain == OPEN:
        raise ValueError("domain='open' takes two rounds: use sparse-secagg count.")
    if domain is None and data.public_list is not None:
        return ListedItems(data.public_list.read(), data.public_list.source)
    return make_domain(DEFAULT_CELLS if domain is None else domain)
